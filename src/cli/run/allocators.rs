//! The memory of allocators that are linked into the program, at a walk.

use std::ops::Range;

use crate::profile::AllocatorMemory;
use crate::profile::patches::name_of;
use crate::walk::Image;
use crate::wire::{Allocator, STATISTICS, Statistic};

/// `maps` are the allocators' ranges, `said` what one of them answered (see `wire::Statistic`).
pub fn memory(
    image: &Image,
    maps: &[(Range<u64>, Option<Allocator>)],
    said: Option<(u32, [Option<u64>; STATISTICS])>,
) -> Vec<AllocatorMemory> {
    let mut found: Vec<AllocatorMemory> = Vec::new();
    for (map, allocator) in maps {
        let Some(name) = allocator.map(name_of) else {
            continue;
        };
        let at = found.iter().position(|known| known.name == name);
        let at = at.unwrap_or_else(|| {
            found.push(AllocatorMemory {
                name: name.to_owned(),
                ..AllocatorMemory::default()
            });
            found.len() - 1
        });
        found[at].reserved_bytes += map.end - map.start;
        found[at].resident_bytes += image.resident_in(map);
    }
    let jemalloc = name_of(Allocator::Jemalloc);
    if let Some((at_ms, figures)) = said
        && let Some(entry) = found.iter_mut().find(|entry| entry.name == jemalloc)
    {
        let figure = |statistic: Statistic| figures[statistic as usize];
        entry.told_at_s = Some(f64::from(at_ms) / 1000.0);
        entry.active_bytes = figure(Statistic::Active);
        entry.dirty_bytes = figure(Statistic::Dirty);
        entry.muzzy_bytes = figure(Statistic::Muzzy);
        entry.allocated_bytes = figure(Statistic::Allocated);
        entry.metadata_bytes = figure(Statistic::Metadata);
        entry.retained_bytes = figure(Statistic::Retained);
        entry.thread_cache_bytes = figure(Statistic::ThreadCaches);
    }
    found
}
