//! The memory of another process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub const PAGE: u64 = 4096;

/// Room for so many values, in large pages where the system has them: an array that is read in
/// no order spends more time on finding pages than on reading them.
pub fn with_capacity<T>(len: usize) -> Vec<T> {
    const WORTH_IT: usize = 8 << 20;
    const LARGE_PAGE: usize = 2 << 20;
    let values: Vec<T> = Vec::with_capacity(len);
    let start = values.as_ptr() as usize;
    let end = start + values.capacity() * size_of::<T>();
    if end - start >= WORTH_IT {
        let first = start.next_multiple_of(LARGE_PAGE);
        let last = end & !(LARGE_PAGE - 1);
        // SAFETY: the range lies within the allocation of `values`; the advice is a hint.
        unsafe {
            libc::madvise(
                first as *mut libc::c_void,
                last - first,
                libc::MADV_HUGEPAGE,
            )
        };
    }
    values
}

/// So many times the same value; see [`with_capacity`].
pub fn filled<T: Copy>(value: T, len: usize) -> Vec<T> {
    let mut values = with_capacity(len);
    values.resize(len, value);
    values
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// Never written, or given back: it reads as zeros (or as its file).
    Untouched,
    Resident,
    Swapped,
}

/// A process whose memory may be read: our child, or one that we trace.
pub struct ProcessMemory {
    pid: i32,
    /// `process_vm_readv` may be forbidden where the file is not.
    file: File,
    pagemap: File,
}

impl ProcessMemory {
    pub fn open(pid: i32) -> io::Result<ProcessMemory> {
        Ok(ProcessMemory {
            pid,
            file: File::open(format!("/proc/{pid}/mem"))?,
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
        })
    }

    /// Reads from `address` on; returns how many bytes could be read before the first page that
    /// can't be.
    pub fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let got = self.read_some(address + done as u64, &mut into[done..]);
            if got == 0 {
                break;
            }
            done += got;
        }
        done
    }

    fn read_some(&self, address: u64, into: &mut [u8]) -> usize {
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: into.len(),
        };
        // SAFETY: `local` describes `into`, which we may write; the kernel checks the remote side.
        let got = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        if got > 0 {
            return got as usize;
        }
        self.file.read_at(into, address).unwrap_or(0)
    }

    /// Reads many ranges into one buffer, one after the other. Returns the bytes read before the
    /// first page that can't be.
    pub fn read_ranges(&self, ranges: &[(u64, usize)], into: &mut [u8]) -> usize {
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let remote: Vec<libc::iovec> = ranges
            .iter()
            .map(|&(address, bytes)| libc::iovec {
                iov_base: address as *mut libc::c_void,
                iov_len: bytes,
            })
            .collect();
        let count = remote.len() as libc::c_ulong;
        // SAFETY: `local` describes `into`, which we may write; the kernel checks the remote side.
        let got = unsafe { libc::process_vm_readv(self.pid, &local, 1, remote.as_ptr(), count, 0) };
        got.max(0) as usize
    }

    /// Writes below the red zone of a stopped thread's stack, where the program keeps nothing.
    /// True if all was written.
    pub fn write_below_stack(&self, address: u64, bytes: &[u8]) -> bool {
        let local = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: bytes.len(),
        };
        // SAFETY: `local` describes `bytes`, which is only read.
        let done = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        done == bytes.len() as isize
    }

    /// Where pages from `address` on are: one entry for each, in order. Looking does not bring a
    /// page in, as reading it would.
    pub fn pages(&self, address: u64, pages: usize) -> io::Result<Vec<Page>> {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        let mut words = vec![0u8; pages * 8];
        let mut done = 0;
        while done < words.len() {
            let at = address / PAGE * 8 + done as u64;
            match self.pagemap.read_at(&mut words[done..], at)? {
                0 => break,
                got => done += got,
            }
        }
        let entry = |word: &[u8]| u64::from_ne_bytes(word.try_into().unwrap_or_default());
        Ok(words
            .chunks_exact(8)
            .map(|word| match entry(word) {
                bits if bits & PRESENT != 0 => Page::Resident,
                bits if bits & SWAPPED != 0 => Page::Swapped,
                _ => Page::Untouched,
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_our_own_memory_up_to_the_hole() {
        let memory = ProcessMemory::open(std::process::id() as i32).unwrap();
        let text = *b"sixteen bytes...";
        let mut copy = [0u8; 16];
        assert_eq!(memory.read(text.as_ptr() as u64, &mut copy), 16);
        assert_eq!(copy, text);
        assert_eq!(memory.read(0, &mut copy), 0);
    }

    #[test]
    fn an_untouched_page_is_not_resident() {
        // SAFETY: the kernel chooses the address of a new private mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4 * PAGE as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the second page of the mapping just made.
        unsafe { start.cast::<u8>().add(PAGE as usize).write(1) };
        let memory = ProcessMemory::open(std::process::id() as i32).unwrap();
        let pages = memory.pages(start as u64, 4).unwrap();
        let away = Page::Untouched;
        assert_eq!(pages, [away, Page::Resident, away, away]);
        // SAFETY: nobody else knows the mapping.
        unsafe { libc::munmap(start, 4 * PAGE as usize) };
    }
}
