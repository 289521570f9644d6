//! The same structure, many times over.
//!
//! Counting equal blocks drowns what matters: one cloned rule tree is 8,000 blocks, and its
//! strings look like 8,000 small copies. So the unit is the largest structure that repeats: a
//! block with all that hangs on it, as many blocks of each size from each stack as another one
//! has. Structures that the same holders have together are one group (a tokenizer keeps its
//! dictionary and its costs by two pointers). Then contents are compared: a group whose members
//! look the same but differ is told as such, and only what is equal can be shared.

use std::collections::HashMap;

use super::equal::Comparer;
use super::image::Memory;
use super::names::Names;
use super::oversized::spare;
use super::reach::{Marks, Reach};
use super::scan::{LARGE, LargeFacts};
use super::shape::{self, mix};
use super::tree::{self, Tree};
use super::usage::Usage;
use super::verdict::Judge;
use super::whose::{Attribution, Whose};
use crate::profile::{self, ContextId, NodeId, OwnerId, WalkCopies};

/// Smaller ones are found by their exact look, or not at all.
const LEAST_OF_FAMILY: u64 = 1024;
/// Of a family in the order of sizes, how much larger the next may be.
const NEARLY: f64 = 1.02;
/// Groups that save less are not told.
const LEAST_BYTES: u64 = 16 << 10;
/// Groups that are told.
const MOST_GROUPS: usize = 500;
/// Members of a group that are asked where they were made.
const MOST_SAMPLED: usize = 64;

struct Group {
    whose: Whose,
    holder_name: String,
    /// The same for groups that the same holders have.
    holders: u64,
    copies: u64,
    bytes_each: u64,
    blocks_each: u64,
    bytes: u64,
    /// Of bytes that were compared, those that are equal.
    equal_share: f64,
    identical: bool,
    waste: u64,
    blank: u64,
    /// One of the members.
    first: u32,
    node: Option<NodeId>,
    /// Bytes by node, of one member.
    nodes: HashMap<u32, u64>,
    /// Bytes by context, of all members.
    contexts: HashMap<u32, u64>,
}

pub(super) struct Finder<'a, M> {
    pub(super) names: &'a Names<'a>,
    pub(super) reach: &'a Reach,
    pub(super) tree: &'a Tree,
    pub(super) comparer: &'a Comparer<'a, M>,
    pub(super) attribution: &'a Attribution<'a>,
    pub(super) usage: &'a HashMap<u32, Usage>,
}

impl<M: Memory> Finder<'_, M> {
    /// Most waste first.
    pub(super) fn find(&self, cells: &Marks) -> Vec<WalkCopies> {
        let mut known = Marks::new(self.reach.colour.len());
        let mut found = Vec::new();
        for members in self.families(cells) {
            let group = self.group(&members).filter(|group| group.identical);
            if let Some(group) = group {
                members.iter().for_each(|member| known.set(*member));
                found.push(group);
            }
        }
        let groups = tree::repeated(self.tree, self.reach, cells, &known);
        let telling = groups.iter().filter(|members| {
            let each = self.tree.bytes(members[0]);
            each * (members.len() as u64 - 1) >= LEAST_BYTES
        });
        found.extend(telling.filter_map(|members| self.group(members)));
        found.sort_by_key(|group| std::cmp::Reverse(group.bytes));
        let found = self.joined_by_structure(found);
        let mut merged = joined_by_holders(found);
        merged.sort_by_key(|group| {
            (
                std::cmp::Reverse(group.waste),
                std::cmp::Reverse(group.bytes),
            )
        });
        merged.truncate(MOST_GROUPS);
        merged.iter().map(|group| self.row(group)).collect()
    }

    /// One structure that was reached by different ways looks different from above: groups of the
    /// same code and nearly the same size whose contents are equal are one.
    fn joined_by_structure(&self, found: Vec<Group>) -> Vec<Group> {
        let judge = self.judge();
        let mut joined: Vec<Group> = Vec::new();
        let mut made_by: HashMap<(Whose, Option<NodeId>), Vec<usize>> = HashMap::new();
        for group in found {
            if group.whose == Whose::Instances || !group.identical {
                joined.push(group);
                continue;
            }
            let others = made_by.entry((group.whose, group.node)).or_default();
            let same = others.iter().find(|&&at| {
                let (a, b) = (joined[at].bytes_each as f64, group.bytes_each as f64);
                let near = a.max(b) <= a.min(b) * NEARLY;
                near && judge.are_identical(joined[at].first, group.first)
            });
            match same {
                Some(&at) => joined[at].absorb(group),
                None => {
                    others.push(joined.len());
                    joined.push(group);
                }
            }
        }
        joined
    }

    fn judge(&self) -> Judge<'_, M> {
        Judge {
            tree: self.tree,
            comparer: self.comparer,
        }
    }

    /// What holders of one kind have by one of their own pointers, made by the same code and of
    /// nearly the same size: copies that have grown apart a little, such as caches.
    fn families(&self, cells: &Marks) -> Vec<Vec<u32>> {
        let stacks = shape::innermost(self.names.heap);
        let mut tops: Vec<((Whose, u64, u64), u64, u32)> = Vec::new();
        for &block in &self.reach.order {
            let bytes = self.tree.bytes(block);
            if bytes < LEAST_OF_FAMILY || !self.tree.is_top(block) || cells.has(block) {
                continue;
            }
            let (whose, _) = self.attribution.kind(block);
            if whose != Whose::Instances {
                let top = self.names.heap.blocks[block as usize];
                let node = self.names.heap.node_of_context(top.context) as usize;
                let stack = stacks.get(node).copied().unwrap_or(0);
                tops.push(((whose, stack, top.size), bytes, block));
            }
        }
        tops.sort_unstable();
        let alike = |a: &((Whose, u64, u64), u64, u32), b: &((Whose, u64, u64), u64, u32)| {
            a.0 == b.0 && b.1 as f64 <= a.1 as f64 * NEARLY
        };
        let families = tops.chunk_by(alike).filter(|family| family.len() > 1);
        families
            .map(|family| family.iter().map(|(_, _, block)| *block).collect())
            .collect()
    }

    fn row(&self, group: &Group) -> WalkCopies {
        let (holder, owner) = match group.whose {
            Whose::Tasks(owner) => (profile::Holder::Task, Some(owner)),
            Whose::Threads(owner) => (profile::Holder::Thread, Some(owner)),
            Whose::ThreadLocal(_) => (profile::Holder::ThreadLocal, None),
            Whose::Instances => (profile::Holder::Instance, None),
        };
        WalkCopies {
            node: shape::common_node(self.names.heap, &group.nodes),
            holder,
            owner: owner.map(OwnerId),
            holder_name: group.holder_name.clone(),
            copies: group.copies,
            bytes_each: group.bytes_each,
            blocks_each: group.blocks_each,
            bytes: group.bytes,
            identical: Some(group.identical),
            equal_share: group.equal_share,
            waste_bytes: group.waste,
            blank_bytes: group.blank,
            contexts: contexts(&group.contexts),
        }
    }

    /// `None` if it says nothing.
    fn group(&self, members: &[u32]) -> Option<Group> {
        let (whose, holders) = self.attribution.of_members(members);
        let verdict = self.judge().judge(whose, members);
        if whose == Whose::Instances && verdict.waste < LEAST_BYTES {
            return None;
        }
        let nodes = self.nodes(members[0]);
        let count = members.len() as u64;
        let bytes: u64 = members.iter().map(|member| self.tree.bytes(*member)).sum();
        Some(Group {
            whose,
            holder_name: self.attribution.holder_name(whose, members),
            holders,
            copies: count,
            bytes_each: bytes / count,
            blocks_each: self.tree.below(members[0]).len() as u64,
            bytes,
            equal_share: verdict.share,
            identical: verdict.identical,
            waste: verdict.waste,
            blank: members.iter().map(|member| self.blank(*member)).sum(),
            first: members[0],
            node: shape::common_node(self.names.heap, &nodes),
            nodes,
            contexts: self.contexts(members),
        })
    }

    /// Zero, untouched and spare bytes in the large blocks of a structure.
    fn blank(&self, member: u32) -> u64 {
        let scan = self.comparer.scan;
        if self.tree.bytes(member) < LARGE {
            return 0;
        }
        let facts = self
            .tree
            .below(member)
            .iter()
            .filter_map(|&block| scan.large(block));
        let size = |facts: &LargeFacts| self.names.heap.blocks[facts.block as usize].size;
        facts
            .map(|facts| facts.untouched + facts.zero + spare(self.usage, &facts, size(&facts)))
            .sum()
    }

    fn nodes(&self, member: u32) -> HashMap<u32, u64> {
        let heap = self.names.heap;
        let mut nodes = HashMap::new();
        for &block in self.tree.below(member) {
            let block = heap.blocks[block as usize];
            *nodes
                .entry(heap.node_of_context(block.context))
                .or_default() += block.size;
        }
        nodes
    }

    /// Members made by one line need not be of one context: tasks, and whoever runs them.
    fn contexts(&self, members: &[u32]) -> HashMap<u32, u64> {
        let heap = self.names.heap;
        let step = members.len().div_ceil(MOST_SAMPLED);
        let sample: Vec<u32> = members.iter().copied().step_by(step).collect();
        let mut contexts: HashMap<u32, u64> = HashMap::new();
        for &member in &sample {
            for &block in self.tree.below(member) {
                let block = heap.blocks[block as usize];
                *contexts.entry(block.context).or_default() += block.size;
            }
        }
        for bytes in contexts.values_mut() {
            *bytes = *bytes * members.len() as u64 / sample.len() as u64;
        }
        contexts
    }
}

/// What the same holders have is one group.
fn joined_by_holders(found: Vec<Group>) -> Vec<Group> {
    let mut merged: Vec<Group> = Vec::new();
    let mut known: HashMap<(Whose, u64, bool), usize> = HashMap::new();
    for group in found {
        let key = (group.whose, group.holders, group.identical);
        match known.get(&key) {
            Some(&at) => merged[at].join(group),
            None => {
                known.insert(key, merged.len());
                merged.push(group);
            }
        }
    }
    merged
}

impl Group {
    /// More copies of the same.
    fn absorb(&mut self, other: Group) {
        self.equal_share = self.equal_share.min(other.equal_share);
        self.waste += other.waste + other.bytes_each;
        self.copies += other.copies;
        self.bytes += other.bytes;
        self.bytes_each = self.bytes / self.copies;
        self.blank += other.blank;
        self.holders = mix(self.holders, other.holders);
        for (context, bytes) in other.contexts {
            *self.contexts.entry(context).or_default() += bytes;
        }
    }

    /// What the same holders have, too.
    fn join(&mut self, other: Group) {
        let whole = (self.bytes + other.bytes).max(1) as f64;
        self.equal_share =
            (self.equal_share * self.bytes as f64 + other.equal_share * other.bytes as f64) / whole;
        // Twice the copies of something small: so many more in each.
        self.bytes_each += other.bytes / self.copies.max(1);
        self.blocks_each += other.blocks_each * other.copies / self.copies.max(1);
        self.bytes += other.bytes;
        self.waste += other.waste;
        self.blank += other.blank;
        for (node, bytes) in other.nodes {
            *self.nodes.entry(node).or_default() += bytes;
        }
        for (context, bytes) in other.contexts {
            *self.contexts.entry(context).or_default() += bytes;
        }
    }
}

fn contexts(bytes: &HashMap<u32, u64>) -> Vec<(ContextId, u64)> {
    let list = bytes
        .iter()
        .map(|(context, bytes)| (ContextId(*context), *bytes));
    let mut list: Vec<(ContextId, u64)> = list.collect();
    list.sort_unstable();
    list
}
