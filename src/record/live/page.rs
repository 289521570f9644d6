//! One page of live blocks: where an entry stands, and how it is found again.
//!
//! Four entries share a cache line. An entry stands in its home line, or in the first after it that
//! had room; the lines it passed count it, so that a search ends at a line that nobody passed.
//! Taking an entry out clears its slot and moves no other one. Whoever calls holds the page's lock.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::wire::{LINE_SLOTS, LIVE_LINES, LIVE_SLOTS, LiveBlock, LivePage};

/// A page splits when it has so many entries: beyond, too many pass their line.
pub(super) const FULL: u32 = 200;

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
    pub(super) hash: u64,
    pub(super) home: usize,
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
pub(super) fn find(page: &LivePage, key: Key, address: usize) -> Option<usize> {
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
pub(super) fn clear(page: &LivePage, home: usize, slot: usize) {
    page.slots[slot][0].store(0, Release);
    let line = slot / LINE_SLOTS;
    if line != home {
        unpass(page, home, line);
    }
    page.used.store(page.used.load(Relaxed) - 1, Relaxed);
}

pub(super) fn put(page: &LivePage, home: usize, [head, tail]: [u64; 2]) {
    let slot = room(page, home);
    page.slots[slot][1].store(tail, Relaxed);
    page.slots[slot][0].store(head, Release);
    page.used.store(page.used.load(Relaxed) + 1, Relaxed);
}

/// The entries whose next bit is set go to `upper`, one at a time: a kill in between leaves one
/// entry twice, in two pages of which both are still locked, and loses none.
pub(super) fn move_upper_half(page: &LivePage, upper: &LivePage, depth: u32) {
    for slot in 0..LIVE_SLOTS {
        let words = page.load(slot);
        let key = key_of(words[0]);
        if words[0] != 0 && (key.hash >> (63 - depth)) & 1 == 1 {
            put(upper, key.home, words);
            clear(page, key.home, slot);
        }
    }
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
