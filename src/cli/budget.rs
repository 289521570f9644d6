//! Reads a budget: a TOML file of limits.
//!
//! A misspelt key that is skipped is a limit that nobody holds, so an unknown key is an error,
//! and names the key that was probably meant.

use std::fmt;

use crate::analyze::{Limit, budget};
use crate::render::units::parse_bytes;

/// What is wrong with the text of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetError {
    pub what: String,
    pub hint: String,
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for BudgetError {}

type Parsed<T> = Result<T, BudgetError>;

/// The limits, in the order of the file's tables.
pub fn parse(text: &str) -> Parsed<Vec<Limit>> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| BudgetError {
        what: error.to_string().trim_end().to_owned(),
        hint: "a budget is TOML: [program] and [task.\"NAME\"] with limits".to_owned(),
    })?;
    let mut limits = Vec::new();
    for (name, value) in &table {
        match name.as_str() {
            "program" => limits.extend(section("program", None, value)?),
            "task" => {
                for (pattern, value) in sub_tables(name, value)? {
                    limits.extend(section("task", Some(pattern), value)?);
                }
            }
            _ => return Err(unknown("table", name, ["program", "task"].into_iter())),
        }
    }
    Ok(limits)
}

fn sub_tables<'t>(name: &str, value: &'t toml::Value) -> Parsed<&'t toml::Table> {
    value.as_table().ok_or_else(|| BudgetError {
        what: format!("{name} has to be tables, one for each type"),
        hint: format!("write [{name}.\"server::handle_*\"]"),
    })
}

fn section(table: &str, task: Option<&String>, value: &toml::Value) -> Parsed<Vec<Limit>> {
    let here = match task {
        Some(pattern) => format!("[{table}.{pattern:?}]"),
        None => format!("[{table}]"),
    };
    let entries = value.as_table().ok_or_else(|| BudgetError {
        what: format!("{here} has to be a table of limits"),
        hint: "write one limit a line, such as peak = \"64 MB\"".to_owned(),
    })?;
    let known = || budget::KEYS.iter().filter(|(of, ..)| *of == table);
    let mut limits = Vec::new();
    for (key, value) in entries {
        let Some((.., measure)) = known().find(|(_, name, _)| name == key) else {
            return Err(unknown(
                &format!("key in {here}"),
                key,
                known().map(|(_, name, _)| *name),
            ));
        };
        limits.push(Limit {
            task: task.cloned(),
            measure: *measure,
            at_most: number(&here, key, value, measure.is_bytes())?,
        });
    }
    Ok(limits)
}

fn number(here: &str, key: &str, value: &toml::Value, is_bytes: bool) -> Parsed<u64> {
    let found = match value {
        toml::Value::Integer(number) => u64::try_from(*number).ok(),
        toml::Value::String(text) if is_bytes => parse_bytes(text),
        _ => None,
    };
    found.ok_or_else(|| BudgetError {
        what: format!("{key} in {here} is {value}"),
        hint: match is_bytes {
            true => "write bytes (65536) or a size (\"64 KB\", \"1.5 MB\")".to_owned(),
            false => "write a number (1000)".to_owned(),
        },
    })
}

fn unknown<'a>(what: &str, found: &str, known: impl Iterator<Item = &'a str>) -> BudgetError {
    let mut known: Vec<&str> = known.collect();
    known.sort_by_key(|name| distance(name, found));
    let nearest = known.first().copied().unwrap_or("");
    let all = known.join(", ");
    BudgetError {
        what: format!("unknown {what}: {found}"),
        hint: match distance(nearest, found) {
            0..=3 => format!("did you mean {nearest}? There are {all}"),
            _ => format!("there are {all}"),
        },
    }
}

/// Letters to add, drop or change to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::budget::Measure;

    #[test]
    fn limits_are_read_with_their_units() {
        let limits = parse(
            "[program]\npeak = \"64 MB\"\nallocations = 1_000\n[task.\"a::b\"]\nmean = 4096\n",
        )
        .unwrap();
        let mut found: Vec<_> = limits
            .iter()
            .map(|l| (l.task.as_deref(), l.measure, l.at_most))
            .collect();
        found.sort_by_key(|(.., at_most)| *at_most);
        assert_eq!(
            found,
            [
                (None, Measure::Allocations, 1_000),
                (Some("a::b"), Measure::TaskMean, 4096),
                (None, Measure::Peak, 64 << 20),
            ]
        );
    }

    #[test]
    fn a_misspelt_key_names_the_one_that_was_meant() {
        let error = parse("[program]\npaek = 1\n").unwrap_err();
        assert!(error.hint.contains("did you mean peak?"), "{error:?}");
        let error = parse("[tasks.x]\nmean = 1\n").unwrap_err();
        assert!(error.hint.contains("did you mean task?"), "{error:?}");
        let error = parse("[task.x]\nallocations = 1\n").unwrap_err();
        assert!(error.what.contains("allocations"), "{error:?}");
    }

    #[test]
    fn what_is_no_limit_is_told() {
        for (text, expected) in [
            ("[program]\npeak = \"many\"\n", "peak"),
            ("[program]\npeak = -1\n", "peak"),
            ("[program]\nallocations = \"64 KB\"\n", "allocations"),
            ("program = 1\n", "[program]"),
            ("[task]\nmean = 1\n", "mean"),
            ("peak = \n", "TOML"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.what.contains(expected), "{text}: {error:?}");
        }
    }

    #[test]
    fn distances_are_those_of_levenshtein() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("peak", "peak"), 0);
    }
}
