//! The recorder: runs inside the profiled process at every allocation.
//!
//! Problem: it is called from inside `malloc`, by any thread, in signal handlers, in the last
//! destructor of a thread and between fork and exec; it must answer in tens of nanoseconds, and
//! a mistake here is a crash of somebody's production server. The tempting design, a queue of
//! events and a thread that digests them, needs memory in proportion to the events, reorders
//! them, and loses its tail at a kill.
//!
//! The rule: every event is digested at once, by the thread that makes it, into tables that are
//! right at every moment (`wire`). No heap, no panic, no lock while the program's own allocator
//! runs. What comes in (caller, size, allocator) comes as values; where the hook is, is not known
//! here. A second event on a thread that is inside the recorder (a signal handler) is put aside
//! and digested when the first is done; what does not fit is counted as lost.
//!
//! Everything here is reached through the functions of this file.

mod arena;
mod cells;
mod chunks;
mod contexts;
mod counters;
mod dump;
mod intern;
mod live;
mod local;
mod lock;
mod maps;
mod modules;
mod names;
mod owners;
mod peak;
mod rules;
mod sample;
mod scopes;
mod start;
mod tasks;
mod thread;
mod unwind;

use crate::wire::{Allocator, ExtentMap};
pub use arena::{note_private, pages};
pub use dump::{About, dump};
use live::Found;
pub use maps::{mapped, unmapped};
#[cfg(taskheap_preload)]
pub use sample::{PLACE_SHIFT, PLACES, PLACES_BITS, always_look};
pub use sample::{is_unknown, may_be_cell, passes_at_once};
pub use scopes::{ScopeBefore, enter_scope, leave_scope};
pub use start::{Setup, header, is_active, start_in_session, start_local, stop, wait_at_the_end};
#[cfg(feature = "tokio")]
pub use tasks::read_task_ids_by;
use thread::{Last, Thread};
pub use thread::{Muted, mute, name_changed, unmute};

/// The frame that asked for memory: its return address and its registers after the return.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub pc: u64,
    pub sp: u64,
    pub bp: u64,
}

/// A block that left the live table and may have to come back: realloc in progress.
#[derive(Clone, Copy)]
pub struct Taken {
    address: usize,
    found: Option<Found>,
}

/// Is it a sample that is recorded?
pub fn is_sample() -> bool {
    sample::distance() != 0
}

/// Where the recording's memory is in this process.
pub fn extents() -> &'static impl ExtentMap {
    &arena::EXTENT
}

/// A block of `size` bytes was handed out at `address`. `align` is 0 where the program did not
/// ask for an alignment.
#[inline(always)]
pub fn on_alloc(address: *mut u8, size: usize, align: usize, by: Allocator, caller: &Caller) {
    if address.is_null() || sample::passes(size, align) || !is_active() {
        return;
    }
    let address = address as usize;
    let Some(thread) = Thread::enter() else {
        return thread::put_aside(thread::Aside::Alloc { address, size, by });
    };
    alloc_in(thread, address, size, align, by, caller);
    thread.leave();
}

#[inline(always)]
fn alloc_in(
    thread: &mut Thread,
    address: usize,
    size: usize,
    align: usize,
    by: Allocator,
    caller: &Caller,
) {
    let entry = sample::entry_of(address, align);
    let key = live::key(entry);
    live::prefetch(key);
    thread.settle();
    let node = unwind::capture(thread, caller);
    let owner = thread.current_owner(node);
    let node = intern::untagged(node);
    let context = contexts::of(thread, node, owner.kind, by);
    let Some(counter) = counters::of(thread, context) else {
        return start::lost(1);
    };
    match live::insert(thread.tid, key, entry, size, context, owner.row) {
        Ok(None) => {}
        Ok(Some(stale)) => freed_unseen(thread, entry, &stale),
        Err(live::Full) => return start::lost(1),
    }
    sample::entered(entry);
    let booked = sample::booked(entry, size);
    peak::changed(thread, booked.bytes as i64, i64::from(booked.blocks));
    counters::add(counter, booked);
    owners::add(owner.row, booked.bytes);
    let this = Last {
        address,
        entry,
        size,
        booked,
        context,
        node,
        row: owner.row,
    };
    if align == cells::ALIGN {
        cells::remember(thread, this);
    }
    thread.last = this;
    thread.left_at_last = local::bytes_to_sample();
}

/// The block at `address` is about to be freed. To be called before the allocator does it: a
/// moment later another thread may have the address.
#[inline(always)]
pub fn on_free(address: *mut u8) {
    if address.is_null() || !is_active() {
        return;
    }
    let Some(address) = sample::leaving(address as usize) else {
        return;
    };
    let Some(thread) = Thread::enter() else {
        return thread::put_aside(thread::Aside::Free { address });
    };
    free_in(thread, address);
    thread.leave();
}

#[inline(always)]
fn free_in(thread: &mut Thread, entry: usize) {
    thread.settle();
    let (entry, Some(found)) = sample::remove(thread, entry) else {
        return unknown_free();
    };
    gone(thread, entry, &found);
}

/// A block that was never entered: in a sample most are.
fn unknown_free() {
    if sample::distance() == 0 {
        start::unknown_free();
    }
}

/// Books a block that has left the live table.
#[inline(always)]
fn gone(thread: &mut Thread, entry: usize, found: &Found) {
    let booked = sample::booked(entry, found.size);
    let address = sample::address_of(entry);
    peak::changed(thread, -(booked.bytes as i64), -i64::from(booked.blocks));
    let Some(counter) = counters::of(thread, found.context) else {
        return start::lost(1);
    };
    let temporary = thread.last.address == address && !thread.has_passed_over();
    if temporary {
        thread.last.address = 0;
    }
    counters::subtract(counter, booked, temporary);
    owners::subtract(found.row, booked.bytes, address);
}

/// A block that stood in the table although its address is free: its end was not seen.
#[cold]
fn freed_unseen(thread: &mut Thread, address: usize, found: &Found) {
    start::lost(1);
    gone(thread, address, found);
}

/// Takes the block at `address` out of the live table, before the allocator may move it.
#[inline(always)]
pub fn take(address: *mut u8) -> Taken {
    let address = address as usize;
    let nothing = Taken {
        address,
        found: None,
    };
    if address == 0 || !is_active() {
        return nothing;
    }
    let Some(address) = sample::leaving(address) else {
        return nothing;
    };
    let Some(thread) = Thread::enter() else {
        thread::put_aside(thread::Aside::Free { address });
        return nothing;
    };
    thread.settle();
    let (address, found) = sample::remove(thread, address);
    thread.leave();
    Taken { address, found }
}

/// The allocator could not resize: the block is where it was.
pub fn restore(taken: Taken) {
    let Some(found) = taken.found else { return };
    let Some(thread) = Thread::enter() else {
        return start::lost(1);
    };
    let key = live::key(taken.address);
    let back = live::insert(
        thread.tid,
        key,
        taken.address,
        found.size,
        found.context,
        found.row,
    );
    match back {
        Ok(_) => sample::entered(taken.address),
        Err(live::Full) => freed_unseen(thread, taken.address, &found),
    }
    thread.leave();
}

/// The allocator has resized: one free of the old block and one allocation of the new size.
#[inline(always)]
pub fn on_realloc(taken: Taken, address: *mut u8, size: usize, by: Allocator, caller: &Caller) {
    if !is_active() {
        return;
    }
    let passed = address.is_null() || sample::passes(size, 0);
    if passed && taken.found.is_none() {
        if taken.address != 0 {
            unknown_free();
        }
        return;
    }
    let Some(thread) = Thread::enter() else {
        if let Some(found) = taken.found {
            thread::put_aside(thread::Aside::Gone {
                address: taken.address,
                found,
            });
        }
        if !passed {
            let address = address as usize;
            thread::put_aside(thread::Aside::Alloc { address, size, by });
        }
        return;
    };
    match taken.found {
        Some(found) => gone(thread, taken.address, &found),
        None if taken.address != 0 => unknown_free(),
        None => {}
    }
    // A size of zero may have freed the block and made none.
    if !passed {
        alloc_in(thread, address as usize, size, 0, by, caller);
    }
    thread.leave();
}

/// The allocator had no memory to give.
pub fn on_failure() {
    if is_active() {
        start::failed();
    }
}

/// A library may be about to be unloaded, or may just have been.
pub fn modules_may_go() {
    if !is_active() {
        return;
    }
    let Some(thread) = Thread::enter() else {
        return;
    };
    modules::retire_closable();
    thread.leave();
}

/// Digests what a signal handler did while the thread was inside the recorder.
#[cold]
fn digest(thread: &mut Thread, aside: thread::Aside) {
    match aside {
        thread::Aside::Alloc { address, size, by } => {
            let caller = Caller {
                pc: 0,
                sp: 0,
                bp: 0,
            };
            alloc_in(thread, address, size, 0, by, &caller);
        }
        thread::Aside::Free { address } => free_in(thread, address),
        thread::Aside::Gone { address, found } => gone(thread, address, &found),
    }
}
