//! Where the recorder's private memory is in the profiled process.
//!
//! Names of anonymous mappings would tell a walk, but kernels may be built without them, and the
//! kernel makes one mapping of neighbours. So the recorder writes down what it maps. It maps
//! large pieces and gives none back: a short list does.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Mappings that are written down. They double in size, up to a bound.
pub const PRIVATE_MAPS: usize = 256;

/// A mapping of the recorder.
#[repr(C)]
pub struct PrivateMap {
    pub start: AtomicU64,
    /// 0 until the row is written.
    pub end: AtomicU64,
}

#[repr(C)]
pub struct PrivateMaps {
    /// Rows that were asked for, more than there are if some mappings found no place.
    pub taken: AtomicU32,
    pub _pad: u32,
    /// Bytes of the mappings that found no place: nobody knows which they are.
    pub unlisted: AtomicU64,
    pub rows: [PrivateMap; PRIVATE_MAPS],
}

impl PrivateMaps {
    pub const fn empty() -> PrivateMaps {
        PrivateMaps {
            taken: AtomicU32::new(0),
            _pad: 0,
            unlisted: AtomicU64::new(0),
            rows: [const {
                PrivateMap {
                    start: AtomicU64::new(0),
                    end: AtomicU64::new(0),
                }
            }; PRIVATE_MAPS],
        }
    }

    /// What is written down, as start and end, in any order.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let rows = self.rows.iter().map(|row| {
            let end = row.end.load(Ordering::Acquire);
            (row.start.load(Ordering::Relaxed), end)
        });
        rows.filter(|(start, end)| start < end)
    }
}
