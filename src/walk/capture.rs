//! Copying what a walk needs while the process stands still.
//!
//! The tempting way, copying every writable page, copies what the allocator keeps free and what
//! the recorder itself holds; reading pages that were never touched would even bring them into
//! the program. Copied are, where resident or swapped out: pages that hold live blocks, the used
//! part of stacks, writable data of modules, other writable private mappings that hold no blocks
//! (a pointer may be anywhere), and relocated read-only data, in which tokio's vtables lie.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use super::heap::Block;
use super::image::{Arena, Image, Segment};
use super::pages::PageSet;
use super::regions::{Classifier, Region, Span};
use super::stop::{Stop, StoppedThread};
use super::{Captured, Options, WalkError};
use crate::sys::held;
use crate::sys::maps::{self, Mapping};
use crate::sys::mem::{PAGE, Page, ProcessMemory};
use crate::sys::sched;

/// Ranges that one call reads.
const BATCH: usize = 512;

/// Read-only data without relocations is copied up to this size for each mapping.
const READ_ONLY_LIMIT: u64 = 8 << 20;

/// What is copied beside blocks: data of modules, used parts of stacks.
const BESIDE_HEAP: u64 = 4 << 20;

/// What the recorder knows at the moment of the stop.
pub struct Noted<T> {
    pub blocks: Vec<Block>,
    /// What allocators have taken from the system, as far as that was seen, sorted.
    pub allocator_maps: Vec<Range<u64>>,
    pub own: OwnMaps,
    pub tables: T,
}

impl<T> Noted<T> {
    /// Of a process that has no allocator but glibc's.
    pub fn plain(blocks: Vec<Block>, tables: T) -> Noted<T> {
        Noted {
            blocks,
            allocator_maps: Vec::new(),
            own: OwnMaps::default(),
            tables,
        }
    }
}

/// Private memory of the recorder inside the process, beyond the preload library and System V
/// segments: never a root, and not the program's.
#[derive(Clone, Default, Debug)]
pub struct OwnMaps {
    /// Sorted, apart, whole pages.
    pub ranges: Vec<Range<u64>>,
    /// Bytes of mappings that may lie anywhere.
    pub unlisted_bytes: u64,
}

/// Stops the process, has `copy` take the recorder's tables, copies memory, lets it go on.
///
/// Runs on a thread of its own, which is the tracer. `copy` runs there, too, while everything
/// stands still: it has to be quick and must not wait for the process.
pub fn capture<T: Send>(
    pid: i32,
    options: &Options,
    copy: impl FnOnce() -> Result<Noted<T>, String> + Send,
) -> Result<Captured<T>, WalkError> {
    std::thread::scope(|scope| {
        let tracer = std::thread::Builder::new()
            .name("taskheap-walk".to_owned())
            .spawn_scoped(scope, || stop_and_copy(pid, options, copy))
            .map_err(WalkError::Read)?;
        tracer.join().unwrap_or(Err(WalkError::Panicked))
    })
}

fn stop_and_copy<T>(
    pid: i32,
    options: &Options,
    copy: impl FnOnce() -> Result<Noted<T>, String>,
) -> Result<Captured<T>, WalkError> {
    let memory = ProcessMemory::open(pid).map_err(WalkError::of_access)?;
    let limit = options.max_copy_bytes.unwrap_or_else(room_for_a_copy);
    let expected = options.expected_bytes.min(limit).min(resident_bytes(pid));
    let arena = Arena::prepared((expected + expected / 16 + BESIDE_HEAP) as usize);
    let arena = arena.map_err(WalkError::Read)?;
    sched::hurry();
    let stop = Stop::all(pid, &memory, options)?;
    let noted = copy().map_err(WalkError::Recorder)?;
    let (blocks, tables) = (noted.blocks, noted.tables);
    let mappings = maps::read_resident(pid).map_err(WalkError::Read)?;
    let rss_peak = figure(&format!("/proc/{pid}/status"), "VmHWM:").unwrap_or(0);
    let live = pages_of(&blocks);
    let spans = Classifier {
        mappings: &mappings,
        threads: by_thread_pointer(&stop.threads),
        live: &live,
        memory: &memory,
        allocator_maps: &noted.allocator_maps,
        own_maps: &noted.own.ranges,
        own_library: &options.own_library,
    }
    .spans();
    let wanted = wanted_pages(&live, &mappings, &spans);
    let copied = copy_pages(&memory, &wanted, arena, limit)?;
    if !Stop::is_alive(pid) {
        return Err(WalkError::Gone);
    }
    let threads = stop.threads.clone();
    let since = stop.since;
    drop(stop);
    let pause = since.elapsed();
    let bytes_read = copied.segments.iter().map(|s| s.end - s.start).sum();
    let image = Image {
        pid,
        pause,
        bytes_read,
        threads,
        mappings,
        spans,
        rss_peak,
        unlisted_bytes: noted.own.unlisted_bytes,
        kernel_words: held::epoll_words(pid),
        segments: copied.segments,
        bytes: copied.bytes,
        hint: AtomicUsize::new(0),
        resident: copied.resident,
    };
    Ok(Captured {
        image,
        blocks,
        tables,
    })
}

fn by_thread_pointer(threads: &[StoppedThread]) -> Vec<&StoppedThread> {
    let mut threads: Vec<&StoppedThread> = threads.iter().collect();
    threads.sort_unstable_by_key(|thread| thread.thread_pointer);
    threads
}

fn pages_of(blocks: &[Block]) -> PageSet {
    let mut live = PageSet::default();
    for block in blocks {
        // The header of malloc is read, too.
        live.insert(block.address.saturating_sub(16)..block.address.saturating_add(block.size));
    }
    live
}

/// Pages to copy.
fn wanted_pages(live: &PageSet, mappings: &[Mapping], spans: &[Span]) -> PageSet {
    let mut wanted = PageSet::default();
    for run in live.runs() {
        wanted.insert(run);
    }
    for span in spans {
        let mapping = &mappings[span.mapping as usize];
        let small = mapping.anonymous > 0 || mapping.bytes() <= READ_ONLY_LIMIT;
        let start = match span.region {
            Region::Stack { used, .. } => used,
            Region::RetiredStack { control } => control,
            Region::Data | Region::Other | Region::Mixed => span.start,
            Region::ReadOnly if small => span.start,
            _ => continue,
        };
        if mapping.rss + mapping.swap > 0 {
            wanted.insert(start..span.end);
        }
    }
    wanted
}

struct Copied {
    segments: Vec<Segment>,
    bytes: Arena,
    resident: PageSet,
}

fn copy_pages(
    memory: &ProcessMemory,
    wanted: &PageSet,
    mut bytes: Arena,
    limit: u64,
) -> Result<Copied, WalkError> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut resident = PageSet::default();
    for run in wanted.runs() {
        let count = ((run.end - run.start) / PAGE) as usize;
        let pages = memory.pages(run.start, count).map_err(WalkError::Read)?;
        for (at, page) in pages.into_iter().enumerate() {
            let start = run.start + at as u64 * PAGE;
            if page == Page::Untouched {
                continue;
            }
            if page == Page::Resident {
                resident.insert(start..start + PAGE);
            }
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end += PAGE,
                _ => ranges.push(start..start + PAGE),
            }
        }
    }
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if total > limit {
        return Err(WalkError::TooLarge {
            bytes: total,
            limit,
        });
    }
    bytes.resize(total as usize).map_err(WalkError::Read)?;
    let segments = read_all(memory, &ranges, bytes.as_mut_slice());
    Ok(Copied {
        segments,
        bytes,
        resident,
    })
}

/// Reads all ranges, in pieces. A page that can't be read (a mapping that ended with the process)
/// is left out.
fn read_all(memory: &ProcessMemory, ranges: &[Range<u64>], into: &mut [u8]) -> Vec<Segment> {
    let mut segments = Vec::with_capacity(ranges.len());
    let mut at = 0;
    for batch in ranges.chunks(BATCH) {
        let parts: Vec<(u64, usize)> = batch
            .iter()
            .map(|range| (range.start, (range.end - range.start) as usize))
            .collect();
        let total: usize = parts.iter().map(|(_, len)| len).sum();
        let mut done = memory.read_ranges(&parts, &mut into[at..at + total]);
        for (start, len) in parts {
            let mut good = done.min(len);
            done -= good;
            if good < len {
                // Either the call was cut short or this page can't be read.
                good += memory.read(start + good as u64, &mut into[at + good..at + len]);
            }
            let end = start + good as u64;
            segments.push(Segment { start, end, at });
            at += len;
        }
    }
    segments
}

/// What a copy may take: three quarters of what the system can give.
fn room_for_a_copy() -> u64 {
    let available = figure("/proc/meminfo", "MemAvailable:");
    available.map_or(1 << 30, |bytes| bytes / 4 * 3)
}

/// Resident bytes of a process, roughly.
fn resident_bytes(pid: i32) -> u64 {
    figure(&format!("/proc/{pid}/status"), "VmRSS:").unwrap_or(u64::MAX)
}

/// `VmHWM:     1234 kB` of a file in `/proc`, in bytes.
fn figure(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes = rest.trim().strip_suffix(" kB")?.trim();
    Some(kilobytes.parse::<u64>().ok()? * 1024)
}
