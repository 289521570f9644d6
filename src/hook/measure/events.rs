//! What the wrapped allocator tells while a measurement runs.
//!
//! Called inside the allocator, on any thread. The measurement's own tables are ordinary ones,
//! made by the same allocator: a mark of the thread (`current::busy`) lets what they allocate
//! pass by unseen.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use super::blocks::{self, Block, Charge};
use super::cells;
use super::current::{self, Context};

/// Frames of a stack that are kept: those of the measured code, innermost first.
const FRAMES: usize = 64;

struct Stack {
    frames: [usize; FRAMES],
    length: usize,
}

/// A block was handed out on this thread.
#[inline]
pub fn allocated(block: *mut u8, size: usize, align: usize) {
    if !block.is_null() && (current::is_set() || tasks::may_be_one()) {
        current::busy(|| book(block as usize, size, align));
    }
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
    allocated(new, size, 0);
}

fn take_out(address: usize) -> Option<(Block, bool)> {
    cells::freed(address);
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

fn book(address: usize, size: usize, align: usize) {
    let (context, stack_end) = match current::get() {
        Some(context) => (context, current::stack_end()),
        // A task's own stack ends where the runtime begins: nothing says where.
        None => match tasks::context() {
            Some(context) => (context, usize::MAX),
            None => return,
        },
    };
    let stack = stack(stack_end);
    let Some(charge) = charge(&context, size, stack.key(), &stack) else {
        return;
    };
    let before = current::set_last(address, size);
    if let Some(stale) = blocks::insert(address, Block { size, charge }) {
        book_end(&stale, false);
    }
    cells::remember(address, size, align, before, &context);
}

/// The measurement of a task that runs here and was spawned by measured code.
#[cfg(all(feature = "tokio", target_os = "linux"))]
mod tasks {
    use std::sync::Arc;

    use super::{Context, cells, current};
    use crate::hook::tokio::current_id;

    pub fn may_be_one() -> bool {
        let id = current_id();
        id != 0 && !current::is_foreign(id)
    }

    pub fn context() -> Option<Arc<Context>> {
        let id = current_id();
        let found = cells::context_of(id);
        if found.is_none() {
            // Its cell would be known by now: a task is polled after it was spawned.
            current::set_foreign(id);
        }
        found
    }
}

#[cfg(not(all(feature = "tokio", target_os = "linux")))]
mod tasks {
    use std::sync::Arc;

    use super::Context;

    pub fn may_be_one() -> bool {
        false
    }

    pub fn context() -> Option<Arc<Context>> {
        None
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
fn stack(end: usize) -> Stack {
    let mut stack = Stack {
        frames: [0; FRAMES],
        length: 0,
    };
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
