//! The live blocks: an extendible hash table of pages, see `wire::live`.
//!
//! A page has its own lock, so two threads meet only on one page in thousands. The directory is
//! private: pointers to pages by the leading bits of the hash. When a page is full it splits, and
//! when it is as deep as the directory the directory doubles; readers of the old one find out
//! that a page no longer serves their hash, and look again.
//!
//! What a page does with its entries stands in `page`; sizes that an entry has no room for, in
//! `large`.

mod large;
mod page;

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::lock::{Lock, acquire};
use super::start::header;
use super::{arena, start};
use crate::wire::{LINE_SLOTS, LiveBlock, LivePage, SIZE_ESCAPE};

pub use page::key;
use page::{FULL, Key, clear, find, move_upper_half, put};

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
            _mm_prefetch::<_MM_HINT_T0>(page.slots[key.home * LINE_SLOTS].as_ptr().cast());
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
        let stale = match find(page, key, address) {
            Some(slot) => stale(page, key, slot),
            None => None,
        };
        if block.size >= SIZE_ESCAPE && !large::insert(address, size) {
            start::lost(1);
        }
        put(page, key.home, block.pack());
        unlock(page);
        return Ok(stale);
    }
}

#[cold]
fn stale(page: &LivePage, key: Key, slot: usize) -> Option<Found> {
    let block = LiveBlock::unpack(page.load(slot));
    clear(page, key.home, slot);
    block.map(|block| found(&block))
}

#[inline(always)]
fn found(block: &LiveBlock) -> Found {
    let size = match block.size {
        SIZE_ESCAPE => large::remove(block.address as usize),
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
    let Some(slot) = find(page, key, address) else {
        unlock(page);
        return None;
    };
    let block = LiveBlock::unpack(page.load(slot));
    clear(page, key.home, slot);
    unlock(page);
    block.map(|block| found(&block))
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
    let slot = find(page, key, address);
    let block = slot.and_then(|slot| LiveBlock::unpack(page.load(slot)));
    let mut changed = false;
    if let Some(slot) = slot
        && let Some(mut block) = block.filter(|block| block.context == expected)
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
