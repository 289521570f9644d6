//! Who keeps what, on heaps made at random and by hand, beside a slow and obvious answer.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::heap::Block;
use super::image::Sketch;
use super::index::BlockIndex;
use super::reach::*;
use super::roots::{Holder, RootSet};
use super::scan::Key;
use super::scan::{INTERIOR, Scan};

/// A heap in which block n is at `at(n)` and has these pointers.
#[derive(Debug)]
struct World {
    all: Vec<Block>,
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
        all,
        scan,
        roots,
        cells,
        blocks: blocks.len(),
    }
}

impl World {
    fn paint(&self) -> Reach {
        paint(&self.all, &self.scan, &self.roots, &self.cells, |_| false)
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
    let counted = paint(&world.all, &world.scan, &world.roots, &world.cells, |_| {
        true
    });
    assert_eq!(counted.colour, [1, SHARED]);
}
