//! Large blocks that are hardly used: never touched, or zero from end to end.

use std::collections::{HashMap, HashSet};

use super::heap::Heap;
use super::reach::{NOBODY, Reach, SHARED};
use super::scan::Scan;
use crate::profile::{ContextId, WalkOversized};

/// One row for each context, largest first. A block counts if half of it or more is unused.
pub(super) fn find(heap: &Heap, scan: &Scan, reach: &Reach) -> Vec<WalkOversized> {
    let mut rows: HashMap<u32, (WalkOversized, HashSet<u64>)> = HashMap::new();
    for facts in &scan.large {
        let block = heap.blocks[facts.block as usize];
        if (facts.untouched + facts.zero) * 2 < block.size {
            continue;
        }
        let (row, owners) = rows.entry(block.context).or_default();
        row.blocks += 1;
        row.bytes += block.size;
        row.untouched_bytes += facts.untouched;
        row.zero_bytes += facts.zero;
        owners.insert(match reach.colour[facts.block as usize] {
            NOBODY | SHARED => 1 << 32 | u64::from(block.row),
            holder => u64::from(holder),
        });
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
