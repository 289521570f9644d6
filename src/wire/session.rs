//! The session: one small segment through which processes find their recordings.
//!
//! The command keeps an unused recording ready at all times. A process that starts takes the next
//! number; the first is the program itself, later ones record only when children are followed.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Names the session's segment to the profiled process. Removed from its environment at start.
pub const SESSION_VARIABLE: &str = "TASKHEAP_SESSION";

/// Processes that one session can record.
pub const PROCESSES: usize = 1024;

#[repr(C)]
pub struct Session {
    pub magic: u64,
    pub version: u32,
    pub command_pid: i32,
    /// Other processes than the first record too.
    pub follow: AtomicU32,
    /// Next free index in `processes`.
    pub next: AtomicU32,
    /// Raised by the command every few milliseconds: whoever waits for it can see it is alive.
    pub heartbeat: AtomicU64,
    pub processes: [ProcessSlot; PROCESSES],
}

#[repr(C)]
pub struct ProcessSlot {
    pub pid: AtomicI32,
    /// Segment number plus one of extent 0 of the recording; 0 until the command has made it.
    pub recording: AtomicI32,
    pub state: AtomicU32,
    pub _pad: u32,
}

/// Values of [`ProcessSlot::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ProcessState {
    Free = 0,
    Taken = 1,
}
