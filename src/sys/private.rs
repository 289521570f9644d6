//! Private memory of the recorder: anonymous mappings, named so that people can tell them.

use std::ptr::null_mut;

use super::thread::keep_errno;

/// Shows in `/proc/PID/maps` as `[anon:taskheap]` where the kernel knows names.
const NAME: &[u8] = b"taskheap\0";

/// `bytes` zeroed bytes, or null. Pages count only once they are touched.
pub fn map(bytes: usize) -> *mut u8 {
    keep_errno(|| map_pages(bytes))
}

fn map_pages(bytes: usize) -> *mut u8 {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let start = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return null_mut();
    }
    // SAFETY: the range was just mapped; both calls are hints that may fail.
    unsafe {
        libc::madvise(start, bytes, libc::MADV_DONTDUMP);
        libc::prctl(
            libc::PR_SET_VMA,
            libc::PR_SET_VMA_ANON_NAME,
            start,
            bytes,
            NAME.as_ptr(),
        );
    }
    start.cast()
}

/// Never more than a page at a touch: for memory of which few pages are used. A hint.
///
/// # Safety
///
/// The range is one of [`map`].
pub unsafe fn keep_pages_small(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's; only says how pages are made.
    keep_errno(|| unsafe { libc::madvise(start.cast(), bytes, libc::MADV_NOHUGEPAGE) });
}

/// Makes memory zero again; whole pages go back to the system where there are many.
///
/// # Safety
///
/// The range is part of one of [`map`], and nobody uses it.
pub unsafe fn clear(start: *mut u8, bytes: usize) {
    const FEW: usize = 16 << 10;
    let whole = start.addr().is_multiple_of(4096) && bytes.is_multiple_of(4096);
    // SAFETY: the caller's. Pages that are locked stay, and the call fails.
    let gone = bytes > FEW
        && whole
        && keep_errno(|| unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) }) == 0;
    if !gone {
        // SAFETY: the caller's.
        unsafe { start.write_bytes(0, bytes) };
    }
}

/// One page that reads as zero in a forked child, or null.
pub fn map_wiped_on_fork() -> *mut u8 {
    let page = map(4096);
    if page.is_null() {
        return page;
    }
    // SAFETY: the page was just mapped and is private and anonymous, as the advice needs.
    let done = unsafe { libc::madvise(page.cast(), 4096, libc::MADV_WIPEONFORK) };
    if done != 0 {
        // SAFETY: nobody has seen the page.
        unsafe { libc::munmap(page.cast(), 4096) };
        return null_mut();
    }
    page
}
