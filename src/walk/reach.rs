//! Who keeps each block: one pass that gives every block the colour of its holder.
//!
//! The bytes that a holder retains are those that nothing else reaches. Dominators answer more
//! than that and cost more; a colour that is given once and may turn once to "shared" answers
//! exactly that, in time linear in the pointers. Taken literally, though, everything is shared:
//! tokio's lists run through all cells, its timer wheel points into the middle of whatever waits,
//! and stacks are full of borrows. Three rules tell keeping from pointing:
//!
//! - a task's cell is an entry of its own: pointers to it hold nothing;
//! - where some owner points to the start of a block, pointers into its middle are loans;
//! - a stack holds what nobody else does. Beyond that, its pointers only count where a block
//!   counts its owners itself (`Arc`, `Rc`) and has several: any other block has one owner.
//!
//! What no pointer of any kind reaches is leaked; there, nothing counts as a loan.

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
    marks: Vec<Mark>,
    order: Vec<u32>,
    /// Blocks of the order that have been followed.
    followed: usize,
}

/// Paints all blocks. `cell_blocks` are the tasks' cells in the order of the holders;
/// `counts_owners` tells of a block whether it is counted by several owners.
pub(super) fn paint(
    scan: &Scan,
    roots: &RootSet,
    cell_blocks: &[u32],
    counts_owners: impl Fn(u32) -> bool,
) -> Reach {
    let blocks = scan.len();
    let mut painter = Painter {
        scan,
        cells: Marks::of(blocks, cell_blocks),
        owned: Marks::new(blocks),
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

    /// The block that the edge keeps, if it keeps one. Cells are asked for later: few are.
    #[inline]
    fn kept(&self, edge: u32) -> Option<u32> {
        let block = edge & !INTERIOR;
        let loan = edge & INTERIOR != 0 && self.owned.has(block);
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
            if let Some(block) = self.kept(edge) {
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
                if let Some(next) = self.kept(edge) {
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
                let Some(next) = self.kept(edge) else {
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
            if let Some(block) = self.kept(edge) {
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
                if let Some(next) = self.kept(edge) {
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
        // What had a holder before has followed all pointers but those into the middle.
        let before = self.followed;
        let mut at = 0;
        while let Some(&block) = self.order.get(at) {
            let colour = self.colour(block);
            for &edge in scan.edges(block) {
                if at >= before || edge & INTERIOR != 0 {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::heap::Block;
    use super::super::image::Sketch;
    use super::super::index::BlockIndex;
    use super::super::scan::Key;
    use super::*;

    /// A heap in which block n is at `at(n)` and has these pointers.
    #[derive(Debug)]
    struct World {
        scan: Scan,
        roots: RootSet,
        cells: Vec<u32>,
        blocks: usize,
    }

    fn at(block: u32) -> u64 {
        0x10_0000 + u64::from(block) * 256
    }

    /// To the start of a block, or into its middle.
    type Pointer = (u32, bool);

    fn world(blocks: Vec<Vec<Pointer>>, cells: Vec<u32>, roots: Vec<(Holder, Pointer)>) -> World {
        let mut sketch = Sketch::default();
        let all: Vec<Block> = (0..blocks.len() as u32)
            .map(|n| Block {
                address: at(n),
                size: 128,
                ..Block::default()
            })
            .collect();
        for (n, pointers) in (0u32..).zip(&blocks) {
            let words: Vec<u64> = pointers
                .iter()
                .map(|&(to, inside)| at(to) + u64::from(inside) * 40)
                .collect();
            sketch.put(at(n), &words);
        }
        let index = BlockIndex::new(&all);
        let scan = Scan::run(&all, &index, &sketch, Key::random());
        let edge = |(to, inside)| if inside { to | INTERIOR } else { to };
        let pointers = roots
            .into_iter()
            .map(|(holder, to)| (holder, edge(to)))
            .collect();
        let roots = RootSet::from_pointers(cells.len(), pointers);
        World {
            scan,
            roots,
            cells,
            blocks: blocks.len(),
        }
    }

    impl World {
        fn paint(&self) -> Reach {
            paint(&self.scan, &self.roots, &self.cells, |_| false)
        }

        fn edges_of_holder(&self, number: usize) -> &[u32] {
            match self.roots.holders[number] {
                Holder::Task(cell) => self.scan.edges(self.cells[cell as usize]),
                _ => self.roots.edges(number),
            }
        }

        /// Slow and obvious: what can be reached from these over edges that pass.
        fn closure(&self, from: &[u32], passes: impl Fn(u32) -> bool) -> BTreeSet<u32> {
            let mut found = BTreeSet::new();
            let mut todo: Vec<u32> = from.to_vec();
            while let Some(edge) = todo.pop() {
                if passes(edge) && found.insert(edge & !INTERIOR) {
                    todo.extend(self.scan.edges(edge & !INTERIOR));
                }
            }
            found
        }

        fn has_owner(&self, block: u32) -> bool {
            let inside = (0..self.blocks as u32)
                .any(|from| from != block && self.scan.edges(from).contains(&block));
            inside || (0..self.roots.holders.len()).any(|n| self.roots.edges(n).contains(&block))
        }
    }

    fn pointer(blocks: u32) -> impl Strategy<Value = Pointer> {
        (0..blocks, prop::bool::weighted(0.3))
    }

    fn any_world(with_stacks: bool) -> impl Strategy<Value = World> {
        (2u32..24).prop_flat_map(move |n| {
            let heap = prop::collection::vec(prop::collection::vec(pointer(n), 0..4), n as usize);
            let cells = prop::collection::btree_set(0..n, 0..4);
            let kinds = if with_stacks { 4 } else { 3 };
            let roots = prop::collection::vec((0..kinds, 0u32..3, pointer(n)), 0..6);
            (heap, cells, roots).prop_map(|(heap, cells, roots)| {
                let holder = |kind, of| match kind {
                    0 => Holder::ThreadLocal {
                        slot: of,
                        thread: 0,
                    },
                    1 => Holder::Static(of),
                    2 => Holder::Data,
                    _ => Holder::Stack(of),
                };
                let roots = roots
                    .into_iter()
                    .map(|(kind, of, to)| (holder(kind, of), to));
                world(heap, cells.into_iter().collect(), roots.collect())
            })
        })
    }

    proptest! {
        #[test]
        fn only_what_no_pointer_reaches_is_leaked(world in any_world(true)) {
            let reach = world.paint();
            let mut from: Vec<u32> = world.cells.clone();
            (0..world.roots.holders.len()).for_each(|n| from.extend(world.edges_of_holder(n)));
            let reached = world.closure(&from, |_| true);
            for block in 0..world.blocks as u32 {
                prop_assert_eq!(reach.is_leaked(block), !reached.contains(&block));
            }
            let mut order = reach.order.clone();
            order.sort_unstable();
            prop_assert_eq!(order, reached.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn a_colour_is_of_the_only_holder(world in any_world(false)) {
            let reach = world.paint();
            let kept = |edge: u32| {
                let block = edge & !INTERIOR;
                !world.cells.contains(&block) && (edge & INTERIOR == 0 || !world.has_owner(block))
            };
            let reached: Vec<BTreeSet<u32>> = (0..world.roots.holders.len())
                .map(|n| world.closure(world.edges_of_holder(n), kept))
                .collect();
            for block in (0..world.blocks as u32).filter(|b| !world.cells.contains(b)) {
                let by: Vec<usize> =
                    (0..reached.len()).filter(|n| reached[*n].contains(&block)).collect();
                let colour = reach.colour[block as usize];
                match by[..] {
                    [] => {}
                    [one] => prop_assert_eq!(colour, one as u32 + 1),
                    _ => prop_assert_eq!(colour, SHARED),
                }
            }
        }
    }

    #[test]
    fn lists_through_cells_and_loans_merge_nothing() {
        let inside = |to| (to, true);
        let start = |to| (to, false);
        // 0 and 1 are cells, linked to each other; each has a box (2, 3); 4 is a timer wheel that
        // points into both boxes; both tasks know the wheel.
        let world = world(
            vec![
                vec![start(1), start(2), start(4)],
                vec![start(0), start(3), start(4)],
                vec![],
                vec![],
                vec![inside(2), inside(3), start(0)],
            ],
            vec![0, 1],
            vec![(Holder::Data, start(0)), (Holder::Stack(0), start(2))],
        );
        assert_eq!(world.paint().colour, [1, 2, 1, 2, SHARED]);
    }

    #[test]
    fn a_stack_shares_only_what_counts_its_owners() {
        let world = world(
            vec![vec![(1, false)], vec![]],
            vec![0],
            vec![(Holder::Stack(0), (1, false))],
        );
        assert_eq!(world.paint().colour, [1, 1]);
        let counted = paint(&world.scan, &world.roots, &world.cells, |_| true);
        assert_eq!(counted.colour, [1, SHARED]);
    }
}
