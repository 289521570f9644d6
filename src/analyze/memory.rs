//! Where the resident set goes. Every field is null where nobody looked.

use serde::Serialize;

use crate::profile::{AllocatorMemory, Memory};

#[derive(Clone, Debug, Default, Serialize)]
pub struct MemoryRow {
    pub moment: Option<String>,
    pub at_s: Option<f64>,
    pub rss_bytes: Option<u64>,
    pub rss_peak_bytes: Option<u64>,
    pub live_resident_bytes: Option<u64>,
    /// Free, kept by the allocator.
    pub retained_bytes: Option<u64>,
    /// Of those, in holes that it can't give back.
    pub fragmented_bytes: Option<u64>,
    pub stacks_bytes: Option<u64>,
    pub mapped_files_bytes: Option<u64>,
    pub other_mappings_bytes: Option<u64>,
    pub profiler_bytes: Option<u64>,
    pub unexplained_bytes: Option<i64>,
    /// Allocators that are linked into the program.
    pub allocators: Vec<AllocatorMemory>,
}

pub fn row(memory: Option<&Memory>) -> MemoryRow {
    let Some(memory) = memory else {
        return MemoryRow::default();
    };
    MemoryRow {
        moment: Some(memory.moment.clone()),
        at_s: Some(memory.at_s),
        rss_bytes: Some(memory.rss_bytes),
        rss_peak_bytes: Some(memory.rss_peak_bytes),
        live_resident_bytes: Some(memory.live_resident_bytes),
        retained_bytes: Some(memory.retained_bytes),
        fragmented_bytes: Some(memory.fragmented_bytes),
        stacks_bytes: Some(memory.stacks_bytes),
        mapped_files_bytes: Some(memory.mapped_files_bytes),
        other_mappings_bytes: Some(memory.other_mappings_bytes),
        profiler_bytes: Some(memory.profiler_bytes),
        unexplained_bytes: Some(memory.unexplained_bytes),
        allocators: memory.allocators.clone(),
    }
}
