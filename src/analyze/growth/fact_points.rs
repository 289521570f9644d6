//! The points that a fit goes through: for each run the bytes, and each count they may follow.

use serde::Serialize;

use super::facts::{Facts, Subject, Whose};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Of the variable.
    pub value: f64,
    /// Of the type that keeps it, else all; null if nobody counted.
    pub tasks: Option<u64>,
    /// Those that keep it, else all.
    pub threads: Option<u64>,
    pub bytes: u64,
}

/// One for each run that can tell. What a run does not have, it has none of.
pub fn points_of(runs: &[(f64, &Facts)], subject: &Subject, whose: &Whose) -> Vec<Point> {
    let is_local = matches!(subject, Subject::ThreadLocal(_));
    let known =
        |run: &&(f64, &Facts)| run.1.walked || !is_local || run.1.measures.contains_key(subject);
    let point = |(value, facts): &(f64, &Facts)| Point {
        value: *value,
        tasks: tasks(facts, whose),
        threads: threads(facts, whose),
        bytes: facts.measures.get(subject).map_or(0, |m| m.bytes),
    };
    runs.iter().filter(known).map(point).collect()
}

fn tasks(facts: &Facts, whose: &Whose) -> Option<u64> {
    match whose {
        Whose::Task(name) => {
            let subject = Subject::TaskType(name.clone());
            counted(facts, &facts.tasks_of, name, &subject)
        }
        _ => facts.tasks,
    }
}

fn threads(facts: &Facts, whose: &Whose) -> Option<u64> {
    match whose {
        Whose::ThreadLocal(name) => {
            let subject = Subject::ThreadLocal(name.clone());
            counted(facts, &facts.threads_with, name, &subject)
        }
        Whose::Thread(name) => {
            let subject = Subject::Threads(name.clone());
            counted(facts, &facts.threads_of, name, &subject)
        }
        _ => facts.threads,
    }
}

/// A name that has no bytes has no owners; one that has some and was not counted is not known.
fn counted(
    facts: &Facts,
    counts: &std::collections::BTreeMap<String, u64>,
    name: &str,
    subject: &Subject,
) -> Option<u64> {
    let none = (!facts.measures.contains_key(subject)).then_some(0);
    counts.get(name).copied().or(none)
}

pub fn by_variable(points: &[Point]) -> Vec<(f64, f64)> {
    points.iter().map(|p| (p.value, p.bytes as f64)).collect()
}

/// None if they were not counted in every run.
pub fn by_tasks(points: &[Point]) -> Option<Vec<(f64, f64)>> {
    let point = |p: &Point| Some((p.tasks? as f64, p.bytes as f64));
    points.iter().map(point).collect()
}

/// None if they were not counted in every run.
pub fn by_threads(points: &[Point]) -> Option<Vec<(f64, f64)>> {
    let point = |p: &Point| Some((p.threads? as f64, p.bytes as f64));
    points.iter().map(point).collect()
}
