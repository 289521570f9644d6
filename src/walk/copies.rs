//! The same structure, many times over.
//!
//! Counting equal blocks drowns what matters: one cloned rule tree is 8,000 blocks, and its
//! strings look like 8,000 small copies. So the unit is the largest structure that repeats: a
//! block with all that hangs on it, as many blocks of each size from each stack as another one
//! has. Structures that the same holders have together are one group (a tokenizer keeps its
//! dictionary and its costs by two pointers). Then contents are compared: a group whose members
//! look the same but differ is told as such, and only what is equal can be shared.

use std::collections::HashMap;

use super::equal::{Comparer, Sorted};
use super::image::Memory;
use super::names::Names;
use super::reach::{NOBODY, NONE, Reach, SHARED};
use super::roots::Holder;
use super::scan::LARGE;
use super::shape::{self, mix};
use super::tree::Tree;
use crate::profile::{self, ContextId, OwnerId, WalkCopies};

/// Share of the bytes that makes two structures identical.
const IDENTICAL: f64 = 0.95;
/// Groups that save less are not told.
const LEAST_BYTES: u64 = 16 << 10;
/// Groups that are told.
const MOST_GROUPS: usize = 500;
/// Members of a group that are compared word by word where digests differ.
const MOST_COMPARED: usize = 256;
/// Members of a group that are asked where they were made.
const MOST_SAMPLED: usize = 64;
/// Smaller structures are equal by digest or not at all.
const SMALL: u64 = 256;

/// Whose the members are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Whose {
    Tasks(u32),
    ThreadLocal(u32),
    Threads(u32),
    /// Several of one holder, or of holders of different kinds.
    Instances,
}

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
}

impl<M: Memory> Finder<'_, M> {
    /// Most waste first.
    pub(super) fn find(&self, groups: &[Vec<u32>]) -> Vec<WalkCopies> {
        let mut found: Vec<Group> = groups
            .iter()
            .filter(|members| {
                let each = self.tree.bytes(members[0]);
                each * (members.len() as u64 - 1) >= LEAST_BYTES
            })
            .filter_map(|members| self.group(members))
            .collect();
        found.sort_by_key(|group| std::cmp::Reverse(group.bytes));
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
        merged.sort_by_key(|group| {
            (
                std::cmp::Reverse(group.waste),
                std::cmp::Reverse(group.bytes),
            )
        });
        merged.truncate(MOST_GROUPS);
        merged.iter().map(|group| self.row(group)).collect()
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
        let (whose, holders) = self.whose(members);
        let equality = self.equality(whose, members);
        if whose == Whose::Instances && equality.waste < LEAST_BYTES {
            return None;
        }
        let each = self.tree.bytes(members[0]);
        Some(Group {
            whose,
            holder_name: self.holder_name(whose, members),
            holders,
            copies: members.len() as u64,
            bytes_each: each,
            blocks_each: self.tree.below(members[0]).len() as u64,
            bytes: each * members.len() as u64,
            equal_share: equality.share,
            identical: equality.identical,
            waste: equality.waste,
            blank: members.iter().map(|member| self.blank(*member)).sum(),
            nodes: self.nodes(members[0]),
            contexts: self.contexts(members),
        })
    }

    fn kind(&self, member: u32) -> (Whose, u32) {
        let colour = self.reach.colour[member as usize];
        if colour == SHARED || colour == NOBODY {
            return (Whose::Instances, colour);
        }
        let names = self.names;
        let whose = match names.set.holders[colour as usize - 1] {
            Holder::Task(cell) => Whose::Tasks(names.cells[cell as usize].owner),
            Holder::ThreadLocal { slot, .. } => Whose::ThreadLocal(slot),
            Holder::Thread(thread) | Holder::Stack(thread) => {
                Whose::Threads(names.owner_of_thread(thread))
            }
            Holder::Static(_) | Holder::Data | Holder::Elsewhere => Whose::Instances,
        };
        (whose, colour)
    }

    /// Whose most of them are, and a number for the holders that have them.
    fn whose(&self, members: &[u32]) -> (Whose, u64) {
        let mut kinds: Vec<(Whose, u32)> = members.iter().map(|m| self.kind(*m)).collect();
        kinds.sort_unstable();
        let most = kinds
            .chunk_by(|a, b| a.0 == b.0)
            .max_by_key(|of_one| of_one.len());
        if let Some(held) = most
            && let whose = held[0].0
            && whose != Whose::Instances
            && held.len() * 2 >= members.len()
            && held[0].1 != held[held.len() - 1].1
        {
            let colours = held.iter().map(|(_, colour)| u64::from(*colour));
            return (whose, colours.fold(0, mix));
        }
        // Parts of the elements of one array hang on the same block.
        let parents = members
            .iter()
            .map(|member| self.tree.parent[*member as usize]);
        let number = parents
            .enumerate()
            .fold(0u64, |sum, (at, parent)| match parent {
                NONE => sum.wrapping_add(mix(u64::from(members[at]), 1)),
                parent => sum.wrapping_add(mix(u64::from(parent), 2)),
            });
        (Whose::Instances, number)
    }

    fn holder_name(&self, whose: Whose, members: &[u32]) -> String {
        match whose {
            Whose::ThreadLocal(slot) => self.names.roots.thread_locals[slot as usize].name.clone(),
            Whose::Tasks(_) | Whose::Threads(_) => String::new(),
            Whose::Instances => {
                let colour = self.reach.colour[members[0] as usize];
                let same = |member: &u32| self.reach.colour[*member as usize] == colour;
                match colour {
                    SHARED | NOBODY => String::new(),
                    _ if members.iter().all(same) => self.names.of_colour(colour),
                    _ => String::new(),
                }
            }
        }
    }

    /// Zero or untouched bytes in the large blocks of a structure.
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
        facts.map(|facts| facts.untouched + facts.zero).sum()
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

    fn equality(&self, whose: Whose, members: &[u32]) -> Equality {
        let each = self.tree.bytes(members[0]);
        let digest = |&member: &u32| (self.comparer.digest(self.tree.below(member)), member);
        let mut digests: Vec<(u64, u32)> = members.iter().map(digest).collect();
        digests.sort_unstable();
        let classes: Vec<(u64, u32)> = digests
            .chunk_by(|a, b| a.0 == b.0)
            .map(|class| (class.len() as u64, class[0].1))
            .collect();
        let by_digest: u64 = classes.iter().map(|(count, _)| (count - 1) * each).sum();
        let count = members.len() as u64;
        let most = (0..classes.len())
            .max_by_key(|at| classes[*at].0)
            .unwrap_or(0);
        let (equal, first) = classes[most];
        if each < SMALL || equal == count {
            let share = by_digest as f64 / ((count - 1) * each).max(1) as f64;
            return Equality {
                share,
                identical: share >= IDENTICAL,
                waste: by_digest,
            };
        }
        let others = [&classes[..most], &classes[most + 1..]].concat();
        self.compare(whose, first, equal, &others, each, by_digest)
    }

    /// Compares one of each kind with the first, of which there are `equal`.
    fn compare(
        &self,
        whose: Whose,
        first: u32,
        equal: u64,
        others: &[(u64, u32)],
        each: u64,
        by_digest: u64,
    ) -> Equality {
        let sorted = |member: u32| -> Sorted { self.comparer.sorted(self.tree.below(member)) };
        let reference = sorted(first);
        let (mut shares, mut compared, mut same) = ((equal - 1) as f64, equal - 1, equal);
        let step = others.len().div_ceil(MOST_COMPARED).max(1);
        for &(count, member) in others.iter().step_by(step) {
            let equal = self.comparer.equal(&reference, &sorted(member));
            let share = equal.bytes as f64 / reference.bytes.max(1) as f64;
            shares += share * count as f64;
            compared += count;
            // Elements of one array that are mostly zero are no copies of each other.
            let used = equal.used_equal as f64 >= equal.used as f64 * IDENTICAL;
            if share >= IDENTICAL && (used || whose != Whose::Instances) {
                same += count;
            }
        }
        let share = shares / compared.max(1) as f64;
        // Where not all were compared, what was seen stands for the rest.
        let total: u64 = equal + others.iter().map(|(count, _)| count).sum::<u64>();
        let same = same as f64 * total as f64 / (compared + 1) as f64;
        let waste = ((same.round() as u64).saturating_sub(1) * each).max(by_digest);
        let identical = share >= IDENTICAL && same >= total as f64 * IDENTICAL;
        Equality {
            share,
            identical,
            waste,
        }
    }
}

struct Equality {
    share: f64,
    identical: bool,
    waste: u64,
}

impl Group {
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

/// Are the values of several holders equal? Their blocks, each.
pub(super) fn equal_values<M: Memory>(
    comparer: &Comparer<M>,
    values: &[Vec<u32>],
) -> Option<(bool, f64)> {
    let (first, others) = values.split_first()?;
    if others.is_empty() {
        return None;
    }
    let reference = comparer.sorted(first);
    let mut share = 0.0;
    let mut identical = true;
    for other in others {
        let other = comparer.sorted(other);
        let most = reference.bytes.max(other.bytes).max(1);
        let equal = comparer.equal(&reference, &other).bytes as f64 / most as f64;
        identical &= equal >= IDENTICAL;
        share += equal;
    }
    Some((identical, share / others.len() as f64))
}
