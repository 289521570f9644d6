//! The points that a fit goes through: for each run the bytes, and each count they may follow.

use serde::Serialize;

use super::facts::{Facts, Subject, Whose, thread_local_key};

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
    let known = |run: &&(f64, &Facts)| run.1.walked || !matches!(subject, Subject::ThreadLocal(_));
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
            let counts = facts.tasks_of.as_ref()?;
            Some(counts.get(name).copied().unwrap_or(0))
        }
        _ => facts.tasks,
    }
}

fn threads(facts: &Facts, whose: &Whose) -> Option<u64> {
    let of = |name: &str| {
        let counts = facts.threads_of.as_ref()?;
        Some(counts.get(name).copied().unwrap_or(0))
    };
    match whose {
        Whose::ThreadLocal(name) => of(&thread_local_key(name)),
        Whose::Thread(name) => of(name),
        _ => facts.threads,
    }
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
