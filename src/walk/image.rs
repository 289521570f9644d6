//! A process as it stood: copies of the pages that matter, and what `/proc` said.
//!
//! Analyses ask for memory through [`Memory`], so that the same code looks at an image, at an
//! array in a test, or at anything else that has bytes at addresses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::stop::StoppedThread;
use crate::sys::maps::Mapping;
use crate::sys::mem::PAGE;

/// Bytes at addresses.
pub trait Memory {
    /// The first bytes at or after `start` and before `end` that are there, with their address:
    /// as many as are there without a gap. Empty if there are none.
    fn piece(&self, start: u64, end: u64) -> (u64, &[u8]);

    /// Calls `visit` with those parts of the range that are there, in ascending order. What is
    /// not there was never touched, and reads as zeros.
    #[inline]
    fn visit(&self, start: u64, end: u64, mut visit: impl FnMut(u64, &[u8])) {
        let mut at = start;
        while at < end {
            let (address, bytes) = self.piece(at, end);
            if bytes.is_empty() {
                return;
            }
            visit(address, bytes);
            at = address + bytes.len() as u64;
        }
    }

    /// The word at an address; 0 where nothing is there.
    fn word(&self, address: u64) -> u64 {
        let mut word = [0u8; 8];
        self.visit(address, address.saturating_add(8), |at, bytes| {
            let from = (at - address) as usize;
            word[from..from + bytes.len()].copy_from_slice(bytes);
        });
        u64::from_le_bytes(word)
    }
}

/// A run of copied pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Where its first byte is among the bytes of the image.
    pub(super) at: usize,
}

/// What a stop has taken.
pub struct Image {
    pub pid: i32,
    pub pause: Duration,
    /// Bytes copied out of the process.
    pub bytes_read: u64,
    pub threads: Vec<StoppedThread>,
    pub mappings: Vec<Mapping>,
    /// What the program has given to epoll, as of shortly after the stop.
    pub(super) kernel_words: Vec<u64>,
    /// Ascending.
    pub(super) spans: Vec<super::regions::Span>,
    /// `VmHWM`, the largest resident set so far.
    pub rss_peak: u64,
    /// Bytes of the recorder's that may be in any memory without a name.
    pub(super) unlisted_bytes: u64,
    pub(super) segments: Vec<Segment>,
    pub(super) bytes: Arena,
    pub(super) hint: AtomicUsize,
    /// Of the pages that were to be copied, those that are resident.
    pub(super) resident: super::pages::PageSet,
}

impl Image {
    /// Bytes of this process that the image takes.
    pub fn own_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Resident bytes of a range that was told to be an allocator's.
    pub fn resident_in(&self, range: &std::ops::Range<u64>) -> u64 {
        let first = self.spans.partition_point(|span| span.start < range.start);
        let spans = self.spans[first..].iter();
        let inside = spans.take_while(|span| span.end <= range.end);
        inside.map(|span| span.rss).sum()
    }

    /// Is the page with this address resident? Known for pages that were to be copied.
    pub(super) fn is_resident(&self, address: u64) -> bool {
        self.resident.contains(address)
    }
}

impl Memory for Image {
    fn piece(&self, start: u64, end: u64) -> (u64, &[u8]) {
        // Most questions go up through memory: the segment of the last answer, or the next.
        let hint = self.hint.load(Ordering::Relaxed);
        let near = |at: usize| {
            let before = at == 0 || self.segments.get(at - 1).is_some_and(|s| s.end <= start);
            before && self.segments.get(at).is_some_and(|s| s.end > start)
        };
        let first = if near(hint) {
            hint
        } else if near(hint + 1) {
            hint + 1
        } else {
            self.segments.partition_point(|s| s.end <= start)
        };
        self.hint.store(first, Ordering::Relaxed);
        match self.segments.get(first) {
            Some(segment) if segment.start < end => {
                let low = segment.start.max(start);
                let high = segment.end.min(end);
                let at = segment.at + (low - segment.start) as usize;
                (low, &self.bytes.as_slice()[at..at + (high - low) as usize])
            }
            _ => (end, &[]),
        }
    }
}

/// A large buffer for copies.
///
/// Most of the time that a copy takes goes into making the pages it is written to: so they are
/// made before the process is stopped, as far as the size is known.
pub(super) struct Arena {
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone; it is written only through `&mut`.
unsafe impl Send for Arena {}
// SAFETY: shared references only read.
unsafe impl Sync for Arena {}

impl Arena {
    /// So many bytes, with pages made for all of them.
    pub(super) fn prepared(len: usize) -> std::io::Result<Arena> {
        const POPULATE_WRITE: i32 = 23;
        let len = len.max(1).next_multiple_of(PAGE as usize);
        // SAFETY: the kernel chooses the address of a new private mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the range was just mapped. Kernels that don't know it leave the pages for later.
        unsafe { libc::madvise(start, len, POPULATE_WRITE) };
        // SAFETY: as above: what is copied has no place in a core dump.
        unsafe { libc::madvise(start, len, libc::MADV_DONTDUMP) };
        let start = start.cast();
        Ok(Arena { start, len })
    }

    /// Makes it larger or smaller. What was written may be lost.
    pub(super) fn resize(&mut self, len: usize) -> std::io::Result<()> {
        let len = len.max(1).next_multiple_of(PAGE as usize);
        // SAFETY: the mapping is ours, and no slice of it is held: `&mut self`.
        let start = unsafe { libc::mremap(self.start.cast(), self.len, len, libc::MREMAP_MAYMOVE) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        self.start = start.cast();
        self.len = len;
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is `len` bytes of initialised (zero or written) memory, ours.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` is the only way to write.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: nobody holds a slice of it any more.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Memory made by hand, for tests.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Sketch {
    bytes: std::collections::BTreeMap<u64, Vec<u8>>,
}

#[cfg(test)]
impl Sketch {
    pub(super) fn put(&mut self, address: u64, words: &[u64]) {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.bytes.insert(address, bytes);
    }
}

#[cfg(test)]
impl Memory for Sketch {
    fn piece(&self, start: u64, end: u64) -> (u64, &[u8]) {
        let before = self.bytes.range(..=start).next_back();
        let reaches = before.filter(|(at, bytes)| **at + bytes.len() as u64 > start);
        match reaches.or_else(|| self.bytes.range(start..).next()) {
            Some((&at, bytes)) if at < end => {
                let low = at.max(start);
                let high = (at + bytes.len() as u64).min(end);
                (low, &bytes[(low - at) as usize..(high - at) as usize])
            }
            _ => (end, &[]),
        }
    }
}
