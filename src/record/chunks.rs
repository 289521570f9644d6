//! Private memory in chunks.
//!
//! A mapping for each table and each thread would cost the program address space, mappings (of
//! which it may have about 65,000) and a page for each beginning. So memory is mapped in chunks,
//! each about as large as all before it, and handed out in their order. What is given back waits
//! for the next who needs as much, on a list for each power of two; chunks stay.
//!
//! If a chunk can't be had (`RLIMIT_AS`, little memory) half of it is tried, down to what is
//! needed; from then on chunks start small again.

use std::cell::UnsafeCell;
use std::ptr::null_mut;

use super::lock::Lock;
use crate::sys::private;

const PAGE: usize = 4096;
/// Blocks of less than a page start at multiples of this: threads write to them, and processors
/// fetch lines in pairs.
const LINE: usize = 128;
const FIRST_CHUNK: usize = 256 << 10;
const LARGEST_CHUNK: usize = 64 << 20;

pub struct Chunks {
    lock: Lock,
    state: UnsafeCell<State>,
}

struct State {
    /// The rest of the chunk that is handed out.
    next: *mut u8,
    left: usize,
    /// Bytes of all chunks.
    mapped: usize,
    /// The next chunk is at most so large.
    most: usize,
    /// Blocks that were given back, by power of two; the first word of each is the next one.
    free: [*mut u8; usize::BITS as usize],
}

// SAFETY: the state is reached only while the lock is held.
unsafe impl Sync for Chunks {}

impl Chunks {
    pub const fn new() -> Chunks {
        Chunks {
            lock: Lock::new(),
            state: UnsafeCell::new(State {
                next: null_mut(),
                left: 0,
                mapped: 0,
                most: LARGEST_CHUNK,
                free: [null_mut(); usize::BITS as usize],
            }),
        }
    }

    /// Zeroed memory, or null: of a page or more at a multiple of a page, else of [`LINE`]. `map`
    /// makes zeroed pages, and may take no lock that is held while this is called.
    pub fn take(&self, bytes: usize, map: impl FnMut(usize) -> *mut u8) -> *mut u8 {
        let _held = self.lock.hold();
        // SAFETY: the lock is held.
        let state = unsafe { &mut *self.state.get() };
        let used = state.reuse(bytes);
        if !used.is_null() {
            return used;
        }
        let rest = state.carve(bytes);
        if !rest.is_null() {
            return rest;
        }
        state.enlarge(bytes, map)
    }

    /// Takes a block back. Only blocks whose size is a power of two find another user as they are.
    ///
    /// # Safety
    ///
    /// `start` and `bytes` are those of [`Chunks::take`], and nobody uses the memory any more.
    pub unsafe fn give_back(&self, start: *mut u8, bytes: usize) {
        debug_assert!(bytes.is_power_of_two());
        // SAFETY: the caller's.
        unsafe { private::clear(start, bytes) };
        let _held = self.lock.hold();
        // SAFETY: the lock is held; a block is larger than a word and aligned for it.
        unsafe {
            let list = &mut (*self.state.get()).free[bytes.max(LINE).ilog2() as usize];
            start.cast::<*mut u8>().write(*list);
            *list = start;
        }
    }
}

impl State {
    fn reuse(&mut self, bytes: usize) -> *mut u8 {
        let list = &mut self.free[bytes.max(LINE).next_power_of_two().ilog2() as usize];
        let block = list.cast::<*mut u8>();
        if !block.is_null() {
            // SAFETY: a block that was given back, whose first word is a link and the rest zero.
            unsafe {
                *list = block.read();
                block.write(null_mut());
            }
        }
        block.cast()
    }

    fn carve(&mut self, bytes: usize) -> *mut u8 {
        let align = if bytes < PAGE { LINE } else { PAGE };
        let skipped = self.next.addr().wrapping_neg() % align;
        let taken = skipped + bytes.next_multiple_of(LINE);
        if taken > self.left {
            return null_mut();
        }
        let block = self.next.wrapping_add(skipped);
        self.next = self.next.wrapping_add(taken);
        self.left -= taken;
        block
    }

    fn enlarge(&mut self, bytes: usize, mut map: impl FnMut(usize) -> *mut u8) -> *mut u8 {
        let needed = bytes.next_multiple_of(PAGE);
        let mut chunk = self.mapped.next_power_of_two();
        chunk = chunk.clamp(FIRST_CHUNK, LARGEST_CHUNK).min(self.most);
        let wanted = chunk;
        let mut start = map(chunk.max(needed));
        while start.is_null() && chunk > needed {
            chunk /= 2;
            start = map(chunk.max(needed));
        }
        // Whoever finds no memory asks again at the next event: not in many steps every time.
        self.most = match start.is_null() {
            true => PAGE,
            false if chunk < wanted => chunk,
            false => (self.most * 2).min(LARGEST_CHUNK),
        };
        if start.is_null() {
            return start;
        }
        let size = chunk.max(needed);
        self.mapped += size;
        let taken = bytes.next_multiple_of(LINE);
        // A chunk for one block alone leaves the last one in use.
        if size - taken > self.left {
            self.next = start.wrapping_add(taken);
            self.left = size - taken;
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps up to a limit, and counts.
    struct Maps {
        calls: usize,
        bytes: usize,
        largest: usize,
    }

    impl Maps {
        fn new() -> Maps {
            Maps {
                calls: 0,
                bytes: 0,
                largest: usize::MAX,
            }
        }

        fn map(&mut self, bytes: usize) -> *mut u8 {
            self.calls += 1;
            if bytes > self.largest {
                return null_mut();
            }
            self.bytes += bytes;
            private::map(bytes)
        }
    }

    fn fill(block: *mut u8, bytes: usize) {
        // SAFETY: blocks of the test's own.
        unsafe {
            let zero = std::slice::from_raw_parts(block, bytes);
            assert!(zero.iter().all(|byte| *byte == 0));
            block.write_bytes(0xa5, bytes);
        }
    }

    #[test]
    fn blocks_are_apart_aligned_and_zero() {
        let (chunks, mut maps) = (Chunks::new(), Maps::new());
        let mut ranges = Vec::new();
        for round in 0..2_000usize {
            let bytes = 1 + round * 7919 % 9_000;
            let block = chunks.take(bytes, |bytes| maps.map(bytes));
            let align = if bytes < PAGE { LINE } else { PAGE };
            assert_eq!(block.addr() % align, 0);
            fill(block, bytes);
            ranges.push((block.addr(), block.addr() + bytes));
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        let used: usize = ranges.iter().map(|(start, end)| end - start).sum();
        assert!(maps.calls < 10 && maps.bytes < used * 4, "{}", maps.calls);
    }

    #[test]
    fn what_was_given_back_is_used_again_and_zero() {
        let (chunks, mut maps) = (Chunks::new(), Maps::new());
        for round in 0..10_000 {
            for bytes in [LINE, 512, 1024, PAGE, 1 << 16] {
                let block = chunks.take(bytes, |bytes| maps.map(bytes));
                fill(block, bytes);
                // SAFETY: taken just now.
                unsafe { chunks.give_back(block, bytes) };
            }
            assert_eq!(maps.calls, 1, "{round}");
        }
    }

    #[test]
    fn a_large_block_has_a_chunk_of_its_own_and_the_last_stays_in_use() {
        let (chunks, mut maps) = (Chunks::new(), Maps::new());
        let first = chunks.take(512, |bytes| maps.map(bytes));
        let large = chunks.take(FIRST_CHUNK + 16, |bytes| maps.map(bytes));
        fill(large, FIRST_CHUNK + 16);
        let next = chunks.take(512, |bytes| maps.map(bytes));
        assert_eq!(next.addr(), first.addr() + 512);
        assert_eq!(maps.calls, 2);
    }

    #[test]
    fn little_room_gives_small_chunks_and_none_gives_null() {
        let (chunks, mut maps) = (Chunks::new(), Maps::new());
        maps.largest = 3 * PAGE;
        let bytes = 2 * PAGE + 16;
        assert!(!chunks.take(bytes, |bytes| maps.map(bytes)).is_null());
        maps.largest = 0;
        assert!(chunks.take(bytes, |bytes| maps.map(bytes)).is_null());
        // Not in many steps again.
        let before = maps.calls;
        assert!(chunks.take(bytes, |bytes| maps.map(bytes)).is_null());
        assert_eq!(maps.calls, before + 1);
        maps.largest = usize::MAX;
        for _ in 0..2_000 {
            assert!(!chunks.take(bytes, |bytes| maps.map(bytes)).is_null());
        }
        assert!(maps.calls < before + 40, "{}", maps.calls - before);
    }
}
