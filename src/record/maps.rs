//! Address space that a patched allocator takes from the system.
//!
//! What such an allocator keeps beside its live blocks would look like memory that the program
//! mapped itself: to be searched for pointers, and to be blamed on nobody. The kernel can't tell,
//! it merges neighbours. So the allocator's own calls of `mmap` and `munmap` are noted. They are
//! few: a list without order does.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::lock::Lock;
use super::{arena, is_active, start::header};
use crate::wire::{Allocator, AllocatorMap, Header};

static LOCK: Lock = Lock::new();

fn rows(header: &'static Header) -> impl Iterator<Item = &'static AllocatorMap> {
    let column = &header.allocator_maps;
    // SAFETY: below the length; rows are atomics that never move.
    (0..column.len()).filter_map(|at| unsafe { column.address(at, &arena::EXTENT).as_ref() })
}

/// The allocator has got this range. It may have had parts of it before.
pub fn mapped(start: u64, bytes: u64, by: Allocator) {
    let Some(header) = header().filter(|_| is_active() && bytes > 0) else {
        return;
    };
    let _held = LOCK.hold();
    cut(header, start, start + bytes);
    add(header, start, start + bytes, by as u32);
}

/// The range is about to be given back.
pub fn unmapped(start: u64, bytes: u64) {
    if let Some(header) = header().filter(|_| is_active() && bytes > 0) {
        let _held = LOCK.hold();
        cut(header, start, start + bytes);
    }
}

fn add(header: &'static Header, start: u64, end: u64, allocator: u32) {
    let mut free = None;
    for row in rows(header) {
        let (low, high) = (row.start.load(Relaxed), row.end.load(Relaxed));
        if high == 0 {
            free = Some(row);
        } else if row.allocator.load(Relaxed) == allocator && high == start {
            return row.end.store(end, Release);
        } else if row.allocator.load(Relaxed) == allocator && low == end {
            return row.start.store(start, Release);
        }
    }
    let fill = |row: &AllocatorMap| {
        row.allocator.store(allocator, Relaxed);
        row.start.store(start, Relaxed);
        row.end.store(end, Release);
    };
    match free {
        Some(row) => fill(row),
        None => {
            // A full table leaves the range to be told as the program's own.
            arena::append(&header.allocator_maps, |_, row| {
                // SAFETY: a row of zeroed shared memory, which all-zero atomics are.
                fill(unsafe { &*row });
            });
        }
    }
}

/// Takes a range out of all rows.
fn cut(header: &'static Header, start: u64, end: u64) {
    let mut behind = None;
    for row in rows(header) {
        let (low, high) = (row.start.load(Relaxed), row.end.load(Relaxed));
        if high <= start || end <= low || high == 0 {
            continue;
        }
        match (low < start, end < high) {
            (false, false) => {
                row.end.store(0, Release);
                row.start.store(0, Relaxed);
            }
            (true, false) => row.end.store(start, Release),
            (false, true) => row.start.store(end, Release),
            (true, true) => {
                row.end.store(start, Release);
                behind = Some((end, high, row.allocator.load(Relaxed)));
            }
        }
    }
    if let Some((low, high, allocator)) = behind {
        add(header, low, high, allocator);
    }
}
