//! A growing array that never moves what it holds.
//!
//! A table that is reallocated when it grows has a moment at which it is in two places. A column
//! is a fixed directory of chunks, each twice as large as the one before: an index names a chunk
//! and a position by two shifts, and a row once written stays where it is for the whole run.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{ExtentMap, Place};

/// Chunks of a column. With the smallest first chunk (16 rows) there is room for 2^28 rows.
pub const COLUMN_CHUNKS: usize = 24;

/// Rows of `T`. The first chunk has `1 << BASE` rows.
#[repr(C)]
pub struct Column<T, const BASE: u32> {
    /// Rows that are readable. Published after the row itself.
    pub len: AtomicU32,
    _pad: u32,
    /// Place of each chunk, nowhere until it is needed.
    pub chunks: [AtomicU64; COLUMN_CHUNKS],
    rows: PhantomData<T>,
}

/// The chunk of a row, and its position in that chunk.
#[inline(always)]
pub const fn locate(index: u32, base: u32) -> (usize, usize) {
    let n = index as u64 + (1u64 << base);
    let top = 63 - n.leading_zeros();
    ((top - base) as usize, (n - (1u64 << top)) as usize)
}

/// Rows in a chunk.
pub const fn chunk_items(chunk: usize, base: u32) -> usize {
    1usize << (base as usize + chunk)
}

impl<T, const BASE: u32> Column<T, BASE> {
    pub fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of a row, or null if its chunk is not there. The row may be written by the
    /// other process at any time: `T` is made of atomics, or the index is below [`Self::len`].
    #[inline(always)]
    pub fn address(&self, index: u32, map: &impl ExtentMap) -> *mut T {
        let (chunk, at) = locate(index, BASE);
        if chunk >= COLUMN_CHUNKS {
            return std::ptr::null_mut();
        }
        let place = Place(self.chunks[chunk].load(Ordering::Acquire));
        let start = map.address(place, chunk_items(chunk, BASE) * size_of::<T>());
        if start.is_null() {
            return std::ptr::null_mut();
        }
        start.cast::<T>().wrapping_add(at)
    }

    /// Bytes that the chunk takes.
    pub const fn chunk_bytes(chunk: usize) -> usize {
        chunk_items(chunk, BASE) * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_each_other_without_gap() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            assert_eq!(locate(index, 4), expected);
            expected.1 += 1;
            if expected.1 == chunk_items(expected.0, 4) {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
