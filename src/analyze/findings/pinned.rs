//! Large blocks that only a small slice keeps: `Bytes` that show some words of a whole message.
//!
//! A slice of a buffer is how bytes are passed on without copying, and healthy while it lives
//! shortly. What makes it a fault is the sum: blocks of which little is shown, and nobody else
//! keeps. It says the cause, so it comes before what only notices large or equal blocks.

use std::collections::BTreeMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::wasted::{Blocks, Key, Row};
use super::{Rule, places, size};
use crate::analyze::{Finding, Kind};

/// Mean size of the blocks: a slice of less saves nothing by being copied.
const LEAST_BLOCK: u64 = 1 << 10;

pub struct Pinned;

#[derive(Default)]
pub struct Kept {
    of: Blocks,
    used: u64,
}

impl Kept {
    fn unused(&self) -> u64 {
        self.of.bytes.saturating_sub(self.used)
    }
}

impl Rule for Pinned {
    type Suspect = Kept;

    fn looks_for(&self, facts: &Facts) -> String {
        format!(
            "blocks of {} or more that slices keep which show a quarter of them or less, {} or \
             more",
            size(LEAST_BLOCK),
            size(facts.least())
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<Kept> {
        let mut places: BTreeMap<Key, Kept> = BTreeMap::new();
        for row in &facts.walk.pinned {
            let Some(context) = row.context else { continue };
            if row.bytes / row.blocks.max(1) < LEAST_BLOCK {
                continue;
            }
            let sum = places.entry(Blocks::key(facts, context)).or_default();
            sum.used += row.used_bytes;
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
        let mut found: Vec<Kept> = places.into_values().collect();
        found.retain(|kept| kept.unused() >= facts.least());
        found.sort_by_key(|kept| std::cmp::Reverse(kept.unused()));
        found
    }

    fn claims(&self, kept: &Kept) -> Claims {
        kept.of.claims.clone()
    }

    fn describe(&self, _: &Facts, kept: &Kept) -> Finding {
        let of = &kept.of;
        Finding {
            kind: Kind::Pinned,
            title: format!(
                "{} kept whole by slices that show {} each: {}{}{}",
                of.how_many(),
                size(kept.used / of.blocks.max(1)),
                size(of.bytes),
                places::made_in(Some(&of.site)),
                of.by(),
            ),
            bytes: kept.unused(),
            site: Some(of.site.clone()),
            owner_name: of.maker().map(str::to_owned),
            count: of.blocks,
            advice: "copy what is kept for long out of the buffer (Bytes::copy_from_slice, \
                     to_vec, to_owned), so that the buffer can go"
                .to_owned(),
        }
    }
}
