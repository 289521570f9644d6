//! Walks while the program runs: each on a thread of its own, so that the recording is looked
//! after meanwhile.
//!
//! The program stands still only while memory is copied; the analysis comes after it has gone on.
//! The first walk takes longest, since names are looked up then, and the heap may come to its
//! first rest meanwhile: so a copy may be made while an earlier one is still analysed, but never
//! more than one waits for that, because copies take memory. The last walk always is made: a
//! process that waits at its end is not kept waiting for the analysis of an earlier one.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::allocators;
use super::moments::Moments;
use super::outside::resident;
use crate::profile::recording::{Frozen, ModuleCopy, Namer, Recorded, Tables, path_of};
use crate::profile::target::{self, StaticSymbol, ThreadLocalSymbol};
use crate::profile::{Walk, WalkReason};
use crate::walk::{self, Roots, StaticSlot, ThreadLocalSlot, WalkError};

/// Walks that a profile keeps.
const KEPT: usize = 12;

/// How often the resident set is read: it costs more than a look at the recorder's sums.
const READING_MS: u32 = 25;

/// Copies that may exist at a time, not counting the last.
const COPIES: usize = 2;

/// The walks of one process.
pub struct Walker {
    recorded: Arc<Recorded>,
    options: walk::Options,
    moments: Moments,
    /// The same for what is resident beside the heap, and how much that was when it was read.
    beside: Moments,
    beside_bytes: u64,
    next_reading_ms: u32,
    /// Shared by the walks of all processes: what it has learned of files is used again.
    knowledge: Arc<Mutex<Knowledge>>,
    running: Vec<Running>,
    results: Arc<Mutex<Results>>,
}

struct Running {
    thread: JoinHandle<()>,
    copied: Arc<AtomicBool>,
}

#[derive(Default)]
struct Results {
    walks: Vec<Walk>,
    /// Pauses that the moments have not been told of yet.
    pauses: Vec<Duration>,
    error: Option<String>,
}

/// Thread-locals, statics, and where the block of the former is in an executable.
type NamedMemory = (Vec<ThreadLocalSymbol>, Vec<StaticSymbol>, Option<i64>);

/// Names and roots, by file.
#[derive(Default)]
pub struct Knowledge {
    pub namer: Namer,
    files: HashMap<PathBuf, NamedMemory>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Walker {
    pub fn new(
        recorded: Arc<Recorded>,
        library: &Path,
        limit: Option<u64>,
        knowledge: Arc<Mutex<Knowledge>>,
    ) -> Walker {
        let own_library = library.to_string_lossy().into_owned();
        Walker {
            recorded,
            options: walk::Options {
                own_library,
                ..walk::Options::default()
            },
            moments: Moments::new(limit),
            beside: Moments::beside_the_heap(),
            beside_bytes: 0,
            next_reading_ms: 0,
            knowledge,
            running: Vec::new(),
            results: Arc::default(),
        }
    }

    /// To be called at every tick. Starts a walk if one is due.
    pub fn tick(&mut self, now_ms: u32) {
        self.note_pauses(now_ms);
        let live = self.live_bytes();
        self.moments.observe(now_ms, live);
        if now_ms >= self.next_reading_ms {
            self.next_reading_ms = now_ms + READING_MS;
            self.beside_bytes = self.resident_beside_the_heap(live);
        }
        self.beside.observe(now_ms, self.beside_bytes);
        self.running.retain(|walk| !walk.thread.is_finished());
        let busy = self.is_copying() || self.running.len() >= COPIES;
        if busy || lock(&self.results).error.is_some() {
            return;
        }
        let of_heap = self.moments.due(now_ms, live);
        let of_rest = self.beside.due(now_ms, self.beside_bytes);
        // Both stop the same process: what the heap's looks may take, those beside it may not add to.
        let of_rest = of_rest.filter(|_| self.moments.may_pause_for_another(now_ms));
        if let Some(reason) = of_heap.or(of_rest) {
            self.start(reason);
        }
    }

    /// Neither live blocks nor the recorder's own memory.
    fn resident_beside_the_heap(&self, live: u64) -> u64 {
        let header = self.recorded.header();
        let own = header.shared_used.load(Relaxed) + header.private_used.load(Relaxed);
        resident(self.recorded.pid()).saturating_sub(live + own)
    }

    /// The process waits at its end. True when it can be let go.
    pub fn is_done_with(&mut self, now_ms: u32, exiting: &mut Option<Exiting>) -> bool {
        self.note_pauses(now_ms);
        match exiting {
            Some(Exiting(copied)) => copied.load(Acquire),
            // A process has one tracer: the walk that is under way comes to its end first.
            None if self.is_copying() => false,
            None => {
                let failed = lock(&self.results).error.is_some();
                if failed || self.moments.is_fresh(now_ms, self.live_bytes()) {
                    return true;
                }
                self.start(WalkReason::Exit);
                let copied = self.running.last().map(|walk| walk.copied.clone());
                *exiting = copied.map(Exiting);
                exiting.is_none()
            }
        }
    }

    /// Does a walk stop the process right now, or is about to?
    pub fn is_copying(&self) -> bool {
        self.running.iter().any(|walk| !walk.copied.load(Acquire))
    }

    fn live_bytes(&self) -> u64 {
        let header = self.recorded.header();
        header.sums.live_bytes.load(Relaxed).max(0) as u64
    }

    fn note_pauses(&mut self, now_ms: u32) {
        for pause in std::mem::take(&mut lock(&self.results).pauses) {
            self.moments.walked(now_ms, pause);
            self.beside.walked(now_ms, pause);
        }
    }

    /// Looks now, and sends what it saw beside the recorder's tables of that moment. `None` while
    /// another look is under way.
    pub fn snapshot(&mut self) -> Option<Receiver<Seen>> {
        if self.is_copying() {
            return None;
        }
        let (sender, receiver) = channel();
        self.start_with(WalkReason::Snapshot, Some(sender));
        Some(receiver)
    }

    fn start(&mut self, reason: WalkReason) {
        self.start_with(reason, None);
    }

    fn start_with(&mut self, reason: WalkReason, answer: Option<Sender<Seen>>) {
        let copied = Arc::new(AtomicBool::new(false));
        let job = Job {
            recorded: self.recorded.clone(),
            options: walk::Options {
                expected_bytes: self.live_bytes(),
                ..self.options.clone()
            },
            reason,
            knowledge: self.knowledge.clone(),
            results: self.results.clone(),
            copied: copied.clone(),
            answer,
        };
        let thread = std::thread::Builder::new().name("taskheap-look".to_owned());
        if let Ok(thread) = thread.spawn(move || job.run()) {
            self.running.push(Running { thread, copied });
        }
    }

    /// Waits for what is still being analysed. The walks in the order of time, and why there are
    /// none.
    pub fn finish(mut self) -> (Vec<Walk>, Option<String>) {
        for walk in self.running.drain(..) {
            let _ = walk.thread.join();
        }
        let mut results = lock(&self.results);
        let mut walks = std::mem::take(&mut results.walks);
        walks.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        (walks, results.error.take())
    }
}

/// A last walk, and whether its copy is made.
pub struct Exiting(Arc<AtomicBool>);

/// What a snapshot saw, or why it saw nothing.
pub type Seen = Result<(Frozen, Vec<Walk>), String>;

struct Job {
    /// Who asked for it, if somebody did.
    answer: Option<Sender<Seen>>,
    recorded: Arc<Recorded>,
    options: walk::Options,
    reason: WalkReason,
    knowledge: Arc<Mutex<Knowledge>>,
    results: Arc<Mutex<Results>>,
    copied: Arc<AtomicBool>,
}

impl Job {
    fn run(self) {
        self.recorded.ask_allocator();
        let at_s = self.recorded.elapsed_s();
        let captured = walk::capture(self.recorded.pid(), &self.options, || {
            let maps = self.recorded.allocator_maps();
            let frozen = self.answer.as_ref().map(|_| Frozen::of(&self.recorded));
            Ok(walk::Noted {
                blocks: walk::blocks(&self.recorded.live().blocks),
                allocator_maps: maps.iter().map(|(map, _)| map.clone()).collect(),
                own: own_maps(&self.recorded),
                tables: (
                    self.recorded.tables(),
                    maps,
                    self.recorded.allocator_said(),
                    frozen,
                ),
            })
        });
        let captured = match captured {
            Ok(captured) => captured,
            Err(error) => {
                self.copied.store(true, Release);
                if let Some(answer) = self.answer {
                    let _ = answer.send(Err(error.to_string()));
                    return;
                }
                // A process that ends is no fault of the walk.
                if !matches!(error, WalkError::Gone) {
                    lock(&self.results).error = Some(error.to_string());
                }
                return;
            }
        };
        lock(&self.results).pauses.push(captured.image.pause);
        self.copied.store(true, Release);
        let (tables, maps, said, frozen) = captured.tables;
        let exe = self.recorded.exe();
        let (names, roots) = {
            let mut knowledge = lock(&self.knowledge);
            let names = knowledge.namer.names(&tables, &exe);
            (names, knowledge.roots(&tables, &exe))
        };
        let mut heap = walk::heap(&tables, captured.blocks, &names);
        let mut walk = walk::analyze(&captured.image, &mut heap, &roots);
        walk.at_s = at_s;
        walk.reason = self.reason;
        walk.memory.at_s = at_s;
        walk.memory.allocators = allocators::memory(&captured.image, &maps, said);
        let walks = {
            let mut results = lock(&self.results);
            keep(&mut results.walks, walk);
            // What was seen later may name what the frozen tables don't have.
            let mut walks = results.walks.clone();
            walks.retain(|walk| walk.at_s <= at_s);
            walks
        };
        if let (Some(answer), Some(frozen)) = (self.answer, frozen) {
            let _ = answer.send(Ok((frozen, walks)));
        }
    }
}

/// Where the recorder's private memory is.
fn own_maps(recorded: &Recorded) -> walk::OwnMaps {
    let maps = &recorded.header().private_maps;
    let mut ranges: Vec<Range<u64>> = maps.ranges().map(|(start, end)| start..end).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    // Neighbours are one: so are they to the kernel, and what it says of the whole is exact.
    ranges.dedup_by(|next, kept| {
        let joins = next.start <= kept.end;
        if joins {
            kept.end = kept.end.max(next.end);
        }
        joins
    });
    walk::OwnMaps {
        ranges,
        unlisted_bytes: maps.unlisted.load(Relaxed),
    }
}

/// Of too many walks the least telling goes: neither the first, nor the last, nor the fullest.
fn keep(walks: &mut Vec<Walk>, walk: Walk) {
    walks.push(walk);
    if walks.len() <= KEPT {
        return;
    }
    let fullest = (0..walks.len()).max_by_key(|at| walks[*at].live_bytes);
    let goes = (1..walks.len() - 1)
        .filter(|at| Some(*at) != fullest)
        .min_by_key(|at| walks[*at].live_bytes);
    if let Some(at) = goes {
        walks.remove(at);
    }
}

impl Knowledge {
    /// Thread-locals and statics by name, of all modules that are loaded.
    fn roots(&mut self, tables: &Tables, exe: &Path) -> Roots {
        let mut roots = Roots::default();
        for module in tables.modules.iter().filter(|module| module.unloaded == 0) {
            self.add_roots(&mut roots, module, &path_of(module, exe));
        }
        roots
    }

    fn add_roots(&mut self, roots: &mut Roots, module: &ModuleCopy, path: &Path) {
        let file =
            self.files.entry(path.to_owned()).or_insert_with(|| {
                match target::inspect_object(path) {
                    Ok(found) => {
                        let offset = found.tls.map(|block| block.offset_in_executable);
                        (found.thread_locals, found.statics, offset)
                    }
                    Err(_) => (Vec::new(), Vec::new(), None),
                }
            });
        let (thread_locals, statics, offset) = (&file.0, &file.1, file.2);
        // The loader says where the block of a library is; the executable's place is fixed.
        let block = match module.path.is_empty() {
            true => offset.unwrap_or(0),
            false => module.tls_offset,
        };
        // Far from the thread pointer it is a block that was allocated for one thread.
        if (-(1 << 20)..0).contains(&block) {
            roots.static_tls_bytes = roots.static_tls_bytes.max(block.unsigned_abs());
            roots
                .thread_locals
                .extend(thread_locals.iter().map(|symbol| ThreadLocalSlot {
                    name: symbol.name.clone(),
                    offset: block + symbol.offset_in_block as i64,
                    size: symbol.size,
                }));
        }
        roots
            .statics
            .extend(statics.iter().map(|symbol| StaticSlot {
                name: symbol.name.clone(),
                avma: module.bias.wrapping_add(symbol.svma),
                size: symbol.size,
            }));
    }
}
