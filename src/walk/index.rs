//! Which block an address lies in.
//!
//! Every word of the heap is asked, so a binary search over ten million blocks costs too much. A
//! hash of starts does not see pointers into the middle, of which Rust has many: slices, tables of
//! hashbrown, `Arc::into_raw`. So each chunk of the address space that has blocks is cut into
//! about as many granules as blocks start in it, and a table says how many blocks start before
//! each granule. What remains is a look at one or two neighbours.

use super::heap::Block;
use crate::sys::mem;
use crate::sys::prefetch::prefetch;

const CHUNK_SHIFT: u32 = 26;
const CHUNK: u64 = 1 << CHUNK_SHIFT;
/// Chunks below 2^47.
const CHUNKS: usize = 1 << 21;
const SMALLEST_GRANULE: u32 = 6;

/// Indices of blocks have this many bits: the rest is for flags.
pub(super) const MAX_BLOCKS: usize = 1 << 31;

struct Chunk {
    /// Granules are of `1 << shift` bytes.
    shift: u32,
    /// Of its first granule in `starts_before`.
    at: usize,
}

/// Where a pointer leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hit {
    pub(super) block: u32,
    /// From the start of the block.
    pub(super) offset: u64,
}

impl Hit {
    /// At the start, where owners point; the low three bits may be a tag.
    pub(super) fn at_start(self) -> bool {
        self.offset < 8
    }
}

pub(super) struct BlockIndex<'a> {
    blocks: &'a [Block],
    /// Into `known` plus one.
    chunks: Vec<u32>,
    known: Vec<Chunk>,
    /// How many blocks start before each granule, and one entry more for each chunk.
    starts_before: Vec<u32>,
    low: u64,
    span: u64,
}

impl<'a> BlockIndex<'a> {
    /// `blocks` ascend by address and are fewer than [`MAX_BLOCKS`].
    pub(super) fn new(blocks: &'a [Block]) -> BlockIndex<'a> {
        let low = blocks.first().map_or(0, |block| block.address);
        let high = blocks.iter().map(end).max().unwrap_or(low);
        let mut index = BlockIndex {
            blocks,
            chunks: vec![0; CHUNKS],
            known: Vec::new(),
            starts_before: mem::with_capacity(blocks.len()),
            low,
            span: high - low,
        };
        let mut at = 0;
        while at < blocks.len() {
            at = index.add_chunk(at);
        }
        index
    }

    /// Adds the chunk in which block `first` starts, and those that its blocks reach into.
    /// Returns the first block that starts in a later chunk.
    fn add_chunk(&mut self, first: usize) -> usize {
        let number = self.blocks[first].address >> CHUNK_SHIFT;
        let next = (number + 1) << CHUNK_SHIFT;
        let count = self.blocks[first..].partition_point(|block| block.address < next);
        if number as usize >= CHUNKS {
            return first + count;
        }
        let wanted = usize::BITS - count.leading_zeros();
        let shift = CHUNK_SHIFT.saturating_sub(wanted).max(SMALLEST_GRANULE);
        let granules = 1usize << (CHUNK_SHIFT - shift);
        let at = self.starts_before.len();
        let mut block = first;
        for granule in 0..=granules as u64 {
            let start = (number << CHUNK_SHIFT) + (granule << shift);
            while block < first + count && self.blocks[block].address < start {
                block += 1;
            }
            self.starts_before.push(block as u32);
        }
        self.known.push(Chunk { shift, at });
        self.chunks[number as usize] = self.known.len() as u32;
        self.cover(first + count);
        first + count
    }

    /// The block before `next` may reach over chunks in which no block starts.
    fn cover(&mut self, next: usize) {
        let block = self.blocks[next - 1];
        let last = (end(&block) >> CHUNK_SHIFT).min(CHUNKS as u64 - 1);
        for number in (block.address >> CHUNK_SHIFT) + 1..=last {
            if self
                .blocks
                .get(next)
                .is_some_and(|b| b.address >> CHUNK_SHIFT == number)
            {
                break;
            }
            let at = self.starts_before.len();
            self.starts_before.extend([next as u32; 2]);
            self.known.push(Chunk {
                shift: CHUNK_SHIFT,
                at,
            });
            self.chunks[number as usize] = self.known.len() as u32;
        }
    }

    /// The block that the address lies in. An address just behind a block counts as inside (the
    /// end of a slice), unless another block starts there.
    #[inline]
    pub(super) fn find(&self, address: u64) -> Option<Hit> {
        if address.wrapping_sub(self.low) > self.span {
            return None;
        }
        self.look_up(address)
    }

    #[inline]
    pub(super) fn block(&self, number: u32) -> &Block {
        &self.blocks[number as usize]
    }

    /// May the address lie in a block? Quick, and seldom wrongly true.
    #[inline]
    pub(super) fn may_find(&self, address: u64) -> bool {
        address.wrapping_sub(self.low) <= self.span
    }

    /// Finds the blocks of many addresses, several at a time: while one is waited for in memory,
    /// the next are asked for.
    pub(super) fn find_all(&self, addresses: &[u64], mut found: impl FnMut(usize, Option<Hit>)) {
        const AHEAD: usize = 16;
        const FAR: usize = 2 * AHEAD;
        for at in 0..addresses.len() + FAR {
            if let Some(&address) = addresses.get(at) {
                prefetch(&self.starts_before, self.granule(address).unwrap_or(0));
            }
            if let Some(&address) = at.checked_sub(AHEAD).and_then(|at| addresses.get(at))
                && let Some(granule) = self.granule(address)
            {
                let from = self.starts_before[granule] as usize;
                prefetch(self.blocks, from.saturating_sub(1));
                prefetch(self.blocks, from + 2);
            }
            if let Some(at) = at.checked_sub(FAR) {
                found(at, self.find(addresses[at]));
            }
        }
    }

    /// Place of an address in `starts_before`.
    #[inline]
    fn granule(&self, address: u64) -> Option<usize> {
        let known = *self.chunks.get((address >> CHUNK_SHIFT) as usize)?;
        let chunk = self.known.get(known.checked_sub(1)? as usize)?;
        Some(chunk.at + ((address & (CHUNK - 1)) >> chunk.shift) as usize)
    }

    #[inline]
    fn look_up(&self, address: u64) -> Option<Hit> {
        let granule = self.granule(address)?;
        let from = self.starts_before[granule] as usize;
        let to = self.starts_before[granule + 1] as usize;
        let within = &self.blocks[from..to];
        let before = if within.len() <= 8 {
            within.iter().take_while(|b| b.address <= address).count()
        } else {
            within.partition_point(|b| b.address <= address)
        };
        let block = (from + before).checked_sub(1)?;
        let offset = address - self.blocks[block].address;
        (offset <= self.blocks[block].size).then_some(Hit {
            block: block as u32,
            offset,
        })
    }

    /// The block that starts at this address.
    pub(super) fn starting_at(&self, address: u64) -> Option<u32> {
        let hit = self.find(address)?;
        (hit.offset == 0).then_some(hit.block)
    }

    /// Bytes that the index takes.
    pub(super) fn own_bytes(&self) -> u64 {
        (self.chunks.len() * 4 + self.starts_before.len() * 4 + self.known.len() * 16) as u64
    }
}

fn end(block: &Block) -> u64 {
    block.address.saturating_add(block.size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow(blocks: &[Block], address: u64) -> Option<Hit> {
        let at = blocks.iter().rposition(|block| block.address <= address)?;
        let offset = address - blocks[at].address;
        (offset <= blocks[at].size).then_some(Hit {
            block: at as u32,
            offset,
        })
    }

    fn heap(parts: Vec<(u64, u64)>) -> Vec<Block> {
        let mut at = 0x7f00_0000_0000;
        let mut blocks = Vec::new();
        for (gap, size) in parts {
            at += gap * 8;
            blocks.push(Block {
                address: at,
                size,
                ..Block::default()
            });
            at += size.next_multiple_of(8).max(8);
        }
        blocks
    }

    proptest! {
        #[test]
        fn finds_what_a_slow_search_finds(
            parts in prop::collection::vec(
                (prop_oneof![0..4u64, 0..100_000u64, 0..20_000_000u64], prop_oneof![0..40u64, 0..300_000u64, 0..200_000_000u64]),
                1..60,
            ),
            picks in prop::collection::vec((any::<prop::sample::Index>(), -20i64..20, 0..2u64), 100),
        ) {
            let blocks = heap(parts);
            let index = BlockIndex::new(&blocks);
            for (pick, near, edge) in picks {
                let block = pick.get(&blocks);
                let from = block.address + edge * block.size;
                for address in [from.wrapping_add_signed(near), block.address + block.size / 2] {
                    prop_assert_eq!(index.find(address), slow(&blocks, address));
                    index.find_all(&[address], |_, hit| assert_eq!(hit, slow(&blocks, address)));
                }
            }
        }
    }

    #[test]
    fn an_empty_heap_has_no_block() {
        let index = BlockIndex::new(&[]);
        assert_eq!(index.find(0), None);
        assert_eq!(index.find(u64::MAX), None);
    }
}
