//! Memory that grows as long as the program runs, with nothing else that does.
//!
//! Growing is what most programs do at first: they load, fill their caches, take connections. A
//! batch job grows until it is done. So much has to come together before a growth is called one
//! without end: the program is of the kind that does not end by itself (somebody ended it, or it
//! still runs); it was watched for a while; after the first fifth of that its live bytes rose in
//! each quarter, about alike; there were no more tasks and threads to hold them; and one function
//! made most of the growth between two walks. What another rule explains is that rule's.

use std::collections::HashMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, places, size};
use crate::analyze::figures::seconds;
use crate::analyze::{Finding, Kind};
use crate::profile::{ContextId, Site, Timeline, Walk};

/// A shorter run is mostly its start.
const LEAST_S: f64 = 10.0;
/// The first part of the run does not count.
const START: f64 = 0.2;
const LEAST_POINTS: usize = 20;
const LEAST_BYTES: u64 = 16 << 20;
/// Growth, as a part of what was live after the start.
const LEAST_GROWTH: f64 = 0.5;
/// Of the growth, what each quarter has at least; all alike would be 0.25.
const LEAST_QUARTER: f64 = 0.15;
/// Tasks and threads may become more by this part, and by a few.
const STEADY: f64 = 1.1;
const FEW: f64 = 2.0;
/// Between the two walks, as a part of the run.
const APART: f64 = 0.25;
/// Of the growth, what one function makes.
const MOST: f64 = 0.5;

pub struct Growth;

pub struct Grower {
    site: Site,
    grown: u64,
    took_s: f64,
    tasks: u64,
    claims: Claims,
}

impl Rule for Growth {
    type Suspect = Grower;

    fn looks_for(&self, _: &Facts) -> String {
        format!(
            "growth of {} or more without end, from one function, in a program that ran for {} \
             or more and did not end by itself",
            size(LEAST_BYTES),
            seconds(LEAST_S)
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<Grower> {
        let program = &facts.profile.program;
        if program.exit_code.is_some() || program.duration_s < LEAST_S {
            return Vec::new();
        }
        let since_s = program.duration_s * START;
        let steady = steady(&facts.profile.timeline, since_s);
        let before = first_walk(facts, since_s);
        steady
            .zip(before)
            .and_then(|(tasks, before)| grower(facts, before, tasks))
            .into_iter()
            .collect()
    }

    fn claims(&self, grower: &Grower) -> Claims {
        grower.claims.clone()
    }

    fn describe(&self, _: &Facts, grower: &Grower) -> Finding {
        let tasks = match grower.tasks {
            0 => "threads".to_owned(),
            _ => "tasks and threads".to_owned(),
        };
        Finding {
            kind: Kind::Growth,
            title: format!(
                "{} more in {}, and no end of it, while the number of {tasks} stayed as it was{}",
                size(grower.grown),
                seconds(grower.took_s),
                places::made_in(Some(&grower.site)),
            ),
            bytes: grower.grown,
            site: Some(grower.site.clone()),
            owner_name: None,
            count: 1,
            advice: "bound it: evict what is old, drain what is queued, drop what is done with"
                .to_owned(),
        }
    }
}

/// The number of tasks, if live bytes rose all the time since then, and tasks and threads did not.
fn steady(timeline: &Timeline, since_s: f64) -> Option<u64> {
    let from = (timeline.at_ms.iter()).position(|at| f64::from(*at) >= since_s * 1000.0)?;
    let bytes = timeline.live_bytes.get(from..)?;
    let (first, last) = (*bytes.first()?, *bytes.last()?);
    let grown = last.checked_sub(first)?;
    if bytes.len() < LEAST_POINTS
        || grown < LEAST_BYTES
        || (grown as f64) < first as f64 * LEAST_GROWTH
    {
        return None;
    }
    let at = |quarter: usize| bytes[(bytes.len() - 1) * quarter / 4];
    let rose = |quarter: usize| at(quarter + 1).saturating_sub(at(quarter)) as f64;
    if (0..4).any(|quarter| rose(quarter) < grown as f64 * LEAST_QUARTER) {
        return None;
    }
    let tasks = timeline.tasks_alive.get(from..)?;
    let threads = timeline.threads_alive.get(from..)?;
    let stayed = |first: f64, most: f64| most <= first * STEADY + FEW;
    let most_tasks = *tasks.iter().max()?;
    let most_threads = *threads.iter().max()?;
    let both = stayed(*tasks.first()? as f64, most_tasks as f64)
        && stayed(f64::from(*threads.first()?), f64::from(most_threads));
    both.then_some(most_tasks)
}

/// The first one after the start, if it is long enough before the one that the report speaks of.
fn first_walk<'a>(facts: &Facts<'a>, since_s: f64) -> Option<&'a Walk> {
    let apart = facts.profile.program.duration_s * APART;
    let first = facts
        .profile
        .walks
        .iter()
        .find(|walk| walk.at_s >= since_s)?;
    (facts.walk.at_s - first.at_s >= apart).then_some(first)
}

/// The function that made most of what came between the two walks.
fn grower(facts: &Facts, before: &Walk, tasks: u64) -> Option<Grower> {
    let were: HashMap<ContextId, u64> = (before.contexts.iter())
        .map(|(context, bytes, _)| (*context, *bytes))
        .collect();
    let mut functions: HashMap<(String, Option<String>), Claims> = HashMap::new();
    for (context, bytes, _) in &facts.walk.contexts {
        let grown = bytes.saturating_sub(were.get(context).copied().unwrap_or(0));
        if grown > 0 {
            let site = facts.site(facts.node(*context));
            let claims = functions.entry((site.function, site.file)).or_default();
            *claims.0.entry(*context).or_default() += grown;
        }
    }
    let most = functions.into_values().max_by_key(Claims::bytes)?;
    let whole = facts.walk.live_bytes.checked_sub(before.live_bytes)?;
    let grown = most.bytes();
    let enough = grown >= LEAST_BYTES && grown as f64 >= whole as f64 * MOST;
    enough.then_some(())?;
    Some(Grower {
        site: places::of_most(facts, &most)?,
        grown,
        took_s: facts.walk.at_s - before.at_s,
        tasks,
        claims: most,
    })
}
