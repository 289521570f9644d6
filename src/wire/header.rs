//! The header of a recording, at the start of extent 0.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

use super::{
    AllocatorMap, Column, Context, CounterShard, LargeBlock, LivePage, ModuleRow, Node, OwnerType,
    PrivateMaps, Row, ThreadSlot,
};

/// `taskheap` in ASCII.
pub const MAGIC: u64 = u64::from_be_bytes(*b"taskheap");

/// Changes with every change of these structs. Both sides come from one build, so this only
/// guards against a preload library left over from another version.
pub const VERSION: u32 = 2;

/// Extents of a recording: 4 MiB, then each twice the last up to 16 GiB.
pub const EXTENTS: usize = 32;

/// The first chunk of the rows has so many, as a power of two.
pub const ROWS_BASE: u32 = 8;

/// How far the profiled process has come. Values of [`Header::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Made by the command, nobody has attached.
    Empty = 0,
    /// Attached; waits for the command to fill in the configuration for its executable.
    Attached = 1,
    /// The command has filled in the configuration.
    Configured = 2,
    Recording = 3,
    /// About to end in good order; waits a moment for a last walk.
    Exiting = 4,
    /// The command has seen all it wants.
    Released = 5,
    /// The process has replaced itself by another program.
    Replaced = 6,
}

#[repr(C)]
pub struct Extent {
    /// Segment number plus one; 0 until the command has made it.
    pub segment: AtomicI32,
    pub _pad: u32,
    pub bytes: AtomicU64,
}

/// What threads add to: on lines of its own, since each addition takes them from other cores.
#[repr(C, align(128))]
pub struct Sums {
    /// Sum of live bytes, late by at most `batch_bytes` for each thread.
    pub live_bytes: AtomicI64,
    pub live_blocks: AtomicI64,
    pub peak_bytes: AtomicI64,
    pub peak_blocks: AtomicI64,
    /// 1 while the last event was a new maximum.
    pub rising: AtomicU32,
    /// `now_ms` at the last new maximum.
    pub peak_ms: AtomicU32,
}

#[repr(C)]
pub struct Header {
    pub magic: u64,
    pub version: u32,
    pub state: AtomicU32,
    pub extents: [Extent; EXTENTS],
    /// Extents that the profiled process has begun to use; the command keeps two more ready.
    pub extents_used: AtomicU32,
    pub pid: AtomicI32,
    /// Next free byte, a [`super::Place`].
    pub arena: AtomicU64,
    pub config: Config,

    /// Path of the executable: place and length.
    pub exe_path: AtomicU64,
    pub exe_path_len: AtomicU32,
    /// Generation of the module list, from 1.
    pub generation: AtomicU32,
    /// Milliseconds since the start, kept by the command: a clock that costs one load.
    pub now_ms: AtomicU32,
    /// The command wants pauses to be short, see [`State::Exiting`].
    pub walks: AtomicU32,

    /// Raised when live bytes turn down after a new maximum. Read at every event.
    pub epoch: AtomicU32,
    pub threads_alive: AtomicU32,
    pub batch_bytes: AtomicI64,

    pub sums: Sums,

    /// Events that could not be recorded: no room, or inside our own code.
    pub lost_events: AtomicU64,
    /// Blocks freed that were never seen allocated: from before the recording.
    pub unknown_frees: AtomicU64,
    /// Allocations whose stack was cut.
    pub truncated_stacks: AtomicU64,
    /// Allocations whose stack could not be taken at all.
    pub missing_stacks: AtomicU64,
    pub failed_allocations: AtomicU64,
    /// Allocations made while the recorder could not yet tell the task id: see `Config`.
    pub unattributed: AtomicU64,
    /// Patches that are in place, and the error number if they could not be made.
    pub patched: AtomicU32,
    pub patch_error: AtomicI32,
    /// Field of tokio's context that holds the task id, once learned: index + 1, per slot.
    pub learned: [AtomicU32; 4],
    /// Bytes of shared and of private memory that the recorder uses.
    pub shared_used: AtomicU64,
    pub private_used: AtomicU64,
    /// Where the private memory is.
    pub private_maps: PrivateMaps,

    pub modules: Column<ModuleRow, 5>,
    pub nodes: Column<Node, 10>,
    pub contexts: Column<Context, 9>,
    pub owners: Column<OwnerType, 5>,
    pub rows: Column<Row, ROWS_BASE>,
    pub threads: Column<ThreadSlot, 4>,
    /// Shards of the library's scopes, or of threads that came when no slot was left.
    pub late_shard: CounterShard,
    pub live_pages: Column<LivePage, 3>,
    pub large_blocks: Column<LargeBlock, 6>,
    pub statistics: AllocatorStatistics,
    /// Of allocators whose entry points are patched.
    pub allocator_maps: Column<AllocatorMap, 4>,
}

/// What an allocator says of itself, when the command asks.
#[repr(C)]
pub struct AllocatorStatistics {
    /// Raised by the command for each question.
    pub wanted: AtomicU32,
    /// The question that a thread has taken on, and the one that is answered.
    pub claimed: AtomicU32,
    pub given: AtomicU32,
    /// `now_ms` of the answer.
    pub at_ms: AtomicU32,
    /// By [`Statistic`], in bytes; `u64::MAX` for what the allocator doesn't know.
    pub values: [AtomicU64; STATISTICS],
}

pub const STATISTICS: usize = 8;

/// Figures of jemalloc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Statistic {
    /// Pages with blocks.
    Active = 0,
    /// Free pages that the system has not got back.
    Dirty = 1,
    /// Free pages that the system may take.
    Muzzy = 2,
    /// Blocks, rounded up.
    Allocated = 3,
    Metadata = 4,
    /// Address space of the above.
    Mapped = 5,
    /// Address space without memory.
    Retained = 6,
    /// Free blocks that threads keep.
    ThreadCaches = 7,
}

/// Filled in by the command before the program's own code runs.
#[repr(C)]
pub struct Config {
    /// Mean distance between samples in bytes; 0 for every allocation.
    pub sample_bytes: AtomicU64,
    /// Frames kept of one stack.
    pub max_frames: AtomicU32,
    pub follow: AtomicU32,
    /// Where tokio keeps the current task id.
    pub task_ids: [TaskIdSlot; 4],
    /// tokio contexts whose layout is not known, to learn from.
    pub contexts: [ContextSlot; 4],
    /// Sorted [`InitRange`]s of the executable: place and count.
    pub init_ranges: AtomicU64,
    pub init_range_count: AtomicU32,
    /// [`super::Patch`]es for statically linked allocators: place and count.
    pub patch_count: AtomicU32,
    pub patches: AtomicU64,
    /// [`super::Redirect`]s: place and count.
    pub redirects: AtomicU64,
    pub redirect_count: AtomicU32,
    /// 1 if `taskheap::Alloc` in the program is to tell what its inner allocator does.
    pub wrapper: AtomicU32,
    /// Link-time address of jemalloc's `mallctl`, or 0.
    pub mallctl: AtomicU64,
}

/// Where the current task id is: at this offset from the thread pointer. 0 is no slot.
#[repr(C)]
pub struct TaskIdSlot {
    pub offset: AtomicI64,
    /// Where a word is that is 0 while no task runs; the id is left over from an earlier task
    /// then. 0 if there is none: the id itself is 0 then (newer versions of tokio).
    pub present: AtomicI64,
}

/// A `CONTEXT` of unknown layout: its offset from the thread pointer and its size in words.
#[repr(C)]
pub struct ContextSlot {
    pub offset: AtomicI64,
    pub words: AtomicU32,
    pub _pad: u32,
}

pub const INIT_RANGES_NONE: u64 = 0;

/// Code of an initialiser, as link-time addresses (svma) of the executable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct InitRange {
    pub start: u64,
    pub end: u64,
    /// [`InitKind`].
    pub kind: u32,
    pub _pad: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum InitKind {
    /// `Once::call`, `OnceLock::initialize`, `once_cell`'s and `parking_lot`'s like.
    Shared = 1,
    /// `thread_local::…::Storage::initialize`, `get_or_init_slow`.
    ThreadLocal = 2,
}
