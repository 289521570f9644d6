//! Memory of the recorder: shared, from the extents of the recording, and private.
//!
//! Shared memory is handed out by a bump and never taken back: columns do not move and live
//! pages are used again by their own table. The command keeps two more extents ready than are in
//! use; if the next one does not come in time (the command is gone, the address space is full)
//! the table that asked is full, and events that need it are counted as lost.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::lock::Lock;
use super::start::header;
use crate::sys::{private, segment};
use crate::wire::{Column, EXTENTS, ExtentMap, Header, Place, chunk_items, locate};

/// Where this process has attached the extents.
pub struct Extents {
    bases: [AtomicPtr<u8>; EXTENTS],
    sizes: [AtomicUsize; EXTENTS],
}

pub static EXTENT: Extents = Extents {
    bases: [const { AtomicPtr::new(null_mut()) }; EXTENTS],
    sizes: [const { AtomicUsize::new(0) }; EXTENTS],
};

static GROWING: Lock = Lock::new();
/// Guards every column's growth.
static COLUMNS: Lock = Lock::new();
/// Extents are mapped privately: the library records into its own process.
static LOCAL: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

impl ExtentMap for Extents {
    #[inline(always)]
    fn extent(&self, index: usize) -> (*mut u8, usize) {
        match self.bases.get(index) {
            Some(base) => (
                base.load(Ordering::Acquire),
                self.sizes[index].load(Ordering::Relaxed),
            ),
            None => (null_mut(), 0),
        }
    }
}

pub fn attached(index: usize, base: *mut u8, bytes: usize) {
    EXTENT.sizes[index].store(bytes, Ordering::Relaxed);
    EXTENT.bases[index].store(base, Ordering::Release);
}

pub fn extents_are_local() {
    LOCAL.store(true, Ordering::Relaxed);
}

/// Size of extent `index`: 4 MiB doubling up to 16 GiB.
pub fn extent_bytes(index: usize) -> usize {
    (4 << 20) << index.min(12)
}

fn attach_next(header: &Header, index: usize) -> bool {
    if index >= EXTENTS {
        return false;
    }
    if LOCAL.load(Ordering::Relaxed) {
        let base = private::map(extent_bytes(index));
        if !base.is_null() {
            attached(index, base, extent_bytes(index));
        }
        return !base.is_null();
    }
    header
        .extents_used
        .fetch_max(index as u32 + 1, Ordering::Release);
    for _ in 0..200 {
        let segment = header.extents[index].segment.load(Ordering::Acquire);
        if segment != 0 {
            let bytes = header.extents[index].bytes.load(Ordering::Relaxed) as usize;
            let base = segment::attach(segment - 1, bytes);
            if !base.is_null() {
                attached(index, base, bytes);
            }
            return !base.is_null();
        }
        // SAFETY: takes no pointer that is kept.
        unsafe { libc::usleep(1000) };
    }
    false
}

/// Zeroed shared memory at a multiple of 64 bytes.
pub fn shared(bytes: usize) -> Option<(Place, *mut u8)> {
    let header = header()?;
    let _held = GROWING.hold();
    let bytes = bytes.next_multiple_of(64);
    let mut next = Place(header.arena.load(Ordering::Relaxed));
    loop {
        let (base, size) = EXTENT.extent(next.extent());
        if base.is_null() {
            if !attach_next(header, next.extent()) {
                return None;
            }
            continue;
        }
        if next.offset() + bytes <= size {
            break;
        }
        if next.extent() + 1 >= EXTENTS {
            return None;
        }
        // Offset 0 is "nowhere" only in extent 0, yet every extent starts at 64: one rule.
        next = Place::new(next.extent() + 1, 64);
    }
    let end = Place::new(next.extent(), (next.offset() + bytes) as u64);
    header.arena.store(end.0, Ordering::Relaxed);
    header
        .shared_used
        .fetch_add(bytes as u64, Ordering::Relaxed);
    let address = EXTENT.address(next, bytes);
    (!address.is_null()).then_some((next, address))
}

/// Zeroed private memory, or null.
pub fn own(bytes: usize) -> *mut u8 {
    let start = private::map(bytes);
    if let Some(header) = header()
        && !start.is_null()
    {
        header
            .private_used
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }
    start
}

/// Gives memory of [`own`] back.
///
/// # Safety
///
/// As [`private::unmap`].
pub unsafe fn give_back(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's.
    unsafe { private::unmap(start, bytes) };
    if let Some(header) = header() {
        header
            .private_used
            .fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// Appends a row: `fill` writes it before its index becomes readable. `None` if memory is out or
/// the index would not fit into 28 bits.
pub fn append<T, const BASE: u32>(
    column: &Column<T, BASE>,
    fill: impl FnOnce(u32, *mut T),
) -> Option<u32> {
    let _held = COLUMNS.hold();
    let index = column.len.load(Ordering::Relaxed);
    let (chunk, at) = locate(index, BASE);
    if index >= (1 << 28) - 1 || chunk >= column.chunks.len() {
        return None;
    }
    let mut place = Place(column.chunks[chunk].load(Ordering::Relaxed));
    if place.is_nowhere() {
        let (new, _) = shared(chunk_items(chunk, BASE) * size_of::<T>())?;
        column.chunks[chunk].store(new.0, Ordering::Release);
        place = new;
    }
    let start = EXTENT.address(place, chunk_items(chunk, BASE) * size_of::<T>());
    if start.is_null() {
        return None;
    }
    fill(index, start.cast::<T>().wrapping_add(at));
    column.len.store(index + 1, Ordering::Release);
    Some(index)
}
