//! Memory that the program freed and the allocator keeps.

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, size};
use crate::analyze::figures::percent;
use crate::analyze::{Finding, Kind};
use crate::profile::Memory;

const LEAST_BYTES: u64 = 4 << 20;
/// Part of the resident set, the profiler's own aside, in percent.
const LEAST_PART: u64 = 25;

pub struct Retained;

impl Rule for Retained {
    type Suspect = Memory;

    fn looks_for(&self, _: &Facts) -> String {
        format!(
            "freed memory that the allocator keeps, {} or more and {LEAST_PART}% of RSS",
            size(LEAST_BYTES)
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<Memory> {
        let large = |memory: &&Memory| {
            memory.retained_bytes >= LEAST_BYTES
                && memory.retained_bytes * 100 >= own_rss(memory) * LEAST_PART
        };
        facts
            .lasting_memory()
            .filter(large)
            .cloned()
            .into_iter()
            .collect()
    }

    fn claims(&self, _: &Memory) -> Claims {
        Claims::default()
    }

    fn describe(&self, _: &Facts, memory: &Memory) -> Finding {
        let fragmented = memory.fragmented_bytes * 2 >= memory.retained_bytes;
        let (state, advice) = match fragmented {
            true => (
                "fragmented: in holes between blocks that are live",
                "allocate what lives long before bursts, or use an allocator that separates sizes \
                 (jemalloc, mimalloc); fewer arenas help (MALLOC_ARENA_MAX=2)",
            ),
            false => (
                "cached: on whole pages that it could give back",
                "after bursts call malloc_trim(0), set MALLOC_TRIM_THRESHOLD_ and \
                 MALLOC_ARENA_MAX, or use jemalloc, which gives pages back by itself",
            ),
        };
        Finding {
            kind: Kind::Retained,
            title: format!(
                "the allocator keeps {} free, {} of RSS ({}), {state}",
                size(memory.retained_bytes),
                percent(memory.retained_bytes, own_rss(memory)),
                memory.moment,
            ),
            bytes: memory.retained_bytes,
            site: None,
            owner_name: None,
            count: 1,
            advice: advice.to_owned(),
        }
    }
}

fn own_rss(memory: &Memory) -> u64 {
    memory.rss_bytes.saturating_sub(memory.profiler_bytes)
}
