//! Large blocks of which little is used: never touched, zero from end to end, or room in a
//! collection that has no element there.
//!
//! Growing collections are half empty at times, and hash tables more than that; a buffer that
//! was made once for all is nobody's fault. So most of a block has to be unused, and either many
//! blocks are like that, or one is a large part of the heap.

use std::collections::BTreeMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::wasted::{Blocks, Key, Row};
use super::{Rule, places, size};
use crate::analyze::figures::percent;
use crate::analyze::{Finding, Kind};

/// Mean size of the blocks: buffers of up to 8 KB are the default of std and of most libraries.
const LEAST_BLOCK: u64 = 16 << 10;
/// Unused share, in percent: beyond what growth by doubling leaves empty.
const LEAST_UNUSED: u64 = 75;
const LEAST_BLOCKS: u64 = 4;
/// Fewer blocks count if they are so large a part of the heap, in percent.
const LARGE_PART: u64 = 25;

pub struct Oversized;

#[derive(Default)]
pub struct Unused {
    of: Blocks,
    untouched: u64,
    zero: u64,
    spare: u64,
}

impl Unused {
    fn unused(&self) -> u64 {
        self.untouched + self.zero + self.spare
    }
}

impl Rule for Oversized {
    type Suspect = Unused;

    fn looks_for(&self, facts: &Facts) -> String {
        format!(
            "blocks of {} or more of which {LEAST_UNUSED}% are zero, untouched or \
             spare room, {} or more",
            size(LEAST_BLOCK),
            size(facts.least())
        )
    }

    fn check(&self, facts: &Facts, ledger: &Ledger) -> Vec<Unused> {
        let mut places: BTreeMap<Key, Unused> = BTreeMap::new();
        for row in &facts.walk.oversized {
            let Some(context) = row.context else { continue };
            let small = row.bytes / row.blocks.max(1) < LEAST_BLOCK;
            let explained = ledger.free(context) * 2 < row.bytes;
            if small || explained || facts.is_cell(context) {
                continue;
            }
            let sum = places.entry(Blocks::key(facts, context)).or_default();
            sum.untouched += row.untouched_bytes;
            sum.zero += row.zero_bytes;
            sum.spare += row.spare_bytes;
            let (owners, blocks, bytes) = (row.owners, row.blocks, row.bytes);
            sum.of.add(
                facts,
                &Row {
                    context,
                    owners,
                    blocks,
                    bytes,
                },
            );
        }
        let mut found: Vec<Unused> = places.into_values().collect();
        found.retain(|unused| {
            let part = unused.unused() * 100 / facts.walk.live_bytes.max(1);
            unused.unused() >= facts.least()
                && unused.unused() * 100 >= unused.of.bytes * LEAST_UNUSED
                && (unused.of.blocks >= LEAST_BLOCKS || part >= LARGE_PART)
        });
        found.sort_by_key(|unused| std::cmp::Reverse(unused.unused()));
        found
    }

    fn claims(&self, unused: &Unused) -> Claims {
        unused.of.claims.clone()
    }

    fn describe(&self, _: &Facts, unused: &Unused) -> Finding {
        let bytes = unused.unused();
        let most = [
            (unused.untouched, "never touched"),
            (unused.zero, "zero"),
            (unused.spare, "without elements"),
        ];
        let state = most.iter().rev().max_by_key(|(bytes, _)| *bytes);
        let state = state.map_or("unused", |(_, state)| state);
        let of = &unused.of;
        Finding {
            kind: Kind::Oversized,
            title: format!(
                "{}, {} {state}: {}{}{}",
                of.how_many(),
                percent(bytes, of.bytes),
                size(of.bytes),
                places::made_in(Some(&of.site)),
                of.by(),
            ),
            bytes,
            site: Some(of.site.clone()),
            owner_name: of.maker().map(str::to_owned),
            count: match of.owners {
                0 | 1 => of.blocks,
                owners => owners,
            },
            advice: "ask for less at first and let it grow: a smaller with_capacity or buffer \
                     size (libraries have a setting for it), or make it when it is first needed"
                .to_owned(),
        }
    }
}
