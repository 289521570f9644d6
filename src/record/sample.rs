//! Which blocks are recorded when not all are.
//!
//! An exact recording looks at every event. For production that may be too much: then a block is
//! recorded only if a byte of it is met by a Poisson process (see `wire::sample`), which costs all
//! other allocations a subtraction. A block of no bytes is never met.
//!
//! Frees are as many, and each would have to be looked up in the table of live blocks: so tables of
//! counts say of nearly all that they were never recorded. The first has a count for 128 bytes of
//! address space, and begins again after so many megabytes. Blocks that lie side by side share a
//! line of it: a hash would read another line at each free, and push the program's own out of the
//! cache. What that table does not rule out, one by a hash of the address does. Cells of tasks,
//! recorded always, have one of their own: there may be a million of them, and only addresses that
//! are multiples of 128 need to ask it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64};

use super::thread::Thread;
use super::{arena, cells, is_active, live, local};
use crate::wire::Header;
use crate::wire::sample::{self, Booked, EXACT};

/// Mean bytes between samples, 0 while every block is recorded.
static DISTANCE: AtomicU64 = AtomicU64::new(0);

/// Counts of recorded blocks by place: at a multiple of 128 bytes, modulo 128 MiB.
pub static PLACES: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
pub const PLACE_SHIFT: u32 = 7;
pub const PLACES_BITS: u32 = 20;

/// Counts of recorded blocks by hash.
static BLOCKS: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
static CELLS: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
const BLOCKS_BITS: u32 = 16;
const CELLS_BITS: u32 = 20;

/// Prepares for what the header says. Without memory for the tables every block is recorded.
pub fn prepare(header: &Header) {
    let distance = header.config.sample_bytes.load(Relaxed);
    if distance == 0 {
        return;
    }
    let table = |bits: u32| arena::own(1usize << bits).cast::<AtomicU8>();
    let (places, blocks, cells) = (table(PLACES_BITS), table(BLOCKS_BITS), table(CELLS_BITS));
    if places.is_null() || blocks.is_null() || cells.is_null() {
        header.config.sample_bytes.store(0, Relaxed);
        return;
    }
    PLACES.store(places, Relaxed);
    BLOCKS.store(blocks, Relaxed);
    CELLS.store(cells, Relaxed);
    DISTANCE.store(distance, Relaxed);
}

#[inline(always)]
pub fn distance() -> u64 {
    DISTANCE.load(Relaxed)
}

/// Is this allocation one that is not recorded?
#[inline(always)]
pub fn passes(size: usize, align: usize) -> bool {
    DISTANCE.load(Relaxed) != 0 && !may_be_cell(align) && passes_over(size)
}

/// Blocks of this alignment are all recorded.
#[inline(always)]
pub fn may_be_cell(align: usize) -> bool {
    align == cells::ALIGN
}

/// The same, of an allocation that can't be a cell, while a sample is taken: "no" may mean
/// "perhaps".
#[inline(always)]
pub fn passes_at_once(size: usize) -> bool {
    let left = local::bytes_to_sample();
    if size < left {
        local::set_bytes_to_sample(left - size);
    }
    size < left
}

#[inline(always)]
fn passes_over(size: usize) -> bool {
    passes_at_once(size) || !is_due(size)
}

/// A thread that has drawn nothing yet draws. This block is recorded if it is met then.
#[cold]
#[inline(never)]
fn is_due(size: usize) -> bool {
    if local::bytes_to_sample() == 0 {
        // The thread's first allocation makes its state, and that draws.
        if is_active()
            && let Some(thread) = Thread::enter()
        {
            thread.leave();
        }
        if passes_at_once(size) || local::bytes_to_sample() == 0 {
            return false;
        }
    }
    draw(Thread::number());
    true
}

/// Draws how many bytes the calling thread allocates until the next sample; of no meaning while
/// every block is recorded. `tid` is 0 where it is not known.
pub fn draw(tid: i32) {
    static STATE: AtomicU64 = AtomicU64::new(0x2545_f491_4f6c_dd1d);
    if distance() == 0 {
        return;
    }
    // One sequence for all: each draw is hashed, so that threads which take turns stay apart.
    let step = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
    let mut word = step ^ (tid as u64).rotate_left(32);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 31;
    local::set_bytes_to_sample(sample::next_distance(word, distance()) as usize);
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

/// # Safety
///
/// A sample is being taken.
#[inline(always)]
unsafe fn place_of(address: usize) -> &'static AtomicU8 {
    let at = (address >> PLACE_SHIFT) & ((1 << PLACES_BITS) - 1);
    // SAFETY: `prepare` has mapped a table of `1 << PLACES_BITS` counts that is never unmapped.
    unsafe { &*PLACES.load(Relaxed).add(at) }
}

/// Was no block recorded at this address? "No" may mean "perhaps".
///
/// # Safety
///
/// A sample is being taken.
#[inline(always)]
pub unsafe fn is_unknown(address: usize) -> bool {
    // SAFETY: passed on to the caller.
    unsafe { place_of(address) }.load(Relaxed) == 0
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
        // SAFETY: just asked.
        change(Some(unsafe { place_of(entry) }), |count| {
            count.checked_add(1)
        });
        change(count_of(entry), |count| count.checked_add(1));
    }
}

#[inline(always)]
fn left(entry: usize) {
    if DISTANCE.load(Relaxed) != 0 {
        change(count_of(entry), |count| count.checked_sub(1));
        // SAFETY: just asked.
        change(Some(unsafe { place_of(entry) }), |count| {
            count.checked_sub(1)
        });
    }
}

/// A count that is full stays so: its blocks are looked up for ever.
fn change(count: Option<&AtomicU8>, by: impl Fn(u8) -> Option<u8>) {
    if let Some(count) = count {
        let _ = count.fetch_update(Relaxed, Relaxed, |count| match count {
            u8::MAX => None,
            count => by(count),
        });
    }
}

/// A block that the real `free` must not see: it takes the long way.
#[cfg(taskheap_preload)]
pub fn always_look(block: *mut u8) {
    if DISTANCE.load(Relaxed) != 0 {
        // SAFETY: just asked.
        unsafe { place_of(block as usize) }.store(u8::MAX, Relaxed);
    }
}

/// The entry of a block that goes away; `None` if it was certainly never recorded.
#[inline(always)]
pub fn leaving(address: usize) -> Option<usize> {
    if DISTANCE.load(Relaxed) == 0 {
        return Some(address);
    }
    // SAFETY: just asked.
    if unsafe { is_unknown(address) } {
        return None;
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
