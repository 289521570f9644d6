//! Structures: which blocks hang on which, and what they look like from above.
//!
//! The first way by which a block was reached makes a tree of the heap, as long as it stays with
//! one holder: what several holders reach begins a tree of its own. A whole structure is then one
//! block with everything below it, and two structures look the same if they have as many blocks
//! of each size from each stack: the sum of one number per block says so, in any order.
//!
//! A linked list has no top: what hangs on its first node is all of it, and the two halves of one
//! that was reached in the middle look the same by chance. What repeats there are its elements.

use std::collections::{HashMap, HashSet};

use super::heap::{Block, Heap};
use super::reach::{Marks, NOBODY, NONE, Reach};
use super::shape::mix;
use crate::sys::mem;

/// No place in the order: leaked.
const NOWHERE: u32 = u32::MAX;

pub(super) struct Tree {
    /// Blocks, each followed by everything below it.
    order: Vec<u32>,
    /// Of each block: its place in `order`.
    at: Vec<u32>,
    /// Of each block: how many blocks hang on it, itself included.
    count: Vec<u32>,
    /// Of each block: requested bytes of those.
    bytes: Vec<u64>,
    /// Of each block: what they look like.
    look: Vec<u64>,
    /// Of each block: the one it hangs on, [`NONE`] for those that begin a tree.
    pub(super) parent: Vec<u32>,
    /// Looks of parts of lists that stand few times in one holder.
    parts_of_lists: HashSet<u64>,
}

/// Nodes of a list.
const LEAST_NODES: u8 = 8;

/// What a block looks like: its size and its stack.
pub(super) fn class(heap: &Heap, stacks: &[u64], block: &Block) -> u64 {
    let node = heap.node_of_context(block.context) as usize;
    mix(stacks.get(node).copied().unwrap_or(0), block.size)
}

impl Tree {
    /// Cells of tasks begin trees, and so does everything that hangs on one.
    pub(super) fn new(heap: &Heap, reach: &Reach, cells: &Marks, stacks: &[u64]) -> Tree {
        let blocks = heap.blocks.len();
        let mut tree = Tree {
            order: mem::filled(NOWHERE, reach.order.len()),
            at: mem::filled(NOWHERE, blocks),
            count: mem::filled(0, blocks),
            bytes: mem::filled(0, blocks),
            look: mem::filled(0, blocks),
            parent: mem::filled(NONE, blocks),
            parts_of_lists: HashSet::new(),
        };
        for &block in reach.order.iter().rev() {
            let at = block as usize;
            let own = &heap.blocks[at];
            tree.count[at] += 1;
            tree.bytes[at] += own.size;
            tree.look[at] = tree.look[at].wrapping_add(class(heap, stacks, own));
            let parent = reach.parent[at];
            if parent == NONE || cells.has(parent) || cells.has(block) {
                continue;
            }
            if reach.colour[parent as usize] == reach.colour[at] {
                tree.parent[at] = parent;
                let (count, bytes, look) = (tree.count[at], tree.bytes[at], tree.look[at]);
                let up = parent as usize;
                tree.count[up] += count;
                tree.bytes[up] += bytes;
                tree.look[up] = tree.look[up].wrapping_add(look);
            }
        }
        tree.lay_out(reach);
        tree.parts_of_lists = tree.find_parts_of_lists(heap, reach, stacks);
        tree
    }

    /// Looks of blocks in chains of like blocks, each hanging on the one before, if one holder has
    /// all of them and there are fewer than the chain has nodes.
    fn find_parts_of_lists(&self, heap: &Heap, reach: &Reach, stacks: &[u64]) -> HashSet<u64> {
        let class = |block: u32| class(heap, stacks, &heap.blocks[block as usize]);
        let like_parent = |block: u32| match self.parent[block as usize] {
            NONE => None,
            parent => (class(parent) == class(block)).then_some(parent as usize),
        };
        // How many like blocks stand above each, and below it, itself included.
        let mut above: Vec<u8> = mem::filled(0, self.at.len());
        let mut below: Vec<u8> = mem::filled(1, self.at.len());
        for &block in &reach.order {
            if let Some(parent) = like_parent(block) {
                above[block as usize] = above[parent].saturating_add(1);
            }
        }
        for &block in reach.order.iter().rev() {
            if above[block as usize] > 0 {
                let parent = self.parent[block as usize] as usize;
                below[parent] = below[parent].max(below[block as usize].saturating_add(1));
            }
        }
        let mut seen: HashMap<u64, (u32, bool, u64)> = HashMap::new();
        for &block in &reach.order {
            let at = block as usize;
            if above[at].saturating_add(below[at]) < LEAST_NODES {
                continue;
            }
            let colour = reach.colour[at];
            let (first, one_holder, count) = seen.entry(self.look[at]).or_insert((colour, true, 0));
            *one_holder &= *first == colour;
            *count += 1;
        }
        let few = seen
            .into_iter()
            .filter(|(_, (_, one, count))| *one && *count < u64::from(LEAST_NODES));
        few.map(|(look, _)| look).collect()
    }

    /// Gives every block its place: a tree's blocks lie together.
    fn lay_out(&mut self, reach: &Reach) {
        let mut next_tree = 0;
        // Where the next child of a block goes.
        let mut next: Vec<u32> = mem::filled(0, self.at.len());
        for &block in &reach.order {
            let at = block as usize;
            let place = match self.parent[at] {
                NONE => {
                    let place = next_tree;
                    next_tree += self.count[at];
                    place
                }
                parent => {
                    let place = next[parent as usize];
                    next[parent as usize] += self.count[at];
                    place
                }
            };
            self.at[at] = place;
            next[at] = place + 1;
            self.order[place as usize] = block;
        }
    }

    /// Begins a tree: a root, a task's cell or something of another holder points to it.
    pub(super) fn is_top(&self, block: u32) -> bool {
        self.parent[block as usize] == NONE
    }

    /// The block and everything that hangs on it.
    pub(super) fn below(&self, block: u32) -> &[u32] {
        let at = self.at[block as usize];
        if at == NOWHERE {
            return &[];
        }
        &self.order[at as usize..(at + self.count[block as usize]) as usize]
    }

    pub(super) fn bytes(&self, block: u32) -> u64 {
        self.bytes[block as usize]
    }

    pub(super) fn look(&self, block: u32) -> u64 {
        self.look[block as usize]
    }

    /// Bytes that the tree takes.
    pub(super) fn own_bytes(&self) -> u64 {
        (self.at.len() * 28 + self.order.len() * 4) as u64
    }
}

/// Structures that exist more than once, as large as possible: their topmost blocks, those that
/// look the same next to each other. What hangs on `known` is left out.
pub(super) fn repeated(tree: &Tree, reach: &Reach, cells: &Marks, known: &Marks) -> Vec<Vec<u32>> {
    let mut seen = Seen::new(reach.order.len());
    for &block in &reach.order {
        if !cells.has(block) {
            seen.add(tree.look(block));
        }
    }
    let mut single: HashSet<u64> = tree.parts_of_lists.clone();
    // A look that is taken for repeated by chance hides what is below it: then look again.
    for _ in 0..4 {
        let mut candidates = topmost(tree, reach, cells, known, |look| {
            seen.is_repeated(look) && !single.contains(&look)
        });
        // Members of a group in the order of their addresses.
        candidates.sort_unstable_by_key(|&block| (tree.look(block), block));
        let groups = candidates.chunk_by(|a, b| tree.look(*a) == tree.look(*b));
        let before = single.len();
        single.extend(
            groups
                .clone()
                .filter(|g| g.len() == 1)
                .map(|g| tree.look(g[0])),
        );
        if single.len() == before {
            return groups.map(<[u32]>::to_vec).collect();
        }
    }
    let mut candidates = topmost(tree, reach, cells, known, |look| {
        seen.is_repeated(look) && !single.contains(&look)
    });
    candidates.sort_unstable_by_key(|&block| (tree.look(block), block));
    let groups = candidates.chunk_by(|a, b| tree.look(*a) == tree.look(*b));
    groups
        .filter(|group| group.len() > 1)
        .map(<[u32]>::to_vec)
        .collect()
}

/// Blocks that match and hang on none that does or is known.
fn topmost(
    tree: &Tree,
    reach: &Reach,
    cells: &Marks,
    known: &Marks,
    matches: impl Fn(u64) -> bool,
) -> Vec<u32> {
    let mut covered = Marks::new(reach.colour.len());
    let mut found = Vec::new();
    for &block in &reach.order {
        let parent = tree.parent[block as usize];
        if known.has(block) || parent != NONE && covered.has(parent) {
            covered.set(block);
        } else if !cells.has(block) && matches(tree.look(block)) {
            covered.set(block);
            found.push(block);
        }
        debug_assert_ne!(reach.colour[block as usize], NOBODY);
    }
    found
}

/// Which numbers were added more than once: never wrong about those that were, sometimes about
/// others.
struct Seen {
    once: Vec<u64>,
    twice: Vec<u64>,
    mask: u64,
}

impl Seen {
    fn new(expected: usize) -> Seen {
        let bits = (expected.max(64) * 8).next_power_of_two();
        Seen {
            once: vec![0; bits / 64],
            twice: vec![0; bits / 64],
            mask: bits as u64 - 1,
        }
    }

    fn add(&mut self, number: u64) {
        let bit = number & self.mask;
        let (at, bit) = ((bit / 64) as usize, 1u64 << (bit % 64));
        self.twice[at] |= self.once[at] & bit;
        self.once[at] |= bit;
    }

    fn is_repeated(&self, number: u64) -> bool {
        let bit = number & self.mask;
        self.twice[(bit / 64) as usize] & (1 << (bit % 64)) != 0
    }
}
