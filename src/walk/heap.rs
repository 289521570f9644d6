//! What the recorder knows at the moment of the stop, as plain data.
//!
//! All indices are those of the profile: contexts, nodes and owners of a walk need no mapping.

/// A live block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Block {
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Into [`Heap::contexts`].
    pub context: u32,
    /// Into [`Heap::rows`]; 0 where nobody is known to own it.
    pub row: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Heap {
    /// Sorted by [`Heap::sort`] before anything looks at them.
    pub blocks: Vec<Block>,
    pub contexts: Vec<ContextInfo>,
    pub nodes: NodeTable,
    pub rows: Vec<RowInfo>,
    pub owners: Vec<OwnerInfo>,
    pub threads: Vec<ThreadInfo>,
    /// Milliseconds since the start.
    pub now_ms: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ContextInfo {
    pub node: u32,
    pub owner: u32,
    /// Below an initialiser of a `OnceLock` or its like.
    pub shared: bool,
    /// Below the lazy initialiser of a thread-local.
    pub thread_local_init: bool,
    pub from: Source,
}

/// Which allocator handed the block out: it decides how large a block is on its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Source {
    #[default]
    Malloc,
    Jemalloc,
    Mimalloc,
    /// Not known.
    Other,
}

/// The tree of stacks. A parent has a smaller number than its children; node 0 is the root.
#[derive(Clone, Debug, Default)]
pub struct NodeTable {
    pub parent: Vec<u32>,
    /// Return address (avma).
    pub address: Vec<u64>,
    /// `wire::NodeFlags`.
    pub flags: Vec<u32>,
    /// This frame runs whatever it is given (`tokio::runtime::…`, `std::thread::…`,
    /// `FnOnce::call_once`): by which way it came there tells nothing about a block. May be
    /// shorter than the other columns, or empty, where nobody can tell.
    pub machinery: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RowState {
    #[default]
    Free,
    TaskAlive,
    /// The cell is freed.
    TaskGone,
    ThreadAlive,
    ThreadGone,
}

impl RowState {
    pub fn is_gone(self) -> bool {
        matches!(self, RowState::TaskGone | RowState::ThreadGone)
    }
}

/// One owner: a task or a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowInfo {
    /// tokio's task id, or the thread id.
    pub id: u64,
    /// Address of the task's cell, 0 if none is known or it is freed. A thread's thread pointer.
    pub cell: u64,
    /// Into [`Heap::owners`].
    pub owner: u32,
    pub state: RowState,
    pub last_event_ms: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OwnerKind {
    #[default]
    Unknown,
    Task,
    Thread,
    Scope,
}

/// A task type, or the threads of one name.
#[derive(Clone, Debug, Default)]
pub struct OwnerInfo {
    pub kind: OwnerKind,
    /// The loop of a runtime worker, run as a blocking task.
    pub runtime_own: bool,
    pub name: String,
    /// Address of the vtable that tokio has for this task type, 0 for others.
    pub vtable: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadInfo {
    pub tid: i32,
    /// `fs:0` on x86-64.
    pub thread_pointer: u64,
    /// Lowest and one past the highest address, 0 if not known.
    pub stack_low: u64,
    pub stack_high: u64,
    /// Into [`Heap::rows`].
    pub row: u32,
}

impl Heap {
    /// Brings the blocks into the order of their addresses. Of two at one address (a table caught
    /// half-way) one stays.
    pub fn sort(&mut self) {
        self.blocks.sort_unstable_by_key(|block| block.address);
        self.blocks.dedup_by_key(|block| block.address);
    }

    pub fn owner_of_context(&self, context: u32) -> u32 {
        self.contexts.get(context as usize).map_or(0, |c| c.owner)
    }

    pub fn node_of_context(&self, context: u32) -> u32 {
        self.contexts.get(context as usize).map_or(0, |c| c.node)
    }
}

/// Roots that have a name: from the symbol tables of the executable and its libraries.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    pub thread_locals: Vec<ThreadLocalSlot>,
    pub statics: Vec<StaticSlot>,
    /// Bytes of static thread-local storage below the thread pointer, if known (`PT_TLS` of all
    /// modules loaded at start).
    pub static_tls_bytes: u64,
}

/// A `thread_local!` in static thread-local storage.
#[derive(Clone, Debug, Default)]
pub struct ThreadLocalSlot {
    /// `crate::module::RULES`.
    pub name: String,
    /// From the thread pointer: negative on x86-64.
    pub offset: i64,
    pub size: u64,
}

/// A static in `.data` or `.bss`.
#[derive(Clone, Debug, Default)]
pub struct StaticSlot {
    pub name: String,
    pub avma: u64,
    pub size: u64,
}
