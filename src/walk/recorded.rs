//! From the recorder's tables to what a walk needs to know.

use super::heap::{
    Block, ContextInfo, Heap, NodeTable, OwnerInfo, OwnerKind, RowInfo, RowState, Source,
    ThreadInfo,
};
use crate::profile::recording::{Names, RowCopy, Tables};
use crate::wire::{self, Allocator, Context, LiveBlock, NodeFlags};

/// The live blocks, as the recorder has them.
pub fn blocks(live: &[LiveBlock]) -> Vec<Block> {
    live.iter()
        .map(|block| Block {
            address: block.address,
            size: block.size,
            context: block.context,
            row: block.row,
        })
        .collect()
}

/// Everything else. `blocks` come from the moment of the stop.
pub fn heap(tables: &Tables, blocks: Vec<Block>, names: &Names) -> Heap {
    Heap {
        blocks,
        contexts: tables
            .contexts
            .iter()
            .map(|(node, owner)| context(tables, *node, *owner))
            .collect(),
        nodes: NodeTable {
            parent: tables.node_parent.clone(),
            address: tables.node_address.clone(),
            flags: tables
                .node_flags
                .iter()
                .map(|flags| flags & 0xffff)
                .collect(),
            machinery: names.machinery.clone(),
        },
        rows: tables.rows.iter().map(row).collect(),
        owners: owners(tables, names),
        threads: tables
            .threads
            .iter()
            .map(|thread| ThreadInfo {
                tid: thread.tid,
                thread_pointer: thread.thread_pointer,
                // The recorder knows how far down it has been used, not how far it reaches.
                stack_low: 0,
                stack_high: thread.stack_high,
                row: thread.row,
            })
            .collect(),
        now_ms: tables.now_ms,
    }
}

fn context(tables: &Tables, node: u32, owner: u32) -> ContextInfo {
    let flags = tables.node_flags.get(node as usize).copied().unwrap_or(0);
    let by = owner >> Context::ALLOCATOR_SHIFT;
    ContextInfo {
        node,
        owner: owner & Context::OWNER_MASK,
        shared: flags & NodeFlags::SHARED_INIT != 0,
        thread_local_init: flags & NodeFlags::THREAD_LOCAL_INIT != 0,
        from: match by {
            by if by == Allocator::Malloc as u32 => Source::Malloc,
            by if by == Allocator::Jemalloc as u32 => Source::Jemalloc,
            by if by == Allocator::Mimalloc as u32 => Source::Mimalloc,
            _ => Source::Other,
        },
    }
}

fn row(row: &RowCopy) -> RowInfo {
    let states = [
        (wire::RowState::TaskAlive, RowState::TaskAlive),
        (wire::RowState::TaskGone, RowState::TaskGone),
        (wire::RowState::ThreadAlive, RowState::ThreadAlive),
        (wire::RowState::ThreadGone, RowState::ThreadGone),
    ];
    let state = states.iter().find(|(state, _)| *state as u32 == row.state);
    RowInfo {
        id: row.id,
        cell: row.cell,
        owner: row.owner,
        state: state.map_or(RowState::Free, |(_, state)| *state),
        last_event_ms: row.last_event_ms,
    }
}

fn owners(tables: &Tables, names: &Names) -> Vec<OwnerInfo> {
    let owners = tables.owners.iter().enumerate();
    owners
        .map(|(at, owner)| {
            let kind = match owner.kind {
                kind if kind == wire::OwnerKind::Task as u32 => OwnerKind::Task,
                kind if kind == wire::OwnerKind::Thread as u32 => OwnerKind::Thread,
                kind if kind == wire::OwnerKind::Scope as u32 => OwnerKind::Scope,
                _ => OwnerKind::Unknown,
            };
            let task = names.tasks.get(&(at as u32));
            OwnerInfo {
                kind,
                runtime_own: task.is_some_and(|name| name.runtime_own),
                name: task.map_or_else(|| owner.name.clone(), |name| name.name.clone()),
                vtable: if kind == OwnerKind::Task {
                    owner.key
                } else {
                    0
                },
            }
        })
        .collect()
}
