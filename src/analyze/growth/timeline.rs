//! Growth of one run, from its own timeline: as tasks or threads came and went, so did bytes.
//!
//! One profile is no sweep. It shows a law only where the count varied while the program ran, and
//! it shows that of the whole process: live bytes were sampled, not those of each line. A line
//! of code is named only where one task type, by what each of its tasks holds, is the slope.

use std::collections::BTreeMap;

use super::facts::{Facts, Subject};
use super::fit::{self, Line, Shape};
use super::{FOLLOWS, GrowthRow, Law, Point};
use crate::profile::{Profile, Timeline};

/// Fewer different counts than this are no evidence.
const LEAST_COUNTS: usize = 5;
/// The largest count is at least so many times the smallest.
const LEAST_RANGE: f64 = 2.0;
/// Counts that are fitted: the work grows with the square.
const MOST_COUNTS: usize = 200;
/// A task type is the slope if what each of its tasks holds is that, to within this part.
const IS_THE_SLOPE: f64 = 0.2;

/// What the timeline shows, or why it shows nothing.
pub enum Timed {
    Rows(Vec<GrowthRow>),
    Nothing(String),
}

/// Of one profile.
pub fn of_timeline(profile: &Profile) -> Timed {
    let timeline = &profile.timeline;
    let tasks: Vec<u64> = timeline.tasks_alive.clone();
    let threads: Vec<u64> = timeline
        .threads_alive
        .iter()
        .map(|n| u64::from(*n))
        .collect();
    let of_tasks = fitted(timeline, &tasks);
    let of_threads = fitted(timeline, &threads);
    let (unit, (line, counts)) = match (of_tasks, of_threads) {
        (Ok(Some(fit)), Ok(Some(_))) if grew_together(&tasks, &threads) => ("task", fit),
        (Ok(Some(_)), Ok(Some(fit))) if !varies(&tasks) => ("thread", fit),
        (Ok(Some(fit)), _) => ("task", fit),
        (_, Ok(Some(fit))) => ("thread", fit),
        (Ok(None), _) | (_, Ok(None)) => {
            let text = "live bytes did not follow the number of tasks or threads while it ran";
            return Timed::Nothing(text.to_owned());
        }
        _ if timeline.at_ms.is_empty() => {
            return Timed::Nothing("no samples were taken while it ran".to_owned());
        }
        (Err(tasks), Err(threads)) => {
            return Timed::Nothing(format!(
                "one run shows growth only if it is seen with {LEAST_COUNTS} different numbers of \
                 tasks or threads: there were {tasks} tasks and {threads} threads; `taskheap \
                 sweep` varies them"
            ));
        }
    };
    Timed::Rows(vec![row(profile, unit, line, counts)])
}

type Fit = (Line, Vec<(f64, f64)>);

/// A line through the live bytes at each count, if they follow it; the counts seen if they did not
/// vary enough.
fn fitted(timeline: &Timeline, counts: &[u64]) -> Result<Option<Fit>, String> {
    if !varies(counts) {
        return Err(seen(counts));
    }
    let mut at_count: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (count, bytes) in counts.iter().zip(&timeline.live_bytes) {
        at_count.entry(*count).or_default().push(*bytes as f64);
    }
    let all: Vec<(f64, f64)> = at_count
        .into_iter()
        .filter_map(|(count, bytes)| Some((count as f64, fit::median(bytes)?)))
        .collect();
    let step = all.len().div_ceil(MOST_COUNTS);
    let points: Vec<(f64, f64)> = all.iter().step_by(step).copied().collect();
    let line = fit::line(&points).filter(|line| {
        let power = fit::power(&points);
        let shape = fit::shape(&points, line, power.as_ref());
        line.slope > 0.0 && line.r2 >= FOLLOWS && shape == Shape::Linear
    });
    Ok(line.map(|line| (line, points)))
}

fn varies(counts: &[u64]) -> bool {
    let mut known = counts.to_vec();
    known.sort_unstable();
    known.dedup();
    let (least, most) = (known.first().copied(), known.last().copied());
    let wide = most.unwrap_or(0) as f64 >= least.unwrap_or(0) as f64 * LEAST_RANGE;
    known.len() >= LEAST_COUNTS && wide
}

/// Tasks that each occupy a thread.
fn grew_together(tasks: &[u64], threads: &[u64]) -> bool {
    let pairs: Vec<(f64, f64)> = (tasks.iter().zip(threads))
        .map(|(tasks, threads)| (*tasks as f64, *threads as f64))
        .collect();
    let few: Vec<(f64, f64)> = fit::medians(&pairs).into_iter().take(MOST_COUNTS).collect();
    fit::line(&few).is_some_and(|line| line.r2 >= FOLLOWS)
}

fn seen(counts: &[u64]) -> String {
    let mut known = counts.to_vec();
    known.sort_unstable();
    known.dedup();
    match known.as_slice() {
        [] => "no".to_owned(),
        [one] => one.to_string(),
        [.., most] if known.len() >= LEAST_COUNTS => format!("{} to {most}", known[0]),
        few => few
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

fn row(profile: &Profile, unit: &str, line: Line, counts: Vec<(f64, f64)>) -> GrowthRow {
    let (first, last) = (
        counts.first().copied().unwrap_or_default(),
        counts.last().copied().unwrap_or_default(),
    );
    let grower = match unit {
        "task" => grower(&super::facts(profile), line.slope),
        _ => None,
    };
    let (owner_name, place) = grower.map_or((None, None), |(name, place)| (Some(name), place));
    let point = |(count, bytes): (f64, f64)| Point {
        value: count,
        tasks: (unit == "task").then_some(count as u64),
        threads: (unit == "thread").then_some(count as u64),
        bytes: bytes as u64,
    };
    GrowthRow {
        of: "process",
        name: owner_name.clone().unwrap_or_default(),
        site: place.as_ref().map(|place| place.site.clone()),
        called_from: place.map_or(Vec::new(), |place| place.called_from),
        unit: unit.to_owned(),
        bytes_per_unit: line.slope,
        constant_bytes: line.constant,
        r2: line.r2,
        limit_units: None,
        variable: None,
        fixed: BTreeMap::new(),
        shape: Shape::Linear,
        exponent: None,
        over_variable: Law {
            bytes_per_step: line.slope,
            constant_bytes: line.constant,
            r2: line.r2,
            limit_value: None,
        },
        owner_kind: owner_name.as_ref().map(|_| "task"),
        owner_name,
        bytes_at_most: last.1 as u64,
        grown_bytes: (last.1 - first.1).max(0.0) as u64,
        units_at_most: last.0,
        points: counts.into_iter().map(point).collect(),
    }
}

/// The task type whose tasks hold, each, what the process grows by for each task.
fn grower(facts: &Facts, slope: f64) -> Option<(String, Option<super::place::Place>)> {
    let counts = &facts.tasks_of;
    let all = facts.tasks?;
    facts.measures.iter().find_map(|(subject, measure)| {
        let Subject::TaskType(name) = subject else {
            return None;
        };
        let count = *counts.get(name)?;
        let each = measure.bytes as f64 / count.max(1) as f64;
        let is_it = (each / slope - 1.0).abs() <= IS_THE_SLOPE && count * 2 > all;
        is_it.then(|| (name.clone(), measure.place.clone()))
    })
}
