//! Pointers that are hidden: tagged in the high bits, shifted, inverted, masked with a key,
//! linked by exclusive or, or cut to 32 bits.
//!
//! A block that is only known by such a pointer looks leaked and is not, and a false accusation is
//! worse than a miss. So before blocks are called leaked, everything that is reachable is searched
//! for words that lead to them by one of the usual ways. One word in a hundred million matches by
//! chance; a way counts for a group of blocks made at one place only if it leads to half of them.
//! What is found so is listed apart, as possible.

use std::collections::{HashMap, HashSet};

use super::heap::{Block, Heap};
use super::image::Memory;
use super::scan::words;

/// How many blocks of one context are tried for masked pointers: differences of all pairs.
const SAMPLE: usize = 48;

/// Words from here on are no pointers of a program.
const NO_POINTER: u64 = 1 << 47;

/// Ways to hide a pointer.
const WAYS: usize = 12;
const MASKED: usize = 10;
const LINKED: usize = 11;

/// Contexts whose leaked blocks something hidden may lead to.
#[derive(Default)]
pub(super) struct Hidden {
    contexts: HashSet<u32>,
    context_of: HashMap<u32, u32>,
}

impl Hidden {
    pub(super) fn may_be_known(&self, block: u32) -> bool {
        let context = self.context_of.get(&block);
        context.is_some_and(|context| self.contexts.contains(context))
    }
}

/// Leaked blocks that nothing leaked leads to, looked for in memory that is reachable.
pub(super) struct Search<'a> {
    heap: &'a Heap,
    starts: HashMap<u64, u32>,
    /// Low 32 bits of starts, plain and shifted by 3 and by 4.
    halves: HashMap<u32, Vec<u32>>,
    /// Differences (by exclusive or) of pairs of one context.
    pairs: HashMap<u64, Vec<u32>>,
    /// Blocks found, for each way.
    found: [HashSet<u32>; WAYS],
    samples: HashMap<u32, Vec<u64>>,
}

impl<'a> Search<'a> {
    pub(super) fn new(heap: &'a Heap, roots: &[u32]) -> Search<'a> {
        let mut search = Search {
            heap,
            starts: HashMap::new(),
            halves: HashMap::new(),
            pairs: HashMap::new(),
            found: Default::default(),
            samples: HashMap::new(),
        };
        for &root in roots {
            let block = heap.blocks[root as usize];
            search.starts.insert(block.address, root);
            for half in [
                block.address as u32,
                (block.address >> 3) as u32,
                (block.address >> 4) as u32,
            ] {
                search.halves.entry(half).or_default().push(root);
            }
            let sample = search.samples.entry(block.context).or_default();
            if sample.len() < SAMPLE {
                sample.push(block.address);
            }
        }
        for sample in search.samples.values() {
            for (at, &a) in sample.iter().enumerate() {
                for &b in &sample[at + 1..] {
                    let pair = [search.starts[&a], search.starts[&b]];
                    search.pairs.entry(a ^ b).or_default().extend(pair);
                }
            }
        }
        search
    }

    /// Looks at memory that the program can reach.
    pub(super) fn look(&mut self, memory: &impl Memory, start: u64, end: u64) {
        let mut before = 0u64;
        memory.visit(start, end, |_, bytes| {
            for word in words(bytes) {
                if word >= 4096 {
                    self.look_at(word, before);
                }
                before = word;
            }
        });
    }

    fn look_at(&mut self, word: u64, before: u64) {
        const LOW_48: u64 = (1 << 48) - 1;
        let plain = [
            word & LOW_48,
            word & LOW_48 & !7,
            word >> 16,
            !word,
            word.swap_bytes(),
            word << 1,
            word << 3,
            word << 4,
        ];
        for (way, candidate) in plain.into_iter().enumerate() {
            // What leads to a start without change is no hidden pointer.
            if candidate != word
                && let Some(&block) = self.starts.get(&candidate)
            {
                self.found[way].insert(block);
            }
        }
        for (way, half) in [(8, word as u32), (9, (word >> 32) as u32)] {
            if half >= 4096
                && let Some(blocks) = self.halves.get(&half)
            {
                self.found[way].extend(blocks);
            }
        }
        // Neighbours that are masked with one key differ as their pointers do. Plain pointers and
        // small numbers in an array do so, too, by chance.
        if word >= NO_POINTER
            && before >= NO_POINTER
            && let Some(blocks) = self.pairs.get(&(word ^ before))
        {
            self.found[MASKED].extend(blocks);
        }
    }

    /// Looks at a block of a context that leaks: an element of a list whose links are the exclusive
    /// or of both neighbours. A small number leads from many blocks to many others: it proves
    /// nothing.
    pub(super) fn look_for_links(&mut self, memory: &impl Memory, block: &Block) {
        const NEIGHBOURS: usize = 2;
        let Some(sample) = self.samples.get(&block.context) else {
            return;
        };
        let blocks = &self.heap.blocks;
        let is_sibling = |address: u64| {
            let at = blocks.binary_search_by_key(&address, |block| block.address);
            at.is_ok_and(|at| blocks[at].context == block.context)
        };
        let end = block.address.saturating_add(block.size);
        memory.visit(block.address, end, |_, bytes| {
            for word in words(bytes).filter(|word| (16..NO_POINTER).contains(word)) {
                let linked = sample.iter().filter(|address| is_sibling(word ^ **address));
                let linked: Vec<&u64> = linked.take(NEIGHBOURS + 1).collect();
                if linked.len() <= NEIGHBOURS {
                    let found = linked.into_iter().map(|address| self.starts[address]);
                    self.found[LINKED].extend(found);
                }
            }
        });
    }

    pub(super) fn finish(self) -> Hidden {
        let mut roots: HashMap<u32, usize> = HashMap::new();
        let mut context_of = HashMap::new();
        let context = |block: u32| self.heap.blocks[block as usize].context;
        for &block in self.starts.values() {
            *roots.entry(context(block)).or_default() += 1;
            context_of.insert(block, context(block));
        }
        let mut contexts = HashSet::new();
        for (way, found) in self.found.iter().enumerate() {
            let mut counts: HashMap<u32, usize> = HashMap::new();
            for &block in found {
                *counts.entry(context(block)).or_default() += 1;
            }
            for (context, count) in counts {
                let tried = match way {
                    MASKED | LINKED => roots[&context].min(SAMPLE),
                    _ => roots[&context],
                };
                if count * 2 >= tried {
                    contexts.insert(context);
                }
            }
        }
        Hidden {
            contexts,
            context_of,
        }
    }
}
