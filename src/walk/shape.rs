//! Where blocks were made: stacks, made comparable, and the frame that made a whole structure.
//!
//! Two blocks that the same code made need not have the same stack: a task is polled from the
//! queue or from the slot of the last waker, on a worker or in `block_on`. Cutting stacks to their
//! innermost frames would compare what different callers made. So a stack counts from the
//! outermost frame that is not machinery of the runtime, of a thread, or of a lazy initialiser:
//! where nobody can tell (no symbols), all of it counts.

use std::collections::{BTreeMap, HashMap};

use super::heap::Heap;
use super::reach::{NOBODY, Reach, SHARED};
use crate::profile::{NodeId, OwnerId};
use crate::wire::NodeFlags;

/// Of each node: a number that is the same for stacks that count as one.
pub(super) fn comparable(heap: &Heap) -> Vec<u64> {
    let nodes = &heap.nodes;
    let mut stacks: Vec<u64> = Vec::with_capacity(nodes.parent.len());
    const START: u64 = 0x9e37_79b9_7f4a_7c15;
    for (at, &parent) in nodes.parent.iter().enumerate() {
        let flags = nodes.flags.get(at).copied().unwrap_or(0);
        let machinery = nodes.machinery.get(at).copied().unwrap_or(false);
        if at == 0 || machinery || flags & NodeFlags::INIT_ROOT != 0 {
            stacks.push(START);
            continue;
        }
        let before = stacks.get(parent as usize).copied().unwrap_or(START);
        let address = nodes.address.get(at).copied().unwrap_or(0);
        stacks.push(mix(before, address));
    }
    stacks
}

/// Of each node: a number for its innermost frames. Coarser than [`comparable`]: it compares what
/// different callers made.
pub(super) fn innermost(heap: &Heap) -> Vec<u64> {
    const FRAMES: usize = 3;
    let nodes = &heap.nodes;
    let stack = |node: usize| {
        let (mut at, mut number) = (node, 0);
        for _ in 0..FRAMES {
            if at == 0 || nodes.machinery.get(at) == Some(&true) {
                break;
            }
            number = mix(number, nodes.address.get(at).copied().unwrap_or(0));
            at = nodes.parent[at] as usize;
        }
        number
    };
    (0..nodes.parent.len()).map(stack).collect()
}

/// Order matters: `mix(mix(s, a), b)` and `mix(mix(s, b), a)` differ.
pub(super) fn mix(state: u64, value: u64) -> u64 {
    let product =
        u128::from(state ^ 0xa076_1d64_78bd_642f) * u128::from(value ^ 0xe703_7ed1_a0b4_28db);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The deepest node below which at least so much of the bytes was made.
const MOST: f64 = 0.95;

/// The calling frame under which nearly all of these bytes were made: `bytes` per node. Where
/// that is machinery, which tells nothing, the same for the branch below it that made most.
pub(super) fn common_node(heap: &Heap, bytes: &HashMap<u32, u64>) -> Option<NodeId> {
    let tells_nothing =
        |node: u32| node == 0 || heap.nodes.machinery.get(node as usize) == Some(&true);
    let mut part: BTreeMap<u32, u64> = bytes.iter().map(|(n, b)| (*n, *b)).collect();
    loop {
        let (common, heaviest) = common_of(heap, &part)?;
        if !tells_nothing(common) {
            return Some(NodeId(common));
        }
        // Parts made in the machinery itself belong to no branch.
        let branch = heaviest?;
        part.retain(|node, _| is_below(heap, *node, branch));
    }
}

/// The deepest node below which most of the bytes were made, and its child that made most.
fn common_of(heap: &Heap, bytes: &BTreeMap<u32, u64>) -> Option<(u32, Option<u32>)> {
    let total: u64 = bytes.values().sum();
    let parent = |node: u32| heap.nodes.parent.get(node as usize).copied().unwrap_or(0);
    // A child has a larger number than its parent: from the largest down, each node's sum is
    // whole when it is met.
    let mut below = bytes.clone();
    let mut heaviest: HashMap<u32, (u64, u32)> = HashMap::new();
    while let Some((node, sum)) = below.pop_last() {
        if node == 0 || total > 0 && sum as f64 >= total as f64 * MOST {
            return Some((node, heaviest.get(&node).map(|(_, child)| *child)));
        }
        let up = parent(node).min(node - 1);
        let child = heaviest.entry(up).or_default();
        *child = (*child).max((sum, node));
        *below.entry(up).or_default() += sum;
    }
    None
}

fn is_below(heap: &Heap, node: u32, above: u32) -> bool {
    let mut at = node;
    while at > above {
        at = heap
            .nodes
            .parent
            .get(at as usize)
            .copied()
            .unwrap_or(0)
            .min(at - 1);
    }
    at == above
}

/// Who made what each holder keeps.
pub(super) struct Makers<'a> {
    heap: &'a Heap,
    /// Bytes by holder and context.
    bytes: HashMap<(u32, u32), u64>,
    /// Contexts of each holder that is asked for.
    contexts: HashMap<u32, Vec<u32>>,
}

impl<'a> Makers<'a> {
    /// For holders of which `asked` is true.
    pub(super) fn new(heap: &'a Heap, reach: &Reach, asked: impl Fn(u32) -> bool) -> Makers<'a> {
        let mut bytes: HashMap<(u32, u32), u64> = HashMap::new();
        for (block, &colour) in heap.blocks.iter().zip(&reach.colour) {
            if colour != NOBODY && colour != SHARED && asked(colour - 1) {
                *bytes.entry((colour - 1, block.context)).or_default() += block.size;
            }
        }
        let mut contexts: HashMap<u32, Vec<u32>> = HashMap::new();
        for &(holder, context) in bytes.keys() {
            contexts.entry(holder).or_default().push(context);
        }
        Makers {
            heap,
            bytes,
            contexts,
        }
    }

    fn of(&self, holder: u32) -> impl Iterator<Item = (u32, u64)> + '_ {
        let contexts = self.contexts.get(&holder).into_iter().flatten();
        contexts.map(move |&context| (context, self.bytes[&(holder, context)]))
    }

    /// The frame under which the values of these holders were made.
    pub(super) fn node_of_holders(&self, holders: &[u32]) -> Option<NodeId> {
        let mut nodes: HashMap<u32, u64> = HashMap::new();
        for &holder in holders {
            for (context, bytes) in self.of(holder) {
                *nodes.entry(self.heap.node_of_context(context)).or_default() += bytes;
            }
        }
        common_node(self.heap, &nodes)
    }

    /// Who ran the initialiser of a static: the owner of most of what it made.
    pub(super) fn first_toucher(&self, holder: u32) -> Option<OwnerId> {
        let mut owners: HashMap<u32, u64> = HashMap::new();
        for (context, bytes) in self.of(holder) {
            if self
                .heap
                .contexts
                .get(context as usize)
                .is_some_and(|c| c.shared)
            {
                *owners
                    .entry(self.heap.owner_of_context(context))
                    .or_default() += bytes;
            }
        }
        let most = owners
            .into_iter()
            .max_by_key(|&(owner, bytes)| (bytes, owner));
        most.map(|(owner, _)| OwnerId(owner))
    }
}
