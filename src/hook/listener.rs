//! Who records what the wrapped allocator tells.
//!
//! Nobody, as a rule: that is one load and one branch (see `switch`). This process's own recording, once a
//! `Recorder` has begun it. Or, under `taskheap run`, the preload library, if it asks because the
//! inner allocator can't be recorded from outside; if it does not ask, it records that allocator
//! itself, and the wrapper must be silent. Whether it asks is found out at the first allocation.

use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::switch::{self, OWN, OWN_SAMPLED, PRELOADED, UNASKED};
use crate::record::{self, Caller};
use crate::wire::{Allocator, WRAPPER_SYMBOL, WRAPPER_VERSION, WrapperHooks, WrapperHooksFn};

static HOOKS: AtomicPtr<WrapperHooks> = AtomicPtr::new(std::ptr::null_mut());
static START: OnceLock<Instant> = OnceLock::new();

/// A block that may be about to move.
pub(super) enum Taken {
    Nothing,
    Own(record::Taken),
    /// Address and size.
    Preloaded(*mut u8, usize),
}

/// From now on the process's own recording hears.
pub(super) fn begin() {
    let _ = START.set(Instant::now());
    switch::set_recording(match record::is_sample() {
        true => OWN_SAMPLED,
        false => OWN,
    });
}

pub(super) fn end() {
    set_clock();
    switch::set_recording(switch::NOBODY);
}

pub(super) fn started() -> Option<Instant> {
    START.get().copied()
}

/// The state, once it is known.
#[inline(always)]
fn state() -> usize {
    match switch::recording() {
        UNASKED => ask(),
        known => known,
    }
}

/// Asks the preload library, if it is there. Its constructor has run: the program's come later.
#[cold]
fn ask() -> usize {
    // What the question itself allocates is nobody's business.
    if !switch::take_question() {
        return switch::recording();
    }
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, WRAPPER_SYMBOL.as_ptr()) };
    if found.is_null() {
        return switch::NOBODY;
    }
    // SAFETY: the function of this name has this type in every version.
    let hooks = unsafe { std::mem::transmute::<*mut libc::c_void, WrapperHooksFn>(found) }();
    // SAFETY: null, or a table that is never changed and begins with its version.
    let known = unsafe { hooks.as_ref() }.is_some_and(|table| table.version == WRAPPER_VERSION);
    if !known {
        return switch::NOBODY;
    }
    HOOKS.store(hooks.cast_mut(), Relaxed);
    switch::set_recording(PRELOADED);
    PRELOADED
}

fn hooks() -> Option<&'static WrapperHooks> {
    // SAFETY: null, or the preload library's table, which stays.
    unsafe { HOOKS.load(Relaxed).as_ref() }
}

/// A new block that the sample passes over, and counts.
#[inline(always)]
pub(super) fn passes(size: usize, align: usize) -> bool {
    !record::may_be_cell(align) && record::passes_at_once(size)
}

/// # Safety
///
/// Recorded is a sample.
#[inline(always)]
pub(super) unsafe fn is_unknown(block: *mut u8) -> bool {
    // SAFETY: passed on to the caller.
    unsafe { record::is_unknown(block as usize) }
}

#[inline(always)]
pub(super) fn allocated(block: *mut u8, size: usize, align: usize) {
    // SAFETY: takes any values.
    unsafe { machine::allocated(block, size, align) };
}

#[inline(always)]
pub(super) fn reallocated(taken: &Taken, block: *mut u8, size: usize) {
    // SAFETY: the reference is good for the call, which does not keep it.
    unsafe { machine::reallocated(taken, block, size) };
}

#[inline(never)]
pub(super) fn freed(block: *mut u8) {
    match state() {
        OWN | OWN_SAMPLED => record::on_free(block),
        PRELOADED => {
            if let Some(hooks) = hooks() {
                (hooks.freed)(block);
            }
        }
        _ => {}
    }
}

/// Before the inner allocator may move the block.
pub(super) fn take(block: *mut u8, size: usize) -> Taken {
    match state() {
        OWN | OWN_SAMPLED => Taken::Own(record::take(block)),
        PRELOADED => {
            if let Some(hooks) = hooks() {
                (hooks.freed)(block);
            }
            Taken::Preloaded(block, size)
        }
        _ => Taken::Nothing,
    }
}

unsafe extern "C" fn on_allocated(block: *mut u8, size: usize, align: usize, sp: u64, bp: u64) {
    // SAFETY: from the machine code, whose stack it is.
    let caller = unsafe { caller(sp, bp) };
    match state() {
        state @ (OWN | OWN_SAMPLED) => {
            tick(block, state == OWN_SAMPLED && !record::may_be_cell(align));
            if block.is_null() {
                return record::on_failure();
            }
            record::on_alloc(block, size, align, Allocator::Wrapper, &caller);
        }
        PRELOADED => tell(block, size, align, &caller),
        _ => {}
    }
}

unsafe extern "C" fn on_reallocated(taken: &Taken, block: *mut u8, size: usize, sp: u64, bp: u64) {
    // SAFETY: as above.
    let caller = unsafe { caller(sp, bp) };
    match *taken {
        Taken::Own(taken) if block.is_null() => {
            record::restore(taken);
            record::on_failure();
        }
        Taken::Own(taken) => {
            record::on_realloc(taken, block, size, Allocator::Wrapper, &caller);
        }
        Taken::Preloaded(old, old_size) if block.is_null() => tell(old, old_size, 0, &caller),
        Taken::Preloaded(..) => tell(block, size, 0, &caller),
        Taken::Nothing => {}
    }
}

fn tell(block: *mut u8, size: usize, align: usize, caller: &Caller) {
    if let Some(hooks) = hooks() {
        (hooks.allocated)(block, size, align, caller.pc, caller.sp, caller.bp);
    }
}

/// # Safety
///
/// `sp` is the stack pointer at the entry of a function, or 0 where it is not known.
unsafe fn caller(sp: u64, bp: u64) -> Caller {
    if sp == 0 {
        return Caller {
            pc: 0,
            sp: 0,
            bp: 0,
        };
    }
    // SAFETY: the return address is on top of the stack there.
    let pc = unsafe { *(sp as *const u64) };
    Caller { pc, sp: sp + 8, bp }
}

/// Keeps the recording's clock, now and then; always if events are `rare`.
#[inline(always)]
fn tick(block: *mut u8, rare: bool) {
    if rare || (block as usize >> 4).is_multiple_of(64) {
        set_clock();
    }
}

#[cold]
fn set_clock() {
    let (Some(header), Some(start)) = (record::header(), START.get()) else {
        return;
    };
    let now = start.elapsed().as_millis() as u32;
    header.now_ms.fetch_max(now, Relaxed);
}

/// Noting the caller's registers, so that unwinding starts in the program.
#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::naked_asm;

    use super::{Taken, on_allocated, on_reallocated};

    /// # Safety
    ///
    /// Takes any values.
    #[unsafe(naked)]
    pub unsafe extern "C" fn allocated(block: *mut u8, size: usize, align: usize) {
        naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {hook}", hook = sym on_allocated)
    }

    /// # Safety
    ///
    /// As [`super::on_reallocated`].
    #[unsafe(naked)]
    #[allow(improper_ctypes_definitions)] // Both sides are this module.
    pub unsafe extern "C" fn reallocated(taken: &Taken, block: *mut u8, size: usize) {
        naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {hook}", hook = sym on_reallocated)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use super::{Taken, on_allocated, on_reallocated};

    /// # Safety
    ///
    /// Takes any values.
    pub unsafe fn allocated(block: *mut u8, size: usize, align: usize) {
        // SAFETY: 0 says that the stack is not known.
        unsafe { on_allocated(block, size, align, 0, 0) }
    }

    /// # Safety
    ///
    /// As [`super::on_reallocated`].
    pub unsafe fn reallocated(taken: &Taken, block: *mut u8, size: usize) {
        // SAFETY: as above.
        unsafe { on_reallocated(taken, block, size, 0, 0) }
    }
}
