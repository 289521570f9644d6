//! The live blocks: an extendible hash table of pages, see `wire::live`.
//!
//! A page has its own lock, so two threads meet only on one page in thousands. The directory is
//! private: pointers to pages by the leading bits of the hash. When a page is full it splits, and
//! when it is as deep as the directory the directory doubles; readers of the old one find out
//! that a page no longer serves their hash, and look again.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};

use super::lock::{Lock, acquire};
use super::start::header;
use super::{arena, start};
use crate::wire::{LIVE_SLOTS, LiveBlock, LivePage, SIZE_ESCAPE};

/// A page splits when it has so many entries: beyond, probes get long.
const FULL: u32 = 224;

/// What the table knew of a block.
#[derive(Clone, Copy)]
pub struct Found {
    pub size: usize,
    pub context: u32,
    pub row: u32,
}

#[repr(C)]
struct Directory {
    depth: u32,
    pages: [AtomicPtr<LivePage>; 0],
}

static DIRECTORY: AtomicPtr<Directory> = AtomicPtr::new(std::ptr::null_mut());
static SPLITTING: Lock = Lock::new();
static LARGE: Lock = Lock::new();

/// Where a block belongs: the hash that chooses its page, and its first slot there.
///
/// Blocks that lie close to each other are mostly used together. So the hash is that of the
/// kilobyte that a block starts in, and the slot counts on from there: neighbours share a page
/// and mostly a cache line, and yet kilobytes are spread at random.
#[derive(Clone, Copy)]
pub struct Key {
    hash: u64,
    home: usize,
}

#[inline(always)]
pub fn key(address: usize) -> Key {
    let mixed = (address as u64 >> 10).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = mixed ^ (mixed >> 32);
    let first = ((hash & 0xffff_ffff) * LIVE_SLOTS as u64) >> 32;
    let home = first as usize + ((address >> 4) & 63);
    let home = if home >= LIVE_SLOTS {
        home - LIVE_SLOTS
    } else {
        home
    };
    Key { hash, home }
}

/// The key of an entry, from its first word.
fn key_of(head: u64) -> Key {
    key(((head >> 20) << 3) as usize)
}

impl Directory {
    /// # Safety
    ///
    /// `index` is below `1 << depth`.
    #[inline(always)]
    unsafe fn page(&self, index: usize) -> &AtomicPtr<LivePage> {
        // SAFETY: `make` maps so many pointers behind the head.
        unsafe { &*self.pages.as_ptr().add(index) }
    }

    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        // A shift by 64 is not defined: depth 0 is never used.
        (hash >> (64 - self.depth)) as usize
    }
}

#[inline(always)]
fn page_of(hash: u64) -> Option<&'static LivePage> {
    // SAFETY: null, or a directory that is never unmapped.
    let directory = unsafe { DIRECTORY.load(Acquire).as_ref() }?;
    // SAFETY: the index has `depth` bits; pages stay mapped.
    unsafe { directory.page(directory.index(hash)).load(Acquire).as_ref() }
}

/// Brings the page's lines closer while the stack is taken.
#[inline(always)]
pub fn prefetch(key: Key) {
    #[cfg(target_arch = "x86_64")]
    if let Some(page) = page_of(key.hash) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>((page as *const LivePage).cast());
            _mm_prefetch::<_MM_HINT_T0>(page.slots[key.home].as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = key;
}

#[inline(always)]
fn serves(page: &LivePage, hash: u64) -> bool {
    let depth = page.depth.load(Relaxed);
    depth == 0 || hash >> (64 - depth) == page.prefix.load(Relaxed)
}

/// The locked page that serves this hash.
#[inline(always)]
fn locked(hash: u64, who: i32) -> Option<&'static LivePage> {
    loop {
        let page = match page_of(hash) {
            Some(page) => page,
            None => prepare()?,
        };
        acquire(&page.lock, who as u32);
        if serves(page, hash) {
            return Some(page);
        }
        page.lock.store(0, Release);
    }
}

#[inline(always)]
fn unlock(page: &LivePage) {
    page.lock.store(0, Release);
}

fn place_of(page: &LivePage, key: Key, address: usize) -> (usize, bool) {
    let mut slot = key.home;
    loop {
        let head = page.slots[slot][0].load(Relaxed);
        if head == 0 {
            return (slot, false);
        }
        if LiveBlock::is_at(head, address as u64) {
            return (slot, true);
        }
        slot = if slot + 1 == LIVE_SLOTS { 0 } else { slot + 1 };
    }
}

/// Memory for the table is out.
pub struct Full;

/// Enters a block. A block that stands there already was freed unseen: it is returned.
#[inline(always)]
pub fn insert(
    who: i32,
    key: Key,
    address: usize,
    size: usize,
    context: u32,
    row: u32,
) -> Result<Option<Found>, Full> {
    let block = LiveBlock {
        address: address as u64,
        size: size as u64,
        context,
        row,
    };
    loop {
        let page = locked(key.hash, who).ok_or(Full)?;
        if page.used.load(Relaxed) >= FULL {
            let done = split(page, who);
            unlock(page);
            if !done {
                return Err(Full);
            }
            continue;
        }
        let (slot, there) = place_of(page, key, address);
        let stale = if there { stale(page, slot) } else { None };
        if !there {
            page.used.store(page.used.load(Relaxed) + 1, Relaxed);
        }
        if block.size >= SIZE_ESCAPE && !insert_large(address, size) {
            start::lost(1);
        }
        let [head, tail] = block.pack();
        page.slots[slot][1].store(tail, Relaxed);
        page.slots[slot][0].store(head, Release);
        unlock(page);
        return Ok(stale);
    }
}

#[cold]
fn stale(page: &LivePage, slot: usize) -> Option<Found> {
    LiveBlock::unpack(page.load(slot)).map(|block| found(&block))
}

#[inline(always)]
fn found(block: &LiveBlock) -> Found {
    let size = match block.size {
        SIZE_ESCAPE => remove_large(block.address as usize),
        size => size as usize,
    };
    Found {
        size,
        context: block.context,
        row: block.row,
    }
}

/// Takes a block out. `None` if it is not there: it was allocated before the recording.
#[inline(always)]
pub fn remove(who: i32, key: Key, address: usize) -> Option<Found> {
    // The lock holds back later reads: without this the slot's line would be waited for after the
    // lock's, not with it.
    prefetch(key);
    let page = locked(key.hash, who)?;
    let (slot, there) = place_of(page, key, address);
    if !there {
        unlock(page);
        return None;
    }
    let block = LiveBlock::unpack(page.load(slot));
    close_gap(page, slot);
    page.used.store(page.used.load(Relaxed) - 1, Relaxed);
    unlock(page);
    block.map(|block| found(&block))
}

/// Moves entries that a free slot would hide from their search: no tombstones, so that searches
/// stay short however often blocks come and go. An entry is copied before its old place is
/// cleared: a kill in between leaves it twice, never lost.
#[inline(always)]
fn close_gap(page: &LivePage, mut gap: usize) {
    let mut slot = gap;
    loop {
        slot = if slot + 1 == LIVE_SLOTS { 0 } else { slot + 1 };
        let [head, tail] = page.load(slot);
        if head == 0 {
            break;
        }
        let wanted = key_of(head).home;
        let distance = |from: usize, to: usize| {
            if to >= from {
                to - from
            } else {
                to + LIVE_SLOTS - from
            }
        };
        if distance(wanted, slot) >= distance(gap, slot) {
            page.slots[gap][1].store(tail, Relaxed);
            page.slots[gap][0].store(head, Release);
            gap = slot;
        }
    }
    page.slots[gap][0].store(0, Release);
}

/// Changes the owner of a block that is live, if it still is what it was. `check` looks at the
/// block's memory while it can't be freed.
pub fn change_owner(
    who: i32,
    address: usize,
    expected: u32,
    check: impl FnOnce() -> Option<(u32, u32)>,
) -> bool {
    let key = key(address);
    let Some(page) = locked(key.hash, who) else {
        return false;
    };
    let (slot, there) = place_of(page, key, address);
    let block = if there {
        LiveBlock::unpack(page.load(slot))
    } else {
        None
    };
    let mut changed = false;
    if let Some(mut block) = block.filter(|block| block.context == expected)
        && let Some((context, row)) = check()
    {
        block.context = context;
        block.row = row;
        let tail = block.pack()[1];
        page.slots[slot][1].store(tail, Release);
        changed = true;
    }
    unlock(page);
    changed
}

#[cold]
fn prepare() -> Option<&'static LivePage> {
    let _held = SPLITTING.hold();
    if DIRECTORY.load(Relaxed).is_null() {
        const DEPTH: u32 = 4;
        let directory = make(DEPTH)?;
        for index in 0..1usize << DEPTH {
            let page = new_page(DEPTH, index as u64)?;
            // SAFETY: below `1 << depth`.
            unsafe { directory.page(index) }.store(page as *const _ as *mut _, Relaxed);
        }
        DIRECTORY.store(directory as *const _ as *mut _, Release);
    }
    page_of(0)
}

fn make(depth: u32) -> Option<&'static Directory> {
    let bytes = size_of::<Directory>() + 8 + (8usize << depth);
    let start = arena::own(bytes).cast::<Directory>();
    if start.is_null() {
        return None;
    }
    // SAFETY: freshly mapped, zeroed, large enough, nobody else knows it, never unmapped.
    unsafe {
        (*start).depth = depth;
        Some(&*start)
    }
}

fn new_page(depth: u32, prefix: u64) -> Option<&'static LivePage> {
    let header = header()?;
    let index = arena::append(&header.live_pages, |_, page| {
        // SAFETY: a fresh page that no reader knows yet.
        let page = unsafe { &*page };
        page.depth.store(depth, Relaxed);
        page.prefix.store(prefix, Relaxed);
    })?;
    // SAFETY: just appended; pages never move.
    unsafe { header.live_pages.address(index, &arena::EXTENT).as_ref() }
}

/// Makes two pages of one. The caller holds the page and unlocks it.
#[cold]
#[inline(never)]
fn split(page: &'static LivePage, who: i32) -> bool {
    let _held = SPLITTING.hold();
    let depth = page.depth.load(Relaxed);
    let prefix = page.prefix.load(Relaxed);
    // SAFETY: there is a page, so there is a directory.
    let Some(mut directory) = (unsafe { DIRECTORY.load(Acquire).as_ref() }) else {
        return false;
    };
    if depth >= 40 {
        return false;
    }
    if depth == directory.depth {
        match double(directory) {
            Some(larger) => directory = larger,
            None => return false,
        }
    }
    let Some(upper) = new_page(depth + 1, prefix * 2 + 1) else {
        return false;
    };
    acquire(&upper.lock, who as u32);
    move_upper_half(page, upper, depth);
    page.prefix.store(prefix * 2, Relaxed);
    page.depth.store(depth + 1, Relaxed);
    let below = directory.depth - depth - 1;
    let first = ((prefix * 2 + 1) << below) as usize;
    for index in first..first + (1 << below) {
        // SAFETY: the prefix has `depth` bits, so the index has the directory's.
        unsafe { directory.page(index) }.store(upper as *const _ as *mut _, Release);
    }
    unlock(upper);
    true
}

fn double(old: &Directory) -> Option<&'static Directory> {
    let larger = make(old.depth + 1)?;
    for index in 0..1usize << old.depth {
        // SAFETY: below `1 << depth` of each.
        unsafe {
            let page = old.page(index).load(Relaxed);
            larger.page(index * 2).store(page, Relaxed);
            larger.page(index * 2 + 1).store(page, Relaxed);
        }
    }
    DIRECTORY.store(larger as *const _ as *mut _, Release);
    Some(larger)
}

/// The entries whose next bit is set go to `upper`, one at a time: a kill in between leaves one
/// entry twice, in two pages of which both are still locked, and loses none.
fn move_upper_half(page: &LivePage, upper: &LivePage, depth: u32) {
    let mut slot = 0;
    while slot < LIVE_SLOTS {
        let words = page.load(slot);
        let key = key_of(words[0]);
        if words[0] == 0 || (key.hash >> (63 - depth)) & 1 == 0 {
            slot += 1;
            continue;
        }
        put(&upper.slots, key, words);
        upper.used.store(upper.used.load(Relaxed) + 1, Relaxed);
        // Another entry may come into this slot: it is looked at next.
        close_gap(page, slot);
        page.used.store(page.used.load(Relaxed) - 1, Relaxed);
    }
}

fn put(slots: &[[AtomicU64; 2]; LIVE_SLOTS], key: Key, words: [u64; 2]) {
    let mut slot = key.home;
    while slots[slot][0].load(Relaxed) != 0 {
        slot = if slot + 1 == LIVE_SLOTS { 0 } else { slot + 1 };
    }
    slots[slot][1].store(words[1], Relaxed);
    slots[slot][0].store(words[0], Relaxed);
}

/// Blocks of a quarter gigabyte or more are few: a search through all of them is quick.
#[cold]
fn insert_large(address: usize, size: usize) -> bool {
    let Some(header) = header() else { return false };
    let _held = LARGE.hold();
    for index in 0..header.large_blocks.len() {
        // SAFETY: below the length; rows are atomics that never move.
        let Some(row) = (unsafe { header.large_blocks.address(index, &arena::EXTENT).as_ref() })
        else {
            continue;
        };
        if row.address.load(Relaxed) == 0 {
            row.size.store(size as u64, Relaxed);
            row.address.store(address as u64, Release);
            return true;
        }
    }
    arena::append(&header.large_blocks, |_, row| {
        // SAFETY: a fresh row that no reader knows yet.
        let row = unsafe { &*row };
        row.size.store(size as u64, Relaxed);
        row.address.store(address as u64, Release);
    })
    .is_some()
}

#[cold]
fn remove_large(address: usize) -> usize {
    let Some(header) = header() else {
        return SIZE_ESCAPE as usize;
    };
    let _held = LARGE.hold();
    for index in 0..header.large_blocks.len() {
        // SAFETY: as above.
        let Some(row) = (unsafe { header.large_blocks.address(index, &arena::EXTENT).as_ref() })
        else {
            continue;
        };
        if row.address.load(Relaxed) == address as u64 {
            row.address.store(0, Relaxed);
            return row.size.load(Relaxed) as usize;
        }
    }
    SIZE_ESCAPE as usize
}
