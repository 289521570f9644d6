//! Memory that no allocator handed out: mapped by the program or a library itself.

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, size};
use crate::analyze::figures::percent;
use crate::analyze::{Finding, Kind};
use crate::profile::Memory;

const LEAST_BYTES: u64 = 16 << 20;
/// Part of the resident set, in percent.
const LEAST_PART: u64 = 25;

pub struct OutsideHeap;

impl Rule for OutsideHeap {
    type Suspect = Memory;

    fn looks_for(&self, _: &Facts) -> String {
        format!(
            "memory that the program mapped itself, {} or more and {LEAST_PART}% of RSS",
            size(LEAST_BYTES)
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<Memory> {
        // The heap may be fullest when the mappings are not there any more.
        let looks = [facts.profile.memory.as_ref(), Some(&facts.walk.memory)];
        let large = |memory: &&Memory| {
            memory.other_mappings_bytes >= LEAST_BYTES
                && memory.other_mappings_bytes * 100 >= memory.rss_bytes * LEAST_PART
        };
        let looks = looks.into_iter().flatten().filter(large);
        let most = looks.max_by_key(|memory| memory.other_mappings_bytes);
        most.cloned().into_iter().collect()
    }

    fn claims(&self, _: &Memory) -> Claims {
        Claims::default()
    }

    fn describe(&self, _: &Facts, memory: &Memory) -> Finding {
        let bytes = memory.other_mappings_bytes;
        Finding {
            kind: Kind::OutsideHeap,
            title: format!(
                "{} lie outside the heap, {} of RSS{}: mapped by the program or a library itself",
                size(bytes),
                percent(bytes, memory.rss_bytes),
                at(memory),
            ),
            bytes,
            site: None,
            owner_name: None,
            count: 1,
            advice: "look for mmap in the program and its libraries (arenas, memory-mapped \
                     buffers, JIT code): /proc/PID/smaps shows the mappings"
                .to_owned(),
        }
    }
}

fn at(memory: &Memory) -> String {
    match memory.moment.is_empty() {
        true => String::new(),
        false => format!(" at {}", memory.moment),
    }
}
