//! One value per thread: cheap with eight workers, not with five hundred blocking threads.

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, places, size};
use crate::analyze::figures::count;
use crate::analyze::{Finding, Kind};
use crate::profile::{HeldBy, WalkThreadLocal, percentile};

/// Values smaller than this are what thread-locals are for.
const LEAST_EACH: u64 = 16 << 10;

pub struct ThreadLocals;

pub struct PerThread {
    /// Into the walk's thread-locals.
    at: usize,
    claims: Claims,
}

impl Rule for ThreadLocals {
    type Suspect = PerThread;

    fn looks_for(&self, facts: &Facts) -> String {
        format!(
            "thread-locals of {} or more on each thread, {} or more beyond the first",
            size(LEAST_EACH),
            size(facts.least())
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<PerThread> {
        let is_large = |local: &WalkThreadLocal| {
            local.threads >= 2
                && beyond_one(local) >= facts.least()
                && percentile(&local.per_thread, 0.5) >= LEAST_EACH
        };
        let rows = facts.walk.thread_locals.iter().enumerate();
        rows.filter(|(_, local)| is_large(local))
            .map(|(at, _)| PerThread {
                at,
                claims: facts.held(HeldBy::ThreadLocal(at as u32)),
            })
            .collect()
    }

    fn claims(&self, suspect: &PerThread) -> Claims {
        suspect.claims.clone()
    }

    fn describe(&self, facts: &Facts, suspect: &PerThread) -> Finding {
        let local = &facts.walk.thread_locals[suspect.at];
        let equal = local.identical == Some(true);
        let site = places::of_structure(facts, local.node, &suspect.claims);
        let (what, advice) = match equal {
            true => (
                "the same",
                "share one value: a static LazyLock or OnceLock, or an Arc handed to the threads",
            ),
            false => (
                "a value of its own,",
                "keep fewer: a bounded pool instead of a thread-local, fewer blocking threads \
                 (max_blocking_threads), or shrink it after use",
            ),
        };
        Finding {
            kind: Kind::ThreadLocal,
            title: format!(
                "thread-local {}: {} threads keep {what} {} each, {} in all{}",
                local.name,
                count(local.threads),
                size(percentile(&local.per_thread, 0.5)),
                size(local.bytes),
                places::made_in(site.as_ref()),
            ),
            // With one value for all, that one would remain.
            bytes: match equal {
                true => beyond_one(local),
                false => local.bytes,
            },
            site,
            owner_name: Some(local.name.clone()),
            count: local.threads,
            advice: advice.to_owned(),
        }
    }
}

fn beyond_one(local: &WalkThreadLocal) -> u64 {
    local.bytes - local.bytes / local.threads.max(1)
}
