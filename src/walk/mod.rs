//! One look at the heap of a stopped process, from outside.
//!
//! `capture` stops the process, copies what is needed and lets it go on; `analyze` turns the
//! copy into facts about who holds what. Nothing is written into the process, and its contents
//! never leave this one's memory except as keyed hashes.
//!
//! Whoever waits for the process elsewhere in this process (to learn how it ended) may be given the
//! stops that are meant for the tracer, whatever flags it waits with: it must pass over statuses
//! that are `WIFSTOPPED`. The stop itself is not lost by that.

mod account;
mod analysis;
mod capture;
mod cells;
mod census;
mod copies;
#[cfg(test)]
mod copies_tests;
mod equal;
mod gone;
mod heap;
mod held;
mod hidden;
mod image;
mod index;
mod leaks;
mod names;
mod oversized;
mod pages;
mod parents;
mod reach;
#[cfg(test)]
mod reach_tests;
mod recorded;
mod regions;
mod restart;
mod roots;
mod scan;
mod shape;
mod stop;
mod tree;
mod usage;
mod verdict;
mod whose;
mod workers;
#[cfg(test)]
mod worlds;

use std::fmt;
use std::io;
use std::time::Duration;

pub use analysis::analyze;
pub use capture::{Noted, OwnMaps, capture};
pub use heap::{
    Block, ContextInfo, Heap, NodeTable, OwnerInfo, OwnerKind, Roots, RowInfo, RowState, Source,
    StaticSlot, ThreadInfo, ThreadLocalSlot,
};
pub use image::{Image, Memory};
pub use recorded::{blocks, heap};
pub use stop::StoppedThread;
pub use workers::{Place, Workers};

/// How a walk is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The stop is given up if a thread does not stand by then.
    pub stop_within: Duration,
    /// A copy that would take more is not made. If none: three quarters of what the system has
    /// left at that moment.
    pub max_copy_bytes: Option<u64>,
    /// About how much there will be to copy (live bytes): pages for so much are made before the
    /// program is stopped.
    pub expected_bytes: u64,
    /// Path of the preload library, as the process has it mapped.
    pub own_library: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            stop_within: Duration::from_secs(2),
            max_copy_bytes: None,
            expected_bytes: 0,
            own_library: String::new(),
        }
    }
}

/// What `capture` gives.
pub struct Captured<T> {
    pub image: Image,
    /// As `copy` gave them; they belong into [`Heap::blocks`].
    pub blocks: Vec<Block>,
    pub tables: T,
}

#[derive(Debug)]
pub enum WalkError {
    /// The process has ended.
    Gone,
    /// A debugger or `strace` traces it: there can be only one.
    AlreadyTraced {
        tracer: i32,
    },
    /// The kernel or a container forbids to look.
    Forbidden(io::Error),
    DoesNotStop {
        tid: i32,
        state: char,
    },
    TooLarge {
        bytes: u64,
        limit: u64,
    },
    Read(io::Error),
    /// The recorder's tables could not be taken.
    Recorder(String),
    Panicked,
}

impl WalkError {
    /// The process was refused to us, or is no more.
    fn of_access(error: io::Error) -> WalkError {
        match error.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => WalkError::Gone,
            _ => WalkError::Forbidden(error),
        }
    }
}

impl fmt::Display for WalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalkError::Gone => write!(f, "the process has ended"),
            WalkError::AlreadyTraced { tracer } => write!(
                f,
                "process {tracer} (a debugger or strace) already traces the program, and the \
                 kernel allows only one"
            ),
            WalkError::Forbidden(error) => write!(
                f,
                "the kernel forbids looking at the program's memory ({error}); in a container, \
                 allow SYS_PTRACE"
            ),
            WalkError::DoesNotStop { tid, state } => {
                write!(f, "thread {tid} does not stop (state {state})")
            }
            WalkError::TooLarge { bytes, limit } => write!(
                f,
                "a copy of the heap would take {bytes} bytes, more than the {limit} that may be \
                 used"
            ),
            WalkError::Read(error) => write!(f, "the program's memory can't be read: {error}"),
            WalkError::Recorder(reason) => write!(f, "{reason}"),
            WalkError::Panicked => write!(f, "the walker failed; the program went on"),
        }
    }
}

impl std::error::Error for WalkError {}
