//! Is a profile within a budget?
//!
//! A check that passes because it measured nothing is worse than none: a pattern that matches
//! nothing, a figure that needs a walk which was not made, one that is too uncertain to say on
//! which side of the limit it lies, and a recording that lost events are all reasons not to judge.

mod baseline;
mod draft;
mod growth;
mod keys;
mod pattern;

use serde::Serialize;

pub use baseline::{Tolerance, compare};
pub use draft::{Draft, draft, draft_of_sweep};
pub use growth::{SweepFile, judge_sweep};
pub use keys::{KEYS, Key, Table, Unit};
pub use pattern::matches;

use super::Report;
use crate::profile::Site;
use keys::{Figure, Reading};

/// One limit. The pattern is none where the table has no rows to choose from.
#[derive(Clone, Debug)]
pub struct Limit {
    pub pattern: Option<String>,
    pub key: &'static Key,
    pub at_most: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verdict {
    /// `program`, or the task type, thread, thread-local, site.
    pub subject: String,
    pub measure: &'static str,
    pub unit: Unit,
    pub is_bytes: bool,
    pub budget: u64,
    pub measured: u64,
    /// The true figure is at most this far from the measured one.
    pub uncertainty: u64,
    pub within: bool,
    /// What a baseline had; null for a limit of the budget.
    pub baseline: Option<u64>,
    pub site: Option<Site>,
}

/// Why a limit can't be judged, in words, and what may help.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unusable {
    pub what: String,
    pub hint: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Judgement {
    pub verdicts: Vec<Verdict>,
    pub unusable: Vec<Unusable>,
    /// Figures that were held against a baseline and are within; those over it are verdicts.
    pub unchanged: usize,
}

impl Judgement {
    pub fn over(&self) -> usize {
        self.verdicts
            .iter()
            .filter(|verdict| !verdict.within)
            .count()
    }

    fn refuse(&mut self, what: &str, hint: &str) {
        let refusal = Unusable {
            what: what.to_owned(),
            hint: hint.to_owned(),
        };
        if !self.unusable.contains(&refusal) {
            self.unusable.push(refusal);
        }
    }

    /// Of one row that a limit is for.
    fn add(&mut self, row: &Row, limit: &Limit) {
        let key = limit.key.name;
        let figure = match &row.reading {
            Ok(figure) => *figure,
            Err(why) => {
                return self.refuse(
                    &format!("{key} of {} was not measured: {why}", row.subject),
                    "limit something else, or record a run in which it can be seen",
                );
            }
        };
        let Figure { value, error } = figure;
        if value.saturating_sub(error) <= limit.at_most && limit.at_most < value + error {
            let shown = |value| limit.key.unit.shown(value);
            return self.refuse(
                &format!(
                    "{key} of {} is {} give or take {}, too near to the limit of {}",
                    row.subject,
                    shown(value),
                    shown(error),
                    shown(limit.at_most)
                ),
                "allow more, or record more exactly",
            );
        }
        self.verdicts.push(Verdict {
            subject: row.subject.clone(),
            measure: key,
            unit: limit.key.unit,
            is_bytes: limit.key.unit == Unit::Bytes,
            budget: limit.at_most,
            measured: value,
            uncertainty: error,
            within: value <= limit.at_most,
            baseline: None,
            site: row.site.clone(),
        });
    }
}

/// What a limit is held against.
struct Row {
    subject: String,
    site: Option<Site>,
    reading: Reading,
}

/// Holds the report to the limits.
pub fn judge(report: &Report, limits: &[Limit]) -> Judgement {
    let mut judgement = Judgement {
        unusable: unfit(report),
        ..Judgement::default()
    };
    for limit in limits {
        let rows = limit.key.rows(report, limit.pattern.as_deref());
        if rows.is_empty() {
            judgement.nothing_matches(report, limit);
        }
        for row in &rows {
            judgement.add(row, limit);
        }
    }
    judgement
}

impl Judgement {
    fn nothing_matches(&mut self, report: &Report, limit: &Limit) {
        let table = limit.key.table;
        let pattern = limit.pattern.as_deref().unwrap_or("*");
        let names = table.names(report);
        let shown: Vec<&str> = names.iter().take(5).map(String::as_str).collect();
        let hint = match (shown.is_empty(), table, &report.growth_note) {
            (true, Table::Growth, Some(why)) => format!("no growth was measured: {why}"),
            (true, ..) => format!("the profile has no {}s at all", table.row()),
            (false, ..) => format!("the profile has {}", shown.join(", ")),
        };
        self.refuse(&format!("no {} matches {pattern:?}", table.row()), &hint);
    }
}

/// Recordings that can't be held to a budget.
fn unfit(report: &Report) -> Vec<Unusable> {
    let mut judgement = Judgement::default();
    if report.totals.allocations == 0 {
        let hint = "was the right program recorded? `taskheap report FILE` tells";
        judgement.refuse("the profile has no allocations", hint);
    }
    let lost = report.recording.lost_events;
    if lost > 0 {
        let what = format!("{lost} events could not be recorded: the figures are too small");
        judgement.refuse(&what, "record a shorter run");
    }
    judgement.unusable
}
