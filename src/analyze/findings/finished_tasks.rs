//! Tasks that have finished and still take memory: their cell and their output.
//!
//! A few are always there, between a task's end and its `join_next`. Many are tasks that nobody
//! will ever ask for.

use std::collections::BTreeMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, places, size};
use crate::analyze::figures::count;
use crate::analyze::{Finding, Kind};
use crate::profile::HeldBy;

const LEAST_TASKS: u64 = 16;

pub struct FinishedTasks;

pub struct Finished {
    name: String,
    tasks: u64,
    join_dropped: u64,
    live: u64,
    claims: Claims,
}

impl Rule for FinishedTasks {
    type Suspect = Finished;

    fn looks_for(&self, facts: &Facts) -> String {
        format!(
            "finished tasks of one type, {LEAST_TASKS} or more, that keep {} or more",
            size(facts.least())
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<Finished> {
        let mut types: BTreeMap<&str, Finished> = BTreeMap::new();
        for task in &facts.walk.tasks {
            let Some(id) = task.owner else { continue };
            let owner = facts.owner(id);
            let held = facts.held(HeldBy::FinishedTask(id));
            let sum = types.entry(&owner.name).or_insert_with(|| Finished {
                name: owner.name.clone(),
                tasks: 0,
                join_dropped: 0,
                live: 0,
                claims: Claims::default(),
            });
            sum.tasks += task.finished;
            sum.live += task.live;
            sum.join_dropped += task.join_dropped;
            for (context, bytes) in held.0 {
                *sum.claims.0.entry(context).or_default() += bytes;
            }
        }
        types
            .into_values()
            .filter(|sum| sum.tasks >= LEAST_TASKS && sum.claims.bytes() >= facts.least())
            .collect()
    }

    fn claims(&self, finished: &Finished) -> Claims {
        finished.claims.clone()
    }

    fn describe(&self, facts: &Facts, finished: &Finished) -> Finding {
        let bytes = finished.claims.bytes();
        let spawned = facts.of_type(&finished.name).find_map(|id| {
            let context = facts.owner(id).spawn_context?;
            Some(facts.site(facts.node(context)))
        });
        let advice = match finished.join_dropped >= finished.live + finished.tasks / 2 {
            true => {
                "their JoinHandles are gone: something that outlives them keeps a waker of each \
                 (a channel, a Notify, a timer); drop it, or update tokio"
            }
            false => {
                "take their outputs: join_next in a loop beside the spawns, await or drop each \
                 JoinHandle, or spawn on a TaskTracker"
            }
        };
        let where_spawned = places::spawned_in(spawned.as_ref());
        Finding {
            kind: Kind::FinishedTasks,
            title: format!(
                "{} finished tasks of {} still keep {} ({} each){where_spawned}",
                count(finished.tasks),
                finished.name,
                size(bytes),
                size(bytes / finished.tasks.max(1)),
            ),
            bytes,
            site: spawned,
            owner_name: Some(finished.name.clone()),
            count: finished.tasks,
            advice: advice.to_owned(),
        }
    }
}
