//! The rows of the recording's columns. Every size is asserted: both processes read these bytes.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

use super::Column;

/// A frame in the tree of stacks: this return address, called from `parent`. Node 0 is the root.
/// Immutable once published.
#[repr(C)]
pub struct Node {
    pub parent: AtomicU32,
    /// [`NodeFlags`] in the low 16 bits, the generation of the module list in the high 16.
    pub flags: AtomicU32,
    /// Return address, as at run time (avma).
    pub address: AtomicU64,
}

/// Low bits of [`Node::flags`]; a child has all of its parent's.
pub struct NodeFlags;

impl NodeFlags {
    /// Below an initialiser of a `OnceLock`, `LazyLock`, `once_cell` or `lazy_static`.
    pub const SHARED_INIT: u32 = 1;
    /// Below the lazy initialiser of a thread-local.
    pub const THREAD_LOCAL_INIT: u32 = 2;
    /// The outer frames were cut off: too deep, or the unwinder could not go on.
    pub const TRUNCATED: u32 = 4;
    /// The frame in which the initialiser's flag was set, not one below it.
    pub const INIT_ROOT: u32 = 8;
}

/// Where and for whom something was allocated: counters are kept per context.
#[repr(C)]
pub struct Context {
    pub node: AtomicU32,
    /// Index into the owner types, [`Allocator`] in the top four bits.
    pub owner: AtomicU32,
}

impl Context {
    pub const OWNER_MASK: u32 = 0x0fff_ffff;
    pub const ALLOCATOR_SHIFT: u32 = 28;
}

/// Which allocator handed a block out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Allocator {
    Malloc = 0,
    Jemalloc = 1,
    Mimalloc = 2,
    /// Through `taskheap::Alloc`, whatever stands behind it.
    Wrapper = 3,
    /// A `malloc` that the executable itself defines, of neither of these.
    OwnMalloc = 4,
}

impl Allocator {
    pub fn from_word(word: u32) -> Option<Allocator> {
        use Allocator::*;
        let all = [Malloc, Jemalloc, Mimalloc, Wrapper, OwnMalloc];
        all.into_iter().find(|allocator| *allocator as u32 == word)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum OwnerKind {
    Unknown = 0,
    /// Key: address of tokio's vtable for this future and scheduler (avma).
    Task = 1,
    /// Key: hash of the folded name.
    Thread = 2,
    /// A scope of the library; key: address of its name.
    Scope = 3,
}

/// A kind of owner: a task type or the threads of one name.
#[repr(C)]
pub struct OwnerType {
    pub kind: AtomicU32,
    /// Generation of the module list when it was met, for `key`.
    pub generation: AtomicU32,
    pub key: AtomicU64,
    /// Instances ever, and of those the ones that are gone.
    pub spawned: AtomicU64,
    pub gone: AtomicU64,
    /// Bytes allocated by instances whose row has been used again.
    pub retired_allocated: AtomicU64,
    /// Largest cell seen, in bytes (tasks).
    pub cell_bytes: AtomicU64,
    /// Thread name with its number folded (`worker-*`), zero-padded; a scope's name.
    pub name: [AtomicU64; 4],
    /// Context of the first cell: whoever spawned (tasks).
    pub spawn_context: AtomicU32,
    pub _pad: AtomicU32,
    /// Largest box that tokio made for a future before its cell, in bytes (tasks).
    pub box_bytes: AtomicU64,
}

/// One owner: a task or a thread. Used again once it is gone and holds nothing.
#[repr(C)]
pub struct Row {
    /// tokio's task id, or the thread id.
    pub id: AtomicU64,
    /// Address of the task's cell; 0 once it is freed. The thread pointer of a thread.
    pub cell: AtomicU64,
    /// Index into the owner types.
    pub owner: AtomicU32,
    /// [`RowState`].
    pub state: AtomicU32,
    pub live_bytes: AtomicI64,
    pub allocated_bytes: AtomicU64,
    /// `live_bytes` at the peak that `peak_epoch` names, if no event has come since.
    pub peak_bytes: AtomicI64,
    pub peak_epoch: AtomicU32,
    pub live_blocks: AtomicI32,
    /// Row of the thread on which the task was first seen.
    pub thread: AtomicU32,
    /// Milliseconds since the start, of the last event.
    pub last_event_ms: AtomicU32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RowState {
    Free = 0,
    TaskAlive = 1,
    /// The cell is freed; blocks that the task made may live on.
    TaskGone = 2,
    ThreadAlive = 3,
    ThreadGone = 4,
}

/// What one thread counted in one context. Written by that thread only; a reader adds up all
/// shards. `live` and `peak` may be negative in one shard: another thread frees.
#[repr(C, align(64))]
pub struct Counter {
    pub context: AtomicU32,
    /// Epoch at which `peak_*` were last saved.
    pub epoch: AtomicU32,
    pub allocations: AtomicU64,
    pub allocated_bytes: AtomicU64,
    pub live_bytes: AtomicI64,
    pub live_blocks: AtomicI64,
    /// Live at the last peak before `epoch`; counts only while `epoch` is the current one.
    pub peak_bytes: AtomicI64,
    pub peak_blocks: AtomicI64,
    pub temporary: AtomicU64,
}

/// Counters of one thread at a time; when it ends the next thread goes on with them.
#[repr(C)]
pub struct CounterShard {
    pub counters: Column<Counter, 4>,
}

/// A thread that is alive, for the walker. Used again.
#[repr(C)]
pub struct ThreadSlot {
    /// 0 when the slot is free.
    pub tid: AtomicI32,
    /// Row of this thread.
    pub row: AtomicU32,
    /// `fs:0` on x86-64: from here thread-locals are found.
    pub thread_pointer: AtomicU64,
    /// Known stack, lowest and one past the highest address.
    pub stack_low: AtomicU64,
    pub stack_high: AtomicU64,
    pub shard: CounterShard,
    /// Live bytes that this thread has not yet added to the global sum.
    pub pending_bytes: AtomicI64,
    pub pending_blocks: AtomicI64,
}

/// Address space that an allocator has taken from the system. Used again once it is given back.
#[repr(C)]
pub struct AllocatorMap {
    /// Both 0 when the row is free. A reader that meets `end <= start` has caught a change.
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// [`Allocator`].
    pub allocator: AtomicU32,
    pub _pad: u32,
}

/// A loaded ELF file.
#[repr(C)]
pub struct ModuleRow {
    /// Difference between run-time and link-time addresses.
    pub bias: AtomicU64,
    pub low: AtomicU64,
    pub high: AtomicU64,
    /// Generation of the module list with which it came and, if not 0, went.
    pub loaded: AtomicU32,
    pub unloaded: AtomicU32,
    /// Place and length of its path; empty for the program itself, see `Header::exe_path`.
    pub path: AtomicU64,
    pub path_len: AtomicU32,
    pub build_id_len: AtomicU32,
    pub build_id: [AtomicU64; 4],
    /// Offset of its static TLS block from the thread pointer, or 0.
    pub tls_offset: AtomicI64,
    pub _spare: AtomicU64,
}

const _: () = {
    assert!(size_of::<Node>() == 16);
    assert!(size_of::<Context>() == 8);
    assert!(size_of::<OwnerType>() == 96);
    assert!(size_of::<Row>() == 64);
    assert!(size_of::<Counter>() == 64);
    assert!(size_of::<ModuleRow>() == 96);
    assert!(size_of::<AllocatorMap>() == 24);
};
