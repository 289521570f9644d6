//! Who may hold a block: roots, each with the pointers that it has.
//!
//! A root is not a place but an answer to "who keeps this": the thread-local `RULES` on thread 7,
//! the static `DICTIONARY`, a task. So memory that holds pointers is cut into named pieces, and
//! what has no name belongs to a collective root. A stack is a root of lesser right: it is full of
//! references to what others own, and of pointers that nobody will read again.

use std::collections::HashMap;
use std::ops::Range;

use super::cells::Cell;
use super::heap::{Heap, Roots, ThreadInfo};
use super::image::{Image, Memory};
use super::index::{BlockIndex, Hit};
use super::regions::{CONTROL_BLOCK, Region};
use super::scan::{INTERIOR, words};
use super::usage::References;

/// A root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Holder {
    /// Into the cells.
    Task(u32),
    /// Into the slots and the threads.
    ThreadLocal {
        slot: u32,
        thread: u32,
    },
    /// Into the statics.
    Static(u32),
    /// A thread's control block, its pthread keys, and thread-locals without a name.
    Thread(u32),
    /// Data of modules without a name.
    Data,
    Stack(u32),
    /// Memory that the program mapped itself, and what it has given to the kernel.
    Elsewhere,
}

impl Holder {
    /// Of lesser right: see the module.
    pub(super) fn is_weak(self) -> bool {
        matches!(self, Holder::Stack(_) | Holder::Elsewhere)
    }
}

/// All roots, those of lesser right last.
#[derive(Debug, Default)]
pub(super) struct RootSet {
    pub(super) holders: Vec<Holder>,
    /// Pointers of holder n: `edges[first[n]..first[n + 1]]`, as in a scan.
    first: Vec<u32>,
    edges: Vec<u32>,
}

impl RootSet {
    pub(super) fn edges(&self, holder: usize) -> &[u32] {
        &self.edges[self.first[holder] as usize..self.first[holder + 1] as usize]
    }

    /// From pointers in any order. Tasks come first, in the order of the cells.
    pub(super) fn from_pointers(tasks: usize, mut pointers: Vec<(Holder, u32)>) -> RootSet {
        let order = |holder: &Holder| match *holder {
            Holder::Task(cell) => (0, cell, 0),
            Holder::ThreadLocal { slot, thread } => (1, slot, thread),
            Holder::Static(slot) => (2, slot, 0),
            Holder::Thread(thread) => (3, thread, 0),
            Holder::Data => (4, 0, 0),
            Holder::Stack(thread) => (5, thread, 0),
            Holder::Elsewhere => (6, 0, 0),
        };
        // Stable: pointers of one holder stay in the order of their addresses.
        pointers.sort_by_key(|(holder, _)| order(holder));
        let mut set = RootSet::default();
        for cell in 0..tasks as u32 {
            set.holders.push(Holder::Task(cell));
            set.first.push(0);
        }
        for (holder, edge) in pointers {
            if set.holders.last() != Some(&holder) {
                set.holders.push(holder);
                set.first.push(set.edges.len() as u32);
            }
            set.edges.push(edge);
        }
        set.first.push(set.edges.len() as u32);
        set
    }
}

/// A piece of memory that belongs to a holder; `None` to nobody.
type Piece = (Range<u64>, Option<Holder>);

/// What a sweep finds.
struct Found<'a> {
    pointers: Vec<(Holder, u32)>,
    references: &'a mut References,
}

/// Collects the pointers of everything that is not a block.
pub(super) struct Collector<'a> {
    pub(super) image: &'a Image,
    pub(super) heap: &'a Heap,
    pub(super) roots: &'a Roots,
    pub(super) index: &'a BlockIndex<'a>,
    /// Threads with their stack and thread pointer: those of the heap, completed.
    pub(super) threads: &'a [ThreadInfo],
}

impl Collector<'_> {
    /// All roots. Places of pointers to large blocks are added to `references`, but for those on
    /// stacks: what lies there need not be in use.
    pub(super) fn collect(&self, cells: &[Cell], references: &mut References) -> RootSet {
        let mut found = Found {
            pointers: Vec::new(),
            references,
        };
        let pieces = self.named_pieces();
        let numbers: HashMap<i32, u32> = self.threads.iter().map(|t| t.tid).zip(0..).collect();
        let thread = |tid: i32| numbers.get(&tid).copied().unwrap_or(0);
        for span in &self.image.spans {
            let (start, rest) = match span.region {
                Region::Stack { tid, used } => (used, Holder::Stack(thread(tid))),
                Region::Data => (span.start, Holder::Data),
                Region::Other => (span.start, Holder::Elsewhere),
                // All that is used again when a thread takes the stack over: the vector of
                // thread-local storage, whose address is the second word.
                Region::RetiredStack { control } => {
                    let vector = self.index.find(self.image.word(control + 8));
                    found
                        .pointers
                        .extend(vector.map(|hit| (Holder::Elsewhere, edge(hit))));
                    continue;
                }
                // Other memory between blocks: the blocks themselves are not roots.
                Region::Mixed => {
                    for gap in self.gaps(span.start..span.end) {
                        self.sweep(gap, Holder::Elsewhere, &pieces, false, &mut found);
                    }
                    continue;
                }
                _ => continue,
            };
            let mapping = &self.image.mappings[span.mapping as usize];
            let libc = is_libc(&mapping.name);
            self.sweep(start..span.end, rest, &pieces, libc, &mut found);
        }
        let mut pointers = found.pointers;
        self.registers(thread, &mut pointers);
        let given = self
            .image
            .kernel_words
            .iter()
            .filter_map(|word| self.index.find(*word));
        pointers.extend(given.map(|hit| (Holder::Elsewhere, edge(hit))));
        RootSet::from_pointers(cells.len(), pointers)
    }

    fn registers(&self, thread: impl Fn(i32) -> u32, pointers: &mut Vec<(Holder, u32)>) {
        for stopped in &self.image.threads {
            let holder = Holder::Stack(thread(stopped.tid));
            // A thread may run on a stack that is itself a block.
            for &word in stopped.words.iter().chain([&stopped.stack_pointer]) {
                if let Some(hit) = self.index.find(word) {
                    pointers.push((holder, edge(hit)));
                }
            }
        }
    }

    /// Parts of a range that no block of malloc lies in, with its header.
    pub(super) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        mapped_blocks(self.heap, self.image, range.clone())
            .into_iter()
            .chain(std::iter::once(range.end..range.end))
            .scan(range.start, |at, block| {
                let gap = *at..block.start;
                *at = block.end.max(*at);
                Some(gap)
            })
            .filter(|gap| gap.start < gap.end)
            .collect()
    }

    /// Pieces with a name, ascending and apart.
    fn named_pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (at, slot) in (0u32..).zip(&self.roots.statics) {
            pieces.push((slot.avma..slot.avma + slot.size, Some(Holder::Static(at))));
        }
        for (at, thread) in (0u32..).zip(self.threads) {
            self.thread_pieces(at, thread, &mut pieces);
        }
        pieces.sort_by_key(|(range, holder)| (range.start, holder.is_some()));
        let mut apart: Vec<Piece> = Vec::with_capacity(pieces.len());
        for (mut range, holder) in pieces {
            // Two names for one place: the first counts.
            let covered = apart.last().map_or(0, |(last, _)| last.end);
            range.start = range.start.max(covered);
            if range.start < range.end {
                apart.push((range, holder));
            }
        }
        apart
    }

    /// Static thread-local storage and the control block of one thread.
    fn thread_pieces(&self, number: u32, thread: &ThreadInfo, pieces: &mut Vec<Piece>) {
        let pointer = thread.thread_pointer;
        if pointer == 0 {
            return;
        }
        let lowest =
            |least: u64, slot: &super::ThreadLocalSlot| least.max(-slot.offset.min(0) as u64);
        let below = self
            .roots
            .thread_locals
            .iter()
            .fold(self.roots.static_tls_bytes, lowest);
        let mut slots: Vec<(u64, u64, u32)> = (0u32..)
            .zip(&self.roots.thread_locals)
            .map(|(at, slot)| (pointer.wrapping_add_signed(slot.offset), slot.size, at))
            .collect();
        slots.sort_unstable();
        let own = Some(Holder::Thread(number));
        let mut at = pointer.saturating_sub(below);
        for (start, size, slot) in slots {
            if start < at {
                continue;
            }
            pieces.push((at..start, own));
            let holder = Holder::ThreadLocal {
                slot,
                thread: number,
            };
            pieces.push((start..start + size, Some(holder)));
            at = start + size;
        }
        pieces.push((at..(pointer + CONTROL_BLOCK).max(at), own));
    }

    /// Takes the pointers of a range: those in a piece for its holder, others for `rest`.
    fn sweep(
        &self,
        range: Range<u64>,
        rest: Holder,
        pieces: &[Piece],
        libc: bool,
        found: &mut Found,
    ) {
        let mut next = pieces.partition_point(|(piece, _)| piece.end <= range.start);
        self.image.visit(range.start, range.end, |start, bytes| {
            for (address, word) in (start..).step_by(8).zip(words(bytes)) {
                let Some(hit) = self.index.find(word) else {
                    continue;
                };
                while pieces
                    .get(next)
                    .is_some_and(|(piece, _)| piece.end <= address)
                {
                    next += 1;
                }
                let holder = match pieces.get(next) {
                    Some((piece, holder)) if piece.start <= address => *holder,
                    _ => Some(rest),
                };
                if let Some(holder) = holder
                    && !(libc && self.is_bin(hit))
                {
                    found.pointers.push((holder, edge(hit)));
                    if !matches!(holder, Holder::Stack(_)) {
                        let size = self.index.block(hit.block).size;
                        found.references.add(hit.block, size, address);
                    }
                }
            }
        });
    }

    /// Free lists of malloc point to a chunk's header, whose first word is the last of the block
    /// before it: such a pointer says nothing about that block.
    fn is_bin(&self, hit: Hit) -> bool {
        hit.offset + 8 >= self.heap.blocks[hit.block as usize].size && hit.offset > 0
    }
}

fn edge(hit: Hit) -> u32 {
    hit.block | if hit.at_start() { 0 } else { INTERIOR }
}

fn is_libc(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or("");
    file.starts_with("libc.so") || file.starts_with("libc-")
}

/// Memory that an allocator mapped for blocks, within a range: ascending.
pub(super) fn mapped_blocks(
    heap: &Heap,
    memory: &impl Memory,
    range: Range<u64>,
) -> Vec<Range<u64>> {
    let first = heap
        .blocks
        .partition_point(|block| block.address < range.start);
    let mut found = Vec::new();
    for block in &heap.blocks[first..] {
        if block.address >= range.end {
            break;
        }
        let from = heap.contexts.get(block.context as usize).map(|c| c.from);
        if from.is_some_and(|from| from != super::Source::Malloc) {
            // Its blocks lie close: memory around them is the allocator's.
            return vec![range];
        }
        let whole = mapped_whole(block, memory)
            .unwrap_or(block.address..block.address.saturating_add(block.size));
        found.push(whole.start.max(range.start)..whole.end.min(range.end));
    }
    found
}

/// The mapping that glibc made for this block alone, if it did.
fn mapped_whole(block: &super::Block, memory: &impl Memory) -> Option<Range<u64>> {
    const PAGE: u64 = crate::sys::mem::PAGE;
    const IS_MAPPED: u64 = 2;
    // How far before the header its mapping starts, then its size with flags.
    let header = block.address.checked_sub(16)?;
    let (before, size) = (memory.word(header), memory.word(header + 8));
    let start = header.checked_sub(before)?;
    let end = header.checked_add(size & !7)?;
    let whole = start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
    let holds = end >= block.address.saturating_add(block.size);
    (size & IS_MAPPED != 0 && whole && holds).then_some(start..end)
}
