//! Blocks that nothing reaches: allocated, and lost.
//!
//! A leaked structure is one mistake, made where the block was made that leads to the rest.
//! Leaks stay, so the last walk knows all of them; what is only possibly leaked accuses nobody.

use std::collections::BTreeMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, places, size};
use crate::analyze::figures::counted;
use crate::analyze::{Finding, Kind};
use crate::profile::{ContextId, Site};

/// Of what other findings need: no healthy program leaks.
const PART: u64 = 4;

pub struct Leaks;

#[derive(Default)]
pub struct Leak {
    site: Site,
    largest: u64,
    blocks: u64,
    bytes: u64,
    /// Blocks that no other leaked block leads to.
    roots: u64,
    cycle: bool,
    contexts: Vec<(ContextId, u64)>,
}

impl Rule for Leaks {
    type Suspect = Leak;

    fn looks_for(&self, facts: &Facts) -> String {
        let least = size(facts.least() / PART);
        format!("leaks of {least} or more from one function")
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<Leak> {
        let leaks = facts.profile.walks.last().map_or(&[][..], |w| &w.leaks);
        let mut found: BTreeMap<(String, Option<String>), Leak> = BTreeMap::new();
        for leak in leaks.iter().filter(|leak| !leak.possible) {
            let Some(root) = leak.root_context.or(leak.context) else {
                continue;
            };
            let site = facts.site(facts.node(root));
            let key = (site.function.clone(), site.file.clone());
            let sum = found.entry(key).or_default();
            sum.blocks += leak.blocks;
            sum.bytes += leak.bytes;
            sum.roots += leak.blocks - leak.indirect_blocks.min(leak.blocks);
            sum.cycle |= leak.cycle;
            sum.contexts.extend(leak.context.map(|at| (at, leak.bytes)));
            // The line that leads to most.
            if leak.bytes > sum.largest || sum.site.function.is_empty() {
                sum.largest = leak.bytes;
                sum.site = site;
            }
        }
        let mut found: Vec<Leak> = found.into_values().collect();
        found.retain(|leak| leak.bytes >= facts.least() / PART);
        found
    }

    fn claims(&self, leak: &Leak) -> Claims {
        Claims::of(leak.contexts.iter().copied())
    }

    fn describe(&self, _: &Facts, leak: &Leak) -> Finding {
        let what = match leak.cycle {
            true => "in structures that hold themselves",
            false => "that nothing points to any more",
        };
        let advice = match leak.cycle {
            true => {
                "break the cycle of Arc or Rc: hold the way back by a Weak, or clear it when the \
                 owner is done"
            }
            false => {
                "free it: look for Box::leak, mem::forget, into_raw without from_raw, or C code \
                 that is not told to free"
            }
        };
        Finding {
            kind: Kind::Leak,
            title: format!(
                "{} leaked: {} {what}{}",
                size(leak.bytes),
                counted(leak.blocks, "block"),
                places::made_in(Some(&leak.site))
            ),
            bytes: leak.bytes,
            site: Some(leak.site.clone()),
            owner_name: None,
            count: leak.roots.max(1),
            advice: advice.to_owned(),
        }
    }
}
