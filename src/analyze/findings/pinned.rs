//! Large blocks that only a small slice keeps: `Bytes` that show some words of a whole message.
//!
//! A slice of a buffer is how bytes are passed on without copying, and healthy while it lives
//! shortly. What makes it a fault is the sum: blocks of which little is shown, and nobody else
//! keeps. It says the cause, so it comes before what only notices large or equal blocks.

use std::collections::BTreeMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, places, size};
use crate::analyze::figures::counted;
use crate::analyze::{Finding, Kind};
use crate::profile::Site;

/// Mean size of the blocks: a slice of less saves nothing by being copied.
const LEAST_BLOCK: u64 = 1 << 10;

pub struct Pinned;

#[derive(Default)]
pub struct Kept {
    site: Site,
    largest: u64,
    owners: u64,
    blocks: u64,
    bytes: u64,
    used: u64,
    /// Task types that made them.
    made_by: BTreeMap<String, u64>,
    claims: Claims,
}

impl Kept {
    fn unused(&self) -> u64 {
        self.bytes.saturating_sub(self.used)
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
        let mut places: BTreeMap<(String, Option<String>), Kept> = BTreeMap::new();
        for row in &facts.walk.pinned {
            let Some(context) = row.context else { continue };
            if row.bytes / row.blocks.max(1) < LEAST_BLOCK {
                continue;
            }
            let site = facts.site(facts.node(context));
            let sum = places
                .entry((site.function.clone(), site.file.clone()))
                .or_default();
            sum.owners += row.owners;
            sum.blocks += row.blocks;
            sum.bytes += row.bytes;
            sum.used += row.used_bytes;
            sum.claims.0.insert(context, row.bytes);
            let owner = facts.owner(facts.context_owner(context));
            if owner.is_task() {
                *sum.made_by.entry(owner.name.clone()).or_default() += row.bytes;
            }
            if row.bytes > sum.largest {
                sum.largest = row.bytes;
                sum.site = site;
            }
        }
        let mut found: Vec<Kept> = places.into_values().collect();
        found.retain(|kept| kept.unused() >= facts.least());
        found.sort_by_key(|kept| std::cmp::Reverse(kept.unused()));
        found
    }

    fn claims(&self, kept: &Kept) -> Claims {
        kept.claims.clone()
    }

    fn describe(&self, _: &Facts, kept: &Kept) -> Finding {
        let each = kept.bytes / kept.blocks.max(1);
        let maker = kept.made_by.iter().max_by_key(|(_, bytes)| **bytes);
        let maker = maker.filter(|(_, made)| **made * 2 > kept.bytes);
        let by = maker.map_or(String::new(), |(name, _)| format!(", by tasks of {name}"));
        Finding {
            kind: Kind::Pinned,
            title: format!(
                "{} of {}{} kept whole by slices that show {} each: {}{}{by}",
                counted(kept.blocks, "block"),
                if kept.blocks > 1 { "about " } else { "" },
                size(each),
                size(kept.used / kept.blocks.max(1)),
                size(kept.bytes),
                places::made_in(Some(&kept.site)),
            ),
            bytes: kept.unused(),
            site: Some(kept.site.clone()),
            owner_name: maker.map(|(name, _)| name.clone()),
            count: kept.blocks,
            advice: "copy what is kept for long out of the buffer (Bytes::copy_from_slice, \
                     to_vec, to_owned), so that the buffer can go"
                .to_owned(),
        }
    }
}
