//! Nodes of trees that know their parent.
//!
//! Memory that is used again holds pointers of its former life, in slots that are not in use: the
//! spare capacity of a buffer, the empty half of a node. Such a pointer into a tree whose nodes
//! point to their parents (`BTreeMap`) reaches all of the tree, upwards, and makes it look shared
//! by whoever the garbage belongs to. But a node has one parent, and points to it: where a block
//! points back to one that points to it, others that point to it only seem to.
//!
//! The same holds the other way round for the parent, to which its children point back. What is
//! up and what is down is told by numbers: a child of one size has one partner of the other size,
//! a parent has several. Where both have as many (a linked list), nothing is concluded.

use std::collections::HashMap;

use super::heap::Block;
use super::reach::Marks;
use super::scan::{INTERIOR, Scan};

/// Partners that a parent has at least, and a child at most, on average.
const PARENT: f64 = 1.5;
const CHILD: f64 = 1.05;

/// A block and one that it points to and that points back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    from: u32,
    to: u32,
}

/// Blocks that know their parent.
pub(super) fn know_their_parent(blocks: &[Block], scan: &Scan) -> Marks {
    let pairs = pairs(scan);
    let size = |block: u32| blocks[block as usize].size;
    let mut kinds: HashMap<(u64, u64), Vec<Pair>> = HashMap::new();
    for pair in pairs {
        let (from, to) = (size(pair.from), size(pair.to));
        if from != to {
            kinds.entry((from, to)).or_default().push(pair);
        }
    }
    let mut know = Marks::new(blocks.len());
    for mut pairs in kinds.into_values() {
        let count = pairs.len() as f64;
        pairs.sort_unstable_by_key(|pair| pair.to);
        let parents = pairs.chunk_by(|a, b| a.to == b.to).count() as f64;
        pairs.sort_unstable_by_key(|pair| pair.from);
        let children = pairs.chunk_by(|a, b| a.from == b.from).count() as f64;
        if count >= parents * PARENT && count <= children * CHILD {
            pairs.iter().for_each(|pair| know.set(pair.from));
        }
    }
    know
}

/// Blocks with one that they point to and that points back, as far as the latter is pointed to by
/// several, as a parent is by its children.
fn pairs(scan: &Scan) -> Vec<Pair> {
    let blocks = scan.len() as u32;
    let mut once = Marks::new(blocks as usize);
    let mut several = Marks::new(blocks as usize);
    for block in 0..blocks {
        for &to in scan.edges(block) {
            if to & INTERIOR == 0 && to != block {
                if once.has(to) {
                    several.set(to);
                }
                once.set(to);
            }
        }
    }
    let mut pairs = Vec::new();
    let mut ask = Vec::new();
    for from in 0..blocks {
        for &to in scan.edges(from) {
            if to & INTERIOR == 0 && to != from && several.has(to) {
                scan.prefetch_bounds(to);
                ask.push(Pair { from, to });
            }
        }
        // Together, so that they are fetched from memory together.
        if ask.len() >= 64 || from + 1 == blocks {
            for pair in &ask {
                scan.prefetch_edges(pair.to);
            }
            pairs.extend(ask.drain(..).filter(|p| scan.edges(p.to).contains(&p.from)));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::super::image::Sketch;
    use super::super::index::BlockIndex;
    use super::super::scan::Key;
    use super::*;

    #[test]
    fn leaves_of_a_tree_know_their_parent_and_nobody_else_does() {
        let at = |block: u64| 0x10_0000 + block * 1024;
        // 0 is a parent, 1 to 3 its children; 4 has a stale pointer to 1; 5 and 6 are a list.
        let heap: [(u64, &[u64]); 7] = [
            (728, &[1, 2, 3]),
            (632, &[0]),
            (632, &[0]),
            (632, &[0]),
            (500, &[1, 5]),
            (24, &[6]),
            (32, &[5]),
        ];
        let mut sketch = Sketch::default();
        let mut blocks = Vec::new();
        for (n, (size, to)) in (0..).zip(heap) {
            sketch.put(at(n), &to.iter().map(|to| at(*to)).collect::<Vec<_>>());
            blocks.push(Block {
                address: at(n),
                size,
                ..Block::default()
            });
        }
        let index = BlockIndex::new(&blocks);
        let scan = Scan::run(&blocks, &index, &sketch, Key::random());
        let know = know_their_parent(&blocks, &scan);
        let found: Vec<u32> = (0..7).filter(|block| know.has(*block)).collect();
        assert_eq!(found, [1, 2, 3]);
    }
}
