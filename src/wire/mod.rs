//! What the profiled process and the command agree on: the bytes of the recording.
//!
//! Problem: two processes look at the same memory, one of them may be killed between any two
//! instructions, and neither may wait for the other. The tempting answer, a stream of events, is
//! large, must be flushed, and loses its tail with the process. So the recording is a set of
//! tables in shared memory that are correct at every moment: append-only columns whose length is
//! published after the row, fixed rows of atomics, and pages of live blocks with a lock word that
//! tells a reader when a page was caught half-way.
//!
//! Shared memory comes from System V segments (*extents*) which the command creates and the
//! profiled process attaches by number. They need no descriptor (programs close those), no file
//! (disks fill up), are not subject to `RLIMIT_FSIZE` as `memfd` is, and can be attached one at a
//! time, so that a program under a small `RLIMIT_AS` is charged only for what it uses. Each is
//! marked for removal as soon as it is attached: nothing outlives the two processes.
//!
//! No I/O here, and no code that only one side needs.

mod column;
mod dump;
mod header;
mod live;
mod patch;
mod place;
mod private;
mod rows;
pub mod sample;
mod session;
mod wrapper;

pub use column::{COLUMN_CHUNKS, Column, chunk_items, locate};
pub use dump::{DUMP_MAGIC, DumpHeader, DumpPart};
pub use header::{
    AllocatorStatistics, Config, ContextSlot, EXTENTS, Extent, Header, INIT_RANGES_NONE, InitKind,
    InitRange, MAGIC, ROWS_BASE, STATISTICS, State, Statistic, Sums, TaskIdSlot, VERSION,
};
pub use live::{
    LINE_SLOTS, LIVE_LINES, LIVE_SLOTS, LargeBlock, LiveBlock, LivePage, NO_ROW, SIZE_ESCAPE,
};
pub use patch::{
    JUMP_BYTES, MAX_PATCHES, MAX_STOLEN, NO_ARGUMENT, PATCH_CODE, Patch, PatchArguments,
    PatchFixup, PatchRole, Redirect, RedirectKind,
};
pub use place::{ExtentMap, Place};
pub use private::{PRIVATE_MAPS, PrivateMap, PrivateMaps};
pub use rows::{
    Allocator, AllocatorMap, Context, Counter, CounterShard, ModuleRow, Node, NodeFlags, OwnerKind,
    OwnerType, Row, RowState, ThreadSlot,
};
pub use session::{PROCESSES, ProcessSlot, ProcessState, SESSION_VARIABLE, Session};
pub use wrapper::{WRAPPER_SYMBOL, WRAPPER_VERSION, WrapperHooks, WrapperHooksFn};
