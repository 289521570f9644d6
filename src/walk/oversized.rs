//! Large blocks that are hardly used: never touched, zero from end to end, or left by their owner's
//! elements; and such as only a small slice keeps.

use std::collections::{HashMap, HashSet};

use super::heap::Heap;
use super::reach::{NOBODY, Reach, SHARED};
use super::scan::{LargeFacts, Scan};
use super::usage::Usage;
use crate::profile::{ContextId, WalkOversized, WalkPinned};

/// Of a pinned block, at most one byte of so many is used.
const PINNED: u64 = 4;

/// Beyond what is untouched or zero: room that the owner of a large block has no elements in.
pub(super) fn spare(usage: &HashMap<u32, Usage>, facts: &LargeFacts, size: u64) -> u64 {
    match usage.get(&facts.block) {
        Some(Usage::Filled(used)) => {
            (size - used.min(&size)).saturating_sub(facts.untouched + facts.zero)
        }
        _ => 0,
    }
}

pub(super) struct Finder<'a> {
    pub(super) heap: &'a Heap,
    pub(super) scan: &'a Scan,
    pub(super) reach: &'a Reach,
    pub(super) usage: &'a HashMap<u32, Usage>,
}

impl Finder<'_> {
    /// One row for each context, largest first. A block counts if half of it or more is unused.
    pub(super) fn oversized(&self) -> Vec<WalkOversized> {
        let mut rows: HashMap<u32, (WalkOversized, HashSet<u64>)> = HashMap::new();
        for facts in &self.scan.large {
            let block = self.heap.blocks[facts.block as usize];
            let spare = self.spare(facts, block.size);
            if (facts.untouched + facts.zero + spare) * 2 < block.size {
                continue;
            }
            let (row, owners) = rows.entry(block.context).or_default();
            row.blocks += 1;
            row.bytes += block.size;
            row.untouched_bytes += facts.untouched;
            row.zero_bytes += facts.zero;
            row.spare_bytes += spare;
            owners.insert(self.owner(facts.block));
        }
        let mut rows: Vec<WalkOversized> = rows
            .into_iter()
            .map(|(context, (row, owners))| WalkOversized {
                context: Some(ContextId(context)),
                owners: owners.len() as u64,
                ..row
            })
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.context));
        rows
    }

    fn spare(&self, facts: &LargeFacts, size: u64) -> u64 {
        spare(self.usage, facts, size)
    }

    /// One row for each context, largest first.
    pub(super) fn pinned(&self) -> Vec<WalkPinned> {
        let mut rows: HashMap<u32, (WalkPinned, HashSet<u64>)> = HashMap::new();
        for (&number, usage) in self.usage {
            let block = self.heap.blocks[number as usize];
            let Usage::Sliced(used) = *usage else {
                continue;
            };
            if used > block.size / PINNED || self.reach.is_leaked(number) {
                continue;
            }
            let (row, owners) = rows.entry(block.context).or_default();
            row.blocks += 1;
            row.bytes += block.size;
            row.used_bytes += used;
            owners.insert(self.owner(number));
        }
        let mut rows: Vec<WalkPinned> = rows
            .into_iter()
            .map(|(context, (row, owners))| WalkPinned {
                context: Some(ContextId(context)),
                owners: owners.len() as u64,
                ..row
            })
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.context));
        rows
    }

    /// A number for whoever holds the block, or made it if several hold it.
    fn owner(&self, block: u32) -> u64 {
        match self.reach.colour[block as usize] {
            NOBODY | SHARED => 1 << 32 | u64::from(self.heap.blocks[block as usize].row),
            holder => u64::from(holder),
        }
    }
}
