//! Blocks that are live: pages of an extendible hash table.
//!
//! A flat table has to be rebuilt when it grows, which stops a program with ten million blocks
//! for a second and needs both copies meanwhile. Here a full page of 4 KiB splits into two, and
//! only a small private directory in the profiled process knows which page serves which hashes.
//! A reader needs no directory: it looks at every page. An entry is two words, so that a live
//! block costs 17 to 35 bytes, depending on how full the pages are.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A page's entries stand in lines of the processor's caches, four in each.
pub const LIVE_LINES: usize = 63;
pub const LINE_SLOTS: usize = 4;

/// Entries of one page.
pub const LIVE_SLOTS: usize = LIVE_LINES * LINE_SLOTS;

/// Row of a block that belongs to no task or thread.
pub const NO_ROW: u32 = 0;

/// Sizes from here on stand in the column of large blocks.
pub const SIZE_ESCAPE: u64 = (1 << SIZE_BITS) - 1;

const SIZE_BITS: u32 = 28;
const INDEX_BITS: u32 = 28;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// 4 KiB. `lock` is the thread id of whoever changes the page, 0 if nobody does: a page that a
/// killed process left locked may hold one entry twice, or lack the one that was on its way.
#[repr(C, align(64))]
pub struct LivePage {
    pub lock: AtomicU32,
    /// Entries in use.
    pub used: AtomicU32,
    /// How many leading bits of the hash all entries share, and which.
    pub depth: AtomicU32,
    pub _pad: AtomicU32,
    pub prefix: AtomicU64,
    pub _spare: AtomicU64,
    /// For each line, four bits: how many entries found it full and stand in a later one. 15 is
    /// as many or more, and stays. Only the profiled process needs it.
    pub passed: [AtomicU64; 4],
    pub slots: [[AtomicU64; 2]; LIVE_SLOTS],
}

/// A live block as the table holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveBlock {
    pub address: u64,
    /// Requested bytes; [`SIZE_ESCAPE`] or more only once looked up among the large blocks.
    pub size: u64,
    /// Index into the contexts.
    pub context: u32,
    /// Index into the rows; [`NO_ROW`] for shared.
    pub row: u32,
}

impl LiveBlock {
    /// The two words of the entry. Addresses are multiples of 8 below 2^47, so 44 bits hold one.
    #[inline(always)]
    pub fn pack(self) -> [u64; 2] {
        let size = self.size.min(SIZE_ESCAPE);
        let head = ((self.address >> 3) << 20) | (size >> 8);
        let tail = (size << 56)
            | ((u64::from(self.context) & INDEX_MASK) << INDEX_BITS)
            | (u64::from(self.row) & INDEX_MASK);
        [head, tail]
    }

    /// The block of an entry; `None` for a free slot.
    #[inline(always)]
    pub fn unpack(words: [u64; 2]) -> Option<LiveBlock> {
        let [head, tail] = words;
        if head == 0 {
            return None;
        }
        Some(LiveBlock {
            address: (head >> 20) << 3,
            size: ((head & 0xf_ffff) << 8) | (tail >> 56),
            context: ((tail >> INDEX_BITS) & INDEX_MASK) as u32,
            row: (tail & INDEX_MASK) as u32,
        })
    }

    /// Is this entry's first word that of a block at `address`?
    #[inline(always)]
    pub fn is_at(head: u64, address: u64) -> bool {
        head >> 20 == address >> 3
    }
}

impl LivePage {
    pub fn load(&self, slot: usize) -> [u64; 2] {
        let words = &self.slots[slot];
        [
            words[0].load(Ordering::Relaxed),
            words[1].load(Ordering::Relaxed),
        ]
    }
}

/// A live block of [`SIZE_ESCAPE`] bytes or more.
#[repr(C)]
pub struct LargeBlock {
    /// 0 when the row is free.
    pub address: AtomicU64,
    pub size: AtomicU64,
}

const _: () = assert!(size_of::<LivePage>() == 4096);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_its_parts() {
        for size in [0, 1, 255, 256, 1 << 20, SIZE_ESCAPE - 1] {
            let block = LiveBlock {
                address: 0x7fff_ffff_fff8,
                size,
                context: 0x0fff_ffff,
                row: 0x0abc_def0,
            };
            assert_eq!(LiveBlock::unpack(block.pack()), Some(block));
        }
    }

    #[test]
    fn a_large_size_escapes() {
        let block = LiveBlock {
            address: 16,
            size: 1 << 40,
            context: 1,
            row: 2,
        };
        assert_eq!(LiveBlock::unpack(block.pack()).unwrap().size, SIZE_ESCAPE);
    }
}
