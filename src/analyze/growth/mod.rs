//! What grows when the program is given more to do, by how much, and until when that goes well.
//!
//! The tempting answer is a line through the peaks of a few runs: bytes for each step of the
//! variable. It doesn't say what grows, nor with what. A program of 200 threads and 60,000
//! tasks dies or lives by whether a cache exists once for each thread or once for each task, and
//! while both numbers rise together the peaks don't tell. So everything that may grow is fitted
//! by itself (the process, each task type, thread-local, kind of thread and line of code), and by
//! three counts of the same run: the tasks of its type, the threads, the variable. The unit is the
//! count that the bytes follow.
//!
//! What is extrapolated says so: `limit_units` is where the fitted law meets the limit, far
//! beyond what was measured as a rule.

mod counts;
mod fact_points;
pub mod facts;
mod findings;
pub mod fit;
mod place;
mod timeline;

use std::collections::BTreeMap;

use serde::Serialize;

use super::Finding;
use crate::profile::Site;
use fact_points::{Point, by_tasks, by_threads, by_variable, points_of};
pub use facts::{Facts, Subject, Whose, facts};
pub use findings::{findings, looked_for};
use fit::{Line, Power, Shape};
pub use timeline::{Timed, of_timeline};

/// Bytes follow a count if the line by it explains so much of them.
const FOLLOWS: f64 = 0.98;

/// What grows with a variable: bytes = constant + slope × units.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthRow {
    /// `process`, `task-type`, `thread-local`, `thread` or `site`.
    pub of: &'static str,
    /// Of the task type, the thread-local, the threads or the function. Of a process: in the
    /// report of one profile the task type that it grows by, if that is known.
    pub name: String,
    /// Where it is made: the innermost call that has nearly all of it. Null if there is none in
    /// the program's own code.
    pub site: Option<Site>,
    /// The program's own lines that led there, innermost first.
    pub called_from: Vec<Site>,
    /// `task`, `thread`, or the name of the variable.
    pub unit: String,
    pub bytes_per_unit: f64,
    pub constant_bytes: f64,
    /// Of all points; 1 for a perfect line.
    pub r2: f64,
    /// Where the memory limit is reached by this alone; null if it is not, or if no law is seen.
    pub limit_units: Option<f64>,
    /// The variable that was swept; null in the report of one profile.
    pub variable: Option<String>,
    /// What the other variables were.
    pub fixed: BTreeMap<String, String>,
    /// With the variable, whatever the unit.
    pub shape: Shape,
    /// Of the law constant + factor × variable^exponent that fits best, 1 for a line. It says
    /// something only where `shape` is no line.
    pub exponent: Option<f64>,
    /// The line by the variable, and where that meets the limit.
    pub over_variable: Law,
    /// Who keeps it, else made it: a task type, thread or thread-local.
    pub owner_name: Option<String>,
    /// `task`, `thread` or `thread-local`.
    pub owner_kind: Option<&'static str>,
    /// At the largest value of the variable: bytes, how much of them is growth since the
    /// smallest, and how many units there were.
    pub bytes_at_most: u64,
    pub grown_bytes: u64,
    pub units_at_most: f64,
    /// What was measured, in the order of the runs.
    pub points: Vec<Point>,
}

/// bytes = constant + slope × value, whatever the unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Law {
    pub bytes_per_step: f64,
    pub constant_bytes: f64,
    pub r2: f64,
    /// Where this alone reaches the limit; null if it does not, or if no law is seen.
    pub limit_value: Option<f64>,
}

/// The value of a variable in a run.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Setting {
    pub name: String,
    pub value: String,
    /// Null for values that are no number: they set runs apart and are not fitted by.
    pub number: Option<f64>,
}

/// A run, and what it said.
#[derive(Clone, Debug)]
pub struct Sample {
    pub settings: Vec<Setting>,
    pub facts: Facts,
}

/// Everything that a sweep says; serialized it is `sweep.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    pub schema: u32,
    /// As given, with the places for the values.
    pub command: Vec<String>,
    pub variables: Vec<Variable>,
    pub limit: Option<Limit>,
    /// Also of runs that failed; those are in no fit.
    pub runs: Vec<Run>,
    /// Most growth first. Empty until three values of a variable are measured.
    pub growth: Vec<GrowthRow>,
    /// What grows beyond what a task or thread should cost; most bytes first.
    pub findings: Vec<Finding>,
    /// What the findings look for, in a sentence.
    pub threshold: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Variable {
    pub name: String,
    pub values: Vec<String>,
}

/// Of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    pub bytes: u64,
    /// `given`, `machine` (its memory), `cgroup`.
    pub what: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub settings: Vec<Setting>,
    /// In the folder; null if it misses.
    pub profile: Option<String>,
    /// 128 + signal if one ended it.
    pub exit_code: u8,
    pub peak_live_bytes: Option<u64>,
    pub tasks: Option<u64>,
    pub threads: Option<u64>,
    /// Why the run counts for nothing.
    pub error: Option<String>,
}

/// Every series of at least three values of one variable, the others unchanged.
pub fn rows(samples: &[Sample], limit: Option<u64>) -> Vec<GrowthRow> {
    let mut rows: Vec<GrowthRow> = series(samples)
        .iter()
        .flat_map(|series| series.rows(limit))
        .collect();
    rows.sort_by(|a, b| {
        let of_process = |row: &GrowthRow| row.of == "process";
        (b.grown_bytes.cmp(&a.grown_bytes))
            .then_with(|| of_process(b).cmp(&of_process(a)))
            .then_with(|| b.bytes_at_most.cmp(&a.bytes_at_most))
            .then_with(|| (a.of, &a.name, &a.site).cmp(&(b.of, &b.name, &b.site)))
    });
    rows
}

/// How many different values the longest series has.
pub fn most_distinct(samples: &[Sample]) -> usize {
    let all = all_series(samples);
    all.iter().map(Series::distinct).max().unwrap_or(0)
}

/// Runs that differ in one variable only.
struct Series<'a> {
    variable: String,
    fixed: BTreeMap<String, String>,
    /// The value of the variable, and what the run said.
    runs: Vec<(f64, &'a Facts)>,
}

fn series(samples: &[Sample]) -> Vec<Series<'_>> {
    let mut series = all_series(samples);
    series.retain(|series| series.distinct() >= fit::LEAST_DISTINCT);
    series
}

fn all_series(samples: &[Sample]) -> Vec<Series<'_>> {
    let mut series: Vec<Series> = Vec::new();
    for sample in samples {
        for setting in &sample.settings {
            let Some(number) = setting.number else {
                continue;
            };
            let others = sample.settings.iter().filter(|s| s.name != setting.name);
            let fixed = others.map(|s| (s.name.clone(), s.value.clone())).collect();
            let same = |s: &&mut Series| s.variable == setting.name && s.fixed == fixed;
            match series.iter_mut().find(same) {
                Some(known) => known.runs.push((number, &sample.facts)),
                None => series.push(Series {
                    variable: setting.name.clone(),
                    fixed,
                    runs: vec![(number, &sample.facts)],
                }),
            }
        }
    }
    series
}

impl Series<'_> {
    fn distinct(&self) -> usize {
        let values: Vec<(f64, f64)> = self.runs.iter().map(|(n, _)| (*n, 0.0)).collect();
        fit::distinct(&values)
    }

    fn rows(&self, limit: Option<u64>) -> Vec<GrowthRow> {
        let mut subjects: Vec<&Subject> =
            self.runs.iter().flat_map(|r| r.1.measures.keys()).collect();
        subjects.sort();
        subjects.dedup();
        let row = |subject| self.row(subject, limit);
        subjects.into_iter().filter_map(row).collect()
    }

    fn row(&self, subject: &Subject, limit: Option<u64>) -> Option<GrowthRow> {
        let measured = self
            .runs
            .iter()
            .filter_map(|run| run.1.measures.get(subject));
        let fullest = measured.max_by_key(|measure| measure.bytes)?;
        let points = points_of(&self.runs, subject, &fullest.whose);
        let by_value = by_variable(&points);
        let over_variable = Fitted::of(&by_value)?;
        let (unit, fitted) = choose(&points, &fullest.whose)
            .unwrap_or_else(|| (self.variable.clone(), over_variable));
        let at_each = fit::medians(&by_value);
        let (first, last) = (at_each.first()?.1, at_each.last()?.1);
        let (of, name) = named(subject);
        Some(GrowthRow {
            of,
            name,
            site: match subject {
                Subject::Site(site) => Some(site.clone()),
                _ => fullest.place.as_ref().map(|place| place.site.clone()),
            },
            called_from: fullest.place.clone().map_or(Vec::new(), |p| p.called_from),
            bytes_per_unit: fitted.line.slope,
            constant_bytes: fitted.line.constant,
            r2: fitted.line.r2,
            limit_units: limit.and_then(|limit| fitted.reaches(limit as f64)),
            variable: Some(self.variable.clone()),
            fixed: self.fixed.clone(),
            shape: over_variable.shape,
            over_variable: over_variable.law(limit),
            exponent: over_variable.power.map(|power| power.exponent),
            owner_name: owner_name(&fullest.whose),
            owner_kind: owner_kind(&fullest.whose),
            bytes_at_most: last as u64,
            grown_bytes: (last - first).max(0.0) as u64,
            units_at_most: units_at_most(&points, &unit),
            unit,
            points,
        })
    }
}

fn named(subject: &Subject) -> (&'static str, String) {
    match subject {
        Subject::Process => ("process", String::new()),
        Subject::TaskType(name) => ("task-type", name.clone()),
        Subject::ThreadLocal(name) => ("thread-local", name.clone()),
        Subject::Threads(name) => ("thread", name.clone()),
        Subject::Site(site) => ("site", site.function.clone()),
    }
}

fn owner_name(whose: &Whose) -> Option<String> {
    match whose {
        Whose::Nobody => None,
        Whose::Task(name) | Whose::Thread(name) | Whose::ThreadLocal(name) => Some(name.clone()),
    }
}

fn owner_kind(whose: &Whose) -> Option<&'static str> {
    match whose {
        Whose::Nobody => None,
        Whose::Task(_) => Some("task"),
        Whose::Thread(_) => Some("thread"),
        Whose::ThreadLocal(_) => Some("thread-local"),
    }
}

fn units_at_most(points: &[Point], unit: &str) -> f64 {
    let last = points.iter().max_by(|a, b| a.value.total_cmp(&b.value));
    let Some(last) = last else {
        return 0.0;
    };
    match unit {
        "task" => last.tasks.map_or(last.value, |n| n as f64),
        "thread" => last.threads.map_or(last.value, |n| n as f64),
        _ => last.value,
    }
}

/// The line, and the law where it is none.
#[derive(Clone, Copy)]
struct Fitted {
    line: Line,
    power: Option<Power>,
    shape: Shape,
}

impl Fitted {
    fn of(points: &[(f64, f64)]) -> Option<Fitted> {
        let line = fit::line(points)?;
        let power = fit::power(points);
        let shape = fit::shape(points, &line, power.as_ref());
        Some(Fitted { line, power, shape })
    }

    fn law(&self, limit: Option<u64>) -> Law {
        Law {
            bytes_per_step: self.line.slope,
            constant_bytes: self.line.constant,
            r2: self.line.r2,
            limit_value: limit.and_then(|limit| self.reaches(limit as f64)),
        }
    }

    fn follows(&self) -> bool {
        self.line.slope > 0.0 && self.line.r2 >= FOLLOWS
    }

    /// How many units it takes; none if the law never gets there or there is none.
    fn reaches(&self, limit: f64) -> Option<f64> {
        let units = match (self.shape, self.power) {
            (Shape::Linear, _) if self.line.slope > 0.0 => {
                (limit - self.line.constant) / self.line.slope
            }
            (Shape::Superlinear, Some(power)) => ((limit - power.constant) / power.factor)
                .max(0.0)
                .powf(1.0 / power.exponent),
            _ => return None,
        };
        Some(units.max(0.0)).filter(|units| units.is_finite())
    }
}

/// The count of tasks or threads that the bytes follow. Where they follow both, whoever keeps
/// them decides; where nobody does, or they follow neither, it is the variable.
fn choose(points: &[Point], whose: &Whose) -> Option<(String, Fitted)> {
    let follows = |points: Option<Vec<(f64, f64)>>| {
        let fitted = Fitted::of(&points?)?;
        fitted.follows().then_some(fitted)
    };
    let tasks = follows(by_tasks(points)).map(|fitted| ("task".to_owned(), fitted));
    let threads = follows(by_threads(points)).map(|fitted| ("thread".to_owned(), fitted));
    match whose {
        Whose::Task(_) => tasks.or(threads),
        Whose::ThreadLocal(_) => threads,
        Whose::Thread(_) => threads.or(tasks),
        Whose::Nobody => match (tasks, threads) {
            (Some(_), Some(_)) => None,
            (tasks, threads) => tasks.or(threads),
        },
    }
}

#[cfg(test)]
mod tests;
