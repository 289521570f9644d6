//! What each part of the address space is for.
//!
//! A pointer in the wrong place makes a leak disappear or takes a task's memory away from it, so
//! memory is a root only if the program can still read a pointer from it. Three kinds of memory
//! look like roots and are not: what an allocator keeps between its live blocks, stacks that glibc
//! keeps of threads that have ended (they hold that thread's last pointers), and our own.
//!
//! Mappings are a poor guide: the kernel merges neighbours, so that one mapping may hold a stack,
//! a large block of malloc and memory of the program's own. They are cut into spans where the
//! contents tell: a stack of glibc starts behind its guard and ends with a control block that
//! holds its own address; an arena starts at a multiple of 64 MiB with a header that tells its
//! size. What remains and holds live blocks is `Mixed`, and is cut at blocks once those are
//! sorted.

use std::ops::Range;

use super::pages::PageSet;
use super::stop::StoppedThread;
use crate::sys::maps::Mapping;
use crate::sys::mem::{PAGE, Page, ProcessMemory};

/// The use of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Region {
    /// Stack of a running thread, used from `used` on.
    Stack {
        tid: i32,
        used: u64,
    },
    /// Stack that is kept of a thread that has ended, with that thread's control block.
    RetiredStack {
        control: u64,
    },
    /// `.data` and `.bss` of a module.
    Data,
    /// An arena of glibc: blocks, live or free, and nothing else.
    Heap,
    /// Live blocks, and possibly other memory between them.
    Mixed,
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

/// A part of a mapping, or all of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) region: Region,
    /// Into the mappings.
    pub(super) mapping: u32,
    /// Resident bytes.
    pub(super) rss: u64,
}

/// Threads use 128 bytes below the stack pointer.
const RED_ZONE: u64 = 128;

/// glibc's arenas start at multiples of this.
const ARENA: u64 = 64 << 20;

/// `struct pthread` of glibc is between 2,240 and 2,432 bytes, from the thread pointer on.
pub(super) const CONTROL_BLOCK: u64 = 2304;

pub(super) struct Classifier<'a> {
    pub(super) mappings: &'a [Mapping],
    /// Ascending by thread pointer.
    pub(super) threads: Vec<&'a StoppedThread>,
    /// Pages with live blocks.
    pub(super) live: &'a PageSet,
    pub(super) memory: &'a ProcessMemory,
    /// What allocators other than glibc's are known to have mapped, sorted.
    pub(super) allocator_maps: &'a [Range<u64>],
    /// What the recorder has mapped for itself, sorted.
    pub(super) own_maps: &'a [Range<u64>],
    /// Path of the preload library.
    pub(super) own_library: &'a str,
}

impl Classifier<'_> {
    /// Ascending, without gaps within a mapping.
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::with_capacity(self.mappings.len());
        for (at, mapping) in self.mappings.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &self.mappings[at]);
            let known = by_name(mapping, self.own_library)
                .or_else(|| tail_of_module(mapping, before?, spans.last()?.region));
            let mut push = |start, end, region| {
                if start < end {
                    let rss = self.resident(&self.mappings[at], start, end);
                    spans.push(Span {
                        start,
                        end,
                        region,
                        mapping: at as u32,
                        rss,
                    });
                }
            };
            cut_out(self.own_maps, mapping, |piece, is_own| match known {
                _ if is_own => push(piece.start, piece.end, Region::Profiler),
                Some(region) => push(piece.start, piece.end, region),
                None if mapping.name == "[stack]" => {
                    push(piece.start, piece.end, self.first_stack(mapping));
                }
                None => {
                    // Only the first piece has the mapping before it.
                    let before = before.filter(|before| before.end == piece.start);
                    self.cut_at_allocators(piece, before, &mut push);
                }
            });
        }
        spans
    }

    fn resident(&self, mapping: &Mapping, start: u64, end: u64) -> u64 {
        if end - start == mapping.bytes() || mapping.rss == 0 {
            return mapping.rss;
        }
        let pages = self.memory.pages(start, ((end - start) / PAGE) as usize);
        let resident = |pages: Vec<Page>| pages.iter().filter(|p| **p == Page::Resident).count();
        pages.map_or(0, resident) as u64 * PAGE
    }

    /// The stack of the first thread.
    fn first_stack(&self, mapping: &Mapping) -> Region {
        let on_it = |t: &&&StoppedThread| mapping.contains(t.stack_pointer);
        match self.threads.iter().find(on_it) {
            Some(thread) => Region::Stack {
                tid: thread.tid,
                used: (thread.stack_pointer - RED_ZONE).max(mapping.start),
            },
            // It runs on another stack just now: this one may be in use up to anywhere.
            None => Region::Stack {
                tid: 0,
                used: mapping.start,
            },
        }
    }

    /// Cuts out what is known to be an allocator's, blocks and nothing else.
    fn cut_at_allocators(
        &self,
        mapping: &Mapping,
        before: Option<&Mapping>,
        push: &mut impl FnMut(u64, u64, Region),
    ) {
        cut_out(
            self.allocator_maps,
            mapping,
            |piece, is_heap| match is_heap {
                true => push(piece.start, piece.end, Region::Heap),
                false => {
                    let before = before.filter(|before| before.end == piece.start);
                    self.cut(piece, before, push);
                }
            },
        );
    }

    /// Cuts memory without a name.
    fn cut(
        &self,
        mapping: &Mapping,
        before: Option<&Mapping>,
        push: &mut impl FnMut(u64, u64, Region),
    ) {
        let mut at = mapping.start;
        let nameless = mapping.name.is_empty() || mapping.name.starts_with("[anon");
        if nameless && !mapping.shared {
            let guarded = before.is_some_and(|b| b.end == mapping.start && !b.readable);
            if let Some((end, region)) = self.stack_at(mapping, guarded) {
                push(at, end, region);
                at = end;
            }
        }
        let mut from = at;
        let mut arena = at.next_multiple_of(ARENA);
        while arena < mapping.end && !mapping.shared {
            if let Some(size) = self.arena_size(arena) {
                let end = (arena + size).min(mapping.end);
                push(from, arena, self.blocks_or_other(from, arena));
                push(arena, end, Region::Heap);
                from = end;
            }
            arena += ARENA;
        }
        push(from, mapping.end, self.blocks_or_other(from, mapping.end));
    }

    fn blocks_or_other(&self, start: u64, end: u64) -> Region {
        if self.live.touches(start..end) {
            Region::Mixed
        } else {
            Region::Other
        }
    }

    /// The end of the stack that the mapping starts with, if it does.
    fn stack_at(&self, mapping: &Mapping, guarded: bool) -> Option<(u64, Region)> {
        let end_of = |control: u64| (control + CONTROL_BLOCK).next_multiple_of(PAGE);
        let first = self
            .threads
            .partition_point(|t| t.thread_pointer < mapping.start);
        let owner = self.threads.get(first);
        if let Some(thread) = owner.filter(|t| mapping.contains(t.thread_pointer)) {
            let end = end_of(thread.thread_pointer).min(mapping.end);
            let on_it = (mapping.start..end).contains(&thread.stack_pointer);
            if !on_it && !guarded {
                // The loader keeps the first thread's control block in its own memory.
                return None;
            }
            let used = if on_it {
                thread.stack_pointer - RED_ZONE
            } else {
                mapping.start
            };
            let used = used.max(mapping.start);
            return Some((
                end,
                Region::Stack {
                    tid: thread.tid,
                    used,
                },
            ));
        }
        if !guarded || mapping.start.is_multiple_of(ARENA) {
            return None;
        }
        let control = self.retired_control_block(mapping)?;
        Some((
            end_of(control).min(mapping.end),
            Region::RetiredStack { control },
        ))
    }

    /// At the upper end of a stack that glibc made stands the thread's control block, which holds
    /// its own address twice. What lies below it holds no live block.
    fn retired_control_block(&self, mapping: &Mapping) -> Option<u64> {
        const STEP: u64 = 512;
        let mut page = [0u8; PAGE as usize + 24];
        let mut at = mapping.start;
        while at < mapping.end {
            let count = ((mapping.end - at) / PAGE).min(STEP);
            let pages = self.memory.pages(at, count as usize).ok()?;
            for (n, state) in pages.into_iter().enumerate() {
                let start = at + n as u64 * PAGE;
                if self.live.contains(start) {
                    return None;
                }
                if state != Page::Untouched {
                    let got = self.memory.read(start, &mut page);
                    if let Some(offset) = own_address_twice(&page[..got], start) {
                        return Some(start + offset);
                    }
                }
            }
            at += count * PAGE;
        }
        None
    }

    /// Size of the arena that starts here, from its header: the arena it belongs to, the heap
    /// before it, its size, and how much of that is usable.
    fn arena_size(&self, start: u64) -> Option<u64> {
        let mut header = [0u8; 32];
        if self.memory.read(start, &mut header) != header.len() {
            return None;
        }
        let word = |n: usize| u64::from_le_bytes(header[n * 8..][..8].try_into().unwrap_or([0; 8]));
        let (arena, before, size, usable) = (word(0), word(1), word(2), word(3));
        let in_arena = arena != 0 && arena % ARENA < 256;
        let is_page = |bytes: u64| bytes != 0 && bytes.is_multiple_of(PAGE) && bytes <= ARENA;
        let plausible =
            in_arena && before.is_multiple_of(ARENA) && is_page(size) && is_page(usable);
        plausible.then_some(usable.max(size))
    }
}

/// Cuts a mapping at these ranges, which ascend: calls `visit` with each part, and whether it lies
/// in one of them.
fn cut_out(ranges: &[Range<u64>], mapping: &Mapping, mut visit: impl FnMut(&Mapping, bool)) {
    let mut at = mapping.start;
    let mut part = |to: u64, inside: bool| {
        if at < to {
            visit(
                &Mapping {
                    start: at,
                    end: to,
                    ..mapping.clone()
                },
                inside,
            );
            at = to;
        }
    };
    let first = ranges.partition_point(|range| range.end <= mapping.start);
    for range in &ranges[first..] {
        if range.start >= mapping.end {
            break;
        }
        part(range.start, false);
        part(range.end.min(mapping.end), true);
    }
    part(mapping.end, false);
}

fn by_name(mapping: &Mapping, own_library: &str) -> Option<Region> {
    let name = mapping.name.as_str();
    let path = name.strip_suffix(" (deleted)").unwrap_or(name);
    let own = !own_library.is_empty() && path == own_library;
    if own || mapping.is_system_v() || name.starts_with("[anon:taskheap") {
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
fn tail_of_module(mapping: &Mapping, before: &Mapping, region: Region) -> Option<Region> {
    let follows = mapping.name.is_empty() && before.end == mapping.start && before.is_file();
    match region {
        Region::Data | Region::Profiler if follows => Some(region),
        _ => None,
    }
}

fn own_address_twice(bytes: &[u8], start: u64) -> Option<u64> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or([0; 8]));
    (0..bytes.len().saturating_sub(23))
        .step_by(64)
        .find(|&at| word(at) == start + at as u64 && word(at + 16) == start + at as u64)
        .map(|at| at as u64)
}
