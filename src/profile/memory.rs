//! Where the resident set was at one moment.

use serde::{Deserialize, Serialize};

/// Where the resident set goes, in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Which moment, in words: `walk 2 at 1.2 s`, `at exit`.
    pub moment: String,
    pub at_s: f64,
    pub rss_bytes: u64,
    pub rss_peak_bytes: u64,
    pub live_resident_bytes: u64,
    /// Free, kept by the allocator.
    pub retained_bytes: u64,
    /// Of those, in holes between live blocks that it can't give back.
    pub fragmented_bytes: u64,
    pub stacks_bytes: u64,
    pub mapped_files_bytes: u64,
    pub other_mappings_bytes: u64,
    pub profiler_bytes: u64,
    pub unexplained_bytes: i64,
    /// Allocators that are linked into the program.
    pub allocators: Vec<AllocatorMemory>,
}

/// An allocator's memory: what is seen of it from outside, and what it says itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatorMemory {
    pub name: String,
    /// Address space that it has from the system, and what of it is resident.
    pub reserved_bytes: u64,
    pub resident_bytes: u64,
    /// When it was asked; none of the following is known if it was not.
    pub told_at_s: Option<f64>,
    /// Pages with blocks.
    pub active_bytes: Option<u64>,
    /// Free pages that it has not given back yet, and those that the system may take.
    pub dirty_bytes: Option<u64>,
    pub muzzy_bytes: Option<u64>,
    /// Blocks, rounded up to size classes.
    pub allocated_bytes: Option<u64>,
    pub metadata_bytes: Option<u64>,
    /// Address space without memory behind it.
    pub retained_bytes: Option<u64>,
    /// Free blocks that threads keep.
    pub thread_cache_bytes: Option<u64>,
}
