//! Are two structures equal, and by how much?
//!
//! Digests say whether blocks are equal, not how far they are apart: spare slots of a hash table
//! hold garbage, so that clones differ in a few words. Blocks of two structures are paired, first
//! those with equal digests, then those of one size in the order in which they are met, and the
//! latter are compared word by word. Two pointers are equal if they lead to the same place in
//! blocks of one size.

use super::heap::Heap;
use super::image::Memory;
use super::index::BlockIndex;
use super::scan::Scan;
use super::shape::mix;

pub(super) struct Comparer<'a, M> {
    pub(super) heap: &'a Heap,
    pub(super) scan: &'a Scan,
    pub(super) index: &'a BlockIndex<'a>,
    pub(super) memory: &'a M,
}

/// How much of two structures is equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Equal {
    pub(super) bytes: u64,
    /// Of those, in blocks that are equal as a whole.
    pub(super) whole: u64,
    /// Of the words that are not zero in both: bytes, and those that are equal.
    pub(super) used: u64,
    pub(super) used_equal: u64,
}

impl std::ops::AddAssign for Equal {
    fn add_assign(&mut self, other: Equal) {
        self.bytes += other.bytes;
        self.whole += other.whole;
        self.used += other.used;
        self.used_equal += other.used_equal;
    }
}

/// A structure's blocks, sorted for comparison.
pub(super) struct Sorted {
    blocks: Vec<Member>,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    size: u64,
    digest: u64,
    /// Place in the structure.
    at: u32,
    block: u32,
}

impl<M: Memory> Comparer<'_, M> {
    fn size(&self, block: u32) -> u64 {
        self.heap.blocks[block as usize].size
    }

    /// The same for structures with the same contents.
    pub(super) fn digest(&self, blocks: &[u32]) -> u64 {
        blocks.iter().fold(0, |sum, &block| {
            let digest = self.scan.digest[block as usize];
            sum.wrapping_add(mix(self.size(block), digest))
        })
    }

    pub(super) fn sorted(&self, blocks: &[u32]) -> Sorted {
        let member = |(at, &block): (u32, &u32)| Member {
            size: self.size(block),
            digest: self.scan.digest[block as usize],
            at,
            block,
        };
        let mut members: Vec<Member> = (0u32..).zip(blocks).map(member).collect();
        members.sort_unstable();
        let size = |block: &u32| self.size(*block);
        Sorted {
            blocks: members,
            bytes: blocks.iter().map(size).sum(),
        }
    }

    /// What of `a` has an equal in `b`.
    pub(super) fn equal(&self, a: &Sorted, b: &Sorted) -> Equal {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let mut whole = 0;
        let (mut i, mut j) = (0, 0);
        while i < a.blocks.len() && j < b.blocks.len() {
            let (x, y) = (a.blocks[i], b.blocks[j]);
            match (x.size, x.digest).cmp(&(y.size, y.digest)) {
                std::cmp::Ordering::Equal => {
                    whole += x.size;
                    i += 1;
                    j += 1;
                }
                std::cmp::Ordering::Less => {
                    left.push(x);
                    i += 1;
                }
                std::cmp::Ordering::Greater => {
                    right.push(y);
                    j += 1;
                }
            }
        }
        left.extend(&a.blocks[i..]);
        right.extend(&b.blocks[j..]);
        let mut equal = self.equal_in_pairs(left, right);
        equal += Equal {
            bytes: whole,
            whole,
            used: whole,
            used_equal: whole,
        };
        equal
    }

    fn equal_in_pairs(&self, mut left: Vec<Member>, mut right: Vec<Member>) -> Equal {
        let order = |member: &Member| (member.size, member.at);
        left.sort_unstable_by_key(order);
        right.sort_unstable_by_key(order);
        let mut equal = Equal::default();
        let mut j = 0;
        for x in left {
            while j < right.len() && right[j].size < x.size {
                j += 1;
            }
            if j < right.len() && right[j].size == x.size {
                equal += self.equal_words(x.block, right[j].block);
                j += 1;
            }
        }
        equal
    }

    /// Of two blocks of one size.
    fn equal_words(&self, a: u32, b: u32) -> Equal {
        const STEP: u64 = 1 << 16;
        let (a, b) = (self.heap.blocks[a as usize], self.heap.blocks[b as usize]);
        let mut equal = Equal::default();
        let mut at = 0;
        let (mut x, mut y) = (Vec::new(), Vec::new());
        while at < a.size {
            let len = (a.size - at).min(STEP);
            self.copy(a.address + at, len, &mut x);
            self.copy(b.address + at, len, &mut y);
            let (mut same, mut used, mut used_same) = (0, 0, 0);
            for (&x, &y) in x.iter().zip(&y) {
                let is_used = u64::from(x | y != 0);
                let is_same = u64::from(x == y || self.both_point(x, y));
                same += is_same;
                used += is_used;
                used_same += is_used & is_same;
            }
            equal += Equal {
                bytes: (same * 8).min(len),
                whole: 0,
                used: used * 8,
                used_equal: used_same * 8,
            };
            at += len;
        }
        equal
    }

    fn copy(&self, start: u64, len: u64, into: &mut Vec<u64>) {
        into.clear();
        into.resize(len.div_ceil(8) as usize, 0);
        self.memory.visit(start, start + len, |at, bytes| {
            let from = ((at - start) / 8) as usize;
            for (slot, word) in into[from..].iter_mut().zip(super::scan::words(bytes)) {
                *slot = word;
            }
        });
    }

    fn both_point(&self, x: u64, y: u64) -> bool {
        match (self.index.find(x), self.index.find(y)) {
            (Some(x), Some(y)) => x.offset == y.offset && self.size(x.block) == self.size(y.block),
            _ => false,
        }
    }
}
