//! Contexts: a stack and for whom. What a live block and the counters refer to.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use super::arena;
use super::lock::Lock;
use super::start::header;
use super::thread::Thread;
use crate::wire::{Allocator, Context};

#[repr(C, align(16))]
struct Table {
    mask: u32,
    used: AtomicU32,
}

/// Key: node and owner; 0 is a free slot. Value: the context.
#[repr(C)]
struct Slot {
    key: AtomicU64,
    context: AtomicU64,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
static WRITING: Lock = Lock::new();
const FIRST_SLOTS: usize = 1 << 12;

impl Table {
    /// # Safety
    ///
    /// `index` is at most `mask`.
    #[inline(always)]
    unsafe fn slot(&self, index: u32) -> &Slot {
        let first: *const Slot = (self as *const Table).wrapping_add(1).cast();
        // SAFETY: `make` maps `mask + 1` slots behind the table.
        unsafe { &*first.add(index as usize) }
    }

    #[inline(always)]
    fn look(&self, key: u64) -> Option<u32> {
        let mut index = hash(key) & self.mask;
        loop {
            // SAFETY: masked.
            let slot = unsafe { self.slot(index) };
            let found = slot.key.load(Acquire);
            if found == key {
                return Some(slot.context.load(Relaxed) as u32);
            }
            if found == 0 {
                return None;
            }
            index = (index + 1) & self.mask;
        }
    }

    fn put(&self, key: u64, context: u64) {
        let mut index = hash(key) & self.mask;
        loop {
            // SAFETY: masked.
            let slot = unsafe { self.slot(index) };
            if slot.key.load(Relaxed) == 0 {
                slot.context.store(context, Relaxed);
                slot.key.store(key, Release);
                self.used.fetch_add(1, Relaxed);
                return;
            }
            index = (index + 1) & self.mask;
        }
    }
}

#[inline(always)]
fn hash(key: u64) -> u32 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The context of a stack and an owner type.
#[inline(always)]
pub fn of(thread: &mut Thread, node: u32, kind: u32, by: Allocator) -> u32 {
    let owner = kind | ((by as u32) << Context::ALLOCATOR_SHIFT);
    // Never 0, the mark of a free slot.
    let key = ((u64::from(node) << 32) | u64::from(owner)).wrapping_add(1 << 63);
    if thread.last_context.0 == key {
        return thread.last_context.1;
    }
    // SAFETY: null, or a table that is never unmapped.
    let known = unsafe { TABLE.load(Acquire).as_ref() }.and_then(|table| table.look(key));
    let context = known.unwrap_or_else(|| add(key, node, owner));
    thread.last_context = (key, context);
    context
}

/// Context 0 takes what memory does not reach for.
#[cold]
#[inline(never)]
fn add(key: u64, node: u32, owner: u32) -> u32 {
    let _held = WRITING.hold();
    let Some(table) = table() else { return 0 };
    if let Some(context) = table.look(key) {
        return context;
    }
    let Some(header) = header() else { return 0 };
    let context = arena::append(&header.contexts, |_, row| {
        // SAFETY: a fresh row that no reader knows yet.
        let row = unsafe { &*row };
        row.node.store(node, Relaxed);
        row.owner.store(owner, Relaxed);
    });
    match context {
        Some(context) => {
            table.put(key, u64::from(context));
            context
        }
        None => 0,
    }
}

/// The table with room for one more. With `WRITING` held.
fn table() -> Option<&'static Table> {
    // SAFETY: null, or a table that is never unmapped.
    let current = unsafe { TABLE.load(Relaxed).as_ref() };
    let slots = match current {
        Some(table) if table.used.load(Relaxed) <= table.mask / 2 => return current,
        Some(table) => (table.mask as usize + 1) * 4,
        None => FIRST_SLOTS,
    };
    let start = arena::own(size_of::<Table>() + slots * size_of::<Slot>()).cast::<Table>();
    if start.is_null() {
        return current.filter(|table| table.used.load(Relaxed) < table.mask);
    }
    // SAFETY: freshly mapped, zeroed, nobody else knows it, never unmapped.
    let larger = unsafe {
        (*start).mask = slots as u32 - 1;
        &*start
    };
    if let Some(old) = current {
        for index in 0..=old.mask {
            // SAFETY: at most `mask`.
            let slot = unsafe { old.slot(index) };
            let key = slot.key.load(Relaxed);
            if key != 0 {
                larger.put(key, slot.context.load(Relaxed));
            }
        }
    }
    TABLE.store(start, Release);
    Some(larger)
}
