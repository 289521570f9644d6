//! Which runs a sweep is made of: every value of every variable with every value of the others.
//!
//! A value reaches the program where its arguments have `{name}`, and as an environment variable
//! of that name, as written and in capitals.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::Error;
use crate::analyze::growth::{Setting, Variable};

/// Names that a program or its loader needs for something else.
const TAKEN: [&str; 8] = [
    "PATH", "HOME", "USER", "SHELL", "LANG", "TERM", "PWD", "TMPDIR",
];

/// `n=1,10,100`.
pub fn variable(text: &str) -> Result<Variable, String> {
    let (name, values) = text
        .split_once('=')
        .ok_or("expected NAME=VALUE,VALUE,…, such as n=1,10,100")?;
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("{name:?} is no name: letters, digits and _"));
    }
    if TAKEN.contains(&name) || name.starts_with("LD_") {
        return Err(format!(
            "{name} means something else to programs: take another name"
        ));
    }
    let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        return Err(format!("{name} has an empty value"));
    }
    let mut known = values.clone();
    known.sort();
    known.dedup();
    if known.len() != values.len() {
        return Err(format!(
            "{name} has the same value twice: --repeat runs every value several times"
        ));
    }
    let name = name.to_owned();
    Ok(Variable { name, values })
}

/// One run: what the variables are, and how it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub settings: Vec<Setting>,
    /// `n=4,mode=shared`, then `.run2` where values are repeated; fit for a file's name.
    pub name: String,
}

/// In the order of the values, the last variable first; repeats of a value follow each other.
pub fn cells(variables: &[Variable], repeat: u32) -> Result<Vec<Cell>, Error> {
    let mut all: Vec<Vec<Setting>> = vec![Vec::new()];
    for variable in variables {
        let with = |settings: &Vec<Setting>| -> Vec<Vec<Setting>> {
            let values = variable.values.iter();
            let set =
                |value: &String| [settings.clone(), vec![setting(&variable.name, value)]].concat();
            values.map(set).collect()
        };
        all = all.iter().flat_map(with).collect();
    }
    let mut cells: Vec<Cell> = Vec::new();
    for settings in all {
        for run in 1..=repeat {
            let ending = if run == 1 {
                String::new()
            } else {
                format!(".run{run}")
            };
            let name = format!("{}{ending}", file_name(&settings));
            if cells.iter().any(|cell| cell.name == name) {
                return Err(Error::Refused {
                    what: format!("two runs would both be called {name}"),
                    hint: "give values that differ in letters, digits, `.`, `+` or `-`".to_owned(),
                });
            }
            let settings = settings.clone();
            cells.push(Cell { settings, name });
        }
    }
    Ok(cells)
}

fn setting(name: &str, value: &str) -> Setting {
    let number = value.parse::<f64>().ok().filter(|n| n.is_finite());
    Setting {
        name: name.to_owned(),
        value: value.to_owned(),
        number,
    }
}

fn file_name(settings: &[Setting]) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "+-.".contains(c) => c,
        _ => '_',
    };
    let part = |s: &Setting| {
        format!(
            "{}={}",
            s.name,
            s.value.chars().map(plain).collect::<String>()
        )
    };
    settings.iter().map(part).collect::<Vec<_>>().join(",")
}

/// `n=4, mode=shared`, for people.
pub fn shown(settings: &[Setting]) -> String {
    let part = |s: &Setting| format!("{}={}", s.name, s.value);
    settings.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// With the values in the places of their names.
pub fn filled(text: &OsStr, settings: &[Setting]) -> OsString {
    let mut bytes = text.as_bytes().to_vec();
    for setting in settings {
        let place = format!("{{{}}}", setting.name).into_bytes();
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while let Some(at) = rest.windows(place.len()).position(|part| part == place) {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(setting.value.as_bytes());
            rest = &rest[at + place.len()..];
        }
        out.extend_from_slice(rest);
        bytes = out;
    }
    OsString::from_vec(bytes)
}

/// What the environment gets: each name as written, and in capitals where that is free.
pub fn environment(settings: &[Setting]) -> Vec<(String, OsString)> {
    let mut variables = Vec::new();
    for setting in settings {
        let capitals = setting.name.to_ascii_uppercase();
        if !TAKEN.contains(&capitals.as_str()) && !capitals.starts_with("LD_") {
            variables.push((capitals, OsString::from(&setting.value)));
        }
        variables.push((setting.name.clone(), OsString::from(&setting.value)));
    }
    variables
}

/// Variables that no argument has a place for.
pub fn without_place<'a>(
    variables: &'a [Variable],
    texts: &[OsString],
) -> impl Iterator<Item = &'a str> {
    let texts: Vec<String> = texts
        .iter()
        .map(|t| t.to_string_lossy().into_owned())
        .collect();
    variables
        .iter()
        .map(|variable| variable.name.as_str())
        .filter(move |name| {
            let place = format!("{{{name}}}");
            !texts.iter().any(|text| text.contains(&place))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_meets_every_other() {
        let variables = [variable("n=1,10").unwrap(), variable("mode=a/b,c").unwrap()];
        let cells = cells(&variables, 2).unwrap();
        let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(
            &names[..3],
            ["n=1,mode=a_b", "n=1,mode=a_b.run2", "n=1,mode=c"]
        );
        assert_eq!(cells[0].settings[0].number, Some(1.0));
        assert_eq!(cells[0].settings[1].number, None);
    }

    #[test]
    fn values_go_to_their_places() {
        let cells = cells(&[variable("n=7").unwrap(), variable("m=8").unwrap()], 1).unwrap();
        let settings = &cells[0].settings;
        assert_eq!(filled(OsStr::new("--n={n}/{m}/{n}"), settings), "--n=7/8/7");
        assert_eq!(filled(OsStr::new("{other}"), settings), "{other}");
        let names: Vec<String> = environment(settings).into_iter().map(|v| v.0).collect();
        assert_eq!(names, ["N", "n", "M", "m"]);
        let path = [setting("path", "x")];
        assert_eq!(environment(&path).len(), 1, "PATH stays");
    }

    #[test]
    fn what_is_no_variable_is_told() {
        for wrong in [
            "n", "n=", "n=1,,2", "n=1,1", "1n=3", "PATH=3", "a b=1", "=1",
        ] {
            assert!(variable(wrong).is_err(), "{wrong}");
        }
        let clash = [variable("n=a/b,a_b").unwrap()];
        assert!(cells(&clash, 1).is_err());
    }
}
