//! Which task is running, and its row.
//!
//! tokio keeps the current task's id in a thread-local; where, the command has found out from the
//! executable's symbols (`wire::Config`), so that reading it is one load from the thread pointer.
//! Ids are mapped to rows by a small hash table in shards.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::Relaxed;

use super::lock::Lock;
use super::owners::{self, Current};
use super::start::header;
use super::thread::Thread;
use super::{arena, cells, intern};
use crate::wire::{NO_ROW, OwnerKind, RowState};

const SHARDS: usize = 64;
/// Ids are counted up from 1: what is larger is not an id that tokio gave.
const ID_BITS: u32 = 36;

struct Shard {
    lock: Lock,
    table: UnsafeCell<Table>,
}

/// Open addressing: id in the high 36 bits, row in the low 28; 0 is free.
struct Table {
    slots: *mut u64,
    mask: usize,
    used: usize,
}

// SAFETY: a table is reached only while its shard's lock is held.
unsafe impl Sync for Shard {}

static MAP: [Shard; SHARDS] = [const {
    Shard {
        lock: Lock::new(),
        table: UnsafeCell::new(Table {
            slots: std::ptr::null_mut(),
            mask: 0,
            used: 0,
        }),
    }
}; SHARDS];

#[inline(always)]
fn hash(id: u64) -> usize {
    (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize
}

fn with_table<R>(id: u64, work: impl FnOnce(&mut Table) -> R) -> R {
    let shard = &MAP[id as usize % SHARDS];
    let _held = shard.lock.hold();
    // SAFETY: the shard's lock is held.
    work(unsafe { &mut *shard.table.get() })
}

impl Table {
    /// # Safety
    ///
    /// The table has slots; `at` is at most `mask`.
    unsafe fn slot(&mut self, at: usize) -> &mut u64 {
        // SAFETY: the caller's; `grow` maps `mask + 1` slots.
        unsafe { &mut *self.slots.add(at) }
    }

    /// Where the id stands, or the free slot where it would.
    fn place(&mut self, id: u64) -> (usize, u64) {
        let mut at = hash(id) & self.mask;
        loop {
            // SAFETY: masked; at most three quarters are used.
            let word = unsafe { *self.slot(at) };
            if word == 0 || word >> 28 == id {
                return (at, word);
            }
            at = (at + 1) & self.mask;
        }
    }

    fn grow(&mut self) -> Option<()> {
        let slots = if self.slots.is_null() {
            64
        } else {
            (self.mask + 1) * 2
        };
        let start = arena::own(slots * 8).cast::<u64>();
        if start.is_null() {
            return None;
        }
        let old = std::mem::replace(
            self,
            Table {
                slots: start,
                mask: slots - 1,
                used: 0,
            },
        );
        if old.slots.is_null() {
            return Some(());
        }
        for at in 0..=old.mask {
            // SAFETY: at most `mask`.
            let word = unsafe { *old.slots.add(at) };
            if word != 0 {
                self.put(word);
            }
        }
        // SAFETY: made by `grow`; the shard's lock is held.
        unsafe { arena::give_back(old.slots.cast(), (old.mask + 1) * 8) };
        Some(())
    }

    fn put(&mut self, word: u64) {
        let (at, _) = self.place(word >> 28);
        // SAFETY: `place` returns an index of the table.
        unsafe { *self.slot(at) = word };
        self.used += 1;
    }

    fn remove(&mut self, id: u64) {
        if self.slots.is_null() {
            return;
        }
        let (mut gap, word) = self.place(id);
        if word == 0 {
            return;
        }
        self.used -= 1;
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            // SAFETY: masked.
            let word = unsafe { *self.slot(at) };
            if word == 0 {
                break;
            }
            let home = hash(word >> 28) & self.mask;
            if (at.wrapping_sub(home) & self.mask) >= (at.wrapping_sub(gap) & self.mask) {
                // SAFETY: as above.
                unsafe { *self.slot(gap) = word };
                gap = at;
            }
        }
        // SAFETY: as above.
        unsafe { *self.slot(gap) = 0 };
    }
}

/// The row of a task, if it is known.
pub fn row_of(id: u64) -> Option<u32> {
    with_table(id, |table| {
        if table.slots.is_null() {
            return None;
        }
        let (_, word) = table.place(id);
        (word != 0).then_some((word & 0x0fff_ffff) as u32)
    })
}

/// The row of a task; `make` makes one if there is none.
pub fn row_or_make(id: u64, make: impl FnOnce() -> u32) -> u32 {
    with_table(id, |table| {
        if (table.slots.is_null() || table.used * 4 > table.mask * 3) && table.grow().is_none() {
            return NO_ROW;
        }
        let (_, word) = table.place(id);
        if word != 0 {
            return (word & 0x0fff_ffff) as u32;
        }
        let row = make();
        if row != NO_ROW {
            table.put((id << 28) | u64::from(row));
        }
        row
    })
}

pub fn forget(id: u64) {
    with_table(id, |table| table.remove(id));
}

/// Tells the current task's id in place of a look at tokio's memory.
#[cfg(feature = "tokio")]
static READER: std::sync::OnceLock<fn() -> u64> = std::sync::OnceLock::new();

/// From now on task ids come from `reader`: 0 outside tasks. It must not allocate.
#[cfg(feature = "tokio")]
pub fn read_task_ids_by(reader: fn() -> u64) {
    let _ = READER.set(reader);
}

/// The id of the task that this thread runs, 0 for none.
#[inline(always)]
fn current_id(thread: &Thread) -> u64 {
    #[cfg(feature = "tokio")]
    if let Some(reader) = READER.get() {
        return reader();
    }
    let Some(header) = header() else { return 0 };
    for slot in &header.config.task_ids {
        let offset = slot.offset.load(Relaxed);
        if offset == 0 {
            return 0;
        }
        // SAFETY: the command has checked that tokio's context lies there, in the executable's
        // static TLS, which every thread has for as long as it runs.
        let word = |at| unsafe { *(thread.pointer.wrapping_add_signed(at) as *const u64) };
        let present = slot.present.load(Relaxed);
        let id = if present != 0 && word(present) == 0 {
            0
        } else {
            word(offset)
        };
        if id != 0 {
            return if id >> ID_BITS == 0 { id } else { 0 };
        }
    }
    0
}

impl Thread {
    /// For whom this thread allocates now: a scope, else the task, else the thread. A shared initialiser's blocks have no row, and those
    /// of a thread-local's initialiser are the thread's: whichever task comes first would be
    /// charged for what is not its own.
    #[inline(always)]
    pub fn current_owner(&mut self, node: u32) -> Current {
        let id = current_id(self);
        let mut current = match id {
            0 => Current {
                kind: self.kind,
                row: self.row,
            },
            known if known == self.task.0 => self.task.1,
            _ => self.switch_to(id),
        };
        if let Some(scope) = self.current_scope() {
            current = scope;
        }
        if node & (intern::SHARED | intern::THREAD_LOCAL) != 0 {
            current.row = NO_ROW;
            if node & intern::SHARED == 0 {
                current = Current {
                    kind: self.kind,
                    row: self.row,
                };
            }
        }
        current
    }

    #[cold]
    #[inline(never)]
    fn switch_to(&mut self, id: u64) -> Current {
        let known = row_of(id).or_else(|| {
            // Its cell may still be waiting on the thread that spawned it.
            cells::settle_all(self, id);
            row_of(id)
        });
        let row = known.unwrap_or_else(|| {
            let kind = owners::type_of(OwnerKind::Task, 0, b"");
            row_or_make(id, || {
                owners::new_row(id, 0, kind, RowState::TaskAlive, self.row)
            })
        });
        let Some(owner) = owners::row(row).filter(|_| row != NO_ROW) else {
            return Current {
                kind: self.kind,
                row: self.row,
            };
        };
        if owner.thread.load(Relaxed) == 0 {
            owner.thread.store(self.row, Relaxed);
        }
        let current = Current {
            kind: owner.owner.load(Relaxed),
            row,
        };
        self.task = (id, current);
        current
    }
}
