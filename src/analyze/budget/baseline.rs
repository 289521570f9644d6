//! Holds a profile against an earlier one.
//!
//! What was there before may be exceeded by a share of it and by a fixed amount: without the
//! second, a task type that grows from 100 bytes to 200 breaks a build. Totals are always told;
//! of the rest only what is over, since a service has hundreds of rows that did not change.

use super::{Judgement, Unit, Verdict};
use crate::analyze::{Change, Report, diff};

/// What may come on top of the baseline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tolerance {
    /// Tenths of a percent.
    pub permille: u64,
    /// Bytes; of counts the same number is not added.
    pub slack: u64,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance {
            permille: 100,
            slack: 64 << 10,
        }
    }
}

impl Tolerance {
    fn budget(self, base: u64, unit: Unit) -> u64 {
        let share = u128::from(base) * u128::from(self.permille) / 1000;
        let slack = if unit == Unit::Bytes { self.slack } else { 0 };
        base.saturating_add(u64::try_from(share).unwrap_or(u64::MAX))
            .saturating_add(slack)
    }
}

/// Adds what the comparison says to the judgement of `new`.
pub fn compare(base: &Report, new: &Report, tolerance: Tolerance, judgement: &mut Judgement) {
    for unfit in super::unfit(base) {
        judgement.refuse(&format!("the baseline: {}", unfit.what), &unfit.hint);
    }
    if base.recording.sample_bytes != new.recording.sample_bytes {
        let what = "the baseline was not recorded with the same --sample";
        judgement.refuse(what, "record both alike");
    }
    let totals = [
        (
            "peak",
            Unit::Bytes,
            base.totals.peak_live_bytes,
            new.totals.peak_live_bytes,
        ),
        (
            "live_at_end",
            Unit::Bytes,
            base.totals.live_bytes,
            new.totals.live_bytes,
        ),
        (
            "allocated",
            Unit::Bytes,
            base.totals.allocated_bytes,
            new.totals.allocated_bytes,
        ),
        (
            "allocations",
            Unit::Count,
            base.totals.allocations,
            new.totals.allocations,
        ),
    ];
    for (measure, unit, base, new) in totals {
        judgement
            .verdicts
            .push(verdict("program", measure, unit, base, new, tolerance));
    }
    let changes = diff(base, new);
    let mut over = |measure, rows: &[Change]| {
        for row in rows {
            let verdict = verdict(
                &row.name,
                measure,
                Unit::Bytes,
                row.base,
                row.new,
                tolerance,
            );
            match verdict.within {
                true => judgement.unchanged += 1,
                false => judgement.verdicts.push(verdict),
            }
        }
    };
    over("peak", &changes.tasks);
    over("mean", &changes.per_task);
    over("peak", &changes.threads);
    over(
        "bytes",
        changes.thread_locals.as_deref().unwrap_or_default(),
    );
    over("finding", changes.findings.as_deref().unwrap_or_default());
}

fn verdict(
    subject: &str,
    measure: &'static str,
    unit: Unit,
    base: u64,
    new: u64,
    tolerance: Tolerance,
) -> Verdict {
    let budget = tolerance.budget(base, unit);
    Verdict {
        subject: subject.to_owned(),
        measure,
        unit,
        is_bytes: unit == Unit::Bytes,
        budget,
        measured: new,
        uncertainty: 0,
        within: new <= budget,
        baseline: Some(base),
        site: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_and_some_bytes_may_come_on_top() {
        let tolerance = Tolerance {
            permille: 50,
            slack: 1000,
        };
        assert_eq!(tolerance.budget(20_000, Unit::Bytes), 22_000);
        assert_eq!(tolerance.budget(20_000, Unit::Count), 21_000);
        assert_eq!(tolerance.budget(u64::MAX, Unit::Bytes), u64::MAX);
    }
}
