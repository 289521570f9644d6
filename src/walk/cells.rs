//! tokio's tasks, found in the heap.
//!
//! A task is one block, its cell: a state word, a link, and a pointer to a table of seven
//! functions and three offsets in read-only data. That is enough to know one without any debug
//! information. Two traps: a freed block keeps its contents but for the first words, so only
//! starts of live blocks are asked; and the order of the table's fields is the compiler's choice,
//! so the offsets are told apart by their sizes, which the layout of a cell fixes.

use std::collections::HashMap;

use super::heap::{Heap, OwnerKind, RowState};
use super::image::Memory;
use super::index::BlockIndex;

/// Cells are aligned to this where tokio pads against false sharing (x86-64 and aarch64).
const CELL_ALIGN: u64 = 128;

/// Bits of a cell's state word.
const COMPLETE: u64 = 1 << 1;
const JOIN_INTEREST: u64 = 1 << 3;

/// Words of the table that are looked at: one more than it needs, for its newer form.
const TABLE_WORDS: usize = 10;

/// A task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub(super) block: u32,
    pub(super) state: u64,
    /// tokio's task id; 0 where the table could not be read.
    pub(super) id: u64,
    /// Into the heap's owners.
    pub(super) owner: u32,
    /// Into the heap's rows; 0 if the recorder does not know the task.
    pub(super) row: u32,
}

impl Cell {
    pub(super) fn is_complete(self) -> bool {
        self.state & COMPLETE != 0
    }

    /// The `JoinHandle` is there.
    pub(super) fn is_joinable(self) -> bool {
        self.state & JOIN_INTEREST != 0
    }
}

/// Offsets in a cell, from its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Table {
    id: u64,
    trailer: u64,
}

/// Finds all cells; ascending by block.
pub(super) fn find(
    heap: &Heap,
    index: &BlockIndex,
    memory: &impl Memory,
    is_code: impl Fn(u64) -> bool,
) -> Vec<Cell> {
    let mut cells = known_to_the_recorder(heap, index, memory);
    let by_vtable: HashMap<u64, u32> = (0..)
        .zip(&heap.owners)
        .filter(|(_, owner)| owner.vtable != 0)
        .map(|(at, owner)| (owner.vtable, at))
        .collect();
    let mut tables: HashMap<u64, Option<Table>> = HashMap::new();
    for (number, block) in (0u32..).zip(&heap.blocks) {
        let may_be = block.address.is_multiple_of(CELL_ALIGN) && block.size >= CELL_ALIGN;
        if !may_be || cells.contains_key(&number) {
            continue;
        }
        let vtable = memory.word(block.address + 16);
        if vtable < 4096 || !vtable.is_multiple_of(8) || index.find(vtable).is_some() {
            continue;
        }
        let table = tables
            .entry(vtable)
            .or_insert_with(|| read_table(vtable, memory, &is_code));
        let Some(table) = table.filter(|table| table.trailer < block.size) else {
            continue;
        };
        let id = memory.word(block.address + table.id);
        if id == 0 || id >= 1 << 48 {
            continue;
        }
        let made_by = heap.owner_of_context(block.context);
        let owner = by_vtable.get(&vtable).copied().unwrap_or(made_by);
        let state = memory.word(block.address);
        cells.insert(
            number,
            Cell {
                block: number,
                state,
                id,
                owner,
                row: 0,
            },
        );
    }
    let mut cells: Vec<Cell> = cells.into_values().collect();
    cells.sort_unstable_by_key(|cell| cell.block);
    cells
}

fn known_to_the_recorder(
    heap: &Heap,
    index: &BlockIndex,
    memory: &impl Memory,
) -> HashMap<u32, Cell> {
    let mut cells = HashMap::new();
    for (row, info) in (0u32..).zip(&heap.rows) {
        if info.state != RowState::TaskAlive || info.cell == 0 {
            continue;
        }
        let is_task = |owner: &super::OwnerInfo| owner.kind == OwnerKind::Task;
        if !heap.owners.get(info.owner as usize).is_some_and(is_task) {
            continue;
        }
        if let Some(block) = index.starting_at(info.cell) {
            let state = memory.word(info.cell);
            let cell = Cell {
                block,
                state,
                id: info.id,
                owner: info.owner,
                row,
            };
            cells.insert(block, cell);
        }
    }
    cells
}

/// Seven functions and three offsets in any order: first the scheduler's, then the id's, which
/// may be the same if the scheduler has no size, then the trailer's.
fn read_table(vtable: u64, memory: &impl Memory, is_code: &impl Fn(u64) -> bool) -> Option<Table> {
    let mut offsets = Vec::new();
    let mut functions = 0;
    // Any word of the heap may stand where a cell has its table: also one near the last address.
    vtable.checked_add(8 * TABLE_WORDS as u64)?;
    for n in 0..TABLE_WORDS as u64 {
        let word = memory.word(vtable + n * 8);
        if is_code(word) {
            functions += 1;
        } else {
            offsets.push(word);
        }
    }
    offsets.sort_unstable();
    match offsets[..] {
        [scheduler, id, trailer] if functions == 7 => {
            let fits = scheduler >= 24 && id < trailer && trailer < 1 << 40;
            fits.then_some(Table { id, trailer })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::heap::Block;
    use super::super::image::Sketch;
    use super::*;

    fn world(table: [u64; 10]) -> (Heap, Sketch) {
        let cell = 0x7000_0000;
        let vtable = 0x5000_0000;
        let mut sketch = Sketch::default();
        sketch.put(vtable, &table);
        sketch.put(cell, &[3 << 6 | JOIN_INTEREST, 0, vtable, 1, 0, 0, 77, 0]);
        let block = Block {
            address: cell,
            size: 256,
            context: 0,
            row: 0,
        };
        let lookalike = Block {
            address: cell + 512,
            size: 256,
            context: 0,
            row: 0,
        };
        let blocks = vec![block, lookalike];
        (
            Heap {
                blocks,
                ..Heap::default()
            },
            sketch,
        )
    }

    fn found(table: [u64; 10]) -> Vec<Cell> {
        let (heap, sketch) = world(table);
        let index = BlockIndex::new(&heap.blocks);
        find(&heap, &index, &sketch, |word| {
            (0x1000..0x2000).contains(&word)
        })
    }

    #[test]
    fn a_cell_is_known_by_its_table_in_any_order() {
        let code = 0x1800;
        for table in [
            [code, code, code, code, code, code, code, 200, 40, 48],
            [48, code, 40, code, code, code, 200, code, code, code],
        ] {
            let cells = found(table);
            assert_eq!(cells.len(), 1);
            assert_eq!((cells[0].block, cells[0].id), (0, 77));
            assert!(cells[0].is_joinable() && !cells[0].is_complete());
        }
    }

    #[test]
    fn a_word_at_the_end_of_the_address_space_is_no_table() {
        let (heap, mut sketch) = world([0; 10]);
        sketch.put(heap.blocks[0].address, &[0, 0, u64::MAX - 7]);
        let index = BlockIndex::new(&heap.blocks);
        assert!(find(&heap, &index, &sketch, |_| true).is_empty());
    }

    #[test]
    fn what_only_resembles_a_table_is_none() {
        let code = 0x1800;
        assert!(found([code; 10]).is_empty());
        // The trailer would lie outside the block.
        assert!(found([code, code, code, code, code, code, code, 300, 40, 48]).is_empty());
        assert!(found([code, code, code, code, code, code, 1, 200, 40, 48]).is_empty());
    }
}
