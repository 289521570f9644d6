//! The live blocks: an extendible hash table of pages, see `wire::live`.
//!
//! A page has its own lock, so two threads meet only on one page in thousands. The directory is
//! private: pointers to pages by the leading bits of the hash. When a page is full it splits, and
//! when it is as deep as the directory the directory doubles; readers of the old one find out
//! that a page no longer serves their hash, and look again.
//!
//! In a page, four entries share a cache line. An entry stands in its home line, or in the first
//! after it that had room; the lines it passed count it, so that a search ends at a line that
//! nobody passed. Taking an entry out clears its slot and moves no other one.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::lock::{Lock, acquire};
use super::start::header;
use super::{arena, start};
use crate::wire::{LINE_SLOTS, LIVE_LINES, LIVE_SLOTS, LiveBlock, LivePage, SIZE_ESCAPE};

/// A page splits when it has so many entries: beyond, too many pass their line.
const FULL: u32 = 200;

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

/// From one line of a kilobyte to the next: 16 of them go once around the page.
const STRIDE: usize = 4;

/// Where a block belongs: the hash that chooses its page, and its home line there.
///
/// Blocks that lie close to each other are mostly used together. So the hash is that of the
/// kilobyte that a block starts in, whose blocks share a page; what shares a cache line of the
/// heap shares one here. A kilobyte's lines are spread over the page: side by side, those of
/// several would lie on top of each other, and fill whole stretches while others stay empty.
#[derive(Clone, Copy)]
pub struct Key {
    hash: u64,
    home: usize,
}

#[inline(always)]
pub fn key(address: usize) -> Key {
    let mixed = (address as u64 >> 10).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = mixed ^ (mixed >> 32);
    let first = ((hash & 0xffff_ffff) * LIVE_LINES as u64) >> 32;
    let home = first as usize + ((address >> 6) & 15) * STRIDE;
    let home = if home >= LIVE_LINES {
        home - LIVE_LINES
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

#[inline(always)]
fn after(line: usize) -> usize {
    if line + 1 == LIVE_LINES { 0 } else { line + 1 }
}

/// Entries that passed this line.
#[inline(always)]
fn passed(page: &LivePage, line: usize) -> u64 {
    (page.passed[line >> 4].load(Relaxed) >> ((line & 15) * 4)) & MANY
}

/// As many as can be counted: from there on the number stays.
const MANY: u64 = 15;

#[cold]
fn pass(page: &LivePage, line: usize) {
    if passed(page, line) < MANY {
        let word = &page.passed[line >> 4];
        word.store(word.load(Relaxed) + (1 << ((line & 15) * 4)), Relaxed);
    }
}

/// An entry whose home is `home` is no longer in `line`.
#[cold]
fn unpass(page: &LivePage, home: usize, line: usize) {
    let mut at = home;
    while at != line {
        if passed(page, at) < MANY {
            let word = &page.passed[at >> 4];
            word.store(word.load(Relaxed) - (1 << ((at & 15) * 4)), Relaxed);
        }
        at = after(at);
    }
}

/// The slot of a block, if it is there.
#[inline(always)]
fn find(page: &LivePage, key: Key, address: usize) -> Option<usize> {
    let mut line = key.home;
    loop {
        for slot in line * LINE_SLOTS..(line + 1) * LINE_SLOTS {
            let head = page.slots[slot][0].load(Relaxed);
            if LiveBlock::is_at(head, address as u64) {
                return Some(slot);
            }
        }
        if passed(page, line) == 0 {
            return None;
        }
        line = after(line);
        if line == key.home {
            return None;
        }
    }
}

/// A free slot for an entry, counted by the lines that it passes. There is one: the page is not
/// [`FULL`].
#[inline(always)]
fn room(page: &LivePage, home: usize) -> usize {
    let mut line = home;
    loop {
        for slot in line * LINE_SLOTS..(line + 1) * LINE_SLOTS {
            if page.slots[slot][0].load(Relaxed) == 0 {
                return slot;
            }
        }
        pass(page, line);
        line = after(line);
    }
}

/// Clears a slot. What was copied elsewhere before is there twice after a kill, never lost.
#[inline(always)]
fn clear(page: &LivePage, home: usize, slot: usize) {
    page.slots[slot][0].store(0, Release);
    let line = slot / LINE_SLOTS;
    if line != home {
        unpass(page, home, line);
    }
    page.used.store(page.used.load(Relaxed) - 1, Relaxed);
}

fn put(page: &LivePage, home: usize, [head, tail]: [u64; 2]) {
    let slot = room(page, home);
    page.slots[slot][1].store(tail, Relaxed);
    page.slots[slot][0].store(head, Release);
    page.used.store(page.used.load(Relaxed) + 1, Relaxed);
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
        if block.size >= SIZE_ESCAPE && !insert_large(address, size) {
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

/// The entries whose next bit is set go to `upper`, one at a time: a kill in between leaves one
/// entry twice, in two pages of which both are still locked, and loses none.
fn move_upper_half(page: &LivePage, upper: &LivePage, depth: u32) {
    for slot in 0..LIVE_SLOTS {
        let words = page.load(slot);
        let key = key_of(words[0]);
        if words[0] != 0 && (key.hash >> (63 - depth)) & 1 == 1 {
            put(upper, key.home, words);
            clear(page, key.home, slot);
        }
    }
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn page() -> Box<LivePage> {
        // SAFETY: atomics, of which zero is a value.
        unsafe { Box::<LivePage>::new_zeroed().assume_init() }
    }

    fn words(address: usize, size: u64) -> [u64; 2] {
        LiveBlock {
            address: address as u64,
            size,
            context: 1,
            row: 2,
        }
        .pack()
    }

    /// Blocks that come and go, close together and far apart, up to a full page.
    #[test]
    fn a_page_holds_what_a_map_holds() {
        for (kilobytes, apart) in [(3, 8), (16, 16), (16, 48), (200, 1024), (200, 4096)] {
            let page = page();
            let mut map = HashMap::new();
            let mut random = 88_172_645_463_325_252u64;
            for step in 0..40_000 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let place = (random >> 20) as usize % (kilobytes * 1024 / apart.min(1024));
                let address = 0x7000_0000 + place * apart;
                let key = key(address);
                let size = map.get(&address).copied();
                let found = find(&page, key, address);
                let held = found.and_then(|slot| LiveBlock::unpack(page.load(slot)));
                assert_eq!(held.map(|block| block.size), size);
                match found {
                    Some(slot) => {
                        clear(&page, key.home, slot);
                        map.remove(&address);
                    }
                    None if map.len() < FULL as usize => {
                        put(&page, key.home, words(address, step));
                        map.insert(address, step);
                    }
                    None => {}
                }
                assert_eq!(page.used.load(Relaxed) as usize, map.len());
            }
            assert!(map.len() > 20, "nothing was tried");
            for address in map.into_keys() {
                let key = key(address);
                let slot = find(&page, key, address).expect("an entry is lost");
                clear(&page, key.home, slot);
            }
            assert_eq!(page.used.load(Relaxed), 0);
            for line in 0..LIVE_LINES {
                assert!(matches!(passed(&page, line), 0 | MANY));
            }
        }
    }

    #[test]
    fn a_page_splits_into_two_that_hold_all() {
        let (lower, upper) = (page(), page());
        let addresses: Vec<usize> = (0..FULL as usize)
            .map(|at| 0x10_0000 + at * 4096 + at % 64 * 16)
            .collect();
        for &address in &addresses {
            put(&lower, key(address).home, words(address, 1));
        }
        move_upper_half(&lower, &upper, 0);
        let moved = upper.used.load(Relaxed);
        assert!(moved > FULL / 4 && moved + lower.used.load(Relaxed) == FULL);
        for address in addresses {
            let key = key(address);
            let page = if key.hash >> 63 == 1 { &upper } else { &lower };
            assert!(find(page, key, address).is_some());
        }
    }
}
