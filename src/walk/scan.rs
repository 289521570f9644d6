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
use super::usage::References;
use crate::sys::mem;
use crate::sys::prefetch::prefetch;

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
    /// Places of pointers to large blocks.
    pub(super) references: References,
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

/// Words that may be pointers, until they are looked up together.
#[derive(Default)]
struct Candidates {
    words: Vec<u64>,
    /// Block and position of each.
    places: Vec<(u32, u64)>,
}

/// Candidates that are looked up together.
const BATCH: usize = 4096;

impl Scan {
    /// `blocks` are those of the index.
    pub(super) fn run(
        blocks: &[Block],
        index: &BlockIndex,
        memory: &impl Memory,
        key: Key,
    ) -> Scan {
        let mut scan = Scan {
            first: mem::filled(0, blocks.len() + 1),
            edges: mem::with_capacity(blocks.len()),
            digest: mem::with_capacity(blocks.len()),
            ..Scan::default()
        };
        let mut candidates = Candidates::default();
        for (number, block) in (0u32..).zip(blocks) {
            let (mut digest, mut there, mut used) = (key.mix(block.size, u64::MAX - 1), 0, 0);
            memory.visit(
                block.address,
                block.address.saturating_add(block.size),
                |at, bytes| {
                    there += bytes.len() as u64;
                    for (position, word) in ((at - block.address) / 8..).zip(words(bytes)) {
                        if word == 0 {
                            continue;
                        }
                        used += 8;
                        if index.may_find(word) {
                            candidates.words.push(word);
                            candidates.places.push((number, position));
                        } else {
                            digest = digest.wrapping_add(key.mix(word, position));
                        }
                    }
                },
            );
            scan.digest.push(digest);
            if candidates.words.len() >= BATCH {
                scan.settle(&mut candidates, index, key);
            }
            if block.size >= LARGE {
                scan.large.push(LargeFacts {
                    block: number,
                    untouched: block.size - there,
                    zero: there.saturating_sub(used),
                });
            }
        }
        scan.settle(&mut candidates, index, key);
        scan.first.iter_mut().fold(0, |sum, count| {
            let first = sum + *count;
            *count = first;
            first
        });
        scan
    }

    /// Looks candidates up: an edge for each that is a pointer, and their part of the digests.
    fn settle(&mut self, candidates: &mut Candidates, index: &BlockIndex, key: Key) {
        index.find_all(&candidates.words, |at, hit| {
            let (block, position) = candidates.places[at];
            let counts = hit.map_or(candidates.words[at], pointer_word);
            let digest = &mut self.digest[block as usize];
            *digest = digest.wrapping_add(key.mix(counts, position));
            if let Some(hit) = hit {
                self.add_edge(block, hit);
                let place = index.block(block).address + position * 8;
                self.references
                    .add(hit.block, index.block(hit.block).size, place);
            }
        });
        candidates.words.clear();
        candidates.places.clear();
    }

    /// Counts the edge in `first[block + 1]`, from which sums are made in the end.
    fn add_edge(&mut self, block: u32, hit: Hit) {
        if self.edges.len() == u32::MAX as usize {
            self.lost_edges += 1;
            return;
        }
        let flag = if hit.at_start() { 0 } else { INTERIOR };
        self.edges.push(hit.block | flag);
        self.first[block as usize + 1] += 1;
    }

    /// Has the processor fetch what [`Self::edges`] of the block will read.
    #[inline]
    pub(super) fn prefetch_bounds(&self, block: u32) {
        prefetch(&self.first, block as usize);
    }

    /// The same once the bounds are there.
    #[inline]
    pub(super) fn prefetch_edges(&self, block: u32) {
        prefetch(&self.edges, self.first[block as usize] as usize);
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
