//! Counters of one thread, per context.
//!
//! Counters shared by threads bounce between cores. Each thread has a shard, written by nobody
//! else; a reader adds up all shards. A thread that ends leaves its shard to the next one, which
//! counts on: nothing is ever merged. A free is booked by the thread that frees, so live bytes of
//! one shard may be negative.

use std::sync::atomic::Ordering::Relaxed;

use super::arena;
use super::start::header;
use super::thread::Thread;
use crate::wire::Counter;
use crate::wire::sample::Booked;

/// Context to counter of one thread: open addressing.
#[derive(Clone, Copy)]
pub struct Index {
    slots: *mut Entry,
    mask: u32,
    used: u32,
}

/// Context plus one, 0 for a free slot, and the counter.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    context: u64,
    counter: *const Counter,
}

pub const EMPTY: Index = Index {
    slots: std::ptr::null_mut(),
    mask: 0,
    used: 0,
};
const FIRST: usize = 32;

#[inline(always)]
fn hash(context: u32) -> u32 {
    context.wrapping_mul(0x9e37_79b1) >> 7
}

/// The thread's counter for a context; `None` if memory is out.
#[inline(always)]
pub fn of(thread: &mut Thread, context: u32) -> Option<&'static Counter> {
    let index = thread.index;
    if !index.slots.is_null() {
        let mut at = hash(context) & index.mask;
        loop {
            // SAFETY: masked; the table has `mask + 1` slots.
            let entry = unsafe { *index.slots.add(at as usize) };
            if entry.context == u64::from(context) + 1 {
                // SAFETY: a row of the thread's shard, which never moves.
                return unsafe { entry.counter.as_ref() };
            }
            if entry.context == 0 {
                break;
            }
            at = (at + 1) & index.mask;
        }
    }
    add_context(thread, context)
}

#[cold]
#[inline(never)]
fn add_context(thread: &mut Thread, context: u32) -> Option<&'static Counter> {
    let epoch = header()?.epoch.load(Relaxed);
    if thread.index.slots.is_null() || thread.index.used > thread.index.mask / 2 {
        grow(thread)?;
    }
    let at = arena::append(&thread.slot().shard.counters, |_, row| {
        // SAFETY: a fresh row that no reader knows yet.
        let row = unsafe { &*row };
        row.context.store(context, Relaxed);
        row.epoch.store(epoch, Relaxed);
    })?;
    let address = thread.slot().shard.counters.address(at, &arena::EXTENT);
    // SAFETY: null, or a row of the column; it never moves.
    let counter = unsafe { address.as_ref() }?;
    put(&mut thread.index, counter);
    Some(counter)
}

fn put(index: &mut Index, counter: &'static Counter) {
    let context = counter.context.load(Relaxed);
    let mut slot = hash(context) & index.mask;
    // SAFETY: masked; the table is at most half full.
    unsafe {
        while (*index.slots.add(slot as usize)).context != 0 {
            slot = (slot + 1) & index.mask;
        }
        *index.slots.add(slot as usize) = Entry {
            context: u64::from(context) + 1,
            counter,
        };
    }
    index.used += 1;
}

/// Makes the index anew from the shard: larger, or for a thread that takes a shard over.
pub fn grow(thread: &mut Thread) -> Option<()> {
    let counters = &thread.slot().shard.counters;
    let slots = (counters.len() as usize * 4).next_power_of_two().max(FIRST);
    let start = arena::own(slots * size_of::<Entry>()).cast::<Entry>();
    if start.is_null() {
        return None;
    }
    let new = Index {
        slots: start,
        mask: slots as u32 - 1,
        used: 0,
    };
    let old = std::mem::replace(&mut thread.index, new);
    for at in 0..counters.len() {
        // SAFETY: null, or a row of the column; it never moves.
        if let Some(counter) = unsafe { counters.address(at, &arena::EXTENT).as_ref() } {
            put(&mut thread.index, counter);
        }
    }
    release(old);
    Some(())
}

/// Gives an index back; the shard stays.
pub fn release(index: Index) {
    if !index.slots.is_null() {
        let bytes = (index.mask as usize + 1) * size_of::<Entry>();
        // SAFETY: made by `grow`, used by one thread only.
        unsafe { arena::give_back(index.slots.cast(), bytes) };
    }
}

/// Before the first change after a peak, what was live at that peak.
#[inline(always)]
fn save_peak(counter: &Counter) {
    let Some(header) = header() else { return };
    let epoch = header.epoch.load(Relaxed);
    if counter.epoch.load(Relaxed) != epoch {
        counter
            .peak_bytes
            .store(counter.live_bytes.load(Relaxed), Relaxed);
        counter
            .peak_blocks
            .store(counter.live_blocks.load(Relaxed), Relaxed);
        counter.epoch.store(epoch, Relaxed);
    }
}

// Only the owning thread writes, so load and store are enough: no locked instruction.

#[inline(always)]
pub fn add(counter: &Counter, booked: Booked) {
    save_peak(counter);
    let (size, blocks) = (booked.bytes, u64::from(booked.blocks));
    counter
        .allocations
        .store(counter.allocations.load(Relaxed) + blocks, Relaxed);
    counter.allocated_bytes.store(
        counter.allocated_bytes.load(Relaxed).wrapping_add(size),
        Relaxed,
    );
    counter
        .live_bytes
        .store(counter.live_bytes.load(Relaxed) + size as i64, Relaxed);
    counter
        .live_blocks
        .store(counter.live_blocks.load(Relaxed) + blocks as i64, Relaxed);
}

#[inline(always)]
pub fn subtract(counter: &Counter, booked: Booked, temporary: bool) {
    save_peak(counter);
    let (size, blocks) = (booked.bytes, i64::from(booked.blocks));
    counter
        .live_bytes
        .store(counter.live_bytes.load(Relaxed) - size as i64, Relaxed);
    counter
        .live_blocks
        .store(counter.live_blocks.load(Relaxed) - blocks, Relaxed);
    if temporary {
        counter
            .temporary
            .store(counter.temporary.load(Relaxed) + blocks as u64, Relaxed);
    }
}

/// Books an allocation elsewhere: it turned out to be somebody else's.
pub fn move_allocation(from: &Counter, to: &Counter, booked: Booked) {
    let (bytes, blocks) = (booked.bytes, u64::from(booked.blocks));
    save_peak(from);
    save_peak(to);
    from.allocations
        .store(from.allocations.load(Relaxed).wrapping_sub(blocks), Relaxed);
    from.allocated_bytes.store(
        from.allocated_bytes.load(Relaxed).wrapping_sub(bytes),
        Relaxed,
    );
    from.live_bytes
        .store(from.live_bytes.load(Relaxed) - bytes as i64, Relaxed);
    from.live_blocks
        .store(from.live_blocks.load(Relaxed) - blocks as i64, Relaxed);
    add(to, booked);
}
