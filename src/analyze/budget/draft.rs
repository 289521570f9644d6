//! A first budget, made from a profile: what it measured, and some more.
//!
//! What is drafted is what a later run can break without anybody noticing: the whole, the largest
//! task types, what thread-locals keep, leaks and copies. A figure that this profile can't give
//! is left out, since a check of the next profile would refuse to judge it.

use super::growth::Slope;
use super::{KEYS, Key, Limit, Row, SweepFile, Table, Unit};
use crate::analyze::Report;

/// A limit, and what was measured.
#[derive(Clone, Debug)]
pub struct Draft {
    pub limit: Limit,
    pub measured: u64,
}

/// Rows of each table that get a limit.
const ROWS: usize = 8;
/// What comes on top of what was measured.
const MARGIN_PERCENT: u64 = 20;
/// Nothing, measured once, may be a few bytes the next time.
const MORE_BYTES: u64 = 1024;

const DRAFTED: [(Table, &str); 15] = [
    (Table::Program, "peak"),
    (Table::Program, "live_at_end"),
    (Table::Program, "allocations"),
    (Table::Program, "rss_peak"),
    (Table::Program, "unexplained"),
    (Table::Task, "mean"),
    (Table::Task, "max"),
    (Table::Task, "keeps"),
    (Table::Task, "future"),
    (Table::Task, "finished"),
    (Table::ThreadLocal, "bytes"),
    (Table::ThreadLocal, "max"),
    (Table::Leaks, "bytes"),
    (Table::Copies, "waste"),
    (Table::Growth, "per_task"),
];

/// The limits, in the order in which they are written.
pub fn draft(report: &Report) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for table in Table::ALL {
        let keys: Vec<&'static Key> = KEYS
            .iter()
            .filter(|key| key.table == table && DRAFTED.contains(&(table, key.name)))
            .collect();
        for pattern in patterns(table, report) {
            for key in &keys {
                drafts.extend(of(report, key, pattern.clone()));
            }
        }
    }
    drafts
}

/// Of the growth that a sweep found.
pub fn draft_of_sweep(sweep: &SweepFile) -> Vec<Draft> {
    let all = sweep.slopes();
    let mut names: Vec<(String, &'static str)> = Vec::new();
    for Slope { shown, unit, .. } in sweep.telling() {
        if !shown.contains('*') && !names.iter().any(|(name, _)| *name == shown) {
            names.push((shown, unit));
        }
    }
    names.truncate(ROWS);
    let draft = |(name, unit): (String, &'static str)| {
        let key = Key::find(Table::Growth, &format!("per_{unit}"))?;
        let rows = key.slopes(&all, Some(&name));
        above(rows, key, Some(name))
    };
    names.into_iter().filter_map(draft).collect()
}

fn patterns(table: Table, report: &Report) -> Vec<Option<String>> {
    if !table.has_patterns() {
        return vec![None];
    }
    let mut names: Vec<String> = match table {
        Table::Growth => Slope::of(&report.growth)
            .into_iter()
            .map(|s| s.shown)
            .collect(),
        _ => table.names(report),
    };
    let mut seen = std::collections::BTreeSet::new();
    // A star in a name would be a pattern that also means others.
    names.retain(|name| !name.contains('*') && seen.insert(name.clone()));
    names.truncate(ROWS);
    names.into_iter().map(Some).collect()
}

fn of(report: &Report, key: &'static Key, pattern: Option<String>) -> Option<Draft> {
    above(key.rows(report, pattern.as_deref()), key, pattern)
}

/// None if one of them can't be judged.
fn above(rows: Vec<Row>, key: &'static Key, pattern: Option<String>) -> Option<Draft> {
    let mut measured = 0;
    let mut known = false;
    for row in rows {
        let figure = row.reading.ok()?;
        measured = measured.max(figure.value + figure.error);
        known = true;
    }
    known.then(|| Draft {
        limit: Limit {
            pattern,
            key,
            at_most: generous(measured, key.unit),
        },
        measured,
    })
}

/// A round number somewhat above.
fn generous(measured: u64, unit: Unit) -> u64 {
    let more = measured.saturating_add(measured / 100 * MARGIN_PERCENT)
        + measured % 100 * MARGIN_PERCENT / 100;
    match unit {
        Unit::Count => round_up(more, 1),
        Unit::Permille => more.max(measured + 20).div_ceil(10) * 10,
        Unit::Bytes => {
            let more = more.max(measured.saturating_add(MORE_BYTES));
            let mut scale = 1;
            while more / scale >= 1024 && scale < 1 << 40 {
                scale *= 1024;
            }
            round_up(more, scale)
        }
    }
}

/// To two digits, in multiples of `scale`.
fn round_up(value: u64, scale: u64) -> u64 {
    let mut step = scale;
    while value / step >= 100 {
        step *= 10;
    }
    value.div_ceil(step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_round_and_above() {
        assert_eq!(generous(0, Unit::Count), 0);
        assert_eq!(generous(16_142, Unit::Count), 20_000);
        assert_eq!(generous(0, Unit::Bytes), 1024);
        assert_eq!(generous(297 << 20, Unit::Bytes), 360 << 20);
        assert_eq!(generous(4 << 20, Unit::Bytes), 5 << 20);
        assert_eq!(generous(34, Unit::Permille), 60);
        for measured in [1, 99, 1023, 1024, 5_000, 1 << 20, (1 << 30) + 1] {
            assert!(generous(measured, Unit::Bytes) > measured);
        }
    }
}
