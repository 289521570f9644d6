//! Is a profile within a budget?
//!
//! A check that passes because it measured nothing is worse than none: a pattern that matches no
//! task type, a figure that needs a walk which was not made, and a recording that lost events are
//! all reasons not to judge.

use serde::Serialize;

use super::{Report, TaskRow};

/// What is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    Peak,
    LiveAtEnd,
    Allocated,
    Allocations,
    TaskPeak,
    TaskMean,
    TaskP99,
    TaskMax,
    TaskFuture,
    TaskLive,
    TaskFinished,
    TaskSpawned,
}

/// One limit. `task` is none for the program as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    pub task: Option<String>,
    pub measure: Measure,
    pub at_most: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verdict {
    /// `program`, or the task type.
    pub subject: String,
    pub measure: &'static str,
    pub is_bytes: bool,
    pub budget: u64,
    pub measured: u64,
    pub within: bool,
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
}

impl Judgement {
    pub fn over(&self) -> usize {
        self.verdicts
            .iter()
            .filter(|verdict| !verdict.within)
            .count()
    }
}

/// The keys of a budget: table, name, measure.
pub const KEYS: [(&str, &str, Measure); 12] = [
    ("program", "peak", Measure::Peak),
    ("program", "live_at_end", Measure::LiveAtEnd),
    ("program", "allocated", Measure::Allocated),
    ("program", "allocations", Measure::Allocations),
    ("task", "peak", Measure::TaskPeak),
    ("task", "mean", Measure::TaskMean),
    ("task", "p99", Measure::TaskP99),
    ("task", "max", Measure::TaskMax),
    ("task", "future", Measure::TaskFuture),
    ("task", "live", Measure::TaskLive),
    ("task", "finished", Measure::TaskFinished),
    ("task", "spawned", Measure::TaskSpawned),
];

impl Measure {
    /// As it is written in a budget.
    pub fn key(self) -> &'static str {
        KEYS.iter()
            .find(|(.., measure)| *measure == self)
            .map_or("", |(_, key, _)| key)
    }

    pub fn is_bytes(self) -> bool {
        !matches!(
            self,
            Measure::Allocations | Measure::TaskLive | Measure::TaskFinished | Measure::TaskSpawned
        )
    }

    fn of_program(self, report: &Report) -> Option<u64> {
        let totals = &report.totals;
        match self {
            Measure::Peak => Some(totals.peak_live_bytes),
            Measure::LiveAtEnd => Some(totals.live_bytes),
            Measure::Allocated => Some(totals.allocated_bytes),
            Measure::Allocations => Some(totals.allocations),
            _ => None,
        }
    }

    fn of_task(self, task: &TaskRow) -> Option<u64> {
        match self {
            Measure::TaskPeak => Some(task.peak_live_bytes),
            Measure::TaskMean => task.per_task.mean,
            Measure::TaskP99 => task.per_task.p99,
            Measure::TaskMax => task.per_task.max,
            // Nothing is known of a type whose cell was never seen.
            Measure::TaskFuture => (task.cell_bytes > 0).then_some(task.cell_bytes),
            Measure::TaskLive => Some(task.live),
            Measure::TaskFinished => task.finished_allocated,
            Measure::TaskSpawned => Some(task.spawned),
            _ => None,
        }
    }
}

pub fn judge(report: &Report, limits: &[Limit]) -> Judgement {
    let mut judgement = Judgement {
        unusable: unfit(report),
        ..Judgement::default()
    };
    if limits.is_empty() {
        judgement.refuse(
            "the budget has no limit",
            "add one, such as peak = \"64 MB\"",
        );
    }
    for limit in limits {
        match &limit.task {
            None => {
                let measured = limit.measure.of_program(report);
                judgement.add("program", limit, measured, "");
            }
            Some(pattern) => judge_tasks(report, limit, pattern, &mut judgement),
        }
    }
    judgement
}

fn judge_tasks(report: &Report, limit: &Limit, pattern: &str, judgement: &mut Judgement) {
    let mut matched = false;
    for task in report
        .tasks
        .iter()
        .filter(|task| matches(pattern, &task.name))
    {
        matched = true;
        let why = match limit.measure {
            Measure::TaskFinished => "nobody looked for finished tasks (no walk)",
            Measure::TaskFuture => "no cell of this type was seen",
            _ => "no task of this type was alive when it was looked at",
        };
        judgement.add(&task.name, limit, limit.measure.of_task(task), why);
    }
    if !matched {
        let names: Vec<&str> = report
            .tasks
            .iter()
            .take(5)
            .map(|t| t.name.as_str())
            .collect();
        let hint = match names.is_empty() {
            true => "the profile has no tasks at all".to_owned(),
            false => format!("the profile has {}", names.join(", ")),
        };
        judgement.refuse(&format!("no task type matches {pattern:?}"), &hint);
    }
}

impl Judgement {
    fn add(&mut self, subject: &str, limit: &Limit, measured: Option<u64>, why: &str) {
        let Some(measured) = measured else {
            let key = limit.measure.key();
            return self.refuse(
                &format!("{key} of {subject} was not measured: {why}"),
                "limit something else, or record a run in which it can be seen",
            );
        };
        self.verdicts.push(Verdict {
            subject: subject.to_owned(),
            measure: limit.measure.key(),
            is_bytes: limit.measure.is_bytes(),
            budget: limit.at_most,
            measured,
            within: measured <= limit.at_most,
        });
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
    if report.recording.mode == "sampled" {
        let hint = "record without --sample";
        judgement.refuse("the profile is sampled: its figures are estimates", hint);
    }
    judgement.unusable
}

/// A pattern is a whole name, or the end of one after `::`; `*` stands for anything.
pub fn matches(pattern: &str, name: &str) -> bool {
    if fits(pattern, name) {
        return true;
    }
    let ends = name.match_indices("::").map(|(at, _)| &name[at + 2..]);
    ends.into_iter().any(|end| fits(pattern, end))
}

fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = pattern
        .contains('*')
        .then(|| pattern.rsplit('*').next().unwrap_or(""))
    else {
        return rest.is_empty();
    };
    let middle: Vec<&str> = parts.collect();
    for part in &middle[..middle.len() - 1] {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_names_and_their_ends() {
        let name = "server::net::handle_connection";
        for pattern in [
            name,
            "handle_connection",
            "net::handle_connection",
            "server::*",
            "*",
            "handle_*",
            "*net*con*tion",
        ] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in [
            "",
            "handle",
            "connection",
            "server",
            "net",
            "*x*",
            "handle_*x",
            "**x",
        ] {
            assert!(!matches(pattern, name), "{pattern}");
        }
    }
}
