//! Sizes of a quarter gigabyte and more, which an entry of a page has no room for.
//!
//! Such blocks are few: a search through all of them is quick.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::super::arena;
use super::super::lock::Lock;
use super::super::start::header;
use crate::wire::SIZE_ESCAPE;

static LARGE: Lock = Lock::new();

/// `false` if memory for it is out.
#[cold]
pub(super) fn insert(address: usize, size: usize) -> bool {
    let Some(header) = header() else { return false };
    let _held = LARGE.hold();
    for index in 0..header.large_blocks.len() {
        // SAFETY: below the length; rows are atomics that never move.
        let Some(row) = (unsafe { header.large_blocks.address(index, &arena::EXTENT).as_ref() })
        else {
            continue;
        };
        if row.address.load(Relaxed) == 0 {
            row.size.store(size as u64, Relaxed);
            row.address.store(address as u64, Release);
            return true;
        }
    }
    arena::append(&header.large_blocks, |_, row| {
        // SAFETY: a fresh row that no reader knows yet.
        let row = unsafe { &*row };
        row.size.store(size as u64, Relaxed);
        row.address.store(address as u64, Release);
    })
    .is_some()
}

/// The size, and the block is forgotten.
#[cold]
pub(super) fn remove(address: usize) -> usize {
    let Some(header) = header() else {
        return SIZE_ESCAPE as usize;
    };
    let _held = LARGE.hold();
    for index in 0..header.large_blocks.len() {
        // SAFETY: as in `insert`.
        let Some(row) = (unsafe { header.large_blocks.address(index, &arena::EXTENT).as_ref() })
        else {
            continue;
        };
        if row.address.load(Relaxed) == address as u64 {
            row.address.store(0, Relaxed);
            return row.size.load(Relaxed) as usize;
        }
    }
    SIZE_ESCAPE as usize
}
