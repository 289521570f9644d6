//! Blocks that nothing reaches.
//!
//! A leaked structure is one mistake, not as many as it has blocks: what matters is the block
//! that nobody points to, and everything that it reaches follows. A cycle has no such block (each
//! is pointed to by another), so cycles are found as strongly connected components, and those that
//! no other leaked block leads to are the mistakes.

use std::collections::HashMap;

use super::heap::Heap;
use super::hidden::Hidden;
use super::reach::Reach;
use super::scan::{INTERIOR, Scan};
use crate::profile::{ContextId, WalkLeak};

/// What kind of mistake, and where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Group {
    context: u32,
    /// Context of the block that leads to it, itself if none does.
    root: u32,
    cycle: bool,
}

/// Leaked blocks, as numbers from 0 in the order of the blocks.
struct Lost<'a> {
    scan: &'a Scan,
    blocks: Vec<u32>,
    number: HashMap<u32, u32>,
}

impl Lost<'_> {
    fn next(&self, lost: u32) -> impl Iterator<Item = u32> + '_ {
        let edges = self.scan.edges(self.blocks[lost as usize]);
        edges
            .iter()
            .filter_map(|edge| self.number.get(&(edge & !INTERIOR)).copied())
    }
}

/// Largest first.
pub(super) fn find(
    heap: &Heap,
    scan: &Scan,
    reach: &Reach,
    hidden: impl FnOnce(&[u32]) -> Hidden,
) -> Vec<WalkLeak> {
    let is_known = |block: u32| {
        let context = heap.blocks[block as usize].context;
        heap.node_of_context(context) != 0
    };
    let blocks: Vec<u32> = (0..heap.blocks.len() as u32)
        .filter(|&block| reach.is_leaked(block) && is_known(block))
        .collect();
    if blocks.is_empty() {
        return Vec::new();
    }
    let number = blocks.iter().copied().zip(0..).collect();
    let lost = Lost {
        scan,
        blocks,
        number,
    };
    let (component, components) = components(&lost);
    let lead = lead(&lost, &component, components);
    let roots: Vec<u32> = (0..lost.blocks.len() as u32)
        .filter(|&at| lead[at as usize].0 == at)
        .map(|at| lost.blocks[at as usize])
        .collect();
    let hidden = hidden(&roots);
    let mut rows: HashMap<(Group, bool), WalkLeak> = HashMap::new();
    for (at, &block) in lost.blocks.iter().enumerate() {
        let (root, cycle) = lead[at];
        let direct = component[at] == component[root as usize];
        let context = |block: u32| heap.blocks[block as usize].context;
        let root_block = lost.blocks[root as usize];
        let group = Group {
            context: context(block),
            root: context(root_block),
            cycle,
        };
        let possible = hidden.may_be_known(root_block);
        let row = rows.entry((group, possible)).or_default();
        let size = heap.blocks[block as usize].size;
        row.blocks += 1;
        row.bytes += size;
        if !direct {
            row.indirect_blocks += 1;
            row.indirect_bytes += size;
        }
    }
    let mut rows: Vec<WalkLeak> = rows
        .into_iter()
        .map(|((group, possible), row)| WalkLeak {
            context: Some(ContextId(group.context)),
            root_context: Some(ContextId(group.root)),
            cycle: group.cycle,
            possible,
            ..row
        })
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.context, row.root_context));
    rows
}

/// Of each lost block the component it belongs to, and how many components there are. Components
/// are numbered so that an edge between two leads to the smaller number (Tarjan's algorithm,
/// without recursion: a list may be long).
fn components(lost: &Lost) -> (Vec<u32>, u32) {
    const NEW: u32 = u32::MAX;
    let count = lost.blocks.len();
    let mut component = vec![NEW; count];
    let mut met = vec![NEW; count];
    let mut low = vec![0u32; count];
    let (mut open, mut path) = (Vec::new(), Vec::new());
    let (mut clock, mut components) = (0, 0);
    for start in 0..count as u32 {
        if met[start as usize] != NEW {
            continue;
        }
        path.push((start, lost.next(start).collect::<Vec<_>>().into_iter()));
        met[start as usize] = clock;
        low[start as usize] = clock;
        clock += 1;
        open.push(start);
        while let Some((at, rest)) = path.last_mut() {
            let at = *at as usize;
            if let Some(next) = rest.next() {
                if met[next as usize] == NEW {
                    met[next as usize] = clock;
                    low[next as usize] = clock;
                    clock += 1;
                    open.push(next);
                    path.push((next, lost.next(next).collect::<Vec<_>>().into_iter()));
                } else if component[next as usize] == NEW {
                    low[at] = low[at].min(met[next as usize]);
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                low[*before as usize] = low[*before as usize].min(low[at]);
            }
            if low[at] == met[at] {
                while let Some(member) = open.pop() {
                    component[member as usize] = components;
                    if member as usize == at {
                        break;
                    }
                }
                components += 1;
            }
        }
    }
    (component, components)
}

/// Of each lost block: the lost block that it is blamed on, and whether that is part of a cycle.
fn lead(lost: &Lost, component: &[u32], components: u32) -> Vec<(u32, bool)> {
    let count = component.len();
    let mut led_to = vec![false; components as usize];
    let mut members = vec![0u32; components as usize];
    let mut cyclic = vec![false; components as usize];
    for at in 0..count as u32 {
        let own = component[at as usize];
        members[own as usize] += 1;
        for next in lost.next(at) {
            let other = component[next as usize];
            if other != own {
                led_to[other as usize] = true;
            } else if next == at {
                cyclic[own as usize] = true;
            }
        }
    }
    let mut lead = vec![(u32::MAX, false); count];
    let mut todo = Vec::new();
    for at in 0..count as u32 {
        let own = component[at as usize] as usize;
        if led_to[own] || lead[at as usize].0 != u32::MAX {
            continue;
        }
        let cycle = cyclic[own] || members[own] > 1;
        lead[at as usize] = (at, cycle);
        todo.push(at);
        while let Some(from) = todo.pop() {
            for next in lost.next(from) {
                if lead[next as usize].0 == u32::MAX {
                    lead[next as usize] = (at, cycle);
                    todo.push(next);
                }
            }
        }
    }
    lead
}

#[cfg(test)]
mod tests {
    use super::super::heap::{Block, ContextInfo};
    use super::super::image::Sketch;
    use super::super::index::BlockIndex;
    use super::super::reach::paint;
    use super::super::roots::{Holder, RootSet};
    use super::super::scan::Key;
    use super::*;

    fn at(block: u32) -> u64 {
        0x10_0000 + u64::from(block) * 256
    }

    /// Block n has the pointers `heap[n]` and the context n + 1; block 0 is held.
    fn leaks(heap: &[&[u32]]) -> Vec<WalkLeak> {
        let mut sketch = Sketch::default();
        let blocks: Vec<Block> = (0..heap.len() as u32)
            .map(|n| Block {
                address: at(n),
                size: 100,
                context: n + 1,
                row: 0,
            })
            .collect();
        for (n, pointers) in (0u32..).zip(heap) {
            sketch.put(
                at(n),
                &pointers.iter().map(|to| at(*to)).collect::<Vec<_>>(),
            );
        }
        let node = ContextInfo {
            node: 1,
            ..ContextInfo::default()
        };
        let contexts = vec![node; heap.len() + 1];
        let heap = Heap {
            blocks,
            contexts,
            ..Heap::default()
        };
        let index = BlockIndex::new(&heap.blocks);
        let scan = Scan::run(&heap.blocks, &index, &sketch, Key::random());
        let roots = RootSet::from_pointers(0, vec![(Holder::Data, 0)]);
        let reach = paint(&heap.blocks, &scan, &roots, &[], |_| false);
        let mut rows = find(&heap, &scan, &reach, |_| Hidden::default());
        rows.sort_by_key(|row| row.context);
        rows
    }

    #[test]
    fn what_a_leaked_block_leads_to_is_blamed_on_it() {
        let rows = leaks(&[&[], &[2], &[3], &[0]]);
        assert_eq!(rows.len(), 3);
        assert!(
            rows.iter()
                .all(|row| row.root_context == Some(ContextId(2)) && !row.cycle)
        );
        let indirect: Vec<u64> = rows.iter().map(|row| row.indirect_blocks).collect();
        assert_eq!(indirect, [0, 1, 1]);
    }

    #[test]
    fn a_cycle_is_one_mistake_with_all_that_it_leads_to() {
        // 1 and 2 hold each other, 1 holds 3; 4 holds itself; nobody holds 5, which holds 4.
        let rows = leaks(&[&[], &[2, 3], &[1], &[], &[4], &[4]]);
        let told: Vec<(u32, u32, bool, u64)> = rows
            .iter()
            .map(|r| {
                let root = r.root_context.unwrap().0;
                (r.context.unwrap().0, root, r.cycle, r.indirect_bytes)
            })
            .collect();
        let cycle_root = told[0].1;
        assert!(cycle_root == 2 || cycle_root == 3);
        assert_eq!(
            told,
            [
                (2, cycle_root, true, 0),
                (3, cycle_root, true, 0),
                (4, cycle_root, true, 100),
                (5, 6, false, 100),
                (6, 6, false, 0),
            ]
        );
    }

    #[test]
    fn what_is_held_is_not_leaked() {
        assert!(leaks(&[&[1], &[2], &[0]]).is_empty());
    }
}
