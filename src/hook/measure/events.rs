//! What the wrapped allocator tells while a measurement runs.
//!
//! Called inside the allocator, on any thread. The measurement's own tables are ordinary ones,
//! made by the same allocator: a mark of the thread (`current::busy`) lets what they allocate
//! pass by unseen.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use super::blocks::{self, Block, Charge};
use super::current::{self, Context};

/// Frames of a stack that are kept: those of the measured code, innermost first.
const FRAMES: usize = 64;

struct Stack {
    frames: [usize; FRAMES],
    length: usize,
}

/// A block was handed out on this thread.
#[inline]
pub fn allocated(block: *mut u8, size: usize, _align: usize) {
    if block.is_null() || !current::is_set() {
        return;
    }
    current::busy(|| book(block as usize, size));
}

/// A block is about to be freed.
#[inline]
pub fn freed(block: *mut u8) {
    if !block.is_null() {
        current::busy(|| {
            if let Some(block) = take_out(block as usize) {
                end(&block);
            }
        });
    }
}

/// A block that may be about to move, and whether it was the thread's last.
pub struct Taken(Option<(Block, bool)>);

pub fn take(block: *mut u8) -> Taken {
    let address = block as usize;
    let found = current::busy(|| blocks::remove(address));
    Taken(
        found
            .flatten()
            .map(|block| (block, current::was_last(address))),
    )
}

/// The allocator has answered: one free and one allocation, or nothing if it had no memory.
pub fn reallocated(taken: Taken, old: *mut u8, new: *mut u8, size: usize) {
    let Taken(found) = taken;
    let is_measured = found.is_some();
    current::busy(|| {
        let Some((block, was_last)) = found else {
            return;
        };
        if new.is_null() {
            blocks::insert(old as usize, block);
        } else {
            book_end(&block, was_last);
        }
    });
    if !new.is_null() && (is_measured || current::is_set()) {
        allocated(new, size, 0);
    }
}

fn take_out(address: usize) -> Option<(Block, bool)> {
    let block = blocks::remove(address)?;
    Some((block, current::was_last(address)))
}

fn end((block, was_last): &(Block, bool)) {
    book_end(block, *was_last);
}

fn book_end(block: &Block, temporary: bool) {
    let mut at = Some(&block.charge);
    while let Some(charge) = at {
        let context = &charge.context;
        if !context.ledger.is_closed() {
            context
                .ledger
                .freed(context.instance, block.size, charge.site, temporary);
        }
        at = charge.outer.as_deref();
    }
}

fn book(address: usize, size: usize) {
    let Some(context) = current::get() else {
        return;
    };
    let stack = stack();
    let Some(charge) = charge(&context, size, stack.key(), &stack) else {
        return;
    };
    current::set_last(address);
    if let Some(stale) = blocks::insert(address, Block { size, charge }) {
        book_end(&stale, false);
    }
}

/// Books the block in the context's measurement and in those around it.
fn charge(context: &Arc<Context>, size: usize, key: u64, stack: &Stack) -> Option<Charge> {
    let outer = context.ledger.outer.as_ref();
    let outer = outer.and_then(|outer| charge(outer, size, key, stack));
    if context.ledger.is_closed() {
        return outer;
    }
    let frames = &stack.frames[..stack.length];
    let site = context
        .ledger
        .allocated(context.instance, size, key, frames);
    Some(Charge {
        context: Arc::clone(context),
        site,
        outer: outer.map(Box::new),
    })
}

/// The calling thread's stack, up to where the measured code begins.
fn stack() -> Stack {
    let mut stack = Stack {
        frames: [0; FRAMES],
        length: 0,
    };
    let end = current::stack_end();
    let visit = |frame: &backtrace::Frame| {
        if frame.sp() as usize > end {
            return false;
        }
        stack.frames[stack.length] = frame.ip() as usize;
        stack.length += 1;
        stack.length < FRAMES
    };
    // SAFETY: without the lock two threads may not trace at the same time on Windows only, where
    // the debugging library is not made for it; elsewhere the unwinder needs none.
    unsafe { trace(visit) };
    stack
}

/// # Safety
///
/// As `backtrace::trace_unsynchronized`.
#[cfg(not(windows))]
unsafe fn trace(visit: impl FnMut(&backtrace::Frame) -> bool) {
    // SAFETY: the caller's.
    unsafe { backtrace::trace_unsynchronized(visit) };
}

/// # Safety
///
/// None is needed here.
#[cfg(windows)]
unsafe fn trace(visit: impl FnMut(&backtrace::Frame) -> bool) {
    backtrace::trace(visit);
}

impl Stack {
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for frame in &self.frames[..self.length] {
            hasher.write_usize(*frame);
        }
        hasher.finish()
    }
}
