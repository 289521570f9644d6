//! Reads a budget: a TOML file of limits.
//!
//! A misspelt key that is skipped is a limit that nobody holds, so an unknown key is an error,
//! and names the key that was probably meant.

use std::fmt;

use crate::analyze::Limit;
use crate::analyze::budget::{KEYS, Key, Table, Tolerance, Unit};
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

/// What a budget's file says.
#[derive(Clone, Debug)]
pub struct Budget {
    /// In the order of the file's tables.
    pub limits: Vec<Limit>,
    pub tolerance: Tolerance,
}

pub fn parse(text: &str) -> Parsed<Budget> {
    let tables: toml::Table = text.parse().map_err(|error: toml::de::Error| BudgetError {
        what: error.to_string().trim_end().to_owned(),
        hint: "a budget is TOML: [program] and [task.\"NAME\"] with limits".to_owned(),
    })?;
    let mut budget = Budget {
        limits: Vec::new(),
        tolerance: Tolerance::default(),
    };
    for (name, value) in &tables {
        if name == "baseline" {
            budget.tolerance = tolerance(value)?;
            continue;
        }
        let Some(table) = Table::ALL.into_iter().find(|table| table.name() == name) else {
            let known = Table::ALL.into_iter().map(Table::name);
            return Err(unknown("table", name, known.chain(["baseline"])));
        };
        match table.has_patterns() {
            false => budget.limits.extend(section(table, None, value)?),
            true => {
                for (pattern, value) in sub_tables(name, value)? {
                    budget.limits.extend(section(table, Some(pattern), value)?);
                }
            }
        }
    }
    Ok(budget)
}

fn sub_tables<'t>(name: &str, value: &'t toml::Value) -> Parsed<&'t toml::Table> {
    value.as_table().ok_or_else(|| BudgetError {
        what: format!("{name} has to be tables, one for each name"),
        hint: format!("write [{name}.\"server::handle_*\"]"),
    })
}

fn tolerance(value: &toml::Value) -> Parsed<Tolerance> {
    const HERE: &str = "[baseline]";
    let entries = value.as_table().ok_or_else(|| BudgetError {
        what: format!("{HERE} has to be a table"),
        hint: "write tolerance = \"10%\" and slack = \"64 KB\" in it".to_owned(),
    })?;
    let mut tolerance = Tolerance::default();
    for (key, value) in entries {
        match key.as_str() {
            "tolerance" => tolerance.permille = number(HERE, key, value, Unit::Permille)?,
            "slack" => tolerance.slack = number(HERE, key, value, Unit::Bytes)?,
            _ => {
                let known = ["tolerance", "slack"].into_iter();
                return Err(unknown("key in [baseline]", key, known));
            }
        }
    }
    Ok(tolerance)
}

fn section(table: Table, pattern: Option<&String>, value: &toml::Value) -> Parsed<Vec<Limit>> {
    let name = table.name();
    let here = match pattern {
        Some(pattern) => format!("[{name}.{pattern:?}]"),
        None => format!("[{name}]"),
    };
    let entries = value.as_table().ok_or_else(|| BudgetError {
        what: format!("{here} has to be a table of limits"),
        hint: "write one limit a line, such as peak = \"64 MB\"".to_owned(),
    })?;
    let mut limits = Vec::new();
    for (name, value) in entries {
        let Some(key) = Key::find(table, name) else {
            let known = KEYS.iter().filter(|key| key.table == table);
            return Err(unknown(
                &format!("key in {here}"),
                name,
                known.map(|key| key.name),
            ));
        };
        limits.push(Limit {
            pattern: pattern.cloned(),
            key,
            at_most: number(&here, name, value, key.unit)?,
        });
    }
    Ok(limits)
}

fn number(here: &str, key: &str, value: &toml::Value, unit: Unit) -> Parsed<u64> {
    let found = match (value, unit) {
        (toml::Value::Integer(number), Unit::Bytes | Unit::Count) => u64::try_from(*number).ok(),
        (toml::Value::String(text), Unit::Bytes) => parse_bytes(text),
        (toml::Value::String(text), Unit::Permille) => permille(text),
        _ => None,
    };
    found.ok_or_else(|| BudgetError {
        what: format!("{key} in {here} is {value}"),
        hint: match unit {
            Unit::Bytes => "write bytes (65536) or a size (\"64 KB\", \"1.5 MB\")".to_owned(),
            Unit::Count => "write a number (1000)".to_owned(),
            Unit::Permille => "write a share (\"10%\", \"2.5%\")".to_owned(),
        },
    })
}

fn permille(text: &str) -> Option<u64> {
    let number: f64 = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
    (0.0..=1e6)
        .contains(&number)
        .then_some((number * 10.0).round() as u64)
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

    #[test]
    fn limits_are_read_with_their_units() {
        let budget = parse(
            "[program]\npeak = \"64 MB\"\nallocations = 1_000\nunexplained = \"2.5%\"\n\
             [task.\"a::b\"]\nmean = 4096\n[leaks]\nbytes = 0\n\
             [baseline]\ntolerance = \"5%\"\n",
        );
        let budget = budget.unwrap();
        let mut found: Vec<_> = budget
            .limits
            .iter()
            .map(|l| (l.pattern.as_deref(), l.key.table, l.key.name, l.at_most))
            .collect();
        found.sort_by_key(|(.., at_most)| *at_most);
        assert_eq!(
            found,
            [
                (None, Table::Leaks, "bytes", 0),
                (None, Table::Program, "unexplained", 25),
                (None, Table::Program, "allocations", 1_000),
                (Some("a::b"), Table::Task, "mean", 4096),
                (None, Table::Program, "peak", 64 << 20),
            ]
        );
        assert_eq!(
            (budget.tolerance.permille, budget.tolerance.slack),
            (50, 64 << 10)
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
            ("[program]\nunexplained = 10\n", "unexplained"),
            ("[baseline]\ntolerance = \"-1%\"\n", "tolerance"),
            ("[site.x]\nmean = 1\n", "mean"),
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
