//! From the tables of a recording to a profile: numbers added up, addresses named.
//!
//! Live bytes are taken from the table of live blocks, which is right even after a kill; counters
//! say what was allocated and what was live at the peak. Indices of contexts, nodes and owners
//! stay those of the recording, so that what a walk found keeps its meaning.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::super::patches::name_of;
use super::super::symbolize::{DYN_FUTURE, name_by_stacks, settle_by_stacks};
use super::super::{
    ContextId, Contexts, Memory, NodeId, Owner, OwnerId, OwnerKind, Profile, Program, Recording,
    Timeline, Totals, Walk,
};
use super::frames::Namer;
use super::tables::{CounterSums, LiveTable, OwnerCopy, Tables};
use super::{Recorded, SeenWorker, rows, workers};
use crate::wire::{self, Allocator, Context};

/// How the program ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ending {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub replaced: bool,
}

/// What the command knows besides the tables.
#[derive(Default)]
pub struct Facts {
    pub args: Vec<String>,
    pub started_unix_s: u64,
    pub duration_s: f64,
    pub ending: Ending,
    pub task_ids: String,
    pub warnings: Vec<String>,
    pub timeline: Timeline,
    pub memory: Option<Memory>,
    pub memory_at_peak: Option<Memory>,
    pub walks: Vec<Walk>,
    pub workers: Vec<SeenWorker>,
    /// Rows of tasks whose cell says that they are finished; none if nobody could look.
    pub finished: Option<Vec<u32>>,
}

/// The tables of one moment. They agree with each other if the process stood still or had ended.
#[derive(Clone)]
pub struct Frozen {
    pub tables: Tables,
    pub counters: Vec<CounterSums>,
    pub live: LiveTable,
}

impl Frozen {
    pub fn of(recorded: &Recorded) -> Frozen {
        let live = recorded.live();
        let tables = recorded.tables();
        Frozen {
            counters: recorded.counters(tables.contexts.len()),
            tables,
            live,
        }
    }
}

/// Makes the profile of a process that has ended. `progress` is told (done, all) addresses now and
/// then.
pub fn collect(
    recorded: &Recorded,
    facts: Facts,
    namer: &mut Namer,
    progress: &dyn Fn(usize, usize),
) -> Profile {
    collect_from(recorded, Frozen::of(recorded), facts, namer, progress)
}

/// The same of a process that may go on, as of the moment at which its tables were frozen.
pub fn collect_from(
    recorded: &Recorded,
    frozen: Frozen,
    facts: Facts,
    namer: &mut Namer,
    progress: &dyn Fn(usize, usize),
) -> Profile {
    let Frozen {
        tables,
        counters,
        live,
    } = frozen;
    let mut profile = Profile {
        program: program(recorded, &tables, &facts),
        recording: recording(recorded, &live, &facts),
        contexts: contexts(&tables, &counters, &live),
        timeline: facts.timeline,
        memory: facts.memory,
        memory_at_peak: facts.memory_at_peak,
        walks: facts.walks,
        ..Profile::default()
    };
    let exe = recorded.exe();
    let stays = facts.workers.iter().flat_map(|worker| &worker.stays);
    let stacks: Vec<&[u64]> = stays.map(|stay| stay.addresses.as_slice()).collect();
    let stacks = namer.name_nodes(&tables, &exe, &mut profile, &stacks, progress);
    profile.recording.debug_info = namer.has_debug_info(&exe);
    profile.owners = owners(&tables, namer, &exe);
    name_the_rest(&mut profile);
    profile.workers = workers::name(&profile, &facts.workers, stacks.into_iter());
    rows::fill_owners(&mut profile, &tables, &live, facts.finished.as_deref());
    profile.totals = totals(recorded, &profile);
    say_what_is_missing(&mut profile, namer);
    profile
}

fn program(recorded: &Recorded, tables: &Tables, facts: &Facts) -> Program {
    Program {
        path: recorded.exe().to_string_lossy().into_owned(),
        args: facts.args.clone(),
        pid: recorded.pid(),
        started_unix_s: facts.started_unix_s,
        duration_s: facts.duration_s,
        exit_code: facts.ending.code,
        exit_signal: facts.ending.signal,
        replaced: facts.ending.replaced,
        allocators: allocators(tables),
        warnings: facts.warnings.clone(),
        recorder_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Names of the allocators that handed blocks out.
fn allocators(tables: &Tables) -> Vec<String> {
    let words = tables.contexts.iter().skip(1);
    let used: BTreeSet<u32> = words
        .map(|(_, owner)| owner >> Context::ALLOCATOR_SHIFT)
        .collect();
    let name = |word| match Allocator::from_word(word)? {
        Allocator::Malloc => Some(malloc_of(tables)),
        other => Some(name_of(other)),
    };
    let names = used.into_iter().filter_map(name);
    names.map(str::to_owned).collect()
}

/// Whose `malloc` it is: a preloaded or linked shared allocator stands before glibc's.
fn malloc_of(tables: &Tables) -> &'static str {
    let known = [
        ("jemalloc", "jemalloc"),
        ("mimalloc", "mimalloc"),
        ("tcmalloc", "tcmalloc"),
    ];
    for module in &tables.modules {
        let path = String::from_utf8_lossy(&module.path);
        let file = path.rsplit('/').next().unwrap_or("");
        if let Some((_, name)) = known.iter().find(|(part, _)| file.contains(part)) {
            return name;
        }
    }
    "glibc"
}

fn recording(recorded: &Recorded, live: &LiveTable, facts: &Facts) -> Recording {
    use std::sync::atomic::Ordering::Relaxed;
    let header = recorded.header();
    let threads = u64::from(header.threads_alive.load(Relaxed).max(1));
    let batch = header.batch_bytes.load(Relaxed).max(0) as u64;
    Recording {
        sample_bytes: header.config.sample_bytes.load(Relaxed),
        task_ids: facts.task_ids.clone(),
        truncated_stacks: header.truncated_stacks.load(Relaxed),
        missing_stacks: header.missing_stacks.load(Relaxed),
        lost_events: header.lost_events.load(Relaxed),
        unknown_frees: header.unknown_frees.load(Relaxed),
        failed_allocations: header.failed_allocations.load(Relaxed),
        torn_events: live.torn,
        peak_bound_bytes: threads * batch,
        debug_info: false,
        shared_bytes: header.shared_used.load(Relaxed),
        private_bytes: header.private_used.load(Relaxed),
    }
}

fn contexts(tables: &Tables, counters: &[CounterSums], live: &LiveTable) -> Contexts {
    let mut contexts = Contexts::default();
    for ((node, owner), sum) in tables.contexts.iter().zip(counters) {
        contexts.node.push(NodeId(*node));
        contexts.owner.push(OwnerId(owner & Context::OWNER_MASK));
        contexts
            .allocator
            .push((owner >> Context::ALLOCATOR_SHIFT) as u8);
        contexts.allocations.push(sum.allocations);
        contexts.allocated_bytes.push(sum.allocated_bytes);
        contexts.live_bytes.push(0);
        contexts.live_blocks.push(0);
        contexts.peak_bytes.push(sum.peak_bytes.max(0) as u64);
        contexts.peak_blocks.push(sum.peak_blocks.max(0) as u64);
        contexts.temporary.push(sum.temporary);
    }
    for block in &live.blocks {
        let at = block.context as usize;
        if at < contexts.node.len() {
            let booked = live.booked(block);
            contexts.live_bytes[at] += booked.bytes;
            contexts.live_blocks[at] += u64::from(booked.blocks);
        }
    }
    // A kill between two stores leaves an allocation in one table only.
    for at in 0..contexts.node.len() {
        contexts.allocated_bytes[at] = contexts.allocated_bytes[at].max(contexts.live_bytes[at]);
        contexts.allocations[at] = contexts.allocations[at].max(contexts.live_blocks[at]);
    }
    contexts
}

fn owners(tables: &Tables, namer: &mut Namer, exe: &Path) -> Vec<Owner> {
    tables
        .owners
        .iter()
        .map(|copy| owner(copy, tables, namer, exe))
        .collect()
}

fn owner(copy: &OwnerCopy, tables: &Tables, namer: &mut Namer, exe: &Path) -> Owner {
    let kind = match copy.kind {
        kind if kind == wire::OwnerKind::Task as u32 => OwnerKind::Task,
        kind if kind == wire::OwnerKind::Thread as u32 => OwnerKind::Thread,
        kind if kind == wire::OwnerKind::Scope as u32 => OwnerKind::Scope,
        _ => OwnerKind::Unknown,
    };
    let mut owner = Owner {
        kind,
        name: copy.name.clone(),
        spawned: copy.spawned,
        alive: copy.spawned.saturating_sub(copy.gone),
        cell_bytes: copy.cell_bytes,
        box_bytes: copy.box_bytes,
        allocated_bytes: copy.retired_allocated,
        spawn_context: (copy.spawn_context != 0).then_some(ContextId(copy.spawn_context)),
        ..Owner::default()
    };
    if kind == OwnerKind::Task {
        match namer.task_name(copy, tables, exe) {
            Some(name) => {
                owner.name = name.name;
                owner.full_name = name.full_name;
                owner.file = name.file;
                owner.line = name.line;
                owner.runtime_own = name.runtime_own;
                owner.blocking = name.blocking;
            }
            None => owner.name = UNKNOWN_TASK.to_owned(),
        }
    }
    owner
}

const UNKNOWN_TASK: &str = "[unknown task]";

/// Task types that the executable does not name, or not with certainty: by what they run, else
/// by who spawns them.
fn name_the_rest(profile: &mut Profile) {
    for at in 0..profile.owners.len() {
        let (owner, id) = (&profile.owners[at], OwnerId(at as u32));
        if owner.kind != OwnerKind::Task {
            continue;
        }
        let is_unknown = owner.name == UNKNOWN_TASK;
        let name = if !is_unknown && owner.name != DYN_FUTURE {
            settle_by_stacks(profile, id, &owner.name)
        } else {
            // What an object's stacks show is its body; of others the body may be inlined, and
            // what shows is something that it calls.
            let spawned = owner
                .spawn_context
                .and_then(|context| profile.contexts.node.get(context.index()))
                .map(|node| profile.site(*node).function);
            match (name_by_stacks(profile, id), spawned, is_unknown) {
                (Some(body), _, false) => body,
                (Some(body), _, true) => format!("task that runs {body}"),
                (None, Some(spawner), false) => format!("{DYN_FUTURE} spawned in {spawner}"),
                (None, Some(spawner), true) => format!("task spawned in {spawner}"),
                (None, None, _) => continue,
            }
        };
        profile.owners[at].name = name;
    }
}

fn totals(recorded: &Recorded, profile: &Profile) -> Totals {
    use std::sync::atomic::Ordering::Relaxed;
    let contexts = &profile.contexts;
    let header = recorded.header();
    Totals {
        allocated_bytes: contexts.allocated_bytes.iter().sum(),
        allocations: contexts.allocations.iter().sum(),
        live_bytes: contexts.live_bytes.iter().sum(),
        live_blocks: contexts.live_blocks.iter().sum(),
        peak_live_bytes: contexts.peak_bytes.iter().sum(),
        peak_live_blocks: contexts.peak_blocks.iter().sum(),
        temporary_blocks: contexts.temporary.iter().sum(),
        peak_at_s: f64::from(header.sums.peak_ms.load(Relaxed)) / 1000.0,
    }
}

fn say_what_is_missing(profile: &mut Profile, namer: &Namer) {
    let mut stays = profile.workers.iter().flat_map(|worker| &worker.held);
    if stays.any(|stay| stay.uncertain) {
        profile.program.warnings.push(
            "tasks seem to hold their worker, but the kernel lets nobody watch for how long \
             (perf_event_paranoid, seccomp): see `taskheap report FILE --workers`"
                .to_owned(),
        );
    }
    let missing = namer.missing();
    if missing.changed > 0 {
        profile.program.warnings.push(format!(
            "{} stack addresses have no name: their file was rebuilt while the program ran",
            missing.changed
        ));
    }
}

/// The file of a module; the program itself has no path of its own in the loader's list.
pub fn path_of(module: &super::ModuleCopy, exe: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    if module.path.is_empty() {
        return exe.to_owned();
    }
    PathBuf::from(std::ffi::OsString::from_vec(module.path.clone()))
}

/// Texts with numbers of their own.
#[derive(Default)]
pub(super) struct Interner {
    numbers: HashMap<String, u32>,
    pub texts: Vec<String>,
}

impl Interner {
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}
