//! What the rows say of the owners: how much each task and thread holds, and held at the peak.

use super::super::{Owner, OwnerKind, Profile, Spread};
use super::tables::{LiveTable, RowCopy, Tables};
use crate::wire::{NO_ROW, RowState};

/// Values of one owner type, one for each of its tasks or threads.
#[derive(Default)]
struct Values {
    live: Vec<u64>,
    peak: Vec<u64>,
    idle: Vec<u64>,
}

/// Fills the owners' figures. `finished` are the rows of tasks that are complete.
pub(super) fn fill_owners(
    profile: &mut Profile,
    tables: &Tables,
    live: &LiveTable,
    finished: Option<&[u32]>,
) {
    let mut held = vec![0u64; tables.rows.len()];
    for block in &live.blocks {
        if let Some(sum) = held
            .get_mut(block.row as usize)
            .filter(|_| block.row != NO_ROW)
        {
            *sum += live.booked(block).bytes;
        }
    }
    let mut values: Vec<Values> = profile.owners.iter().map(|_| Values::default()).collect();
    for (at, row) in tables.rows.iter().enumerate().skip(1) {
        let kind = row.owner as usize;
        let Some(owner) = profile.owners.get_mut(kind) else {
            continue;
        };
        owner.allocated_bytes += row.allocated_bytes;
        owner.live_bytes += held[at];
        if is_gone(row) {
            owner.outlived_bytes += held[at];
        }
        if is_alive(row) {
            values[kind].live.push(held[at]);
            values[kind]
                .idle
                .push(u64::from(tables.now_ms.saturating_sub(row.last_event_ms)));
        }
        let peak = at_peak(row, tables);
        owner.peak_bytes += peak;
        if peak > 0 {
            values[kind].peak.push(peak);
        }
    }
    for (owner, values) in profile.owners.iter_mut().zip(values) {
        owner.per_live = Spread::of(values.live);
        owner.per_peak = Spread::of(values.peak);
        if owner.kind == OwnerKind::Task {
            owner.idle_ms = Spread::of(values.idle);
        }
    }
    if let Some(finished) = finished {
        count_finished(&mut profile.owners, tables, finished);
    }
    name_loops(&mut profile.owners, tables);
}

/// The loop of a runtime worker gets the name of the threads that run it: to a reader it is
/// that thread.
fn name_loops(owners: &mut [Owner], tables: &Tables) {
    for at in 0..owners.len() {
        if !owners[at].runtime_own {
            continue;
        }
        let threads = (tables.rows.iter())
            .filter(|row| row.owner as usize == at)
            .filter_map(|row| tables.rows.get(row.thread as usize))
            .filter_map(|row| owners.get(row.owner as usize));
        let name = threads
            .filter(|owner| owner.kind == OwnerKind::Thread)
            .map(|owner| owner.name.clone())
            .next();
        if let Some(name) = name {
            owners[at].name = name;
        }
    }
}

fn count_finished(owners: &mut [Owner], tables: &Tables, finished: &[u32]) {
    for owner in owners
        .iter_mut()
        .filter(|owner| owner.kind == OwnerKind::Task)
    {
        owner.finished_allocated = Some(0);
    }
    for row in finished
        .iter()
        .filter_map(|row| tables.rows.get(*row as usize))
    {
        if let Some(owner) = owners.get_mut(row.owner as usize) {
            *owner.finished_allocated.get_or_insert(0) += 1;
        }
    }
}

fn is_alive(row: &RowCopy) -> bool {
    row.state == RowState::TaskAlive as u32 || row.state == RowState::ThreadAlive as u32
}

fn is_gone(row: &RowCopy) -> bool {
    row.state == RowState::TaskGone as u32 || row.state == RowState::ThreadGone as u32
}

/// Live bytes of the row at the peak: saved by the first event since, or unchanged since then.
fn at_peak(row: &RowCopy, tables: &Tables) -> u64 {
    let saved = row.peak_epoch == tables.epoch && !tables.rising;
    let bytes = match saved {
        true => row.peak_bytes,
        false if row.state == RowState::Free as u32 => 0,
        false => row.live_bytes,
    };
    bytes.max(0) as u64
}
