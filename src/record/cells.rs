//! Task cells: what `spawn` allocates for the child.
//!
//! tokio allocates a cell with an alignment of 128 and fills it in at once: state, queue link,
//! vtable. So a block of that alignment is remembered, and looked at on the next event of its
//! thread (or of a thread that meets an unknown task id, since a task can run before its spawner
//! allocates again). If its third word points to a vtable as tokio makes them, the vtable is the
//! task's type, and its last word says where the id is. The cell then moves from whoever called
//! `spawn` to the child, and with it the box into which tokio puts a future that is too large.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::owners;
use super::start::header;
use super::thread::{self, Last, Thread};
use super::{arena, contexts, counters, live, modules, tasks};
use crate::wire::{Allocator, Context, OwnerKind, Row, RowState};

/// Alignment of a cell: `repr(align(128))` on x86-64 and aarch64.
pub const ALIGN: usize = 128;

/// What a vtable says: where in the cell the id and the future are.
#[derive(Clone, Copy)]
struct Layout {
    kind: u32,
    id_offset: usize,
}

const WORD: usize = size_of::<usize>();
/// Header: state, queue link, vtable, owner id.
const VTABLE_AT: usize = 2 * WORD;

/// Vtables that were met. Never removed; 256 task types are looked up quickly, more by search
/// among the owner types.
struct Known {
    vtable: AtomicU64,
    kind: AtomicU32,
    id_offset: AtomicU32,
}

static KNOWN: [Known; 256] = [const {
    Known {
        vtable: AtomicU64::new(0),
        kind: AtomicU32::new(0),
        id_offset: AtomicU32::new(0),
    }
}; 256];

impl Thread {
    /// Looks at the cell that this thread allocated last, if there is one.
    #[inline(always)]
    pub fn settle(&mut self) {
        if self.pending_cell.load(Relaxed) != 0 {
            settle_own(self);
        }
    }
}

/// A block with a cell's alignment was just allocated; `thread.last` is the one before it.
#[cold]
pub fn remember(thread: &mut Thread, cell: Last) {
    let _held = thread.pending_lock.hold();
    let before = match thread.has_passed_over() {
        true => thread::NO_LAST,
        false => thread.last,
    };
    thread.pending = (cell, before);
    thread.pending_cell.store(cell.address, Release);
}

#[cold]
#[inline(never)]
fn settle_own(thread: &mut Thread) {
    let of = std::ptr::from_ref(thread);
    // SAFETY: the thread's own state; `adopt_pending` changes of it only what is atomic.
    adopt_pending(thread, unsafe { &*of });
}

/// Looks at the cell that is pending at `of`, if there is one, on the calling thread.
fn adopt_pending(thread: &mut Thread, of: &Thread) {
    // Before the cell is taken: who finds none pending sees that somebody is at it.
    of.adopting.fetch_add(1, Relaxed);
    let taken = {
        let _held = of.pending_lock.hold();
        (of.pending_cell.swap(0, AcqRel) != 0).then_some(of.pending)
    };
    if let Some((cell, before)) = taken {
        adopt(thread, cell, before);
    }
    of.adopting.fetch_sub(1, Release);
}

/// Looks for the cell of the task that runs, whose id nobody knows, among those that are pending on
/// all threads. Returns when those are settled that others were at, too: a task whose type is on
/// its way would else be one of no type.
///
/// A cell of another thread may not be filled in yet, and hold what an earlier cell has left
/// there; the id of the task that runs is one that is in use.
pub fn settle_all(thread: &mut Thread, id: u64) {
    thread::for_each(|other| {
        if other.pending_cell.load(Acquire) != 0 && is_pending(thread, other, id) {
            adopt_pending(thread, other);
        }
        wait_for_adoption(other);
    });
}

fn is_pending(thread: &Thread, of: &Thread, id: u64) -> bool {
    let (cell, _) = {
        let _held = of.pending_lock.hold();
        of.pending
    };
    let mut found = 0;
    live::change_owner(thread.tid, cell.entry, cell.context, || {
        // SAFETY: as in `adopt`.
        (found, _) = unsafe { look(cell.address, cell.size) }?;
        None
    });
    found == id
}

/// Whoever is at it holds no lock of ours that we hold; should it not get a processor for long,
/// the task is one of no type.
fn wait_for_adoption(of: &Thread) {
    const TURNS: u32 = 20_000;
    for _ in 0..TURNS {
        if of.adopting.load(Acquire) == 0 {
            return;
        }
        // SAFETY: takes nothing.
        unsafe { libc::sched_yield() };
    }
}

/// The block `cell` becomes the child's, if it is a cell.
fn adopt(thread: &mut Thread, cell: Last, before: Last) {
    let mut child = None;
    let moved = live::change_owner(thread.tid, cell.entry, cell.context, || {
        // SAFETY: the block is live while `change_owner` holds its page: freeing it needs that.
        let (id, layout) = unsafe { look(cell.address, cell.size) }?;
        let row = tasks::row_or_make(id, || {
            let cell = cell.address as u64;
            owners::new_row(id, cell, layout.kind, RowState::TaskAlive, 0)
        });
        introduce(row, id, cell.address, layout.kind);
        let context = contexts::of(thread, cell.node, layout.kind, allocator_of(cell.context));
        child = Some((row, layout, context));
        Some((context, row))
    });
    let (true, Some((row, layout, context))) = (moved, child) else {
        return;
    };
    move_books(thread, cell, context, row);
    if let Some(kind) = owners::owner_type(layout.kind) {
        kind.cell_bytes.fetch_max(cell.size as u64, Relaxed);
        let _ = kind
            .spawn_context
            .compare_exchange(0, context, Relaxed, Relaxed);
    }
    adopt_box(thread, cell, before, row, layout);
}

/// A row that a running task made before its cell was seen learns what it is.
fn introduce(index: u32, id: u64, address: usize, kind: u32) {
    let Some(row) = owners::row(index) else {
        return;
    };
    if row.id.load(Relaxed) == id && row.cell.load(Relaxed) == 0 {
        row.cell.store(address as u64, Relaxed);
        owners::rename(index, kind);
    }
}

fn allocator_of(context: u32) -> Allocator {
    let owner = header()
        // SAFETY: null, or a row of the column, made of atomics.
        .and_then(|h| unsafe { h.contexts.address(context, &arena::EXTENT).as_ref() })
        .map_or(0, |row| row.owner.load(Relaxed));
    match owner >> Context::ALLOCATOR_SHIFT {
        1 => Allocator::Jemalloc,
        2 => Allocator::Mimalloc,
        3 => Allocator::Wrapper,
        _ => Allocator::Malloc,
    }
}

fn move_books(thread: &mut Thread, block: Last, context: u32, row: u32) {
    let from = counters::of(thread, block.context);
    let to = counters::of(thread, context);
    if let (Some(from), Some(to)) = (from, to) {
        counters::move_allocation(from, to, block.booked);
    }
    owners::move_block(block.row, row, block.booked.bytes);
}

/// tokio boxes a future of more bytes than this before it makes the cell (in release builds).
const BOXED_BEYOND: usize = 16 << 10;

/// The block that was allocated just before the cell is the child's too if it is so large that
/// tokio would have boxed it, and the first thing in the stage points to it. A smaller block is
/// more likely an argument, which is the spawner's.
fn adopt_box(thread: &mut Thread, cell: Last, boxed: Last, row: u32, layout: Layout) {
    // Behind the id the stage: its tag and the future, whose first word is the box.
    const STAGE_WORDS: usize = 2;
    if boxed.address == 0 || boxed.row == row || boxed.size <= BOXED_BEYOND {
        return;
    }
    let first = layout.id_offset + WORD;
    let end = (first + STAGE_WORDS * WORD).min(cell.size);
    let context = contexts::of(thread, boxed.node, layout.kind, allocator_of(boxed.context));
    let moved = live::change_owner(thread.tid, boxed.entry, boxed.context, || {
        // The page lock of the box keeps the box. The cell is not freed while it names the box
        // as its future: dropping the future frees the box first, which needs that lock.
        if owners::row(row)?.cell.load(Relaxed) != cell.address as u64 {
            return None;
        }
        let holds = (first..end).step_by(WORD).any(|at| {
            // SAFETY: within the cell, see above.
            let word = unsafe { *((cell.address + at) as *const usize) };
            word == boxed.address
        });
        holds.then_some((context, row))
    });
    if moved {
        move_books(thread, boxed, context, row);
        if let Some(kind) = owners::owner_type(layout.kind) {
            kind.box_bytes.fetch_max(boxed.size as u64, Relaxed);
        }
    }
}

/// Reads a cell's id and type, if the block is one.
///
/// # Safety
///
/// The block of `size` bytes at `address` is live and stays so during the call.
unsafe fn look(address: usize, size: usize) -> Option<(u64, Layout)> {
    if size < 8 * WORD {
        return None;
    }
    // SAFETY: the block has this word.
    let vtable = unsafe { *((address + VTABLE_AT) as *const u64) };
    let layout = layout_of(vtable, size)?;
    // SAFETY: `layout_of` has checked that the id lies within a cell of this size.
    let id = unsafe { *((address + layout.id_offset) as *const u64) };
    (id != 0 && id >> 36 == 0).then_some((id, layout))
}

fn layout_of(vtable: u64, size: usize) -> Option<Layout> {
    let slot = &KNOWN[(vtable >> 4) as usize % KNOWN.len()];
    if vtable != 0 && slot.vtable.load(Acquire) == vtable {
        let id_offset = slot.id_offset.load(Relaxed) as usize;
        let layout = Layout {
            kind: slot.kind.load(Relaxed),
            id_offset,
        };
        return (id_offset + WORD <= size).then_some(layout);
    }
    let id_offset = check_vtable(vtable, size)?;
    let kind = owners::type_of(OwnerKind::Task, vtable, b"");
    if kind == 0 {
        return None;
    }
    if slot.vtable.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
        slot.kind.store(kind, Relaxed);
        slot.id_offset.store(id_offset as u32, Relaxed);
        slot.vtable.store(vtable, Release);
    }
    Some(Layout { kind, id_offset })
}

/// Is this tokio's: seven functions, then the offsets of trailer, scheduler and id?
fn check_vtable(vtable: u64, size: usize) -> Option<usize> {
    const WORDS: u64 = 10;
    if vtable < 4096 || !vtable.is_multiple_of(WORD as u64) {
        return None;
    }
    if !modules::find(vtable)?.holds_data(vtable, vtable + WORDS * 8) {
        return None;
    }
    // SAFETY: data of a loaded module: the range was just checked.
    let words = unsafe { std::slice::from_raw_parts(vtable as *const u64, WORDS as usize) };
    let is_code = |at: &u64| modules::find(*at).is_some_and(|m| m.text.0 <= *at && *at < m.text.1);
    let (trailer, scheduler, id) = (words[7], words[8], words[9]);
    let plausible = 24 <= scheduler && scheduler <= id && id < trailer && trailer < size as u64;
    (plausible && words[..7].iter().all(is_code)).then_some(id as usize)
}

/// The cell of this row was freed.
#[cold]
pub fn freed(index: u32, row: &Row) {
    tasks::forget(row.id.load(Relaxed));
    owners::ended(index, RowState::TaskGone);
}
