//! Leads the entry points of a statically linked allocator through the recorder.
//!
//! Runs once, before the program's own code, while there is one thread. The command has read and
//! disassembled the executable; here its bytes are compared with what is in memory, copied and
//! connected, so that nothing is decoded in a process that we could harm. Where anything differs
//! from what the command saw, that function stays as it is and is not counted as patched.
//!
//! The original goes on allocating: its tuning, statistics and bugs are the program's own. A call
//! by the program takes one detour (`jmp`, a register, `jmp`, a call); calls inside the allocator
//! take none.

#[cfg(target_arch = "x86_64")]
mod hooks;
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "other.rs")]
mod machine;
mod statistics;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::record::{self, Caller};
use crate::sys::executable;
#[cfg(target_arch = "x86_64")]
use crate::wire::PatchArguments;
use crate::wire::{Allocator, ExtentMap, Header, Patch, Place, Redirect};

/// Where the hooks tell what they see. Called on any thread, from signal handlers too, while no
/// lock of ours is held; must not allocate.
pub trait Recorder {
    /// A block that has left the table for the moment.
    type Taken;
    /// What [`Self::leave`] needs to know.
    type Inside;

    fn on_alloc(block: usize, size: usize, align: usize, by: Allocator, caller: &Caller);
    /// The block is about to be freed.
    fn on_free(block: usize);
    /// Before a block can be moved it must be gone from the table: another thread may get its
    /// address at once.
    fn take(block: usize) -> Self::Taken;
    /// The block that was taken is still there, and unchanged.
    fn restore(taken: Self::Taken);
    /// The block that was taken is gone; `block`, if it is not 0, has come in its place.
    fn on_realloc(taken: Self::Taken, block: usize, size: usize, by: Allocator, caller: &Caller);
    /// There was no memory.
    fn on_failure();
    /// What this thread allocates from now on until [`Self::leave`] is the allocator's own.
    fn enter() -> Self::Inside;
    fn leave(inside: Self::Inside);
    /// An allocator has got memory from the system.
    fn mapped(start: usize, bytes: usize, by: Allocator);
    /// It is about to give some back.
    fn unmapped(start: usize, bytes: usize);
    /// A call of an allocator is over: a moment to ask it for its statistics.
    fn between_calls(_allocator: Allocator) {}
}

/// Tells `record`.
pub struct Recording;

impl Recorder for Recording {
    type Taken = record::Taken;
    type Inside = record::Muted;

    #[inline(always)]
    fn on_alloc(block: usize, size: usize, align: usize, by: Allocator, caller: &Caller) {
        record::on_alloc(block as *mut u8, size, align, by, caller);
    }

    #[inline(always)]
    fn on_free(block: usize) {
        record::on_free(block as *mut u8);
    }

    #[inline(always)]
    fn take(block: usize) -> record::Taken {
        record::take(block as *mut u8)
    }

    fn restore(taken: record::Taken) {
        record::restore(taken);
    }

    #[inline(always)]
    fn on_realloc(taken: record::Taken, block: usize, size: usize, by: Allocator, caller: &Caller) {
        record::on_realloc(taken, block as *mut u8, size, by, caller);
    }

    fn on_failure() {
        record::on_failure();
    }

    fn enter() -> record::Muted {
        record::mute()
    }

    fn leave(inside: record::Muted) {
        record::unmute(inside);
    }

    fn mapped(start: usize, bytes: usize, by: Allocator) {
        record::mapped(start as u64, bytes as u64, by);
    }

    fn unmapped(start: usize, bytes: usize) {
        record::unmapped(start as u64, bytes as u64);
    }

    #[inline(always)]
    fn between_calls(allocator: Allocator) {
        if allocator == Allocator::Jemalloc {
            statistics::answer_if_asked();
        }
    }
}

/// What a hook needs to know of the function that it stands before.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Entry {
    /// First, because the machine code calls through it.
    hook: hooks::Hook,
    original: usize,
    arguments: PatchArguments,
    allocator: Allocator,
}

/// Why nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Error number of the system call.
    System(i32),
    /// No free memory within reach of a 32-bit distance.
    NoRoom,
    Architecture,
}

impl Failure {
    /// For [`crate::wire::Header::patch_error`].
    pub fn number(self) -> i32 {
        match self {
            Failure::System(number) => number,
            Failure::NoRoom => libc::ENOMEM,
            Failure::Architecture => libc::ENOSYS,
        }
    }
}

/// Makes the patches that the command has left in the header, and leaves there what came of it.
///
/// # Safety
///
/// No other thread runs, and the header belongs to this process's recording.
pub unsafe fn apply_configured(header: &Header, map: &impl ExtentMap) {
    let config = &header.config;
    let patches = rows::<Patch>(map, &config.patches, &config.patch_count);
    let redirects = rows::<Redirect>(map, &config.redirects, &config.redirect_count);
    let bias = executable::bias();
    let mallctl = config.mallctl.load(Relaxed);
    if let (Some(bias), true) = (bias, mallctl != 0) {
        // SAFETY: the command has found the function there, in our executable.
        unsafe { statistics::tell_by(mallctl.wrapping_add(bias) as usize) };
    }
    let done = match bias {
        // SAFETY: passed on to the caller; the command has planned for our executable.
        Some(bias) => unsafe { apply::<Recording>(patches, redirects, bias) },
        None if patches.is_empty() => Ok(0),
        None => Err(Failure::System(libc::ENOEXEC)),
    };
    match done {
        Ok(count) => header.patched.store(count, Relaxed),
        Err(failure) => header.patch_error.store(failure.number(), Relaxed),
    }
}

fn rows<'a, T>(map: &impl ExtentMap, place: &AtomicU64, count: &AtomicU32) -> &'a [T] {
    let count = count.load(Relaxed) as usize;
    let start = map.address(
        Place(place.load(Relaxed)),
        count.saturating_mul(size_of::<T>()),
    );
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the command has written that many rows there, plain data that any bytes are values
    // of, before it let this process go on; extents stay attached.
    unsafe { std::slice::from_raw_parts(start.cast(), count) }
}

/// Puts the patches in place and returns how many. `bias` is the difference between the
/// executable's run-time and link-time addresses.
///
/// # Safety
///
/// No other thread runs, and `patches` and `redirects` come from the command's plan for the
/// executable that is loaded at `bias`.
pub unsafe fn apply<R: Recorder>(
    patches: &[Patch],
    redirects: &[Redirect],
    bias: u64,
) -> Result<u32, Failure> {
    if patches.is_empty() {
        return Ok(0);
    }
    // SAFETY: passed on to the caller.
    unsafe { machine::apply::<R>(patches, redirects, bias) }
}
