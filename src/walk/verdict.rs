//! Are the members of a group equal, and what would sharing save?
//!
//! Equal digests say that members are equal; where digests differ, members are compared word by
//! word with one of the largest equal part. What counts as equal depends on whose they are. Two
//! tasks that each hold the same structure hold a copy even where spare slots of its hash tables
//! differ. Elements of one array look the same by nature: they are copies only if most of their
//! blocks are equal as they are, and what differs is not all that they use.

use super::equal::{Comparer, Sorted};
use super::image::Memory;
use super::tree::Tree;
use super::whose::Whose;

/// Share of the bytes that makes two structures identical.
const IDENTICAL: f64 = 0.95;
/// Share from which on structures of several owners could still be one: clones differ in what the
/// allocator left in their spare room.
const NEARLY: f64 = 0.9;
/// Smaller structures are equal by digest or not at all.
const SMALL: u64 = 256;
/// Where so many, spread over a group, are all unlike the first, nothing more is compared.
const SAMPLE: usize = 64;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Verdict {
    /// Of the bytes, those that are equal: the mean over all members that were compared.
    pub(super) share: f64,
    pub(super) identical: bool,
    pub(super) waste: u64,
}

pub(super) struct Judge<'a, M> {
    pub(super) tree: &'a Tree,
    pub(super) comparer: &'a Comparer<'a, M>,
}

/// Members with equal contents.
struct Class {
    count: u64,
    first: u32,
    bytes_each: u64,
}

impl<M: Memory> Judge<'_, M> {
    pub(super) fn judge(&self, whose: Whose, members: &[u32]) -> Verdict {
        let mut classes = self.classes(members);
        let count = members.len() as u64;
        let by_digest: u64 = classes.iter().map(|c| (c.count - 1) * c.bytes_each).sum();
        let most = (0..classes.len())
            .max_by_key(|at| classes[*at].count)
            .unwrap_or(0);
        let first = classes.swap_remove(most);
        if first.bytes_each < SMALL || first.count == count {
            let bytes: u64 = members[1..].iter().map(|m| self.tree.bytes(*m)).sum();
            let share = by_digest as f64 / bytes.max(1) as f64;
            let identical = share >= IDENTICAL;
            return Verdict {
                share,
                identical,
                waste: by_digest,
            };
        }
        let (same, nearly, share) = self.compare(whose, &first, &classes);
        let identical = share >= IDENTICAL && same as f64 >= count as f64 * IDENTICAL;
        let of_same = (same - 1) * first.bytes_each;
        let waste = match whose {
            Whose::Instances => of_same.max(by_digest),
            // Few that happen to be equal are no structure that could be shared.
            _ if nearly * 2 >= count => (nearly - 1) * first.bytes_each,
            _ => 0,
        };
        Verdict {
            share,
            identical,
            waste,
        }
    }

    pub(super) fn are_identical(&self, a: u32, b: u32) -> bool {
        let sorted = |member: u32| self.comparer.sorted(self.tree.below(member));
        let (a, b) = (sorted(a), sorted(b));
        let equal = self.comparer.equal(&a, &b).bytes;
        equal as f64 >= a.bytes.max(b.bytes) as f64 * IDENTICAL
    }

    fn classes(&self, members: &[u32]) -> Vec<Class> {
        let digest = |&member: &u32| (self.comparer.digest(self.tree.below(member)), member);
        let mut digests: Vec<(u64, u32)> = members.iter().map(digest).collect();
        digests.sort_unstable();
        digests
            .chunk_by(|a, b| a.0 == b.0)
            .map(|class| Class {
                count: class.len() as u64,
                first: class[0].1,
                bytes_each: self.tree.bytes(class[0].1),
            })
            .collect()
    }

    /// How many members are the same as the first, itself included, how many nearly so, and the
    /// mean equal share.
    fn compare(&self, whose: Whose, first: &Class, others: &[Class]) -> (u64, u64, f64) {
        let sorted = |member: u32| -> Sorted { self.comparer.sorted(self.tree.below(member)) };
        let reference = sorted(first.first);
        let look = |class: &Class| {
            let other = sorted(class.first);
            let equal = self.comparer.equal(&reference, &other);
            let share = equal.bytes as f64 / reference.bytes.max(other.bytes).max(1) as f64;
            let used = equal.used_equal as f64 >= equal.used as f64 * IDENTICAL;
            let blocks = equal.whole * 2 >= reference.bytes;
            let alike = whose != Whose::Instances || used && blocks;
            (share, share >= IDENTICAL && alike, share >= NEARLY && alike)
        };
        let (mut same, mut compared) = (first.count, first.count - 1);
        let mut nearly = first.count;
        let mut shares = compared as f64;
        let step = others.len().div_ceil(SAMPLE).max(1);
        for begin in 0..step {
            for class in others.iter().skip(begin).step_by(step) {
                let (share, is_same, is_near) = look(class);
                shares += share * class.count as f64;
                compared += class.count;
                same += if is_same { class.count } else { 0 };
                nearly += if is_near { class.count } else { 0 };
            }
            if nearly == first.count {
                break;
            }
        }
        (same, nearly, shares / compared.max(1) as f64)
    }
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
