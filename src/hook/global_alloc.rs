//! The program's own global allocator, wrapped.
//!
//! The wrapper must cost nothing while nobody listens, and must not count what the preload
//! library counts already. So it asks one word (`switch`), and tells only where somebody listens:
//! a recording (`listener`) or a measurement (`measure`).

use std::alloc::{GlobalAlloc, Layout};

#[cfg(target_os = "linux")]
use super::listener;
use super::{measure, switch};

/// A global allocator that a recording or a measurement can listen to.
///
/// ```
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOC: taskheap::Alloc<System> = taskheap::Alloc::new(System);
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Alloc<A> {
    inner: A,
}

impl<A> Alloc<A> {
    /// Wraps an allocator: `System`, `tikv_jemallocator::Jemalloc`, `mimalloc::MiMalloc`, any.
    pub const fn new(inner: A) -> Alloc<A> {
        Alloc { inner }
    }

    /// The wrapped allocator.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

// SAFETY: every call is handed on to `A` with its arguments, and `A`'s answer is handed back; who
// listens only reads addresses and sizes.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Alloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_heard(None, Some((layout.size(), layout.align()))) {
            // SAFETY: the caller's promise is that of this function.
            return unsafe { self.alloc_heard(layout) };
        }
        // SAFETY: as above.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_heard(None, Some((layout.size(), layout.align()))) {
            // SAFETY: as above.
            return unsafe { self.alloc_zeroed_heard(layout) };
        }
        // SAFETY: as above.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_heard(Some(block), None) {
            // SAFETY: as above.
            return unsafe { self.dealloc_heard(block, layout) };
        }
        // SAFETY: as above.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Cells are not resized: no alignment makes the new block one.
        if is_heard(Some(block), Some((size, 0))) {
            // SAFETY: as above.
            return unsafe { self.realloc_heard(block, layout, size) };
        }
        // SAFETY: as above.
        unsafe { self.inner.realloc(block, layout, size) }
    }
}

/// Has somebody to be told that `old` goes and a block of this size and alignment comes? What a
/// sample passes over is counted here, and that is all: nothing is called, so that no register has
/// to be kept.
#[inline(always)]
fn is_heard(old: Option<*mut u8>, new: Option<(usize, usize)>) -> bool {
    switch::is_heard(|| {
        #[cfg(target_os = "linux")]
        // SAFETY: called only while a sample is recorded.
        let passes = old.is_none_or(|old| unsafe { listener::is_unknown(old) })
            && new.is_none_or(|(size, align)| listener::passes(size, align));
        #[cfg(not(target_os = "linux"))]
        let passes = false;
        !passes
    })
}

#[inline(never)]
fn freed(block: *mut u8) {
    #[cfg(target_os = "linux")]
    listener::freed(block);
    if switch::is_measuring() {
        measure::freed(block);
    }
}

/// Inlined: the listener takes its caller for whoever called the allocator.
#[inline(always)]
fn allocated(block: *mut u8, layout: Layout) {
    #[cfg(target_os = "linux")]
    listener::allocated(block, layout.size(), layout.align());
    if switch::is_measuring() {
        measure::allocated(block, layout.size(), layout.align());
    }
}

/// While somebody listens. Out of line, so that nothing has to be kept across the inner
/// allocator's call while nobody does.
impl<A: GlobalAlloc> Alloc<A> {
    /// # Safety
    ///
    /// As [`GlobalAlloc::alloc`].
    #[inline(never)]
    unsafe fn alloc_heard(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on to the caller.
        let block = unsafe { self.inner.alloc(layout) };
        allocated(block, layout);
        block
    }

    /// # Safety
    ///
    /// As [`GlobalAlloc::alloc_zeroed`].
    #[inline(never)]
    unsafe fn alloc_zeroed_heard(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on to the caller.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        allocated(block, layout);
        block
    }

    /// # Safety
    ///
    /// As [`GlobalAlloc::dealloc`].
    #[inline(never)]
    unsafe fn dealloc_heard(&self, block: *mut u8, layout: Layout) {
        freed(block);
        // SAFETY: passed on to the caller.
        unsafe { self.inner.dealloc(block, layout) }
    }

    /// # Safety
    ///
    /// As [`GlobalAlloc::realloc`].
    #[inline(never)]
    unsafe fn realloc_heard(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let measured = switch::is_measuring().then(|| measure::take(block));
        #[cfg(target_os = "linux")]
        let taken = listener::take(block, layout.size());
        // SAFETY: passed on to the caller.
        let moved = unsafe { self.inner.realloc(block, layout, size) };
        #[cfg(target_os = "linux")]
        listener::reallocated(&taken, moved, size);
        if let Some(old) = measured {
            measure::reallocated(old, block, moved, size);
        }
        moved
    }
}
