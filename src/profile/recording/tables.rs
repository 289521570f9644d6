//! Copies of the recording's tables, as plain data.
//!
//! Columns only grow and publish their length after the row, so a copy can be made at any time;
//! what changes in place (counters, rows, live pages) is consistent only while the process stands
//! still or has ended. A page that a killed process left locked may hold an entry twice: then one
//! is dropped and counted.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use super::Recorded;
use crate::wire::sample::{self, Booked};
use crate::wire::{
    Allocator, Column, Header, LIVE_SLOTS, LiveBlock, ModuleRow, Place, RowState, SIZE_ESCAPE,
    STATISTICS,
};

#[derive(Clone, Default)]
pub struct Tables {
    pub node_parent: Vec<u32>,
    pub node_address: Vec<u64>,
    /// Flags in the low half, generation of the module list in the high one.
    pub node_flags: Vec<u32>,
    /// Node, and owner type with the allocator in its top bits.
    pub contexts: Vec<(u32, u32)>,
    pub owners: Vec<OwnerCopy>,
    pub rows: Vec<RowCopy>,
    pub threads: Vec<ThreadCopy>,
    pub modules: Vec<ModuleCopy>,
    pub epoch: u32,
    pub rising: bool,
    pub now_ms: u32,
}

#[derive(Clone, Debug, Default)]
pub struct OwnerCopy {
    pub kind: u32,
    pub generation: u32,
    pub key: u64,
    pub spawned: u64,
    pub gone: u64,
    pub retired_allocated: u64,
    pub cell_bytes: u64,
    pub box_bytes: u64,
    pub name: String,
    pub spawn_context: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RowCopy {
    pub id: u64,
    pub cell: u64,
    pub owner: u32,
    pub state: u32,
    pub live_bytes: i64,
    pub live_blocks: i32,
    pub allocated_bytes: u64,
    pub peak_bytes: i64,
    pub peak_epoch: u32,
    pub thread: u32,
    pub last_event_ms: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadCopy {
    pub tid: i32,
    pub row: u32,
    pub thread_pointer: u64,
    pub stack_low: u64,
    pub stack_high: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ModuleCopy {
    pub bias: u64,
    pub low: u64,
    pub high: u64,
    pub loaded: u32,
    pub unloaded: u32,
    /// Empty for the program itself.
    pub path: Vec<u8>,
    pub build_id: Vec<u8>,
    pub tls_offset: i64,
}

/// Live blocks, and what had to be repaired to read them.
#[derive(Clone, Default)]
pub struct LiveTable {
    pub blocks: Vec<LiveBlock>,
    pub torn: u64,
    /// Mean bytes between the samples; 0 if every block is here.
    pub sample_bytes: u64,
}

/// The counters of one context, all threads added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSums {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub live_bytes: i64,
    pub live_blocks: i64,
    pub peak_bytes: i64,
    pub peak_blocks: i64,
    pub temporary: u64,
}

fn rows<'a, T, const BASE: u32>(
    column: &'a Column<T, BASE>,
    from: &'a Recorded,
) -> impl Iterator<Item = &'a T> {
    // SAFETY: below the published length; rows are atomics that never move, and the extents stay
    // attached. A null address (a damaged recording) ends the iteration.
    (0..column.len()).map_while(|at| unsafe { column.address(at, from).as_ref() })
}

impl Recorded {
    /// Everything but live blocks and counters.
    pub fn tables(&self) -> Tables {
        let header = self.header();
        let mut tables = Tables {
            epoch: header.epoch.load(Acquire),
            rising: header.sums.rising.load(Relaxed) != 0,
            now_ms: header.now_ms.load(Relaxed),
            ..Tables::default()
        };
        // Contexts before nodes before modules: each may name only what is there already.
        let contexts = rows(&header.contexts, self);
        tables.contexts = contexts
            .map(|row| (row.node.load(Relaxed), row.owner.load(Relaxed)))
            .collect();
        for node in rows(&header.nodes, self) {
            tables.node_parent.push(node.parent.load(Relaxed));
            tables.node_address.push(node.address.load(Relaxed));
            tables.node_flags.push(node.flags.load(Relaxed));
        }
        tables.owners = self.owners(header);
        tables.rows = self.rows(header);
        tables.threads = self.threads(header);
        tables.modules = rows(&header.modules, self)
            .map(|row| self.module(row))
            .collect();
        tables
    }

    /// Tasks whose cell is not freed.
    pub fn tasks_alive(&self) -> u64 {
        let task = crate::wire::OwnerKind::Task as u32;
        let owners = rows(&self.header().owners, self);
        let tasks = owners.filter(|row| row.kind.load(Relaxed) == task);
        let alive = |row: &crate::wire::OwnerType| {
            row.spawned
                .load(Relaxed)
                .saturating_sub(row.gone.load(Relaxed))
        };
        tasks.map(alive).sum()
    }

    /// Threads that run.
    pub fn running_threads(&self) -> Vec<ThreadCopy> {
        self.threads(self.header())
    }

    /// The owner type of a row.
    pub fn owner_of_row(&self, row: u32) -> Option<u32> {
        let rows = &self.header().rows;
        if row >= rows.len() {
            return None;
        }
        // SAFETY: below the published length, and made of atomics.
        let row = unsafe { rows.address(row, self).as_ref() }?;
        Some(row.owner.load(Relaxed))
    }

    /// The owner type of a task that is alive, looked for in all rows.
    pub fn owner_of_task(&self, id: u64) -> Option<u32> {
        let alive = RowState::TaskAlive as u32;
        let found = rows(&self.header().rows, self)
            .find(|row| row.id.load(Relaxed) == id && row.state.load(Relaxed) == alive);
        found.map(|row| row.owner.load(Relaxed))
    }

    /// Modules that are loaded, or were.
    pub fn modules(&self) -> Vec<ModuleCopy> {
        let modules = rows(&self.header().modules, self);
        modules.map(|row| self.module(row)).collect()
    }

    fn owners(&self, header: &Header) -> Vec<OwnerCopy> {
        let owners = rows(&header.owners, self);
        owners
            .map(|row| {
                let bytes: Vec<u8> = row
                    .name
                    .iter()
                    .flat_map(|word| word.load(Relaxed).to_le_bytes())
                    .collect();
                let end = bytes
                    .iter()
                    .position(|byte| *byte == 0)
                    .unwrap_or(bytes.len());
                OwnerCopy {
                    kind: row.kind.load(Relaxed),
                    generation: row.generation.load(Relaxed),
                    key: row.key.load(Relaxed),
                    spawned: row.spawned.load(Relaxed),
                    gone: row.gone.load(Relaxed),
                    retired_allocated: row.retired_allocated.load(Relaxed),
                    cell_bytes: row.cell_bytes.load(Relaxed),
                    box_bytes: row.box_bytes.load(Relaxed),
                    name: String::from_utf8_lossy(&bytes[..end]).into_owned(),
                    spawn_context: row.spawn_context.load(Relaxed),
                }
            })
            .collect()
    }

    fn rows(&self, header: &Header) -> Vec<RowCopy> {
        let all = rows(&header.rows, self);
        all.map(|row| RowCopy {
            id: row.id.load(Relaxed),
            cell: row.cell.load(Relaxed),
            owner: row.owner.load(Relaxed),
            state: row.state.load(Relaxed),
            live_bytes: row.live_bytes.load(Relaxed),
            live_blocks: row.live_blocks.load(Relaxed),
            allocated_bytes: row.allocated_bytes.load(Relaxed),
            peak_bytes: row.peak_bytes.load(Relaxed),
            peak_epoch: row.peak_epoch.load(Relaxed),
            thread: row.thread.load(Relaxed),
            last_event_ms: row.last_event_ms.load(Relaxed),
        })
        .collect()
    }

    fn threads(&self, header: &Header) -> Vec<ThreadCopy> {
        let all = rows(&header.threads, self);
        all.map(|slot| ThreadCopy {
            tid: slot.tid.load(Acquire),
            row: slot.row.load(Relaxed),
            thread_pointer: slot.thread_pointer.load(Relaxed),
            stack_low: slot.stack_low.load(Relaxed),
            stack_high: slot.stack_high.load(Relaxed),
        })
        .filter(|slot| slot.tid != 0)
        .collect()
    }

    fn module(&self, row: &ModuleRow) -> ModuleCopy {
        let id = row
            .build_id
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes());
        let length = row.path_len.load(Relaxed) as usize;
        ModuleCopy {
            bias: row.bias.load(Relaxed),
            low: row.low.load(Relaxed),
            high: row.high.load(Relaxed),
            loaded: row.loaded.load(Relaxed),
            unloaded: row.unloaded.load(Relaxed),
            path: self.bytes(Place(row.path.load(Relaxed)), length),
            build_id: id.take(row.build_id_len.load(Relaxed) as usize).collect(),
            tls_offset: row.tls_offset.load(Relaxed),
        }
    }

    /// Address space that patched allocators have taken from the system, sorted, without overlap.
    pub fn allocator_maps(&self) -> Vec<(Range<u64>, Option<Allocator>)> {
        let column = &self.header().allocator_maps;
        let mut maps = Vec::new();
        for index in 0..column.len() {
            // SAFETY: below the length; the row is made of atomics.
            let Some(row) = (unsafe { column.address(index, self).as_ref() }) else {
                continue;
            };
            let (start, end) = (row.start.load(Relaxed), row.end.load(Acquire));
            if start < end {
                maps.push((
                    start..end,
                    Allocator::from_word(row.allocator.load(Relaxed)),
                ));
            }
        }
        maps.sort_unstable_by_key(|(map, _)| map.start);
        // A process that was caught at a change may have one range in two rows.
        maps.dedup_by(|(next, _), (kept, _)| {
            let overlaps = next.start < kept.end;
            if overlaps {
                kept.end = kept.end.max(next.end);
            }
            overlaps
        });
        maps
    }

    /// Asks the program's allocator for its statistics, and waits a moment for the answer: a
    /// program that does not allocate gives none.
    pub fn ask_allocator(&self) {
        let header = self.header();
        if header.config.mallctl.load(Relaxed) == 0 {
            return;
        }
        let question = header.statistics.wanted.fetch_add(1, Release) + 1;
        for _ in 0..20 {
            if header.statistics.given.load(Acquire) == question {
                return;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// What the allocator has answered last: at which millisecond, and its figures.
    pub fn allocator_said(&self) -> Option<(u32, [Option<u64>; STATISTICS])> {
        let statistics = &self.header().statistics;
        if statistics.given.load(Acquire) == 0 {
            return None;
        }
        let figure = |at: usize| {
            let value = statistics.values[at].load(Relaxed);
            (value != u64::MAX).then_some(value)
        };
        Some((statistics.at_ms.load(Relaxed), std::array::from_fn(figure)))
    }

    /// The live blocks, in any order, each once.
    pub fn live(&self) -> LiveTable {
        let header = self.header();
        let large: HashMap<u64, u64> = rows(&header.large_blocks, self)
            .map(|row| (row.address.load(Acquire), row.size.load(Relaxed)))
            .filter(|(address, _)| *address != 0)
            .collect();
        let mut live = LiveTable {
            sample_bytes: header.config.sample_bytes.load(Relaxed),
            ..LiveTable::default()
        };
        let mut doubtful = Vec::new();
        for page in rows(&header.live_pages, self) {
            let first = live.blocks.len();
            for slot in 0..LIVE_SLOTS {
                let Some(mut block) = LiveBlock::unpack(page.load(slot)) else {
                    continue;
                };
                if block.size == SIZE_ESCAPE {
                    block.size = large.get(&block.address).copied().unwrap_or(SIZE_ESCAPE);
                }
                live.blocks.push(block);
            }
            if page.lock.load(Acquire) != 0 {
                doubtful.extend(live.blocks.drain(first..));
            }
        }
        if !doubtful.is_empty() {
            live.add_doubtful(doubtful);
        }
        live
    }

    /// Sums by context. Of a counter that another thread is changing one event may be missing.
    pub fn counters(&self, contexts: usize) -> Vec<CounterSums> {
        let header = self.header();
        let mut sums = vec![CounterSums::default(); contexts];
        let epoch = header.epoch.load(Acquire);
        let rising = header.sums.rising.load(Relaxed) != 0;
        let shards = rows(&header.threads, self).map(|slot| &slot.shard);
        for shard in shards.chain(std::iter::once(&header.late_shard)) {
            for counter in rows(&shard.counters, self) {
                let at = counter.context.load(Relaxed) as usize;
                let Some(sum) = sums.get_mut(at) else {
                    continue;
                };
                let live = (
                    counter.live_bytes.load(Relaxed),
                    counter.live_blocks.load(Relaxed),
                );
                let saved = counter.epoch.load(Relaxed) == epoch && !rising;
                let peak = match saved {
                    true => (
                        counter.peak_bytes.load(Relaxed),
                        counter.peak_blocks.load(Relaxed),
                    ),
                    false => live,
                };
                sum.allocations = sum
                    .allocations
                    .wrapping_add(counter.allocations.load(Relaxed));
                let bytes = counter.allocated_bytes.load(Relaxed);
                sum.allocated_bytes = sum.allocated_bytes.wrapping_add(bytes);
                sum.live_bytes += live.0;
                sum.live_blocks += live.1;
                sum.peak_bytes += peak.0;
                sum.peak_blocks += peak.1;
                sum.temporary += counter.temporary.load(Relaxed);
            }
        }
        sums
    }
}

impl LiveTable {
    /// What an entry stands for.
    pub fn booked(&self, block: &LiveBlock) -> Booked {
        sample::booked(block.address, block.size, self.sample_bytes)
    }

    /// Entries of pages that were caught half-way: those that stand elsewhere too are dropped.
    fn add_doubtful(&mut self, mut doubtful: Vec<LiveBlock>) {
        doubtful.sort_unstable_by_key(|block| block.address);
        let before = doubtful.len();
        doubtful.dedup_by_key(|block| block.address);
        let known: std::collections::HashSet<u64> =
            self.blocks.iter().map(|block| block.address).collect();
        doubtful.retain(|block| !known.contains(&block.address));
        self.torn += (before - doubtful.len()) as u64;
        self.blocks.extend(doubtful);
    }
}
