//! Stacks that threads once touched deeply, and keep: the kernel never takes a page back.

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, size};
use crate::analyze::figures::count;
use crate::analyze::{Finding, Kind};
use crate::profile::WalkThread;

/// Fewer threads are what a runtime has.
const LEAST_THREADS: u64 = 16;
const LEAST_BYTES: u64 = 4 << 20;
/// Part of the resident set, in percent.
const LEAST_PART: u64 = 5;

pub struct ThreadStacks;

impl Rule for ThreadStacks {
    type Suspect = WalkThread;

    fn looks_for(&self, _: &Facts) -> String {
        format!(
            "resident stacks of {LEAST_THREADS} or more threads of one name, {} or more and \
             {LEAST_PART}% of RSS",
            size(LEAST_BYTES)
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<WalkThread> {
        let rss = facts.walk.memory.rss_bytes;
        let threads = facts.walk.threads.iter().filter(|thread| {
            thread.count >= LEAST_THREADS
                && thread.stack_resident >= LEAST_BYTES
                && thread.stack_resident * 100 >= rss * LEAST_PART
        });
        threads.cloned().collect()
    }

    fn claims(&self, _: &WalkThread) -> Claims {
        Claims::default()
    }

    fn describe(&self, _: &Facts, threads: &WalkThread) -> Finding {
        Finding {
            kind: Kind::ThreadStacks,
            title: format!(
                "the stacks of {} threads ({}) keep {} resident, {} each of {} reserved",
                count(threads.count),
                threads.name,
                size(threads.stack_resident),
                size(threads.stack_resident / threads.count.max(1)),
                size(threads.stack_reserved_each),
            ),
            bytes: threads.stack_resident,
            site: None,
            owner_name: Some(threads.name.clone()),
            count: threads.count,
            advice: "fewer threads (max_blocking_threads, a shorter thread_keep_alive, tasks \
                     instead of threads), or smaller frames: large arrays into a Box"
                .to_owned(),
        }
    }
}
