//! A set of pages of an address space, and the copies of some of them.

use std::ops::Range;

use crate::sys::mem::PAGE;

/// Pages of one chunk: 64 MiB.
const CHUNK_PAGES: u64 = 1 << 14;
const CHUNK_WORDS: usize = (CHUNK_PAGES / 64) as usize;
/// Chunks below 2^47.
const CHUNKS: usize = 1 << 21;

/// A set of pages: one bit each, where there are any.
pub(super) struct PageSet {
    /// Into `bits` plus one, for each chunk.
    chunks: Vec<u32>,
    bits: Vec<[u64; CHUNK_WORDS]>,
    /// Chunk of each entry of `bits`.
    at: Vec<u32>,
}

impl Default for PageSet {
    fn default() -> PageSet {
        PageSet {
            chunks: vec![0; CHUNKS],
            bits: Vec::new(),
            at: Vec::new(),
        }
    }
}

impl PageSet {
    /// Adds every page that the range touches. Addresses beyond the user's half are left out.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        let limit = CHUNKS as u64 * CHUNK_PAGES;
        let first = range.start / PAGE;
        let last = range.end.div_ceil(PAGE).max(first + 1).min(limit);
        for page in first..last {
            let chunk = (page / CHUNK_PAGES) as usize;
            if self.chunks[chunk] == 0 {
                self.bits.push([0; CHUNK_WORDS]);
                self.at.push(chunk as u32);
                self.chunks[chunk] = self.bits.len() as u32;
            }
            let bits = &mut self.bits[self.chunks[chunk] as usize - 1];
            bits[(page % CHUNK_PAGES / 64) as usize] |= 1 << (page % 64);
        }
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        let page = address / PAGE;
        match self.chunks.get((page / CHUNK_PAGES) as usize) {
            None | Some(0) => false,
            Some(&at) => {
                let word = self.bits[at as usize - 1][(page % CHUNK_PAGES / 64) as usize];
                word & (1 << (page % 64)) != 0
            }
        }
    }

    /// Is any page of the range in the set?
    pub(super) fn touches(&self, range: Range<u64>) -> bool {
        let chunk_bytes = CHUNK_PAGES * PAGE;
        let mut at = range.start;
        while at < range.end {
            match self.chunks.get((at / chunk_bytes) as usize) {
                None => return false,
                Some(0) => at = (at / chunk_bytes + 1) * chunk_bytes,
                Some(_) if self.contains(at) => return true,
                Some(_) => at += PAGE,
            }
        }
        false
    }

    /// Maximal runs of pages, ascending, as addresses. A run ends at a chunk's border.
    pub(super) fn runs(&self) -> Vec<Range<u64>> {
        let mut order: Vec<usize> = (0..self.at.len()).collect();
        order.sort_unstable_by_key(|&at| self.at[at]);
        let mut runs = Vec::new();
        for at in order {
            let base = u64::from(self.at[at]) * CHUNK_PAGES;
            let mut open: Option<u64> = None;
            for page in 0..CHUNK_PAGES {
                let set = self.bits[at][(page / 64) as usize] & (1 << (page % 64)) != 0;
                match (set, open) {
                    (true, None) => open = Some(page),
                    (false, Some(start)) => {
                        runs.push((base + start) * PAGE..(base + page) * PAGE);
                        open = None;
                    }
                    _ => {}
                }
            }
            if let Some(start) = open {
                runs.push((base + start) * PAGE..(base + CHUNK_PAGES) * PAGE);
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_gives_back_its_pages_in_runs() {
        let mut set = PageSet::default();
        set.insert(0x7fff_0000_1008..0x7fff_0000_1010);
        set.insert(0x5000..0x7000);
        set.insert(0x7fff_0000_0ff8..0x7fff_0000_1008);
        set.insert(0x9000..0x9000);
        let runs = [
            0x5000..0x7000,
            0x9000..0xa000,
            0x7fff_0000_0000..0x7fff_0000_2000,
        ];
        assert_eq!(set.runs(), runs);
        assert!(set.contains(0x6fff) && !set.contains(0x7000) && !set.contains(u64::MAX));
    }
}
