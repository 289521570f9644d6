//! Owners: task types and thread names, and one small row for each task and thread.
//!
//! A row is used again once its task or thread is gone and nothing that it made is live, unless
//! it held something at the current peak: then it waits until that peak is history.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use super::lock::Lock;
use super::start::header;
use super::{arena, cells};
use crate::wire::{
    COLUMN_CHUNKS, Header, NO_ROW, OwnerKind, OwnerType, ROWS_BASE, Row, RowState, locate,
};

/// For whom an allocation is.
#[derive(Clone, Copy)]
pub struct Current {
    /// Index of the owner type.
    pub kind: u32,
    pub row: u32,
}

static TYPES: Lock = Lock::new();
static ROWS: Lock = Lock::new();
/// Heads of the lists of rows to use again: at once, and when the epoch has changed. Linked
/// through `thread`, under `ROWS`.
static FREE: AtomicU32 = AtomicU32::new(0);
static WAITING: AtomicU32 = AtomicU32::new(0);
static WAITING_EPOCH: AtomicU32 = AtomicU32::new(0);

/// Index 0 of every column has a meaning: root of the stacks, unknown owner, no row.
pub fn prepare(header: &Header) -> Option<()> {
    arena::append(&header.nodes, |_, _| {})?;
    arena::append(&header.contexts, |_, _| {})?;
    arena::append(&header.owners, |_, _| {})?;
    arena::append(&header.rows, |_, _| {})?;
    Some(())
}

/// Where the chunks of the rows are in this process: they never move.
static CHUNKS: [AtomicPtr<Row>; COLUMN_CHUNKS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; COLUMN_CHUNKS];

#[inline(always)]
pub fn row(index: u32) -> Option<&'static Row> {
    let (chunk, at) = locate(index, ROWS_BASE);
    let start = CHUNKS.get(chunk)?.load(Relaxed);
    if start.is_null() {
        return find_row(index, chunk, at);
    }
    // SAFETY: the chunk has more rows than `at`; rows are atomics that never move.
    unsafe { start.add(at).as_ref() }
}

#[cold]
fn find_row(index: u32, chunk: usize, at: usize) -> Option<&'static Row> {
    let address = header()?.rows.address(index, &arena::EXTENT);
    if !address.is_null() {
        CHUNKS[chunk].store(address.wrapping_sub(at), Relaxed);
    }
    // SAFETY: null, or a row of the column, made of atomics; it never moves.
    unsafe { address.as_ref() }
}

pub fn owner_type(index: u32) -> Option<&'static OwnerType> {
    let header = header()?;
    // SAFETY: as above.
    unsafe { header.owners.address(index, &arena::EXTENT).as_ref() }
}

/// The owner type of this kind and key, made if it is new. There are few: a search is enough,
/// and callers remember what they found. 0 if memory is out.
pub fn type_of(kind: OwnerKind, key: u64, name: &[u8]) -> u32 {
    let Some(header) = header() else { return 0 };
    let generation = header.generation.load(Relaxed);
    let _held = TYPES.hold();
    for index in 1..header.owners.len() {
        let Some(known) = owner_type(index) else {
            continue;
        };
        let same_code = kind != OwnerKind::Task || known.generation.load(Relaxed) == generation;
        if known.key.load(Relaxed) == key && known.kind.load(Relaxed) == kind as u32 && same_code {
            return index;
        }
    }
    let made = arena::append(&header.owners, |_, row| {
        // SAFETY: a fresh row that no reader knows yet.
        let row = unsafe { &*row };
        row.kind.store(kind as u32, Relaxed);
        row.key.store(key, Relaxed);
        row.generation.store(generation, Relaxed);
        for (word, bytes) in row.name.iter().zip(name.chunks(8)) {
            let mut padded = [0u8; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
    });
    made.unwrap_or(0)
}

/// A row for a new owner; [`NO_ROW`] if memory is out.
pub fn new_row(id: u64, cell: u64, kind: u32, state: RowState, thread: u32) -> u32 {
    let Some(header) = header() else {
        return NO_ROW;
    };
    let index = {
        let _held = ROWS.hold();
        take_free(header).or_else(|| arena::append(&header.rows, |_, _| {}))
    };
    let Some(index) = index else { return NO_ROW };
    let Some(fresh) = row(index) else {
        return NO_ROW;
    };
    fresh.id.store(id, Relaxed);
    fresh.cell.store(cell, Relaxed);
    fresh.owner.store(kind, Relaxed);
    fresh.live_bytes.store(0, Relaxed);
    fresh.live_blocks.store(0, Relaxed);
    fresh.allocated_bytes.store(0, Relaxed);
    fresh.peak_bytes.store(0, Relaxed);
    fresh.peak_epoch.store(header.epoch.load(Relaxed), Relaxed);
    fresh.thread.store(thread, Relaxed);
    fresh
        .last_event_ms
        .store(header.now_ms.load(Relaxed), Relaxed);
    fresh.state.store(state as u32, Release);
    if let Some(kind) = owner_type(kind) {
        kind.spawned.fetch_add(1, Relaxed);
    }
    index
}

fn take_free(header: &Header) -> Option<u32> {
    let epoch = header.epoch.load(Relaxed);
    if FREE.load(Relaxed) == 0 && WAITING_EPOCH.load(Relaxed) != epoch {
        FREE.store(WAITING.swap(0, Relaxed), Relaxed);
    }
    let index = FREE.load(Relaxed);
    if index == 0 {
        return None;
    }
    FREE.store(row(index)?.thread.load(Relaxed), Relaxed);
    Some(index)
}

/// The owner is gone. What it made may live on.
pub fn ended(index: u32, state: RowState) {
    let Some(ended) = row(index) else { return };
    ended.cell.store(0, Relaxed);
    ended.state.store(state as u32, Release);
    if let Some(kind) = owner_type(ended.owner.load(Relaxed)) {
        kind.gone.fetch_add(1, Relaxed);
    }
    if ended.live_blocks.load(Acquire) == 0 {
        retire(index, ended);
    }
}

/// Gone and holds nothing: the row may be used again. Whoever changes the state to free does it.
#[cold]
fn retire(index: u32, gone: &Row) {
    let Some(header) = header() else { return };
    let state = gone.state.load(Acquire);
    let is_gone = state == RowState::TaskGone as u32 || state == RowState::ThreadGone as u32;
    let free = RowState::Free as u32;
    if !is_gone
        || gone
            .state
            .compare_exchange(state, free, AcqRel, Relaxed)
            .is_err()
    {
        return;
    }
    if let Some(kind) = owner_type(gone.owner.load(Relaxed)) {
        kind.retired_allocated
            .fetch_add(gone.allocated_bytes.load(Relaxed), Relaxed);
    }
    gone.allocated_bytes.store(0, Relaxed);
    let epoch = header.epoch.load(Relaxed);
    let held = gone.peak_epoch.load(Relaxed) == epoch && gone.peak_bytes.load(Relaxed) > 0;
    let _held = ROWS.hold();
    if held {
        if WAITING_EPOCH.swap(epoch, Relaxed) != epoch {
            release_waiting();
        }
        gone.thread.store(WAITING.swap(index, Relaxed), Relaxed);
    } else {
        gone.peak_bytes.store(0, Relaxed);
        gone.thread.store(FREE.swap(index, Relaxed), Relaxed);
    }
}

/// The peak for which these rows waited is history. With `ROWS` held.
fn release_waiting() {
    let mut next = WAITING.swap(0, Relaxed);
    while let Some(waiting) = row(next).filter(|_| next != 0) {
        let index = next;
        next = waiting.thread.load(Relaxed);
        waiting.thread.store(FREE.swap(index, Relaxed), Relaxed);
    }
}

#[inline(always)]
fn save_peak(changing: &Row, header: &Header) {
    let epoch = header.epoch.load(Relaxed);
    if changing.peak_epoch.load(Relaxed) != epoch {
        changing
            .peak_bytes
            .store(changing.live_bytes.load(Relaxed), Relaxed);
        changing.peak_epoch.store(epoch, Relaxed);
    }
}

#[inline(always)]
pub fn add(index: u32, bytes: u64) {
    if index == NO_ROW {
        return;
    }
    let (Some(owner), Some(header)) = (row(index), header()) else {
        return;
    };
    save_peak(owner, header);
    owner
        .last_event_ms
        .store(header.now_ms.load(Relaxed), Relaxed);
    owner.live_bytes.fetch_add(bytes as i64, Relaxed);
    owner.live_blocks.fetch_add(1, Relaxed);
    // Only the thread that runs the owner allocates for it.
    let allocated = owner.allocated_bytes.load(Relaxed) + bytes;
    owner.allocated_bytes.store(allocated, Relaxed);
}

/// A block of the row is freed, by whichever thread. If it is the task's own cell, the task is
/// gone.
#[inline(always)]
pub fn subtract(index: u32, bytes: u64, address: usize) {
    if index == NO_ROW {
        return;
    }
    let (Some(owner), Some(header)) = (row(index), header()) else {
        return;
    };
    save_peak(owner, header);
    owner.live_bytes.fetch_sub(bytes as i64, Relaxed);
    let left = owner.live_blocks.fetch_sub(1, AcqRel) - 1;
    if owner.cell.load(Relaxed) == address as u64 && address != 0 {
        cells::freed(index, owner);
    } else if left == 0 {
        retire(index, owner);
    }
}

/// Books a block of `from` as one of `to`.
pub fn move_block(from: u32, to: u32, bytes: u64) {
    if let (Some(old), Some(header)) = (row(from), header())
        && from != NO_ROW
    {
        save_peak(old, header);
        old.live_bytes.fetch_sub(bytes as i64, Relaxed);
        old.live_blocks.fetch_sub(1, AcqRel);
        old.allocated_bytes.fetch_sub(bytes, Relaxed);
    }
    if let (Some(new), Some(header)) = (row(to), header()) {
        save_peak(new, header);
        new.live_bytes.fetch_add(bytes as i64, Relaxed);
        new.live_blocks.fetch_add(1, Relaxed);
        new.allocated_bytes.fetch_add(bytes, Relaxed);
    }
}

/// A thread has a new name: it counts among the threads of that name.
pub fn rename(index: u32, kind: u32) {
    let Some(owner) = row(index) else { return };
    let old = owner.owner.swap(kind, Relaxed);
    if old == kind {
        return;
    }
    if let Some(old) = owner_type(old) {
        old.spawned.fetch_sub(1, Relaxed);
    }
    if let Some(new) = owner_type(kind) {
        new.spawned.fetch_add(1, Relaxed);
    }
}
