//! What happens at a call of a patched function, one hook for each role.
//!
//! All integer arguments are passed on as they came, whatever the function takes: registers that
//! it does not read do no harm. A block is told after the original has made it and before it is
//! freed, because in between its address is nobody else's.

use super::{Entry, Recorder};
use crate::wire::{Allocator, NO_ARGUMENT, PatchRole};

/// `C-unwind`: mimalloc's `new` throws in a C++ program.
pub(super) type Hook =
    unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize, &Entry) -> usize;
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
    }
}

/// The arguments of a call.
struct Call<'a> {
    arguments: [usize; 6],
    entry: &'a Entry,
}

impl Call<'_> {
    #[inline(always)]
    fn argument(&self, index: u8, otherwise: usize) -> usize {
        self.arguments
            .get(index as usize)
            .copied()
            .unwrap_or(otherwise)
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
        let stacked = matches!(
            self.entry.allocator,
            Allocator::OwnMalloc | Allocator::OwnRust
        );
        let entered = stacked && R::enter();
        // SAFETY: passed on to the caller.
        let result = unsafe { self.original() };
        if entered {
            R::leave();
        }
        result
    }
}

macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident [$($generic:tt)*] ($call:ident) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Called by the machine code in front of a patched function, with the program's arguments
        /// and the entry of that function.
        unsafe extern "C-unwind" fn $name<R: Recorder $($generic)*>(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, entry: &Entry,
        ) -> usize {
            let $call = Call { arguments: [a, b, c, d, e, f], entry };
            $body
        }
    )*};
}

const KEPT: u8 = 0;
const FREED_IF_ZERO: u8 = 1;
const FREED: u8 = 2;

hooks! {
    fn allocate [] (call) {
        // SAFETY: the arguments are the program's.
        let block = unsafe { call.shielded::<R>() };
        if block != 0 {
            R::on_alloc(block, call.size(), call.entry.allocator);
        }
        block
    }

    fn allocate_into [] (call) {
        // SAFETY: as above.
        let error = unsafe { call.shielded::<R>() };
        // The function returns `int`: the upper half of the register may hold anything.
        if error as u32 == 0 {
            // SAFETY: the original has just stored the block's address there.
            let block = unsafe { *(call.pointer() as *const usize) };
            if block != 0 {
                R::on_alloc(block, call.size(), call.entry.allocator);
            }
        }
        error
    }

    fn allocate_string [, const UNIT: usize] (call) {
        // SAFETY: as above.
        let block = unsafe { call.shielded::<R>() };
        if block != 0 && call.pointer() == 0 {
            // SAFETY: the original returns a string that ends with a zero.
            R::on_alloc(block, unsafe { string_bytes(block, UNIT) }, call.entry.allocator);
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
                R::on_alloc(block, unsafe { string_bytes(block, 1) }, call.entry.allocator);
            }
        }
        error
    }

    fn reallocate [, const IF_NULL: u8] (call) {
        let old = call.pointer();
        let taken = if old == 0 { None } else { R::take(old) };
        // SAFETY: as above.
        let block = unsafe { call.shielded::<R>() };
        let freed = IF_NULL == FREED || (IF_NULL == FREED_IF_ZERO && call.size() == 0);
        if block != 0 {
            R::on_alloc(block, call.size(), call.entry.allocator);
        } else if let (false, Some(taken)) = (freed, taken) {
            R::restore(taken);
        }
        block
    }

    fn reallocate_into [] (call) {
        let place = call.pointer() as *const usize;
        // SAFETY: the caller passes the address of its pointer, or null, which is refused.
        let old = if place.is_null() { 0 } else { unsafe { *place } };
        let taken = if old == 0 { None } else { R::take(old) };
        // SAFETY: as above.
        let error = unsafe { call.shielded::<R>() };
        if error as u32 == 0 && !place.is_null() {
            // SAFETY: as above, and it holds the new block now.
            let block = unsafe { *place };
            if block != 0 {
                R::on_alloc(block, call.size(), call.entry.allocator);
            }
        } else if let Some(taken) = taken {
            R::restore(taken);
        }
        error
    }

    /// The block stays the caller's all along, so nothing has to be taken before.
    fn expand [] (call) {
        // SAFETY: as above.
        let block = unsafe { call.shielded::<R>() };
        if block != 0 {
            R::on_free(block);
            R::on_alloc(block, call.size(), call.entry.allocator);
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
            R::on_free(block);
            R::on_alloc(block, now.min(most), call.entry.allocator);
        }
        now
    }

    fn free [] (call) {
        let block = call.pointer();
        if block != 0 {
            R::on_free(block);
        }
        // SAFETY: as above.
        unsafe { call.shielded::<R>() }
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
