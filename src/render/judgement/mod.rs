//! A profile beside its budget: for people, and for the services that run checks.

mod github;
mod junit;
mod markdown;
mod text;

pub use github::annotations;
pub use junit::junit;
pub use markdown::markdown;
pub use text::text;

use super::units::{bytes_tight, count};
use crate::analyze::budget::Unit;
use crate::analyze::{Judgement, Verdict};

/// What was found for one profile, and how the profile is called.
#[derive(Clone, Debug)]
pub struct Checked {
    pub profile: String,
    pub judgement: Judgement,
}

fn shown(verdict: &Verdict, value: u64) -> String {
    match verdict.unit {
        Unit::Bytes => bytes_tight(value),
        Unit::Count => count(value),
        Unit::Permille => verdict.unit.shown(value),
    }
}

/// `ok`, or what is wrong.
fn word(verdict: &Verdict) -> &'static str {
    if verdict.within { "ok" } else { "OVER" }
}

/// What is left of the budget, or how far it is exceeded.
fn margin(verdict: &Verdict) -> String {
    if verdict.budget == 0 {
        return if verdict.within { "0%" } else { "-" }.to_owned();
    }
    let left = verdict.budget as f64 - verdict.measured as f64;
    let percent = left * 100.0 / verdict.budget as f64;
    // Just over a limit must not be shown as nothing.
    format!("{:+.0}%", percent.floor().max(-99_999.0))
}

/// `mean`; of a comparison what the baseline had, too.
fn measure(verdict: &Verdict) -> String {
    match verdict.baseline {
        None => verdict.measure.to_owned(),
        Some(base) => format!("{}, was {}", verdict.measure, shown(verdict, base)),
    }
}

/// `mean of server::handler is 4.0MB, 1.0MB is allowed`.
fn sentence(verdict: &Verdict) -> String {
    let (measured, budget) = (
        shown(verdict, verdict.measured),
        shown(verdict, verdict.budget),
    );
    let was = match verdict.baseline {
        Some(base) => format!(" (the baseline has {})", shown(verdict, base)),
        None => String::new(),
    };
    let Verdict {
        measure, subject, ..
    } = verdict;
    format!("{measure} of {subject} is {measured}, {budget} is allowed{was}")
}
