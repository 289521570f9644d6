//! From a captured heap to facts, in the order in which they depend on each other.

use std::collections::HashMap;
use std::time::Instant;

use super::cells;
use super::census::{self, LocalValues, Sums};
use super::copies::Finder;
use super::equal::Comparer;
use super::heap::{Heap, Roots, ThreadInfo};
use super::hidden::{Hidden, Search};
use super::image::{Image, Memory};
use super::index::{BlockIndex, MAX_BLOCKS};
use super::names::Names;
use super::reach::{self, Marks, Reach};
use super::regions::Region;
use super::roots::{Collector, Holder};
use super::scan::{Key, Scan};
use super::shape::{self, Makers};
use super::tree::Tree;
use super::verdict;
use super::whose::Attribution;
use super::{account, gone, held, leaks, oversized, usage};
use crate::profile;
use crate::sys::maps;

/// What a captured heap says about who holds what. `heap.blocks` may be in any order.
pub fn analyze(image: &Image, heap: &mut Heap, roots: &Roots) -> profile::Walk {
    let began = Instant::now();
    heap.sort();
    heap.blocks.truncate(MAX_BLOCKS);
    let heap = &*heap;
    let index = BlockIndex::new(&heap.blocks);
    let mut scan = Scan::run(&heap.blocks, &index, image, Key::random());
    let is_code = |word: u64| maps::find(&image.mappings, word).is_some_and(|m| m.executable);
    let cells = cells::find(heap, &index, image, is_code);
    let threads = threads(image, heap);
    let collector = Collector {
        image,
        heap,
        roots,
        index: &index,
        threads: &threads,
    };
    let set = collector.collect(&cells, &mut scan.references);
    let scan = scan;
    let cell_blocks: Vec<u32> = cells.iter().map(|cell| cell.block).collect();
    let counts_owners = |block: u32| counts_owners(image, heap, block);
    let reach = reach::paint(&heap.blocks, &scan, &set, &cell_blocks, counts_owners);
    let sums = Sums::new(heap, &reach, set.holders.len());
    let names = Names {
        heap,
        roots,
        set: &set,
        cells: &cells,
        threads: &threads,
    };
    let named = |holder: u32| {
        let holder = set.holders[holder as usize];
        matches!(holder, Holder::ThreadLocal { .. } | Holder::Static(_))
    };
    let makers = Makers::new(heap, &reach, named);
    let mut thread_locals = census::thread_locals(&names, &sums, &makers);
    let stacks = shape::comparable(heap);
    let comparer = Comparer {
        heap,
        scan: &scan,
        index: &index,
        memory: image,
    };
    compare_thread_locals(&mut thread_locals, &reach, &comparer);
    let (thread_locals, local_values): (Vec<_>, Vec<_>) = thread_locals.into_iter().unzip();
    let (statics, slots): (Vec<_>, Vec<_>) =
        census::statics(&names, &sums, &makers).into_iter().unzip();
    let cell_marks = Marks::of(heap.blocks.len(), &cell_blocks);
    let tree = Tree::new(heap, &reach, &cell_marks, &stacks);
    let attribution = Attribution {
        names: &names,
        reach: &reach,
        tree: &tree,
        counts_owners: &counts_owners,
    };
    let reader = usage::Reader {
        heap,
        memory: image,
        is_code: &is_code,
    };
    let usage = reader.read(&scan.references);
    let finder = Finder {
        names: &names,
        reach: &reach,
        tree: &tree,
        comparer: &comparer,
        attribution: &attribution,
        usage: &usage,
    };
    let unused = oversized::Finder {
        heap,
        scan: &scan,
        reach: &reach,
        usage: &usage,
    };
    let walker_bytes = image.own_bytes()
        + index.own_bytes()
        + scan.own_bytes()
        + reach.own_bytes()
        + tree.own_bytes()
        + (heap.blocks.len() * size_of::<super::Block>()) as u64;
    profile::Walk {
        pause_s: image.pause.as_secs_f64(),
        bytes_read: image.bytes_read,
        blocks: heap.blocks.len() as u64,
        live_bytes: heap.blocks.iter().map(|block| block.size).sum(),
        walker_bytes,
        contexts: sums.of_contexts(),
        tasks: census::tasks(heap, &cells, &sums),
        threads: census::threads(heap, image, &threads, &sums),
        held: held::find(&names, &reach, &local_values, &slots),
        thread_locals,
        statics,
        copies: finder.find(&cell_marks),
        leaks: leaks::find(heap, &scan, &reach, |lost| {
            search(image, heap, &reach, lost)
        }),
        oversized: unused.oversized(),
        pinned: unused.pinned(),
        owner_gone: gone::find(heap, &reach, &names),
        memory: account::memory(image, heap),
        analysis_s: began.elapsed().as_secs_f64(),
        ..profile::Walk::default()
    }
}

/// Threads as the recorder knows them, and those that it does not.
fn threads(image: &Image, heap: &Heap) -> Vec<ThreadInfo> {
    let mut threads = heap.threads.clone();
    let known: HashMap<i32, usize> = threads.iter().map(|t| t.tid).zip(0..).collect();
    for stopped in &image.threads {
        match known.get(&stopped.tid) {
            Some(&at) if stopped.thread_pointer != 0 => {
                threads[at].thread_pointer = stopped.thread_pointer;
            }
            Some(_) => {}
            None => threads.push(ThreadInfo {
                tid: stopped.tid,
                thread_pointer: stopped.thread_pointer,
                ..ThreadInfo::default()
            }),
        }
    }
    threads
}

/// Does the block start with two small counters, of which the first is more than one? So does
/// what `Arc` and `Rc` allocate.
fn counts_owners(memory: &impl Memory, heap: &Heap, block: u32) -> bool {
    const MANY: u64 = 1 << 31;
    let block = heap.blocks[block as usize];
    block.size >= 16
        && (2..MANY).contains(&memory.word(block.address))
        && (1..MANY).contains(&memory.word(block.address + 8))
}

/// Looks for hidden pointers to lost blocks in everything that the program can reach.
fn search(image: &Image, heap: &Heap, reach: &Reach, lost: &[u32]) -> Hidden {
    let mut search = Search::new(heap, lost);
    for span in &image.spans {
        let start = match span.region {
            Region::Stack { used, .. } => used,
            Region::Data | Region::Other => span.start,
            _ => continue,
        };
        search.look(image, start, span.end);
    }
    for (number, block) in (0u32..).zip(&heap.blocks) {
        if !reach.is_leaked(number) {
            search.look(
                image,
                block.address,
                block.address.saturating_add(block.size),
            );
        }
        search.look_for_links(image, block);
    }
    search.finish()
}

/// Thread-locals that keep less than this are not compared.
const LEAST_COMPARED: u64 = 1024;

fn compare_thread_locals<M: Memory>(
    rows: &mut [(profile::WalkThreadLocal, LocalValues)],
    reach: &Reach,
    comparer: &Comparer<M>,
) {
    let mut blocks: HashMap<u32, Vec<u32>> = HashMap::new();
    for (row, values) in rows.iter() {
        if values.holders.len() > 1 && row.bytes >= LEAST_COMPARED {
            blocks.extend(values.holders.iter().map(|holder| (holder + 1, Vec::new())));
        }
    }
    // In the order in which they were reached, which is the same for equal values.
    for &block in &reach.order {
        if let Some(list) = blocks.get_mut(&reach.colour[block as usize]) {
            list.push(block);
        }
    }
    for (row, values) in rows {
        let take = |holder: &u32| blocks.remove(&(holder + 1));
        let lists: Option<Vec<Vec<u32>>> = values.holders.iter().map(take).collect();
        if let Some((identical, share)) =
            lists.and_then(|lists| verdict::equal_values(comparer, &lists))
        {
            row.identical = Some(identical);
            row.equal_share = share;
        }
    }
}
