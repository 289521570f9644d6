//! What happens at a call of a patched function, one hook for each role.
//!
//! All integer arguments are passed on as they came, whatever the function takes: registers that
//! it does not read do no harm. A block is told after the original has made it and before it is
//! freed, because in between its address is nobody else's.

use super::{Entry, Recorder};
use crate::record::Caller;
use crate::wire::{Allocator, NO_ARGUMENT, PatchRole};

/// `C-unwind`: mimalloc's `new` throws in a C++ program.
#[rustfmt::skip]
pub(super) type Hook = unsafe extern "C-unwind" fn(
    usize, usize, usize, usize, usize, usize, &Entry, u64, u64, u64,
) -> usize;
type Original = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;

pub(super) fn hook<R: Recorder>(role: PatchRole) -> Hook {
    match role {
        PatchRole::Allocate => allocate::<R>,
        PatchRole::AllocateInto => allocate_into::<R>,
        PatchRole::AllocateString => allocate_string::<R, 1>,
        PatchRole::AllocateWide => allocate_string::<R, 2>,
        PatchRole::AllocateStringInto => allocate_string_into::<R>,
        PatchRole::Reallocate => reallocate::<R, KEPT>,
        PatchRole::ReallocateOrFree => reallocate::<R, FREED_IF_ZERO>,
        PatchRole::ReallocateAlwaysFree => reallocate::<R, FREED>,
        PatchRole::ReallocateInto => reallocate_into::<R>,
        PatchRole::Expand => expand::<R>,
        PatchRole::Xallocx => xallocx::<R>,
        PatchRole::Free => free::<R>,
        PatchRole::Map => map::<R>,
        PatchRole::Unmap => unmap::<R>,
    }
}

/// A call of a patched function.
struct Call<'a> {
    arguments: [usize; 6],
    entry: &'a Entry,
    caller: Caller,
}

impl Call<'_> {
    #[inline(always)]
    fn argument(&self, index: u8, otherwise: usize) -> usize {
        let found = self.arguments.get(index as usize);
        found.copied().unwrap_or(otherwise)
    }

    #[inline(always)]
    fn pointer(&self) -> usize {
        self.argument(self.entry.arguments.pointer, 0)
    }

    /// Requested bytes. An overflow is refused by the original, so its result is never used.
    #[inline(always)]
    fn size(&self) -> usize {
        let size = self.argument(self.entry.arguments.size, 0);
        if self.entry.arguments.count == NO_ARGUMENT {
            return size;
        }
        size.wrapping_mul(self.argument(self.entry.arguments.count, 1))
    }

    /// The alignment that was asked for, 0 if none was.
    #[inline(always)]
    fn align(&self) -> usize {
        let flags = self.argument(self.entry.arguments.flags, 0);
        match flags & 0x3f {
            0 => self.argument(self.entry.arguments.align, 0),
            logarithm => 1 << logarithm,
        }
    }

    /// Tells of a new block, or that there is none.
    #[inline(always)]
    fn note<R: Recorder>(&self, block: usize, size: usize) {
        if block == 0 {
            return R::on_failure();
        }
        R::on_alloc(
            block,
            size,
            self.align(),
            self.entry.allocator,
            &self.caller,
        );
    }

    /// # Safety
    ///
    /// The arguments are those with which the program called the patched function.
    #[inline(always)]
    unsafe fn original(&self) -> usize {
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: `original` is the relocated start of the patched function, built from the
        // instructions that were there; it reads of these registers what the function reads.
        unsafe {
            let original: Original = std::mem::transmute(self.entry.original);
            original(a, b, c, d, e, f)
        }
    }

    /// Calls the original of an allocator that may itself take memory from one that is recorded.
    ///
    /// # Safety
    ///
    /// As [`Self::original`].
    #[inline(always)]
    unsafe fn shielded<R: Recorder>(&self) -> usize {
        let stacked = self.entry.allocator == Allocator::OwnMalloc;
        if !stacked {
            // SAFETY: passed on to the caller.
            return unsafe { self.original() };
        }
        let inside = R::enter();
        // SAFETY: passed on to the caller.
        let result = unsafe { self.original() };
        R::leave(inside);
        result
    }
}

/// Defines hooks. Each has the call as its only argument; the machine code's ten are put into it.
macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident [$($generic:tt)*] ($call:ident) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Called by the machine code in front of a patched function, with the program's arguments
        /// and the entry of that function.
        #[rustfmt::skip]
        unsafe extern "C-unwind" fn $name<R: Recorder $($generic)*>(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
            entry: &Entry, bp: u64, sp: u64, pc: u64,
        ) -> usize {
            let $call = Call { arguments: [a, b, c, d, e, f], entry, caller: Caller { pc, sp, bp } };
            $body
        }
    )*};
}

/// What null means for the block that was to be resized.
const KEPT: u8 = 0;
const FREED_IF_ZERO: u8 = 1;
const FREED: u8 = 2;

hooks! {
    fn allocate [] (call) {
        // SAFETY: the arguments are the program's.
        let block = unsafe { call.shielded::<R>() };
        call.note::<R>(block, call.size());
        R::between_calls(call.entry.allocator);
        block
    }

    fn allocate_into [] (call) {
        // SAFETY: as above.
        let error = unsafe { call.shielded::<R>() };
        // The function returns `int`: the upper half of the register may hold anything.
        if error as u32 == 0 {
            // SAFETY: the original has just stored the block's address there.
            let block = unsafe { *(call.pointer() as *const usize) };
            call.note::<R>(block, call.size());
        }
        error
    }

    fn allocate_string [, const UNIT: usize] (call) {
        // SAFETY: as above.
        let block = unsafe { call.shielded::<R>() };
        if block != 0 && call.pointer() == 0 {
            // SAFETY: the original returns a string that ends with a zero.
            call.note::<R>(block, unsafe { string_bytes(block, UNIT) });
        }
        block
    }

    fn allocate_string_into [] (call) {
        // SAFETY: as above.
        let error = unsafe { call.shielded::<R>() };
        if error as u32 == 0 && call.pointer() != 0 {
            // SAFETY: the original has just stored the string's address, or null, there.
            let block = unsafe { *(call.pointer() as *const usize) };
            if block != 0 {
                // SAFETY: it ends with a zero.
                call.note::<R>(block, unsafe { string_bytes(block, 1) });
            }
        }
        error
    }

    fn reallocate [, const IF_NULL: u8] (call) {
        let old = call.pointer();
        let taken = R::take(old);
        // SAFETY: as above.
        let block = unsafe { call.shielded::<R>() };
        let zero = IF_NULL == FREED_IF_ZERO && call.size() == 0;
        if block == 0 && !zero {
            R::on_failure();
        }
        if block != 0 || zero || IF_NULL == FREED {
            R::on_realloc(taken, block, call.size(), call.entry.allocator, &call.caller);
        } else {
            R::restore(taken);
        }
        block
    }

    fn reallocate_into [] (call) {
        let place = call.pointer() as *const usize;
        // SAFETY: the caller passes the address of its pointer, or null, which is refused.
        let now = || if place.is_null() { 0 } else { unsafe { *place } };
        let taken = R::take(now());
        // SAFETY: as above.
        let error = unsafe { call.shielded::<R>() };
        if error as u32 == 0 {
            R::on_realloc(taken, now(), call.size(), call.entry.allocator, &call.caller);
        } else {
            R::restore(taken);
        }
        error
    }

    /// The block stays the caller's all along, so nothing has to be taken before.
    fn expand [] (call) {
        // SAFETY: as above.
        let block = unsafe { call.shielded::<R>() };
        if block != 0 {
            R::on_realloc(R::take(block), block, call.size(), call.entry.allocator, &call.caller);
        }
        block
    }

    /// In place or not at all. The original rounds up: what was asked for lies between `size`
    /// and `size + extra`.
    fn xallocx [] (call) {
        // SAFETY: as above.
        let now = unsafe { call.shielded::<R>() };
        let (block, size) = (call.pointer(), call.size());
        if now >= size {
            let most = size.saturating_add(call.argument(call.entry.arguments.extra, 0));
            let size = now.min(most);
            R::on_realloc(R::take(block), block, size, call.entry.allocator, &call.caller);
        }
        now
    }

    /// `mmap`.
    fn map [] (call) {
        // SAFETY: as above.
        let start = unsafe { call.original() };
        if start != libc::MAP_FAILED as usize {
            R::mapped(start, call.arguments[1], call.entry.allocator);
        }
        start
    }

    /// `munmap`.
    fn unmap [] (call) {
        R::unmapped(call.arguments[0], call.arguments[1]);
        // SAFETY: as above.
        unsafe { call.original() }
    }

    fn free [] (call) {
        let block = call.pointer();
        if block != 0 {
            R::on_free(block);
        }
        // SAFETY: as above.
        let result = unsafe { call.shielded::<R>() };
        R::between_calls(call.entry.allocator);
        result
    }
}

/// The function behind a hook that is reached by redirects alone.
pub(super) fn system(role: PatchRole) -> Option<usize> {
    match role {
        PatchRole::Map => Some(libc::mmap as *const () as usize),
        PatchRole::Unmap => Some(libc::munmap as *const () as usize),
        _ => None,
    }
}

/// Bytes of a string of `unit`-byte characters with its zero.
///
/// # Safety
///
/// Such a string is at `address`.
unsafe fn string_bytes(address: usize, unit: usize) -> usize {
    let mut bytes = 0;
    loop {
        // SAFETY: the string goes on until a character that is zero, and this is at most that one.
        let zero = (0..unit).all(|at| unsafe { *((address + bytes + at) as *const u8) } == 0);
        bytes += unit;
        if zero {
            return bytes;
        }
    }
}
