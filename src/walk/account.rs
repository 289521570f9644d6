//! Where the resident set goes.
//!
//! Every mapping is cut into spans, each span is resident by so much, and each has one use: so
//! the parts add up by construction. Only within an allocator's memory there is something to
//! measure: which resident bytes belong to live blocks (their headers and rounding included), and
//! whether what is free lies on pages that live blocks hold back, or on whole pages that it could
//! give back.

use super::heap::{Block, Heap, Source};
use super::image::{Image, Memory};
use super::regions::Region;
use super::roots::mapped_blocks;
use crate::profile;
use crate::sys::mem::PAGE;

pub(super) fn memory(image: &Image, heap: &Heap) -> profile::Memory {
    let mut parts = profile::Memory {
        rss_bytes: image.mappings.iter().map(|mapping| mapping.rss).sum(),
        rss_peak_bytes: image.rss_peak,
        ..profile::Memory::default()
    };
    let mut allocator = 0;
    for span in &image.spans {
        match span.region {
            Region::Stack { .. } | Region::RetiredStack { .. } => parts.stacks_bytes += span.rss,
            Region::Data | Region::ReadOnly | Region::Code | Region::Opaque => {
                parts.mapped_files_bytes += span.rss;
            }
            Region::Heap => allocator += span.rss,
            Region::Other => parts.other_mappings_bytes += span.rss,
            Region::Profiler => parts.profiler_bytes += span.rss,
            Region::Mixed => {
                let mut blocks = 0;
                let mut at = span.start;
                for block in mapped_blocks(heap, image, span.start..span.end) {
                    let start = block.start.max(at);
                    blocks += resident(image, start, block.end);
                    at = block.end.max(at);
                }
                let blocks = blocks.min(span.rss);
                allocator += blocks;
                parts.other_mappings_bytes += span.rss - blocks;
            }
        }
    }
    // What may be the recorder's is not called the program's: it stays unexplained.
    parts.other_mappings_bytes -= parts.other_mappings_bytes.min(image.unlisted_bytes);
    let live = live(image, heap);
    parts.live_resident_bytes = live.bytes.min(allocator);
    parts.retained_bytes = allocator - parts.live_resident_bytes;
    let beside = (live.pages * PAGE).saturating_sub(live.bytes);
    parts.fragmented_bytes = beside.min(parts.retained_bytes);
    let explained = parts.live_resident_bytes
        + parts.retained_bytes
        + parts.stacks_bytes
        + parts.mapped_files_bytes
        + parts.other_mappings_bytes
        + parts.profiler_bytes;
    parts.unexplained_bytes = parts.rss_bytes as i64 - explained as i64;
    parts
}

/// Resident bytes of a range.
fn resident(image: &Image, start: u64, end: u64) -> u64 {
    let mut bytes = 0;
    let mut at = start;
    while at < end {
        let next = (at / PAGE + 1) * PAGE;
        if image.is_resident(at) {
            bytes += next.min(end) - at;
        }
        at = next;
    }
    bytes
}

#[derive(Default)]
struct Live {
    bytes: u64,
    /// Resident pages that hold any of it.
    pages: u64,
}

fn live(image: &Image, heap: &Heap) -> Live {
    let mut live = Live::default();
    let mut last_page = u64::MAX;
    let mut covered = 0;
    for (at, block) in heap.blocks.iter().enumerate() {
        let next = heap
            .blocks
            .get(at + 1)
            .map_or(u64::MAX, |next| next.address);
        let (start, end) = extent(image, heap, block, next);
        let start = start.max(covered);
        if end <= start {
            continue;
        }
        live.bytes += resident(image, start, end);
        let mut page = start / PAGE;
        if page == last_page {
            page += 1;
        }
        let last = (end - 1) / PAGE;
        live.pages += (page..=last)
            .filter(|page| image.is_resident(page * PAGE))
            .count() as u64;
        last_page = last;
        covered = end;
    }
    live
}

/// What a block takes of its allocator's memory.
fn extent(image: &Image, heap: &Heap, block: &Block, next: u64) -> (u64, u64) {
    let size = block.size.max(1);
    let end = block.address.saturating_add(size);
    let from = heap
        .contexts
        .get(block.context as usize)
        .map_or(Source::Malloc, |c| c.from);
    if from != Source::Malloc {
        // Size classes are at most a quarter apart.
        let rounded = (size / 4).next_power_of_two().clamp(8, 1 << 20);
        let end = block.address.saturating_add(size.next_multiple_of(rounded));
        return (block.address, end.min(next));
    }
    const FLAGS: u64 = 7;
    const IS_MAPPED: u64 = 2;
    let word = image.word(block.address - 8);
    let chunk = word & !FLAGS;
    // A chunk reaches to the size field of the next one.
    let chunk_end = block.address.saturating_add(chunk).saturating_sub(16);
    if chunk_end < end || chunk_end - end > (64 << 10) + size {
        return (block.address, end);
    }
    if word & IS_MAPPED != 0 {
        return (block.address - 16, chunk_end);
    }
    (block.address - 8, chunk_end + 8)
}
