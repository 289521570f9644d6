//! Which blocks are recorded when not all are.
//!
//! An exact recording looks at every event. For production that may be too much: then a block is
//! recorded only if a byte of it is met by a Poisson process (see `wire::sample`), which costs all
//! other allocations a subtraction. Frees are as many, and each would have to be looked up in the
//! table of live blocks: so a small table of counts, by a hash of the address, says of nearly all
//! that they were never recorded. Cells of tasks, recorded always, have a table of their own: there
//! may be a million of them, and only addresses that are multiples of 128 need to ask it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU64};

use super::thread::Thread;
use super::{arena, cells, live};
use crate::wire::Header;
use crate::wire::sample::{self, Booked, EXACT};

/// Mean bytes between samples, 0 while every block is recorded.
static DISTANCE: AtomicU64 = AtomicU64::new(0);

/// Counts of recorded blocks by hash.
static BLOCKS: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
static CELLS: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
const BLOCKS_BITS: u32 = 16;
const CELLS_BITS: u32 = 20;

/// Bytes to the next sample, for threads whose state is gone.
static LATE: AtomicI64 = AtomicI64::new(0);

/// Prepares for what the header says. Without memory for the tables every block is recorded.
pub fn prepare(header: &Header) {
    let distance = header.config.sample_bytes.load(Relaxed);
    if distance == 0 {
        return;
    }
    let (blocks, cells) = (arena::own(1 << BLOCKS_BITS), arena::own(1 << CELLS_BITS));
    if blocks.is_null() || cells.is_null() {
        header.config.sample_bytes.store(0, Relaxed);
        return;
    }
    BLOCKS.store(blocks.cast(), Relaxed);
    CELLS.store(cells.cast(), Relaxed);
    DISTANCE.store(distance, Relaxed);
}

#[inline(always)]
pub fn distance() -> u64 {
    DISTANCE.load(Relaxed)
}

/// Is this allocation one that is not recorded?
#[inline(always)]
pub fn passes(size: usize, align: usize) -> bool {
    DISTANCE.load(Relaxed) != 0 && align != cells::ALIGN && passes_over(size)
}

#[inline(always)]
fn passes_over(size: usize) -> bool {
    match Thread::peek() {
        Some(thread) => {
            let left = thread.until_sample.load(Relaxed) - size as i64;
            thread.until_sample.store(left, Relaxed);
            thread.passed_over.store(true, Relaxed);
            left > 0 || draw_again(thread)
        }
        None => first_or_late(size),
    }
}

/// The thread's first allocation makes its state; after its end all share one distance.
#[cold]
#[inline(never)]
fn first_or_late(size: usize) -> bool {
    if let Some(thread) = Thread::enter() {
        thread.leave();
    }
    if Thread::peek().is_some() {
        return passes_over(size);
    }
    let left = LATE.fetch_sub(size as i64, Relaxed) - size as i64;
    if left <= 0 {
        LATE.store(draw(0), Relaxed);
    }
    left > 0
}

/// This block is recorded: where is the next one?
#[cold]
#[inline(never)]
fn draw_again(thread: &Thread) -> bool {
    thread.until_sample.store(draw(thread.tid), Relaxed);
    false
}

/// Bytes to the next sample of the thread; of no meaning while every block is recorded.
pub fn draw(tid: i32) -> i64 {
    static STATE: AtomicU64 = AtomicU64::new(0x2545_f491_4f6c_dd1d);
    // One sequence for all: each draw is hashed, so that threads which take turns stay apart.
    let step = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
    let mut word = step ^ (tid as u64).rotate_left(32);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 31;
    sample::next_distance(word, distance()) as i64
}

/// The address under which a block stands in the table of live blocks.
#[inline(always)]
pub fn entry_of(address: usize, align: usize) -> usize {
    if DISTANCE.load(Relaxed) != 0 && align == cells::ALIGN {
        return address | EXACT as usize;
    }
    address
}

/// The address of the block that stands there.
#[inline(always)]
pub fn address_of(entry: usize) -> usize {
    if DISTANCE.load(Relaxed) != 0 {
        return entry & !(EXACT as usize);
    }
    entry
}

#[inline(always)]
pub fn booked(entry: usize, size: usize) -> Booked {
    sample::booked(entry as u64, size as u64, DISTANCE.load(Relaxed))
}

#[inline(always)]
fn count_of(entry: usize) -> Option<&'static AtomicU8> {
    let (table, bits, number) = match entry & EXACT as usize != 0 {
        true => (&CELLS, CELLS_BITS, entry >> 7),
        false => (&BLOCKS, BLOCKS_BITS, entry >> 4),
    };
    let at = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits);
    // SAFETY: null, or a table of `1 << bits` counts that is never unmapped.
    unsafe { table.load(Relaxed).wrapping_add(at as usize).as_ref() }
}

/// The block was entered into the table of live blocks.
#[inline(always)]
pub fn entered(entry: usize) {
    if DISTANCE.load(Relaxed) != 0 {
        change(entry, |count| count.checked_add(1));
    }
}

#[inline(always)]
pub fn left(entry: usize) {
    if DISTANCE.load(Relaxed) != 0 {
        change(entry, |count| count.checked_sub(1));
    }
}

/// A count that is full stays so: its blocks are looked up for ever.
fn change(entry: usize, by: impl Fn(u8) -> Option<u8>) {
    if let Some(count) = count_of(entry) {
        let _ = count.fetch_update(Relaxed, Relaxed, |count| match count {
            u8::MAX => None,
            count => by(count),
        });
    }
}

/// The entry of a block that goes away; `None` if it was certainly never recorded.
#[inline(always)]
pub fn leaving(address: usize) -> Option<usize> {
    if DISTANCE.load(Relaxed) == 0 {
        return Some(address);
    }
    let was_seen = |entry: usize| count_of(entry).is_some_and(|count| count.load(Relaxed) != 0);
    if was_seen(address) {
        return Some(address);
    }
    let cell = address | EXACT as usize;
    (address.is_multiple_of(cells::ALIGN) && was_seen(cell)).then_some(cell)
}

/// Takes the block out of the table of live blocks, with the entry under which it stood.
#[inline(always)]
pub fn remove(thread: &Thread, entry: usize) -> (usize, Option<live::Found>) {
    let found = live::remove(thread.tid, live::key(entry), entry);
    if DISTANCE.load(Relaxed) == 0 || found.is_some() {
        if found.is_some() {
            left(entry);
        }
        return (entry, found);
    }
    // The counts are shared: it may be a cell, though another block's count was met first.
    let cell = entry | EXACT as usize;
    if cell == entry || !entry.is_multiple_of(cells::ALIGN) {
        return (entry, None);
    }
    let found = live::remove(thread.tid, live::key(cell), cell);
    if found.is_some() {
        left(cell);
    }
    (cell, found)
}
