//! The tree of stacks: a node for each (parent, return address), found without a lock.
//!
//! Threads share one hash table of edges. It is read at every new frame and written a few
//! thousand times in a run, so its lines stay in every core's cache. A reader that misses takes
//! the lock and looks again. A table that is too full is replaced; the old one stays mapped for
//! those who are reading it.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use super::lock::Lock;
use super::start::header;
use super::{arena, modules};
use crate::wire::{InitKind, InitRange, NodeFlags, Place};

#[repr(C)]
struct Edge {
    /// Return address; 0 is a free slot.
    address: AtomicU64,
    /// Parent in the high half, child in the low one.
    nodes: AtomicU64,
}

#[repr(C, align(16))]
struct Edges {
    mask: u32,
    used: AtomicU32,
}

static EDGES: AtomicPtr<Edges> = AtomicPtr::new(std::ptr::null_mut());
static WRITING: Lock = Lock::new();
const FIRST_SLOTS: usize = 1 << 14;
const PROBES: u32 = 32;

impl Edges {
    /// # Safety
    ///
    /// `index` is at most `mask`.
    #[inline(always)]
    unsafe fn slot(&self, index: u32) -> &Edge {
        let first: *const Edge = (self as *const Edges).wrapping_add(1).cast();
        // SAFETY: `make` maps `mask + 1` slots behind the table.
        unsafe { &*first.add(index as usize) }
    }
}

#[inline(always)]
fn hash(parent: u32, address: u64) -> u32 {
    let mixed = (address ^ (u64::from(parent) << 40)).wrapping_add(u64::from(parent));
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// A node's number in the low 28 bits; above them what must be known of it at every event.
pub const SHARED: u32 = 1 << 31;
pub const THREAD_LOCAL: u32 = 1 << 30;
const NUMBER: u32 = 0x0fff_ffff;

/// The number alone.
#[inline(always)]
pub fn untagged(node: u32) -> u32 {
    node & NUMBER
}

fn tagged(node: u32, flags: u32) -> u32 {
    let shared = if flags & NodeFlags::SHARED_INIT != 0 {
        SHARED
    } else {
        0
    };
    let local = if flags & NodeFlags::THREAD_LOCAL_INIT != 0 {
        THREAD_LOCAL
    } else {
        0
    };
    node | shared | local
}

/// The node of `address` called from `parent`, both with their tags; the parent itself when
/// memory is out.
#[inline(always)]
pub fn child(parent: u32, address: u64) -> u32 {
    let edges = EDGES.load(Acquire);
    // SAFETY: null, or a table that is never unmapped.
    if let Some(edges) = unsafe { edges.as_ref() }
        && let Some(node) = look(edges, parent, address)
    {
        return node;
    }
    add(parent, address)
}

#[inline(always)]
fn look(edges: &Edges, parent: u32, address: u64) -> Option<u32> {
    let mut index = hash(parent, address) & edges.mask;
    for _ in 0..PROBES {
        // SAFETY: masked.
        let edge = unsafe { edges.slot(index) };
        let found = edge.address.load(Acquire);
        if found == address {
            let nodes = edge.nodes.load(Relaxed);
            if (nodes >> 32) as u32 == parent {
                return Some(nodes as u32);
            }
        } else if found == 0 {
            return None;
        }
        index = (index + 1) & edges.mask;
    }
    None
}

#[cold]
#[inline(never)]
fn add(parent: u32, address: u64) -> u32 {
    let flags = flags_of(address);
    let _held = WRITING.hold();
    let mut edges = EDGES.load(Relaxed);
    if edges.is_null() {
        edges = make(FIRST_SLOTS);
        EDGES.store(edges, Release);
    }
    // SAFETY: null, or a table that is never unmapped.
    let Some(mut current) = (unsafe { edges.as_ref() }) else {
        return parent;
    };
    if let Some(node) = look(current, parent, address) {
        return node;
    }
    if current.used.load(Relaxed) > current.mask / 2 {
        current = grow(current).unwrap_or(current);
    }
    match append(parent, address, flags) {
        Some(node) => {
            put(
                current,
                address,
                (u64::from(parent) << 32) | u64::from(node),
            );
            node
        }
        None => parent,
    }
}

fn make(slots: usize) -> *mut Edges {
    let edges = arena::own(size_of::<Edges>() + slots * size_of::<Edge>()).cast::<Edges>();
    if !edges.is_null() {
        // SAFETY: freshly mapped, zeroed, nobody else knows it.
        unsafe { (*edges).mask = slots as u32 - 1 };
    }
    edges
}

fn grow(old: &Edges) -> Option<&'static Edges> {
    let larger = make((old.mask as usize + 1) * 4);
    // SAFETY: null, or just made and never unmapped.
    let table = unsafe { larger.as_ref() }?;
    for index in 0..=old.mask {
        // SAFETY: at most `mask`.
        let edge = unsafe { old.slot(index) };
        let address = edge.address.load(Relaxed);
        if address != 0 {
            put(table, address, edge.nodes.load(Relaxed));
        }
    }
    EDGES.store(larger, Release);
    Some(table)
}

fn put(edges: &Edges, address: u64, nodes: u64) {
    let mut index = hash((nodes >> 32) as u32, address) & edges.mask;
    for _ in 0..=edges.mask {
        // SAFETY: masked.
        let edge = unsafe { edges.slot(index) };
        if edge.address.load(Relaxed) == 0 {
            edge.nodes.store(nodes, Relaxed);
            edge.address.store(address, Release);
            edges.used.fetch_add(1, Relaxed);
            return;
        }
        index = (index + 1) & edges.mask;
    }
}

fn append(parent: u32, address: u64, flags: u32) -> Option<u32> {
    let header = header()?;
    let inherited = flags_of_node(untagged(parent)) & !NodeFlags::INIT_ROOT;
    let root = if flags & !inherited & INIT != 0 {
        NodeFlags::INIT_ROOT
    } else {
        0
    };
    let generation = header.generation.load(Relaxed) << 16;
    let all = inherited | flags | root;
    let node = arena::append(&header.nodes, |_, row| {
        // SAFETY: a fresh row that no reader knows yet.
        let row = unsafe { &*row };
        row.parent.store(untagged(parent), Relaxed);
        row.address.store(address, Relaxed);
        row.flags.store(all | generation, Relaxed);
    })?;
    Some(tagged(node, all))
}

const INIT: u32 = NodeFlags::SHARED_INIT | NodeFlags::THREAD_LOCAL_INIT;

/// The low 16 bits of a node's flags.
fn flags_of_node(node: u32) -> u32 {
    let Some(header) = header() else { return 0 };
    let row = header.nodes.address(node, &arena::EXTENT);
    // SAFETY: null, or a row of the column, made of atomics.
    unsafe { row.as_ref() }.map_or(0, |row| row.flags.load(Relaxed) & 0xffff)
}

/// Is this code an initialiser of a shared value or of a thread-local?
fn flags_of(address: u64) -> u32 {
    let Some(header) = header() else { return 0 };
    let count = header.config.init_range_count.load(Relaxed) as usize;
    let place = Place(header.config.init_ranges.load(Relaxed));
    let start =
        crate::wire::ExtentMap::address(&arena::EXTENT, place, count * size_of::<InitRange>());
    if count == 0 || start.is_null() {
        return 0;
    }
    // The ranges are the executable's: the first module that the loader names.
    let bias = modules::executable_bias();
    let code = address.wrapping_sub(1).wrapping_sub(bias);
    // SAFETY: the command wrote so many ranges there before this process went on.
    let ranges = unsafe { std::slice::from_raw_parts(start.cast::<InitRange>(), count) };
    let after = ranges.partition_point(|range| range.start <= code);
    match after.checked_sub(1).map(|at| ranges[at]) {
        Some(range) if code < range.end && range.kind == InitKind::Shared as u32 => {
            NodeFlags::SHARED_INIT
        }
        Some(range) if code < range.end => NodeFlags::THREAD_LOCAL_INIT,
        _ => 0,
    }
}

/// The node below which stacks hang whose outer frames are cut off.
pub fn cut() -> u32 {
    static CUT: AtomicU32 = AtomicU32::new(0);
    let known = CUT.load(Relaxed);
    if known != 0 {
        return known;
    }
    let _held = WRITING.hold();
    if CUT.load(Relaxed) == 0
        && let Some(node) = append(0, 0, NodeFlags::TRUNCATED)
    {
        CUT.store(node, Relaxed);
    }
    CUT.load(Relaxed)
}

/// Modules have gone: addresses may mean something else from here on.
pub fn forget() {
    let _held = WRITING.hold();
    EDGES.store(std::ptr::null_mut(), Release);
}
