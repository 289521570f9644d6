//! Blocks whose maker is gone and that something else keeps.

use std::collections::{HashMap, HashSet};

use super::heap::Heap;
use super::names::Names;
use super::reach::{NOBODY, Reach, SHARED};
use crate::profile::{ContextId, OwnerId, WalkOwnerGone};

#[derive(Default)]
struct Left {
    rows: HashSet<u32>,
    blocks: u64,
    bytes: u64,
    /// Bytes by colour of the holder.
    kept_by: HashMap<u32, u64>,
}

/// One row for each context, largest first.
pub(super) fn find(heap: &Heap, reach: &Reach, names: &Names) -> Vec<WalkOwnerGone> {
    let mut left: HashMap<(u32, u32), Left> = HashMap::new();
    for (block, &colour) in heap.blocks.iter().zip(&reach.colour) {
        let maker = heap.rows.get(block.row as usize);
        let Some(maker) = maker.filter(|row| block.row != 0 && row.state.is_gone()) else {
            continue;
        };
        let shared = heap
            .contexts
            .get(block.context as usize)
            .is_some_and(|c| c.shared);
        if shared || colour == NOBODY {
            continue;
        }
        let left = left.entry((block.context, maker.owner)).or_default();
        left.rows.insert(block.row);
        left.blocks += 1;
        left.bytes += block.size;
        *left.kept_by.entry(colour).or_default() += block.size;
    }
    let mut rows: Vec<WalkOwnerGone> = left
        .into_iter()
        .map(|((context, owner), left)| WalkOwnerGone {
            context: Some(ContextId(context)),
            owner: Some(OwnerId(owner)),
            owners: left.rows.len() as u64,
            blocks: left.blocks,
            bytes: left.bytes,
            kept_by: keeper(&left, names),
        })
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.context));
    rows
}

/// The name that keeps most of it, if one keeps more than half.
fn keeper(left: &Left, names: &Names) -> String {
    let mut bytes: HashMap<String, u64> = HashMap::new();
    for (&colour, &kept) in &left.kept_by {
        if colour != SHARED {
            *bytes.entry(names.of_colour(colour)).or_default() += kept;
        }
    }
    let most = bytes.into_iter().max_by_key(|(_, kept)| *kept);
    most.filter(|(_, kept)| kept * 2 > left.bytes)
        .map_or(String::new(), |(name, _)| name)
}
