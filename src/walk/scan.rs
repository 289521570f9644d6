//! One pass over the contents of all live blocks: pointers, digests, and what was never used.
//!
//! Contents are looked at once and not needed again for most questions. A digest must not change
//! when an equal structure lies elsewhere in memory: a word that points into a live block counts
//! as its offset in that block. It must not tell anything about contents either, so it is keyed.
//! And pages that were never touched must cost nothing: the digest is a sum over words that are
//! not zero, each multiplied by a factor of its position.

use super::heap::Block;
use super::image::Memory;
use super::index::{BlockIndex, Hit};

/// Flag of an edge: it leads into the middle of the block.
pub(super) const INTERIOR: u32 = 1 << 31;

/// Blocks from this size on are looked at for what is unused in them.
pub(super) const LARGE: u64 = 4096;

/// What a large block has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LargeFacts {
    pub(super) block: u32,
    /// Bytes on pages that are not there.
    pub(super) untouched: u64,
    /// Bytes of words that are zero, on the others.
    pub(super) zero: u64,
}

/// What the pass found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Of block n, edges `first[n]..first[n + 1]`.
    first: Vec<u32>,
    edges: Vec<u32>,
    /// Keyed digest of each block's contents.
    pub(super) digest: Vec<u64>,
    /// Ascending by block.
    pub(super) large: Vec<LargeFacts>,
    /// Edges that found no room.
    pub(super) lost_edges: u64,
}

/// Key of all digests of one walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u64, u64);

impl Key {
    /// From the system's random numbers; never the same twice.
    pub(super) fn random() -> Key {
        use std::hash::{BuildHasher, RandomState};
        let (a, b) = (RandomState::new(), RandomState::new());
        Key(a.hash_one(0u8), b.hash_one(1u8) | 1)
    }

    #[inline]
    pub(super) fn mix(self, word: u64, position: u64) -> u64 {
        let factor = position.wrapping_add(1).wrapping_mul(self.1) | 1;
        let product = u128::from(word ^ self.0) * u128::from(factor);
        (product as u64) ^ ((product >> 64) as u64)
    }
}

/// A pointer as it counts in a digest: its place in the block it leads to.
#[inline]
pub(super) fn pointer_word(hit: Hit) -> u64 {
    0x5000_0000_0000_0000 | hit.offset
}

impl Scan {
    /// `blocks` are those of the index.
    pub(super) fn run(
        blocks: &[Block],
        index: &BlockIndex,
        memory: &impl Memory,
        key: Key,
    ) -> Scan {
        let mut scan = Scan {
            first: Vec::with_capacity(blocks.len() + 1),
            edges: Vec::with_capacity(blocks.len()),
            digest: Vec::with_capacity(blocks.len()),
            ..Scan::default()
        };
        scan.first.push(0);
        for (number, block) in blocks.iter().enumerate() {
            let (mut digest, mut there, mut used) = (key.mix(block.size, u64::MAX - 1), 0, 0);
            memory.visit(block.address, block.address + block.size, |at, bytes| {
                let position = (at - block.address) / 8;
                there += bytes.len() as u64;
                let (sum, words) = scan.words(bytes, position, index, key);
                digest = digest.wrapping_add(sum);
                used += words * 8;
            });
            scan.digest.push(digest);
            scan.first.push(scan.edges.len() as u32);
            if block.size >= LARGE {
                scan.large.push(LargeFacts {
                    block: number as u32,
                    untouched: block.size - there,
                    zero: there.saturating_sub(used),
                });
            }
        }
        scan
    }

    /// Digest of a piece of a block, and how many of its words are not zero.
    #[inline]
    fn words(&mut self, bytes: &[u8], position: u64, index: &BlockIndex, key: Key) -> (u64, u64) {
        let mut digest = 0u64;
        let mut used = 0;
        for (position, word) in (position..).zip(words(bytes)) {
            if word != 0 {
                used += 1;
                let mut counts = word;
                if let Some(hit) = index.find(word) {
                    counts = pointer_word(hit);
                    self.add_edge(hit);
                }
                digest = digest.wrapping_add(key.mix(counts, position));
            }
        }
        (digest, used)
    }

    #[inline]
    fn add_edge(&mut self, hit: Hit) {
        if self.edges.len() == u32::MAX as usize {
            self.lost_edges += 1;
            return;
        }
        let flag = if hit.at_start() { 0 } else { INTERIOR };
        self.edges.push(hit.block | flag);
    }

    /// Where pointers of the block lead, in the order of their addresses. [`INTERIOR`] may be set.
    pub(super) fn edges(&self, block: u32) -> &[u32] {
        let at = block as usize;
        &self.edges[self.first[at] as usize..self.first[at + 1] as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.digest.len()
    }

    /// What is unused in a block; `None` if it is not large.
    pub(super) fn large(&self, block: u32) -> Option<LargeFacts> {
        let at = self.large.binary_search_by_key(&block, |facts| facts.block);
        at.ok().map(|at| self.large[at])
    }

    /// Bytes that the results take.
    pub(super) fn own_bytes(&self) -> u64 {
        (self.first.capacity() * 4 + self.edges.capacity() * 4 + self.digest.capacity() * 8) as u64
    }
}

/// Aligned words of a piece; the rest at its end is filled up with zeros.
#[inline]
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let whole = bytes.chunks_exact(8);
    let rest = whole.remainder();
    let last = (!rest.is_empty()).then(|| {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(word)
    });
    whole
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or([0; 8])))
        .chain(last)
}
