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

mod hooks;
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "other.rs")]
mod machine;

use crate::wire::{Allocator, Patch, PatchArguments, Redirect};

/// Where the hooks tell what they see. Called with the program's allocator outside of any lock
/// of ours, on any thread, from signal handlers too; must not allocate.
pub trait Recorder {
    /// A block that was live and may not be recorded as such for the moment.
    type Taken;

    fn on_alloc(block: usize, size: usize, allocator: Allocator);
    /// The block is about to be freed.
    fn on_free(block: usize);
    /// As [`Self::on_free`], but the allocator may yet refuse: before a block can be moved it
    /// must be gone from the table, another thread may get its address at once.
    fn take(block: usize) -> Option<Self::Taken>;
    /// The block that was taken is still there, and unchanged.
    fn restore(taken: Self::Taken);
    /// What this thread allocates until [`Self::leave`] is the allocator's own. False if it is
    /// already inside.
    fn enter() -> bool;
    fn leave();
}

/// What a hook needs to know of the function that it stands before.
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
