//! Memory of the recorder: shared, from the extents of the recording, and private.
//!
//! Shared memory is handed out by a bump and never taken back: columns do not move and live
//! pages are used again by their own table. The command keeps two more extents ready than are in
//! use; if the next one does not come in time (the command is gone, the address space is full)
//! the table that asked is full, and events that need it are counted as lost.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::chunks::Chunks;
use super::lock::Lock;
use super::start::header;
use crate::sys::{private, segment};
use crate::wire::{
    Column, EXTENTS, ExtentMap, Header, PRIVATE_MAPS, Place, PrivateMaps, chunk_items, locate,
};

/// Where this process has attached the extents.
pub struct Extents {
    bases: [AtomicPtr<u8>; EXTENTS],
    sizes: [AtomicUsize; EXTENTS],
}

pub static EXTENT: Extents = Extents {
    bases: [const { AtomicPtr::new(null_mut()) }; EXTENTS],
    sizes: [const { AtomicUsize::new(0) }; EXTENTS],
};

/// Private memory, and such of which only some pages are touched.
static OWN: Chunks = Chunks::new();
static SPARSE: Chunks = Chunks::new();
/// Private mappings from before there is a header.
static EARLY: PrivateMaps = PrivateMaps::empty();

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
        let base = pages(extent_bytes(index));
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

/// Zeroed private memory, or null: of a page or more at a multiple of a page, else of 128.
pub fn own(bytes: usize) -> *mut u8 {
    counted(bytes, OWN.take(bytes, pages))
}

/// As [`own`], for whole pages of which `touched` bytes are likely to be used, and not the rest.
pub fn own_sparse(bytes: usize, touched: usize) -> *mut u8 {
    let map = |bytes| {
        let start = pages(bytes);
        if !start.is_null() {
            // SAFETY: just mapped.
            unsafe { private::keep_pages_small(start, bytes) };
        }
        start
    };
    counted(touched, SPARSE.take(bytes, map))
}

fn counted(bytes: usize, start: *mut u8) -> *mut u8 {
    if let Some(header) = header()
        && !start.is_null()
    {
        header
            .private_used
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }
    start
}

/// Gives memory of [`own`] back, whose size is a power of two.
///
/// # Safety
///
/// `start` and `bytes` are those of [`own`], and nobody uses the memory any more.
pub unsafe fn give_back(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's.
    unsafe { OWN.give_back(start, bytes) };
    if let Some(header) = header() {
        header
            .private_used
            .fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// Zeroed pages for the recorder in a mapping that is never given back, or null.
pub fn pages(bytes: usize) -> *mut u8 {
    let start = private::map(bytes);
    if !start.is_null() {
        note_private(start as u64, bytes as u64);
    }
    start
}

/// Writes down that this mapping is the recorder's, so that no walk takes it for the program's.
/// Without a lock: our own allocator calls this, in forked children too.
pub fn note_private(start: u64, bytes: u64) {
    if super::start::is_over() {
        return;
    }
    let maps = header().map_or(&EARLY, |header| &header.private_maps);
    write_down(maps, start, start + bytes.next_multiple_of(4096));
}

/// The header is there: it takes what was mapped before. No other thread runs.
pub fn publish(header: &Header) {
    for (start, end) in EARLY.ranges() {
        write_down(&header.private_maps, start, end);
    }
}

fn write_down(maps: &PrivateMaps, start: u64, end: u64) {
    let at = maps.taken.fetch_add(1, Ordering::Relaxed) as usize;
    let Some(row) = maps.rows.get(at) else {
        maps.taken.store(PRIVATE_MAPS as u32, Ordering::Relaxed);
        maps.unlisted.fetch_add(end - start, Ordering::Relaxed);
        return;
    };
    row.start.store(start, Ordering::Relaxed);
    row.end.store(end, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_beyond_the_list_are_counted_and_not_told_wrongly() {
        let maps = PrivateMaps::empty();
        for number in 1..=PRIVATE_MAPS as u64 + 3 {
            write_down(&maps, number << 20, (number << 20) + 8192);
        }
        let known: Vec<_> = maps.ranges().collect();
        assert_eq!(known.len(), PRIVATE_MAPS);
        assert_eq!(known[1], (2 << 20, (2 << 20) + 8192));
        assert_eq!(maps.unlisted.load(Ordering::Relaxed), 3 * 8192);
    }
}
