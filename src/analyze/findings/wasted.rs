//! Blocks from one place of which most is waste: what the rules on them add up alike.

use std::collections::BTreeMap;

use super::claims::Claims;
use super::facts::Facts;
use super::size;
use crate::analyze::figures::counted;
use crate::profile::{ContextId, Site};

/// A function, and the file it is written in.
pub type Key = (String, Option<String>);

/// Blocks made in one place.
#[derive(Default)]
pub struct Blocks {
    /// The line that made most of them.
    pub site: Site,
    largest: u64,
    pub owners: u64,
    pub blocks: u64,
    pub bytes: u64,
    /// Task types that made them.
    made_by: BTreeMap<String, u64>,
    pub claims: Claims,
}

/// One row of a walk: blocks of one context.
pub struct Row {
    pub context: ContextId,
    pub owners: u64,
    pub blocks: u64,
    pub bytes: u64,
}

impl Blocks {
    /// The place of a context.
    pub fn key(facts: &Facts, context: ContextId) -> Key {
        let site = facts.site(facts.node(context));
        (site.function, site.file)
    }

    pub fn add(&mut self, facts: &Facts, row: &Row) {
        self.owners += row.owners;
        self.blocks += row.blocks;
        self.bytes += row.bytes;
        self.claims.0.insert(row.context, row.bytes);
        let owner = facts.owner(facts.context_owner(row.context));
        if owner.is_task() {
            *self.made_by.entry(owner.name.clone()).or_default() += row.bytes;
        }
        if row.bytes > self.largest {
            self.largest = row.bytes;
            self.site = facts.site(facts.node(row.context));
        }
    }

    /// The task type that made more than half of them.
    pub fn maker(&self) -> Option<&str> {
        let most = self.made_by.iter().max_by_key(|(_, bytes)| **bytes);
        let (name, _) = most.filter(|(_, made)| **made * 2 > self.bytes)?;
        Some(name)
    }

    /// `, by tasks of server::handler`; empty without a maker.
    pub fn by(&self) -> String {
        self.maker()
            .map_or_else(String::new, |name| format!(", by tasks of {name}"))
    }

    /// `300 blocks of about 64.0 KB`.
    pub fn how_many(&self) -> String {
        let about = if self.blocks > 1 { "about " } else { "" };
        let each = self.bytes / self.blocks.max(1);
        format!("{} of {about}{}", counted(self.blocks, "block"), size(each))
    }
}
