//! Heaps made by hand, for tests: blocks with words in them, roots, and stacks.

use std::collections::HashMap;

use super::cells::Cell;
use super::copies::Finder;
use super::equal::Comparer;
use super::heap::{
    Block, ContextInfo, Heap, NodeTable, OwnerInfo, OwnerKind, Roots, RowInfo, StaticSlot,
    ThreadLocalSlot,
};
use super::image::Sketch;
use super::index::BlockIndex;
use super::names::Names;
use super::reach::{self, Marks};
use super::roots::{Holder, RootSet};
use super::scan::{Key, Scan};
use super::shape;
use super::tree::Tree;
use super::whose::Attribution;
use crate::profile::WalkCopies;

/// Grows a heap. Blocks lie apart, so that none is taken for another.
pub(super) struct World {
    pub(super) heap: Heap,
    pub(super) sketch: Sketch,
    pub(super) roots: Roots,
    pub(super) pointers: Vec<(Holder, u32)>,
    pub(super) cells: Vec<Cell>,
    next: u64,
}

impl World {
    pub(super) fn new() -> World {
        let owner = |kind, name: &str| OwnerInfo {
            kind,
            name: name.to_owned(),
            ..OwnerInfo::default()
        };
        let heap = Heap {
            contexts: vec![ContextInfo::default()],
            nodes: NodeTable {
                parent: vec![0],
                address: vec![0],
                flags: vec![0],
                machinery: vec![false],
            },
            rows: vec![RowInfo::default()],
            owners: vec![
                owner(OwnerKind::Unknown, ""),
                owner(OwnerKind::Task, "handler"),
            ],
            ..Heap::default()
        };
        let slot = ThreadLocalSlot {
            name: "app::RULES".to_owned(),
            ..Default::default()
        };
        let fixed = StaticSlot {
            name: "app::POOL".to_owned(),
            ..Default::default()
        };
        let roots = Roots {
            thread_locals: vec![slot],
            statics: vec![fixed],
            ..Roots::default()
        };
        World {
            heap,
            sketch: Sketch::default(),
            roots,
            pointers: Vec::new(),
            cells: Vec::new(),
            next: 0x10_0000,
        }
    }

    /// A node below `parent`.
    pub(super) fn node(&mut self, parent: u32, machinery: bool) -> u32 {
        let nodes = &mut self.heap.nodes;
        nodes.parent.push(parent);
        nodes.address.push(0x1000 + nodes.parent.len() as u64);
        nodes.flags.push(0);
        nodes.machinery.push(machinery);
        nodes.parent.len() as u32 - 1
    }

    pub(super) fn context(&mut self, node: u32) -> u32 {
        self.heap.contexts.push(ContextInfo {
            node,
            owner: 1,
            ..ContextInfo::default()
        });
        self.heap.contexts.len() as u32 - 1
    }

    /// A block with these first words; returns its address. Blocks are numbered as they come.
    pub(super) fn block(&mut self, size: u64, context: u32, words: &[u64]) -> u64 {
        let address = self.next;
        self.next += size.next_multiple_of(128) + 128;
        self.sketch.put(address, words);
        self.heap.blocks.push(Block {
            address,
            size,
            context,
            row: 0,
        });
        address
    }

    pub(super) fn last(&self) -> u32 {
        self.heap.blocks.len() as u32 - 1
    }

    /// A task whose cell has these words.
    pub(super) fn task(&mut self, words: &[u64]) {
        self.block(256, 0, words);
        let block = self.last();
        self.cells.push(Cell {
            block,
            state: 0,
            id: 1,
            owner: 1,
            row: 0,
        });
    }

    pub(super) fn hold(&mut self, holder: Holder, address: u64) {
        let at = self
            .heap
            .blocks
            .partition_point(|block| block.address < address);
        self.pointers.push((holder, at as u32));
    }

    pub(super) fn copies(&self) -> Vec<WalkCopies> {
        let heap = &self.heap;
        let index = BlockIndex::new(&heap.blocks);
        let scan = Scan::run(&heap.blocks, &index, &self.sketch, Key::random());
        let set = RootSet::from_pointers(self.cells.len(), self.pointers.clone());
        let cell_blocks: Vec<u32> = self.cells.iter().map(|cell| cell.block).collect();
        let reach = reach::paint(&heap.blocks, &scan, &set, &cell_blocks, |_| false);
        let stacks = shape::comparable(heap);
        let marks = Marks::of(heap.blocks.len(), &cell_blocks);
        let tree = Tree::new(heap, &reach, &marks, &stacks);
        let (roots, cells, threads) = (&self.roots, &self.cells[..], &[][..]);
        let names = Names {
            heap,
            roots,
            set: &set,
            cells,
            threads,
        };
        let comparer = Comparer {
            heap,
            scan: &scan,
            index: &index,
            memory: &self.sketch,
        };
        let attribution = Attribution {
            names: &names,
            reach: &reach,
            tree: &tree,
            counts_owners: &|_| false,
        };
        let finder = Finder {
            attribution: &attribution,
            names: &names,
            reach: &reach,
            tree: &tree,
            comparer: &comparer,
            usage: &HashMap::new(),
        };
        finder.find(&marks)
    }
}
