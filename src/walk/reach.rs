//! Who keeps each block: one pass that gives every block the colour of its holder.
//!
//! The bytes that a holder retains are those that nothing else reaches. Dominators answer more
//! than that and cost more; a colour that is given once and may turn once to "shared" answers
//! exactly that, in time linear in the pointers. Taken literally, though, everything is shared:
//! tokio's lists run through all cells, its timer wheel points into the middle of whatever waits,
//! and stacks are full of borrows. Three rules tell keeping from pointing:
//!
//! - a task's cell is an entry of its own: pointers to it hold nothing;
//! - where some owner points to the start of a block, pointers into its middle are loans; and so
//!   are pointers to a node of a tree that come from elsewhere than its parent;
//! - a stack holds what nobody else does. Beyond that, its pointers only count where a block
//!   counts its owners itself (`Arc`, `Rc`) and has several: any other block has one owner.
//!
//! What no pointer of any kind reaches is leaked; there, nothing counts as a loan.

use super::heap::Block;
use super::parents;
use super::roots::{Holder, RootSet};
use super::scan::{INTERIOR, Scan};
use crate::sys::mem;
use crate::sys::prefetch::prefetch;

/// Nobody reaches it.
pub(super) const NOBODY: u32 = 0;
/// Several holders do.
pub(super) const SHARED: u32 = u32::MAX;
/// No block.
pub(super) const NONE: u32 = u32::MAX;

pub(super) struct Reach {
    /// Of each block: index of its holder plus one, [`NOBODY`] or [`SHARED`].
    pub(super) colour: Vec<u32>,
    /// The block through which it was reached first, [`NONE`] for those that a root points to.
    pub(super) parent: Vec<u32>,
    /// Blocks that are reached, in the order in which they were: a parent before its children.
    pub(super) order: Vec<u32>,
}

impl Reach {
    pub(super) fn is_leaked(&self, block: u32) -> bool {
        self.colour[block as usize] == NOBODY
    }

    /// Bytes that the results take.
    pub(super) fn own_bytes(&self) -> u64 {
        (self.colour.len() * 8 + self.order.capacity() * 4) as u64
    }
}

/// A set of blocks.
pub(super) struct Marks(Vec<u64>);

impl Marks {
    pub(super) fn new(blocks: usize) -> Marks {
        Marks(vec![0; blocks.div_ceil(64)])
    }

    pub(super) fn of(blocks: usize, marked: &[u32]) -> Marks {
        let mut marks = Marks::new(blocks);
        marked.iter().for_each(|block| marks.set(*block));
        marks
    }

    pub(super) fn set(&mut self, block: u32) {
        self.0[block as usize / 64] |= 1 << (block % 64);
    }

    pub(super) fn has(&self, block: u32) -> bool {
        self.0[block as usize / 64] & (1 << (block % 64)) != 0
    }
}

/// Colour and parent of a block, which are looked at together.
#[derive(Clone, Copy)]
struct Mark {
    colour: u32,
    parent: u32,
}

struct Painter<'a> {
    scan: &'a Scan,
    /// Blocks that are cells of tasks.
    cells: Marks,
    /// Blocks to whose start somebody points.
    owned: Marks,
    /// Nodes of trees that point to their parent.
    nodes: Marks,
    marks: Vec<Mark>,
    order: Vec<u32>,
    /// Blocks of the order that have been followed.
    followed: usize,
}

/// Paints all blocks. `cell_blocks` are the tasks' cells in the order of the holders;
/// `counts_owners` tells of a block whether it is counted by several owners.
pub(super) fn paint(
    blocks: &[Block],
    scan: &Scan,
    roots: &RootSet,
    cell_blocks: &[u32],
    counts_owners: impl Fn(u32) -> bool,
) -> Reach {
    let nodes = parents::know_their_parent(blocks, scan);
    let blocks = scan.len();
    let mut painter = Painter {
        scan,
        cells: Marks::of(blocks, cell_blocks),
        owned: Marks::new(blocks),
        nodes,
        marks: mem::filled(
            Mark {
                colour: NOBODY,
                parent: NONE,
            },
            blocks,
        ),
        order: mem::with_capacity(blocks),
        followed: 0,
    };
    painter.mark_owned(roots);
    for (&cell, colour) in cell_blocks.iter().zip(1..) {
        painter.marks[cell as usize].colour = colour;
    }
    for (number, holder) in roots.holders.iter().enumerate() {
        let colour = number as u32 + 1;
        if let Holder::Task(cell) = holder {
            painter.order.push(cell_blocks[*cell as usize]);
            painter.drain(colour);
        } else if holder.is_weak() {
            painter.lesser_root(roots.edges(number), colour, &counts_owners);
        } else {
            painter.root(roots.edges(number), colour);
        }
    }
    painter.follow_loans(roots);
    let Painter { marks, order, .. } = painter;
    Reach {
        colour: marks.iter().map(|mark| mark.colour).collect(),
        parent: marks.iter().map(|mark| mark.parent).collect(),
        order,
    }
}

impl Painter<'_> {
    fn mark_owned(&mut self, roots: &RootSet) {
        for block in 0..self.scan.len() as u32 {
            for &edge in self.scan.edges(block) {
                if edge & INTERIOR == 0 && edge != block {
                    self.owned.set(edge);
                }
            }
        }
        for (number, holder) in roots.holders.iter().enumerate() {
            // Stacks are not asked: they hold stale starts of what a table inside a thread-local
            // keeps by a pointer into its middle.
            if !holder.is_weak() {
                for &edge in roots.edges(number) {
                    if edge & INTERIOR == 0 {
                        self.owned.set(edge);
                    }
                }
            }
        }
    }

    /// The block that this pointer keeps, if it keeps one; `from` a block, or [`NONE`] for a
    /// root. Cells are asked for later: few are.
    #[inline]
    fn kept(&self, edge: u32, from: u32) -> Option<u32> {
        let block = edge & !INTERIOR;
        let loan = match edge & INTERIOR {
            0 => self.nodes.has(block) && !self.scan.edges(block).contains(&from),
            _ => self.owned.has(block),
        };
        (!loan).then_some(block)
    }

    #[inline]
    fn colour(&self, block: u32) -> u32 {
        self.marks[block as usize].colour
    }

    #[inline]
    fn take(&mut self, block: u32, colour: u32, parent: u32) {
        self.marks[block as usize] = Mark { colour, parent };
        self.order.push(block);
    }

    fn root(&mut self, edges: &[u32], colour: u32) {
        for &edge in edges {
            if let Some(block) = self.kept(edge, NONE) {
                self.reached(block, colour, NONE);
            }
        }
        self.drain(colour);
    }

    /// Follows everything that was taken since the last time, breadth first: what comes next is
    /// known early enough to be fetched from memory meanwhile.
    fn drain(&mut self, colour: u32) {
        let scan = self.scan;
        while let Some(block) = self.next() {
            if self.colour(block) != colour {
                continue;
            }
            for &edge in scan.edges(block) {
                if let Some(next) = self.kept(edge, block) {
                    self.reached(next, colour, block);
                }
            }
        }
    }

    fn next(&mut self) -> Option<u32> {
        const STEP: usize = 8;
        let ahead = |steps: usize| self.order.get(self.followed + steps * STEP);
        if let Some(&block) = ahead(3) {
            self.scan.prefetch_bounds(block);
        }
        if let Some(&block) = ahead(2) {
            self.scan.prefetch_edges(block);
        }
        if let Some(&block) = ahead(1) {
            for &edge in self.scan.edges(block).iter().take(8) {
                prefetch(&self.marks, (edge & !INTERIOR) as usize);
            }
        }
        let block = *self.order.get(self.followed)?;
        self.followed += 1;
        Some(block)
    }

    #[inline]
    fn reached(&mut self, block: u32, colour: u32, parent: u32) {
        match self.colour(block) {
            // Cells have their colour from the beginning.
            NOBODY => self.take(block, colour, parent),
            SHARED => {}
            other if other == colour => {}
            _ => self.share(block),
        }
    }

    /// Everything that a shared block keeps is shared; a cell never is.
    fn share(&mut self, block: u32) {
        if self.cells.has(block) {
            return;
        }
        let scan = self.scan;
        let mut shared = vec![block];
        self.marks[block as usize].colour = SHARED;
        while let Some(block) = shared.pop() {
            for &edge in scan.edges(block) {
                let Some(next) = self.kept(edge, block) else {
                    continue;
                };
                match self.colour(next) {
                    SHARED => {}
                    NOBODY => {
                        self.take(next, SHARED, block);
                        shared.push(next);
                    }
                    _ if self.cells.has(next) => {}
                    _ => {
                        self.marks[next as usize].colour = SHARED;
                        shared.push(next);
                    }
                }
            }
        }
    }

    fn lesser_root(&mut self, edges: &[u32], colour: u32, counts_owners: &impl Fn(u32) -> bool) {
        for &edge in edges {
            if let Some(block) = self.kept(edge, NONE) {
                let counts = edge & INTERIOR == 0;
                self.reached_lesser(block, colour, NONE, |block| counts && counts_owners(block));
            }
        }
        let scan = self.scan;
        while let Some(block) = self.next() {
            if self.colour(block) != colour {
                continue;
            }
            for &edge in scan.edges(block) {
                if let Some(next) = self.kept(edge, block) {
                    self.reached_lesser(next, colour, block, counts_owners);
                }
            }
        }
    }

    /// Like [`Self::reached`], with the rule for stacks.
    fn reached_lesser(
        &mut self,
        block: u32,
        colour: u32,
        parent: u32,
        counts_owners: impl Fn(u32) -> bool,
    ) {
        match self.colour(block) {
            NOBODY => self.take(block, colour, parent),
            SHARED => {}
            other if other == colour => {}
            _ if counts_owners(block) => self.share(block),
            _ => {}
        }
    }

    /// Blocks that are only lent are kept by whoever borrows them.
    fn follow_loans(&mut self, roots: &RootSet) {
        let scan = self.scan;
        for number in 0..roots.holders.len() {
            for &edge in roots.edges(number) {
                self.lend(edge, number as u32 + 1, NONE);
            }
        }
        // What had a holder before has followed all pointers but loans.
        let before = self.followed;
        let mut at = 0;
        while let Some(&block) = self.order.get(at) {
            let colour = self.colour(block);
            for &edge in scan.edges(block) {
                let is_loan = edge & INTERIOR != 0 || self.nodes.has(edge);
                if at >= before || is_loan {
                    self.lend(edge, colour, block);
                }
            }
            at += 1;
        }
    }

    fn lend(&mut self, edge: u32, colour: u32, parent: u32) {
        let block = edge & !INTERIOR;
        if self.colour(block) == NOBODY {
            self.take(block, colour, parent);
        }
    }
}
