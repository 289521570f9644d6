//! Many tasks that do nothing and hold much.
//!
//! Waiting is what tasks are for: thousands of idle connections are healthy. What makes idling
//! a fault is what each task holds meanwhile, and uses: untouched buffers and the cell itself
//! don't count here, and neither does what a connection needs (some kilobytes). Fewer tasks are
//! not judged at all: a worker that waits for its next job keeps what it works with.

use std::collections::BTreeMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, places, size};
use crate::analyze::figures::{count, seconds};
use crate::analyze::tasks::merged;
use crate::analyze::{Finding, Kind};
use crate::profile::{HeldBy, WalkTask, percentile};

const LEAST_TASKS: u64 = 200;
/// Held and used by each, its cell aside: more than the buffers of a connection.
const LEAST_EACH: u64 = 8 << 10;
/// Half of the tasks have done nothing for so long.
const LEAST_IDLE_MS: u64 = 1000;
/// Part of the heap, in percent.
const LEAST_PART: u64 = 5;

pub struct IdleTasks;

pub struct Idle {
    name: String,
    tasks: u64,
    idle_ms: u64,
    join_dropped: bool,
    claims: Claims,
}

/// Have many tasks of this type done nothing for long?
pub fn are_idle(facts: &Facts, name: &str) -> bool {
    let of_type = |task: &&WalkTask| task.owner.is_some_and(|id| facts.owner(id).name == name);
    let rows: Vec<&WalkTask> = facts.walk.tasks.iter().filter(of_type).collect();
    rows.iter().map(|task| task.live).sum::<u64>() >= LEAST_TASKS
        && median_idle_ms(&rows) >= LEAST_IDLE_MS
}

fn median_idle_ms(rows: &[&WalkTask]) -> u64 {
    percentile(&merged(rows.iter().map(|task| &task.idle_ms)), 0.5)
}

impl Rule for IdleTasks {
    type Suspect = Idle;

    fn looks_for(&self, facts: &Facts) -> String {
        format!(
            "{LEAST_TASKS} or more tasks of one type, idle for {} (median), each using {} or more \
             beside its future, {} in all",
            seconds(LEAST_IDLE_MS as f64 / 1000.0),
            size(LEAST_EACH),
            size(facts.least())
        )
    }

    fn check(&self, facts: &Facts, ledger: &Ledger) -> Vec<Idle> {
        let mut types: BTreeMap<&str, Vec<&WalkTask>> = BTreeMap::new();
        for task in &facts.walk.tasks {
            if let Some(owner) = task.owner.map(|id| facts.owner(id))
                && owner.is_task()
            {
                types.entry(&owner.name).or_default().push(task);
            }
        }
        let types = types.into_iter().filter(|(name, _)| are_idle(facts, name));
        types
            .filter_map(|(name, rows)| judge(facts, ledger, name, &rows))
            .collect()
    }

    fn claims(&self, idle: &Idle) -> Claims {
        idle.claims.clone()
    }

    fn describe(&self, facts: &Facts, idle: &Idle) -> Finding {
        let bytes = idle.claims.bytes();
        let largest = Claims::of(
            (idle.claims.0.iter())
                .filter(|(context, _)| !facts.is_cell(**context))
                .map(|(context, bytes)| (*context, *bytes)),
        );
        let site = places::of_most(facts, &largest);
        let nobody_waits = match idle.join_dropped {
            true => ", and nobody has their JoinHandle",
            false => "",
        };
        Finding {
            kind: Kind::IdleTasks,
            title: format!(
                "{} tasks of {} have been idle for {} (median) and hold {}, {} each{nobody_waits}{}",
                count(idle.tasks),
                idle.name,
                seconds(idle.idle_ms as f64 / 1000.0),
                size(bytes),
                size(bytes / idle.tasks.max(1)),
                places::made_in(site.as_ref()),
            ),
            bytes,
            site,
            owner_name: Some(idle.name.clone()),
            count: idle.tasks,
            advice: "end them with what they serve (abort the JoinHandle, a CancellationToken, a \
                     timeout), or give the buffers back while they wait"
                .to_owned(),
        }
    }
}

fn judge(facts: &Facts, ledger: &Ledger, name: &str, rows: &[&WalkTask]) -> Option<Idle> {
    let tasks: u64 = rows.iter().map(|task| task.live).sum();
    let mut claims = Claims::default();
    let mut used = 0;
    for id in rows.iter().filter_map(|task| task.owner) {
        for (context, held) in facts.held(HeldBy::Task(id)).0 {
            let free = held.min(ledger.free(context));
            *claims.0.entry(context).or_default() += free;
            if !facts.is_cell(context) {
                used += free.saturating_sub(facts.blank(context));
            }
        }
    }
    let each = used / tasks.max(1);
    let enough = used >= facts.least() && used * 100 >= facts.walk.live_bytes * LEAST_PART;
    (each >= LEAST_EACH && enough).then(|| Idle {
        name: name.to_owned(),
        tasks,
        idle_ms: median_idle_ms(rows),
        join_dropped: rows.iter().map(|task| task.join_dropped).sum::<u64>() >= tasks,
        claims,
    })
}
