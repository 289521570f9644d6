//! Who is there and what each has: tasks, threads, thread-locals, statics.

use std::collections::{HashMap, HashSet};

use super::cells::Cell;
use super::heap::{Heap, OwnerKind, RowState, ThreadInfo};
use super::image::Image;
use super::names::Names;
use super::reach::{NOBODY, Reach, SHARED};
use super::regions::{Region, Span};
use super::roots::Holder;
use super::shape::Makers;
use crate::profile::{
    ContextId, OwnerId, Spread, WalkStatic, WalkTask, WalkThread, WalkThreadLocal,
};

/// Bytes and blocks by holder and by maker.
pub(super) struct Sums {
    /// Of each holder: bytes that only it reaches.
    pub(super) retained: Vec<u64>,
    pub(super) retained_blocks: Vec<u64>,
    /// Of each row: bytes that it made and that are live.
    pub(super) owned: Vec<u64>,
    /// Bytes and blocks of each context.
    pub(super) contexts: Vec<(u64, u64)>,
}

impl Sums {
    pub(super) fn new(heap: &Heap, reach: &Reach, holders: usize) -> Sums {
        let mut sums = Sums {
            retained: vec![0; holders],
            retained_blocks: vec![0; holders],
            owned: vec![0; heap.rows.len()],
            contexts: vec![(0, 0); heap.contexts.len()],
        };
        for (block, &colour) in heap.blocks.iter().zip(&reach.colour) {
            if colour != NOBODY && colour != SHARED {
                sums.retained[colour as usize - 1] += block.size;
                sums.retained_blocks[colour as usize - 1] += 1;
            }
            if let Some(owned) = sums.owned.get_mut(block.row as usize) {
                *owned += block.size;
            }
            if let Some((bytes, blocks)) = sums.contexts.get_mut(block.context as usize) {
                *bytes += block.size;
                *blocks += 1;
            }
        }
        sums
    }

    pub(super) fn of_contexts(&self) -> Vec<(ContextId, u64, u64)> {
        (0u32..)
            .zip(&self.contexts)
            .filter(|(_, (_, blocks))| *blocks > 0)
            .map(|(context, &(bytes, blocks))| (ContextId(context), bytes, blocks))
            .collect()
    }
}

#[derive(Default)]
struct TaskValues {
    row: WalkTask,
    owned: Vec<u64>,
    owned_finished: Vec<u64>,
    retained: Vec<u64>,
    idle: Vec<u64>,
}

/// One row for each task type that has cells. The first holders are the tasks.
pub(super) fn tasks(heap: &Heap, cells: &[Cell], sums: &Sums) -> Vec<WalkTask> {
    let mut types: HashMap<u32, TaskValues> = HashMap::new();
    for (cell, &retained) in cells.iter().zip(&sums.retained) {
        let values = types.entry(cell.owner).or_default();
        let owned = match cell.row {
            0 => None,
            row => Some(sums.owned[row as usize]),
        };
        let size = heap.blocks[cell.block as usize].size;
        values.row.cell_bytes = values.row.cell_bytes.max(size);
        values.row.join_dropped += u64::from(!cell.is_joinable());
        if cell.is_complete() {
            values.row.finished += 1;
            values.row.finished_bytes += retained;
            values.owned_finished.extend(owned);
            continue;
        }
        values.row.live += 1;
        values.row.retained_bytes += retained;
        values.retained.push(retained);
        values.owned.extend(owned);
        if let Some(row) = heap.rows.get(cell.row as usize).filter(|_| cell.row != 0) {
            values
                .idle
                .push(u64::from(heap.now_ms.saturating_sub(row.last_event_ms)));
        }
    }
    let mut rows: Vec<WalkTask> = types
        .into_iter()
        .map(|(owner, values)| WalkTask {
            owner: Some(OwnerId(owner)),
            owned: Spread::of(values.owned),
            owned_finished: Spread::of(values.owned_finished),
            retained: Spread::of(values.retained),
            idle_ms: Spread::of(values.idle),
            ..values.row
        })
        .collect();
    rows.sort_by_key(|row| row.owner);
    rows
}

/// One row for each name of threads.
pub(super) fn threads(
    heap: &Heap,
    image: &Image,
    threads: &[ThreadInfo],
    sums: &Sums,
) -> Vec<WalkThread> {
    let mut names: HashMap<&str, (WalkThread, Vec<u64>)> = HashMap::new();
    let type_of = |row: u32| heap.rows.get(row as usize).map_or(0, |row| row.owner);
    let name_of = |row: u32| {
        heap.owners
            .get(type_of(row) as usize)
            .map_or("", |o| &o.name)
    };
    let stopped: HashSet<i32> = image.threads.iter().map(|thread| thread.tid).collect();
    let stacks: HashMap<i32, &Span> = image.spans.iter().filter_map(stack_of).collect();
    for thread in threads
        .iter()
        .filter(|thread| stopped.contains(&thread.tid))
    {
        let (row, reserved) = names.entry(name_of(thread.row)).or_default();
        row.count += 1;
        if let Some(span) = stacks.get(&thread.tid) {
            row.stack_resident += span.rss;
            reserved.push(span.end - span.start);
        }
    }
    for (number, row) in heap.rows.iter().enumerate() {
        let alive = row.state == RowState::ThreadAlive;
        let kind = heap.owners.get(row.owner as usize).map(|owner| owner.kind);
        if alive && kind == Some(OwnerKind::Thread) {
            let name = heap.owners[row.owner as usize].name.as_str();
            names.entry(name).or_default().0.owned_bytes += sums.owned[number];
        }
    }
    let mut rows: Vec<WalkThread> = names
        .into_iter()
        .map(|(name, (row, mut reserved))| {
            reserved.sort_unstable();
            let stack_reserved_each = reserved.get(reserved.len() / 2).copied().unwrap_or(0);
            WalkThread {
                name: name.to_owned(),
                stack_reserved_each,
                ..row
            }
        })
        .collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

/// The thread whose stack the span is, and the span.
fn stack_of(span: &Span) -> Option<(i32, &Span)> {
    match span.region {
        Region::Stack { tid, .. } => Some((tid, span)),
        _ => None,
    }
}

/// Blocks of each thread-local's threads, for a comparison of their values.
pub(super) struct LocalValues {
    /// Into the slots.
    pub(super) slot: u32,
    /// Index of the holder, for each thread that keeps something by it.
    pub(super) holders: Vec<u32>,
}

/// Thread-locals that keep blocks, largest first, without `identical`.
pub(super) fn thread_locals(
    names: &Names,
    sums: &Sums,
    makers: &Makers,
) -> Vec<(WalkThreadLocal, LocalValues)> {
    let mut slots: HashMap<u32, Vec<u32>> = HashMap::new();
    for (number, holder) in (0u32..).zip(&names.set.holders) {
        if let Holder::ThreadLocal { slot, .. } = holder
            && sums.retained[number as usize] > 0
        {
            slots.entry(*slot).or_default().push(number);
        }
    }
    let mut rows: Vec<(WalkThreadLocal, LocalValues)> = slots
        .into_iter()
        .map(|(slot, holders)| {
            let each: Vec<u64> = holders.iter().map(|h| sums.retained[*h as usize]).collect();
            let row = WalkThreadLocal {
                name: names.roots.thread_locals[slot as usize].name.clone(),
                node: makers.node_of_holders(&holders),
                threads: holders.len() as u64,
                bytes: each.iter().sum(),
                per_thread: Spread::of(each),
                ..WalkThreadLocal::default()
            };
            (row, LocalValues { slot, holders })
        })
        .collect();
    rows.sort_by_key(|(row, values)| (std::cmp::Reverse(row.bytes), values.slot));
    rows
}

/// Statics that keep blocks, largest first, each with its slot.
pub(super) fn statics(names: &Names, sums: &Sums, makers: &Makers) -> Vec<(WalkStatic, u32)> {
    let mut rows: Vec<(WalkStatic, u32)> = (0u32..)
        .zip(&names.set.holders)
        .filter(|(number, _)| sums.retained[*number as usize] > 0)
        .filter_map(|(number, holder)| {
            let Holder::Static(slot) = holder else {
                return None;
            };
            let row = WalkStatic {
                name: names.roots.statics[*slot as usize].name.clone(),
                node: makers.node_of_holders(&[number]),
                bytes: sums.retained[number as usize],
                blocks: sums.retained_blocks[number as usize],
                first_touched_by: makers.first_toucher(number),
            };
            Some((row, *slot))
        })
        .collect();
    rows.sort_by(|(a, _), (b, _)| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    rows
}
