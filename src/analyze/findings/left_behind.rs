//! What each task leaves in the program when it is done: an entry in a map of sessions, a metric
//! with a label of its own.
//!
//! It is growth without end, told by the number of tasks instead of by time, so that a short run
//! shows it, too, and a server at night. Each task that is gone left at least one block of a
//! context, so nothing was ever taken out; a cache that is full, or one whose entries are asked for
//! again, has fewer. Something of the program's own keeps them: a static, or several of its parts.
//! A batch job gathers its results on its way to the end, and is not accused of it: where one stack
//! or one other task keeps them, the program has to be of the kind that does not end by itself.

use std::collections::{BTreeMap, HashMap};

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, places, size};
use crate::analyze::figures::count;
use crate::analyze::{Finding, Kind};
use crate::profile::{ContextId, HeldBy, OwnerId};

const LEAST_GONE: u64 = 1000;
const LEAST_BYTES: u64 = 4 << 20;
/// Blocks of a context for each task that is gone.
const LEAST_EACH: f64 = 0.9;

pub struct LeftBehind;

pub struct Left {
    owner: OwnerId,
    gone: u64,
    /// `server::SESSIONS`, if it has a name.
    holder: Option<String>,
    claims: Claims,
}

impl Rule for LeftBehind {
    type Suspect = Left;

    fn looks_for(&self, facts: &Facts) -> String {
        format!(
            "blocks that each task of one type leaves behind when it ends, {} or more tasks, {} \
             or more in all",
            count(LEAST_GONE),
            size(LEAST_BYTES.max(facts.least()))
        )
    }

    fn check(&self, facts: &Facts, ledger: &Ledger) -> Vec<Left> {
        let mut held: HashMap<(OwnerId, HeldBy), BTreeMap<ContextId, (u64, u64)>> = HashMap::new();
        for row in &facts.walk.held {
            let owner = facts.context_owner(row.context);
            if gone(facts, owner) >= LEAST_GONE && keeps(facts, owner, row.by) {
                let sum = held.entry((owner, row.by)).or_default();
                let (blocks, bytes) = sum.entry(row.context).or_default();
                *blocks += row.blocks;
                *bytes += row.bytes;
            }
        }
        let mut found: Vec<Left> = held
            .into_iter()
            .filter_map(|((owner, by), contexts)| left(facts, ledger, owner, by, contexts))
            .collect();
        found.sort_by_key(|left| (left.owner, std::cmp::Reverse(left.claims.bytes())));
        found
    }

    fn claims(&self, left: &Left) -> Claims {
        left.claims.clone()
    }

    fn describe(&self, facts: &Facts, left: &Left) -> Finding {
        let owner = facts.owner(left.owner);
        let bytes = left.claims.bytes();
        let site = places::of_most(facts, &left.claims);
        let kind = match owner.is_task() {
            true => "task",
            false => "thread",
        };
        let holder = left.holder.as_deref();
        Finding {
            kind: Kind::Growth,
            title: format!(
                "each {kind} of {} leaves {} behind{}: {} of {} that are gone{}",
                owner.name,
                size(bytes / left.gone),
                holder.map_or_else(String::new, |name| format!(" in {name}")),
                size(bytes),
                count(left.gone),
                places::made_in(site.as_ref()),
            ),
            bytes,
            site,
            owner_name: Some(owner.name.clone()),
            count: left.gone,
            advice: format!(
                "take it out of {} when the {kind} is done (a guard with Drop), or bound it: a \
                 cache with a size or a time to live",
                holder.unwrap_or("where it is kept")
            ),
        }
    }
}

/// How many there were that are no more.
fn gone(facts: &Facts, owner: OwnerId) -> u64 {
    let owner = facts.owner(owner);
    owner.spawned.saturating_sub(owner.alive)
}

/// Would it stay in the program when tasks of this type are done?
fn keeps(facts: &Facts, owner: OwnerId, by: HeldBy) -> bool {
    let ends_by_itself = facts.profile.program.exit_code.is_some();
    match by {
        HeldBy::Static(_) | HeldBy::Data | HeldBy::Several => true,
        HeldBy::Task(other) => other != owner && !ends_by_itself,
        HeldBy::Stack(_) => !ends_by_itself,
        _ => false,
    }
}

fn left(
    facts: &Facts,
    ledger: &Ledger,
    owner: OwnerId,
    by: HeldBy,
    mut contexts: BTreeMap<ContextId, (u64, u64)>,
) -> Option<Left> {
    let gone = gone(facts, owner);
    contexts.retain(|_, (blocks, _)| *blocks as f64 >= gone as f64 * LEAST_EACH);
    let claims =
        Claims::of((contexts.into_iter()).map(|(at, (_, bytes))| (at, bytes.min(ledger.free(at)))));
    let least = LEAST_BYTES.max(facts.least());
    (claims.bytes() >= least).then(|| Left {
        owner,
        gone,
        holder: match by {
            HeldBy::Static(at) => Some(facts.walk.statics[at as usize].name.clone()),
            _ => None,
        },
        claims,
    })
}
