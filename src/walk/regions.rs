//! What each mapping of the process is for.
//!
//! A pointer in the wrong place makes a leak disappear or takes a task's memory away from it, so
//! memory is a root only if the program can still read a pointer from it. Three kinds of memory
//! look like roots and are not: what an allocator keeps between its live blocks, stacks that glibc
//! keeps of threads that have ended (they hold that thread's last pointers), and our own.

use super::pages::PageSet;
use super::stop::StoppedThread;
use crate::sys::maps::Mapping;
use crate::sys::mem::{PAGE, ProcessMemory};

/// The use of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Region {
    /// Stack of a running thread, used from `used` on.
    Stack {
        used: u64,
    },
    /// Stack that is kept of a thread that has ended.
    RetiredStack,
    /// `.data` and `.bss` of a module.
    Data,
    /// Blocks of an allocator, live or free.
    Heap,
    /// Any other memory that the program may keep pointers in.
    Other,
    /// Read-only data of a module.
    ReadOnly,
    Code,
    /// The recorder's.
    Profiler,
    /// No memory, or memory with no pointers in it: guards, the kernel's, shared files.
    Opaque,
}

/// Threads use 128 bytes below the stack pointer.
const RED_ZONE: u64 = 128;

/// glibc's arenas start at multiples of this.
const ARENA: u64 = 64 << 20;

/// One entry for each mapping.
pub(super) fn classify(
    mappings: &[Mapping],
    threads: &[StoppedThread],
    live: &PageSet,
    memory: &ProcessMemory,
    own_library: &str,
) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::with_capacity(mappings.len());
    for (at, mapping) in mappings.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| (&mappings[at], regions[at]));
        let region = by_name(mapping, own_library)
            .or_else(|| tail_of_module(mapping, before))
            .or_else(|| stack(mapping, threads))
            .unwrap_or_else(|| anonymous(mapping, live, memory));
        regions.push(region);
    }
    regions
}

fn by_name(mapping: &Mapping, own_library: &str) -> Option<Region> {
    let name = mapping.name.as_str();
    if mapping.is_system_v()
        || name.starts_with("[anon:taskheap")
        || (!own_library.is_empty() && name.trim_end_matches(" (deleted)") == own_library)
    {
        return Some(Region::Profiler);
    }
    if !mapping.readable || name.starts_with("[v") {
        return Some(Region::Opaque);
    }
    if !mapping.writable {
        return Some(if mapping.executable {
            Region::Code
        } else {
            Region::ReadOnly
        });
    }
    if mapping.is_file() {
        return Some(if mapping.shared {
            Region::Opaque
        } else {
            Region::Data
        });
    }
    (name == "[heap]").then_some(Region::Heap)
}

/// The zeroed rest of a module's data is a mapping without a name right behind it.
fn tail_of_module(mapping: &Mapping, before: Option<(&Mapping, Region)>) -> Option<Region> {
    let (before, region) = before?;
    let follows = mapping.name.is_empty() && before.end == mapping.start && before.is_file();
    match region {
        Region::Data | Region::Profiler if follows => Some(region),
        _ => None,
    }
}

fn stack(mapping: &Mapping, threads: &[StoppedThread]) -> Option<Region> {
    let is_main = mapping.name == "[stack]";
    let mut found = is_main;
    let mut used = mapping.end;
    for thread in threads {
        let on_it = mapping.contains(thread.stack_pointer);
        if !is_main && !mapping.contains(thread.thread_pointer) {
            continue;
        }
        // The thread pointer of the first thread is not on its stack, but in memory of the loader.
        if !is_main && !on_it && !has_stack_size(mapping) {
            continue;
        }
        found = true;
        used = used.min(if on_it {
            (thread.stack_pointer - RED_ZONE).max(mapping.start)
        } else if is_main {
            used
        } else {
            // It runs on another stack just now: this one may be in use up to anywhere.
            mapping.start
        });
    }
    if is_main && used == mapping.end {
        used = mapping.start;
    }
    found.then_some(Region::Stack { used })
}

/// Large enough for a stack of a thread.
fn has_stack_size(mapping: &Mapping) -> bool {
    mapping.bytes() >= 16 << 10
}

fn anonymous(mapping: &Mapping, live: &PageSet, memory: &ProcessMemory) -> Region {
    if mapping.rss + mapping.swap == 0 {
        return Region::Other;
    }
    if mapping.start.is_multiple_of(ARENA) && mapping.bytes() <= ARENA {
        return Region::Heap;
    }
    if live.touches(mapping.start..mapping.end) {
        return Region::Heap;
    }
    if is_retired_stack(mapping, memory) {
        return Region::RetiredStack;
    }
    Region::Other
}

/// At the upper end of a stack that glibc made stands the thread's control block, which holds its
/// own address twice.
fn is_retired_stack(mapping: &Mapping, memory: &ProcessMemory) -> bool {
    if !mapping.name.is_empty() || !has_stack_size(mapping) {
        return false;
    }
    let mut top = [0u8; 2 * PAGE as usize];
    let start = mapping.end - top.len() as u64;
    if memory.read(start, &mut top) != top.len() {
        return false;
    }
    let word = |at: usize| u64::from_le_bytes(top[at..at + 8].try_into().unwrap_or([0; 8]));
    (0..top.len() - 24)
        .step_by(64)
        .any(|at| word(at) == start + at as u64 && word(at + 16) == start + at as u64)
}
