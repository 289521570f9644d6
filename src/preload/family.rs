//! malloc and its family.
//!
//! The exported `malloc`, `calloc`, `realloc` and `free` are a jump through a word. It leads to a
//! function here, which tells the recorder, or, once a sample is all that is taken, to one of
//! `sampled`, which does so for few calls: neither has to ask which recording it is.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Release;

use super::next::{self, early, is_early};
use super::{caller, sampled, start};
use crate::record;
use crate::wire::Allocator::Malloc;

/// Defines a function that hands on its arguments, and the stack and frame pointers at its entry
/// in the two registers behind them.
macro_rules! entries {
    ($($(#[$export:meta])? $name:ident => $hook:ident, $sp:literal, $bp:literal;)*) => {$(
        /// # Safety
        ///
        /// As the C library's function of this name.
        $(#[$export])?
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {hook}",
                hook = sym $hook,
            )
        }
    )*};
}

entries! {
    heard_malloc => on_malloc, "rsi", "rdx";
    heard_calloc => on_calloc, "rdx", "rcx";
    heard_realloc => on_realloc, "rdx", "rcx";
    #[unsafe(no_mangle)] reallocarray => on_reallocarray, "rcx", "r8";
    #[unsafe(no_mangle)] posix_memalign => on_posix_memalign, "rcx", "r8";
    #[unsafe(no_mangle)] aligned_alloc => on_aligned_alloc, "rdx", "rcx";
    #[unsafe(no_mangle)] memalign => on_memalign, "rdx", "rcx";
    #[unsafe(no_mangle)] valloc => on_valloc, "rsi", "rdx";
    #[unsafe(no_mangle)] pvalloc => on_pvalloc, "rsi", "rdx";
}

/// Defines the exported functions that a program calls most: a jump to the way that its recording
/// takes.
macro_rules! ways {
    ($($name:ident, $way:ident: $first:ident, $sampled:ident, $next:ident;)*) => {
        $(
            static $way: Way = Way(AtomicPtr::new($first as *mut c_void));

            /// # Safety
            ///
            /// As the C library's function of this name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                naked_asm!("jmp qword ptr [rip + {way}]", way = sym $way)
            }
        )*

        /// From now on most calls go straight on to the C library. Not if one of its functions
        /// can't be found.
        pub fn sample() {
            let found = [$(next::$next.get().is_some()),*];
            if !found.contains(&false) {
                $($way.0.store(sampled::$sampled as *mut c_void, Release);)*
            }
        }
    };
}

#[repr(transparent)]
struct Way(AtomicPtr<c_void>);

ways! {
    malloc, MALLOC_WAY: heard_malloc, malloc, MALLOC;
    calloc, CALLOC_WAY: heard_calloc, calloc, CALLOC;
    realloc, REALLOC_WAY: heard_realloc, realloc, REALLOC;
    free, FREE_WAY: heard_free, free, FREE;
}

/// Looks up the next function, as one of this type.
macro_rules! next {
    ($which:ident as $type:ty) => {
        // SAFETY: the symbol of this name has this signature in every C library.
        next::$which
            .get()
            .map(|found| unsafe { std::mem::transmute::<*mut c_void, $type>(found) })
    };
}

#[inline(always)]
fn note(block: *mut u8, size: usize, align: usize, entry: *const u64, bp: u64) {
    if block.is_null() {
        return record::on_failure();
    }
    record::on_alloc(block, size, align, Malloc, &caller(entry, bp));
}

unsafe extern "C" fn on_malloc(size: usize, entry: *const u64, bp: u64) -> *mut u8 {
    start();
    let Some(next) = next!(MALLOC as next::Malloc) else {
        return early(size, 16);
    };
    // SAFETY: the caller's arguments, handed on.
    let block = unsafe { next(size) };
    note(block, size, 0, entry, bp);
    block
}

unsafe extern "C" fn on_calloc(count: usize, each: usize, entry: *const u64, bp: u64) -> *mut u8 {
    start();
    let size = count.checked_mul(each);
    let Some(next) = next!(CALLOC as next::Calloc) else {
        return size.map_or(std::ptr::null_mut(), |size| early(size, 16));
    };
    // SAFETY: the caller's arguments, handed on.
    let block = unsafe { next(count, each) };
    note(block, size.unwrap_or(0), 0, entry, bp);
    block
}

unsafe extern "C" fn on_realloc(old: *mut u8, size: usize, entry: *const u64, bp: u64) -> *mut u8 {
    start();
    let Some(next) = next!(REALLOC as next::Realloc) else {
        return early(size, 16);
    };
    if is_early(old) {
        // SAFETY: checked.
        return unsafe { out_of_early(old, size, entry, bp) };
    }
    let taken = record::take(old);
    // SAFETY: the caller's arguments, handed on.
    let block = unsafe { next(old, size) };
    if !block.is_null() || (size == 0 && !old.is_null()) {
        // glibc frees for a size of zero and returns null.
        record::on_realloc(taken, block, size, Malloc, &caller(entry, bp));
    } else {
        record::restore(taken);
        record::on_failure();
    }
    block
}

/// Moves a block out of the early buffer.
///
/// # Safety
///
/// `old` is a block of the early buffer.
#[cold]
unsafe fn out_of_early(old: *mut u8, size: usize, entry: *const u64, bp: u64) -> *mut u8 {
    // SAFETY: a fresh block of `size` bytes; the buffer's bytes up to its end are readable.
    unsafe {
        let block = on_malloc(size, entry, bp);
        if !block.is_null() {
            block.copy_from_nonoverlapping(old, size.min(next::early_bytes_from(old)));
        }
        block
    }
}

unsafe extern "C" fn on_reallocarray(
    old: *mut u8,
    count: usize,
    each: usize,
    entry: *const u64,
    bp: u64,
) -> *mut u8 {
    match count.checked_mul(each) {
        // SAFETY: the caller's arguments, handed on.
        Some(size) => unsafe { on_realloc(old, size, entry, bp) },
        None => {
            // SAFETY: the C library's place for the calling thread's error number.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            record::on_failure();
            std::ptr::null_mut()
        }
    }
}

unsafe extern "C" fn on_posix_memalign(
    out: *mut *mut u8,
    align: usize,
    size: usize,
    entry: *const u64,
    bp: u64,
) -> c_int {
    start();
    let Some(next) = next!(POSIX_MEMALIGN as next::PosixMemalign) else {
        let block = early(size, align);
        // SAFETY: the caller's place for the answer.
        unsafe { *out = block };
        return if block.is_null() { libc::ENOMEM } else { 0 };
    };
    // SAFETY: the caller's arguments, handed on.
    let result = unsafe { next(out, align, size) };
    if result == 0 {
        // SAFETY: the function has put the block there.
        note(unsafe { *out }, size, align, entry, bp);
    } else {
        record::on_failure();
    }
    result
}

/// The functions that take an alignment and a size.
macro_rules! aligned {
    ($($hook:ident => $which:ident;)*) => {$(
        unsafe extern "C" fn $hook(
            align: usize,
            size: usize,
            entry: *const u64,
            bp: u64,
        ) -> *mut u8 {
            start();
            let Some(next) = next!($which as next::Aligned) else { return early(size, align) };
            // SAFETY: the caller's arguments, handed on.
            let block = unsafe { next(align, size) };
            note(block, size, align, entry, bp);
            block
        }
    )*};
}

aligned! {
    on_aligned_alloc => ALIGNED_ALLOC;
    on_memalign => MEMALIGN;
}

/// The functions that align to pages.
macro_rules! page_aligned {
    ($($hook:ident => $which:ident;)*) => {$(
        unsafe extern "C" fn $hook(size: usize, entry: *const u64, bp: u64) -> *mut u8 {
            start();
            let Some(next) = next!($which as next::Malloc) else { return early(size, 4096) };
            // SAFETY: the caller's arguments, handed on.
            let block = unsafe { next(size) };
            note(block, size, 4096, entry, bp);
            block
        }
    )*};
}

page_aligned! {
    on_valloc => VALLOC;
    on_pvalloc => PVALLOC;
}

/// # Safety
///
/// As the C library's `free`.
pub unsafe extern "C" fn heard_free(block: *mut u8) {
    start();
    if is_early(block) {
        return;
    }
    record::on_free(block);
    if let Some(next) = next!(FREE as next::Free) {
        // SAFETY: the caller's argument, handed on.
        unsafe { next(block) };
    }
}
