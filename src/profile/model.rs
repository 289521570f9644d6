//! The profile: everything a report can be made from, with no pointer back to the program.
//!
//! One table per concept, each with its own handle type, so that an index cannot reach the wrong
//! table. Tables are columns (one vector per field): they compress well and the field names of
//! the file format are paid once. Names are resolved when the run ends, while the binary is at
//! hand; nothing here needs it again. Facts only: what a fact means is for `analyze` to say.

use serde::{Deserialize, Serialize};

use super::{Memory, Timeline, Worker};

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

handle!(/// Into [`Profile::strings`].
    StringId);
handle!(/// Into [`Frames`].
    FrameId);
handle!(/// Into [`Nodes`]. 0 is the root, above every thread's first frame.
    NodeId);
handle!(/// Into [`Contexts`].
    ContextId);
handle!(/// Into [`Profile::owners`]. 0 is "unknown", of before the first thread was known.
    OwnerId);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    pub program: Program,
    pub recording: Recording,
    pub totals: Totals,
    pub strings: Vec<String>,
    pub frames: Frames,
    pub nodes: Nodes,
    pub contexts: Contexts,
    pub owners: Vec<Owner>,
    /// In the order of time. Empty without walks.
    pub walks: Vec<Walk>,
    pub timeline: Timeline,
    /// Of the last look before the end, and of the look nearest to the peak.
    pub memory: Option<Memory>,
    pub memory_at_peak: Option<Memory>,
    /// Stays of runtime workers on one task, from outside. Empty if nobody looked.
    pub workers: Vec<Worker>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    pub path: String,
    pub args: Vec<String>,
    pub pid: i32,
    /// Seconds since the epoch, at the start.
    pub started_unix_s: u64,
    pub duration_s: f64,
    /// Exactly one is there once the program has ended, none while it runs.
    pub exit_code: Option<i32>,
    pub exit_signal: Option<i32>,
    /// It replaced itself by another program (`exec`); the record is complete as of then.
    pub replaced: bool,
    /// `glibc`, `jemalloc`, `mimalloc`, …: those that handed out blocks.
    pub allocators: Vec<String>,
    /// What a reader has to know before anything else, in sentences: allocations that bypass
    /// malloc, a missing walk and why. Printed at the top.
    pub warnings: Vec<String>,
    /// `taskheap` version that made the profile.
    pub recorder_version: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Recording {
    /// 0 for exact.
    pub sample_bytes: u64,
    /// `api`, `tokio-dwarf`, `tokio-code`, `tokio-learned`, `none`.
    pub task_ids: String,
    pub truncated_stacks: u64,
    pub missing_stacks: u64,
    pub lost_events: u64,
    pub unknown_frees: u64,
    pub failed_allocations: u64,
    /// Events that a kill caught half-way and that were repaired.
    pub torn_events: u64,
    /// The peak is exact to within so many bytes (threads × batch).
    pub peak_bound_bytes: u64,
    pub debug_info: bool,
    /// Shared tables and private memory of the recorder, in the profiled process.
    pub shared_bytes: u64,
    pub private_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    pub allocated_bytes: u64,
    pub allocations: u64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    pub peak_live_bytes: u64,
    pub peak_live_blocks: u64,
    pub temporary_blocks: u64,
    /// Seconds since the start, of the peak.
    pub peak_at_s: f64,
}

/// Whose code a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Origin {
    /// The program's own crates.
    Own,
    /// A crate from a registry or a git dependency; `library` names it.
    Library,
    /// tokio and what polls futures for it.
    Runtime,
    /// std, core, alloc and compiler glue.
    Std,
    /// A shared library or C code; `library` names it.
    Foreign,
    #[default]
    Unknown,
}

/// Functions as a person reads them. A return address may be several, inlined into each other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Frames {
    /// Demangled, without hash.
    pub function: Vec<StringId>,
    /// Empty string if unknown.
    pub file: Vec<StringId>,
    /// 0 if unknown.
    pub line: Vec<u32>,
    /// Crate or shared library, such as `serde_json` or `libssl.so.3`; empty if unknown.
    pub library: Vec<StringId>,
    pub origin: Vec<Origin>,
    /// Inlined into the next outer frame.
    pub inlined: Vec<bool>,
}

/// The tree of stacks. A parent always has a smaller number than its children.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Nodes {
    pub parent: Vec<NodeId>,
    /// Frames of this call, outermost first: `frames[first .. first + count]`.
    pub first_frame: Vec<u32>,
    pub frame_count: Vec<u32>,
    /// `wire::NodeFlags`.
    pub flags: Vec<u32>,
}

/// Where and for whom: the finest grain of the counters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Contexts {
    pub node: Vec<NodeId>,
    /// Who was running. For shared blocks the first toucher: ask [`Profile::is_shared`].
    pub owner: Vec<OwnerId>,
    /// `wire::Allocator`.
    pub allocator: Vec<u8>,
    pub allocations: Vec<u64>,
    pub allocated_bytes: Vec<u64>,
    pub live_bytes: Vec<u64>,
    pub live_blocks: Vec<u64>,
    pub peak_bytes: Vec<u64>,
    pub peak_blocks: Vec<u64>,
    pub temporary: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OwnerKind {
    Task,
    Thread,
    Scope,
    #[default]
    Unknown,
}

/// Values with how often each occurs, ascending. Exact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spread(pub Vec<(u64, u64)>);

/// A task type, or the threads of one name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    pub kind: OwnerKind,
    /// `server::handle_connection`; `tokio-runtime-worker`; `worker-*`.
    pub name: String,
    /// The whole type of the root future, if known.
    pub full_name: String,
    /// The loop of a runtime worker, run as a blocking task: a thread to the reader.
    pub runtime_own: bool,
    /// Run on the blocking pool.
    pub blocking: bool,
    /// Where its tasks are spawned, as the stack of its first cell.
    pub spawn_context: Option<ContextId>,
    /// Where the root future is written, if debug info says.
    pub file: String,
    pub line: u32,
    pub spawned: u64,
    /// Cell not freed (tasks, finished ones included), or running (threads), at the end.
    pub alive: u64,
    /// Cells of finished tasks that are still allocated, as of `alive`; none if nobody could look.
    pub finished_allocated: Option<u64>,
    /// Bytes of one cell, the largest seen.
    pub cell_bytes: u64,
    /// Bytes of the box that tokio makes for the future where it is too large for the cell, the
    /// largest seen.
    pub box_bytes: u64,
    pub allocated_bytes: u64,
    /// At the end; the sum of `per_live`, and of what gone owners left.
    pub live_bytes: u64,
    pub peak_bytes: u64,
    /// Of `live_bytes`, those whose maker is gone.
    pub outlived_bytes: u64,
    /// Live bytes of each owner that is alive: at the end, and at the peak.
    pub per_live: Spread,
    pub per_peak: Spread,
    /// Milliseconds since the last event of each task that is alive at the end.
    pub idle_ms: Spread,
}

/// Why a walk was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum WalkReason {
    #[default]
    Plateau,
    Growth,
    Fall,
    Limit,
    Snapshot,
    Exit,
}

/// One look at the stopped process's heap, analysed while its contents were at hand. Indices are
/// those of the profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Walk {
    /// Seconds since the start.
    pub at_s: f64,
    pub reason: WalkReason,
    /// The process was stopped for so long.
    pub pause_s: f64,
    pub analysis_s: f64,
    pub bytes_read: u64,
    pub blocks: u64,
    pub live_bytes: u64,
    /// Largest memory of the walker.
    pub walker_bytes: u64,
    /// Live bytes and blocks of each context at that moment.
    pub contexts: Vec<(ContextId, u64, u64)>,
    pub tasks: Vec<WalkTask>,
    pub threads: Vec<WalkThread>,
    pub thread_locals: Vec<WalkThreadLocal>,
    pub statics: Vec<WalkStatic>,
    pub copies: Vec<WalkCopies>,
    pub leaks: Vec<WalkLeak>,
    pub oversized: Vec<WalkOversized>,
    pub pinned: Vec<WalkPinned>,
    pub owner_gone: Vec<WalkOwnerGone>,
    /// Who holds the blocks of each context: every live byte is in exactly one row.
    pub held: Vec<WalkHeld>,
    pub memory: Memory,
}

/// By what a block is reached, and by nothing else.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
pub enum HeldBy {
    /// Nothing: leaked.
    #[default]
    Nobody,
    /// Several.
    Several,
    /// A task that has not finished, of this type.
    Task(OwnerId),
    FinishedTask(OwnerId),
    /// Into [`Walk::thread_locals`].
    ThreadLocal(u32),
    /// Into [`Walk::statics`].
    Static(u32),
    /// A thread of this kind: its pthread keys and thread-locals without a name.
    Thread(OwnerId),
    /// The stack of a thread of this kind.
    Stack(OwnerId),
    /// Statics without a name.
    Data,
    /// Memory that the program mapped itself.
    Elsewhere,
}

/// Blocks of one context that are held in one way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkHeld {
    pub by: HeldBy,
    pub context: ContextId,
    pub blocks: u64,
    pub bytes: u64,
}

/// The tasks of one type, as a walk found them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkTask {
    pub owner: Option<OwnerId>,
    /// Not complete.
    pub live: u64,
    /// Complete, cell still allocated.
    pub finished: u64,
    /// Of all cells, those whose `JoinHandle` is gone.
    pub join_dropped: u64,
    pub cell_bytes: u64,
    /// Made by these tasks (cells included): of each that is live, and of each that is finished.
    pub owned: Spread,
    pub owned_finished: Spread,
    /// Reachable only from the task, its cell included, of each that is live.
    pub retained: Spread,
    pub retained_bytes: u64,
    /// Held by finished tasks, cells and outputs.
    pub finished_bytes: u64,
    /// Milliseconds since the last event.
    pub idle_ms: Spread,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkThread {
    /// Folded name.
    pub name: String,
    pub count: u64,
    pub stack_reserved_each: u64,
    pub stack_resident: u64,
    /// Made by these threads and live.
    pub owned_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkThreadLocal {
    /// `crate::module::RULES`.
    pub name: String,
    /// Where it is made, if known.
    pub node: Option<NodeId>,
    pub threads: u64,
    /// Reachable only from it.
    pub bytes: u64,
    pub per_thread: Spread,
    /// Are the threads' values the same? None if not compared.
    pub identical: Option<bool>,
    pub equal_share: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkStatic {
    pub name: String,
    pub node: Option<NodeId>,
    /// Reachable only from it.
    pub bytes: u64,
    pub blocks: u64,
    pub first_touched_by: Option<OwnerId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Holder {
    #[default]
    Task,
    Thread,
    ThreadLocal,
    Instance,
}

/// A group of owners that each hold the same structure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkCopies {
    /// The calling frame under which the whole structure is made.
    pub node: Option<NodeId>,
    pub holder: Holder,
    /// Type of the tasks or threads, where it is that.
    pub owner: Option<OwnerId>,
    /// Name of the thread-local or static, where it is that.
    pub holder_name: String,
    pub copies: u64,
    pub bytes_each: u64,
    pub blocks_each: u64,
    pub bytes: u64,
    pub identical: Option<bool>,
    pub equal_share: f64,
    /// What sharing one would save.
    pub waste_bytes: u64,
    /// Of all bytes, those that are zero or untouched.
    pub blank_bytes: u64,
    /// Where the bytes of all copies were made, as a sample of them says.
    pub contexts: Vec<(ContextId, u64)>,
}

/// Unreachable blocks of one context.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkLeak {
    pub context: Option<ContextId>,
    /// Context of the leaked block that leads to it; its own if none does.
    pub root_context: Option<ContextId>,
    pub blocks: u64,
    pub bytes: u64,
    /// Reached from another leaked block.
    pub indirect_blocks: u64,
    pub indirect_bytes: u64,
    /// It, or what leads to it, reaches itself: a cycle of `Arc` or `Rc`.
    pub cycle: bool,
    /// Something that may be a hidden pointer leads to it.
    pub possible: bool,
}

/// Blocks of one context that are much larger than what was ever touched, or than what is not
/// zero in them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkOversized {
    pub context: Option<ContextId>,
    pub blocks: u64,
    pub bytes: u64,
    /// Of `bytes`: on pages that are not resident.
    pub untouched_bytes: u64,
    /// Of the resident rest: zero, or the allocator's leftovers that no owner wrote.
    pub zero_bytes: u64,
    /// Of the rest: room in a collection that has no element there.
    pub spare_bytes: u64,
    /// How many owners hold them.
    pub owners: u64,
}

/// Blocks of one context that are kept by small slices (`Bytes`) only.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkPinned {
    pub context: Option<ContextId>,
    pub blocks: u64,
    pub bytes: u64,
    /// What the slices show.
    pub used_bytes: u64,
    /// How many owners hold them.
    pub owners: u64,
}

/// Blocks whose maker is gone and that something else keeps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkOwnerGone {
    pub context: Option<ContextId>,
    pub owner: Option<OwnerId>,
    /// How many owners that are gone left them.
    pub owners: u64,
    pub blocks: u64,
    pub bytes: u64,
    /// What keeps them, if it has a name.
    pub kept_by: String,
}
