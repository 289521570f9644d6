//! Profiles built by hand.
//!
//! [`server`] is a program with two task types, a pool of workers, a shared initialiser, a
//! thread-local and a stack that was cut, killed before its end, so that what was live is live.
//! [`walked`] is the same with a walk that found something of every kind.

use std::collections::HashMap;

use taskheap::profile::*;
use taskheap::wire::NodeFlags;

/// A frame as a test writes it: function, place, library, whose code.
#[derive(Clone, Copy)]
pub struct Fr(
    pub &'static str,
    pub &'static str,
    pub u32,
    pub &'static str,
    pub Origin,
);

pub const MAIN: Fr = Fr("server::main", "src/main.rs", 10, "", Origin::Own);
pub const RUN: Fr = Fr(
    "tokio::runtime::Runtime::block_on",
    "",
    0,
    "tokio",
    Origin::Runtime,
);
pub const POLL: Fr = Fr(
    "tokio::runtime::task::raw::poll",
    "",
    0,
    "tokio",
    Origin::Runtime,
);
pub const SPAWN: Fr = Fr("tokio::task::spawn::spawn", "", 0, "tokio", Origin::Runtime);
pub const HANDLER: Fr = Fr(
    "server::handler::{{closure}}",
    "src/handler.rs",
    42,
    "",
    Origin::Own,
);
pub const TICKER: Fr = Fr(
    "server::ticker::{{closure}}",
    "src/ticker.rs",
    7,
    "",
    Origin::Own,
);
pub const TO_VEC: Fr = Fr("alloc::slice::to_vec", "", 0, "alloc", Origin::Std);
pub const PARSE: Fr = Fr(
    "serde_json::de::from_str",
    "",
    0,
    "serde_json",
    Origin::Library,
);
pub const LIBC: Fr = Fr("start_thread", "", 0, "libc.so.6", Origin::Foreign);
pub const RULES: Fr = Fr(
    "server::RULES::{{closure}}",
    "src/rules.rs",
    3,
    "",
    Origin::Own,
);
pub const ONCE: Fr = Fr("std::sync::once::Once::call", "", 0, "std", Origin::Std);
pub const CACHE: Fr = Fr("server::CACHE::__init", "src/cache.rs", 5, "", Origin::Own);

pub struct Builder {
    pub profile: Profile,
    strings: HashMap<String, StringId>,
    nodes: HashMap<(NodeId, u32), NodeId>,
    frames: HashMap<(StringId, u32), u32>,
}

impl Builder {
    pub fn new() -> Builder {
        let mut builder = Builder {
            profile: Profile::default(),
            strings: HashMap::new(),
            nodes: HashMap::new(),
            frames: HashMap::new(),
        };
        let nodes = &mut builder.profile.nodes;
        nodes.parent.push(NodeId(0));
        nodes.first_frame.push(0);
        nodes.frame_count.push(0);
        nodes.flags.push(0);
        builder.owner(OwnerKind::Unknown, "");
        builder
    }

    pub fn string(&mut self, text: &str) -> StringId {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = StringId(self.profile.strings.len() as u32);
        self.profile.strings.push(text.to_owned());
        self.strings.insert(text.to_owned(), id);
        id
    }

    fn frame(&mut self, frame: Fr) -> u32 {
        let function = self.string(frame.0);
        let file = self.string(frame.1);
        let library = self.string(frame.3);
        if let Some(at) = self.frames.get(&(function, frame.2)) {
            return *at;
        }
        let frames = &mut self.profile.frames;
        frames.function.push(function);
        frames.file.push(file);
        frames.line.push(frame.2);
        frames.library.push(library);
        frames.origin.push(frame.4);
        frames.inlined.push(false);
        let at = frames.function.len() as u32 - 1;
        self.frames.insert((function, frame.2), at);
        at
    }

    /// Outermost frame first, one per call.
    pub fn stack(&mut self, frames: &[Fr], flags: u32) -> NodeId {
        let mut node = NodeId(0);
        for frame in frames {
            let frame = self.frame(*frame);
            let flags = if flags & NodeFlags::SHARED_INIT != 0 && node.0 == 0 {
                0
            } else {
                flags
            };
            let next = NodeId(self.profile.nodes.parent.len() as u32);
            let nodes = &mut self.profile.nodes;
            node = *self.nodes.entry((node, frame)).or_insert_with(|| {
                nodes.parent.push(node);
                nodes.first_frame.push(frame);
                nodes.frame_count.push(1);
                nodes.flags.push(flags);
                next
            });
        }
        node
    }

    pub fn owner(&mut self, kind: OwnerKind, name: &str) -> OwnerId {
        self.profile.owners.push(Owner {
            kind,
            name: name.to_owned(),
            ..Owner::default()
        });
        OwnerId(self.profile.owners.len() as u32 - 1)
    }

    /// So many blocks of one size: made, live at the peak, live at the end.
    pub fn blocks(
        &mut self,
        node: NodeId,
        owner: OwnerId,
        size: u64,
        counts: [u64; 3],
    ) -> ContextId {
        let [made, peak, live] = counts;
        let contexts = &mut self.profile.contexts;
        contexts.node.push(node);
        contexts.owner.push(owner);
        contexts.allocator.push(0);
        contexts.allocations.push(made);
        contexts.allocated_bytes.push(made * size);
        contexts.live_bytes.push(live * size);
        contexts.live_blocks.push(live);
        contexts.peak_bytes.push(peak * size);
        contexts.peak_blocks.push(peak);
        contexts.temporary.push((made - live) / 2);
        ContextId(contexts.node.len() as u32 - 1)
    }

    /// With totals that are the sums.
    pub fn finish(mut self) -> Profile {
        let contexts = &self.profile.contexts;
        let sum = |column: &[u64]| column.iter().sum();
        let totals = Totals {
            allocated_bytes: sum(&contexts.allocated_bytes),
            allocations: sum(&contexts.allocations),
            live_bytes: sum(&contexts.live_bytes),
            live_blocks: sum(&contexts.live_blocks),
            peak_live_bytes: sum(&contexts.peak_bytes),
            peak_live_blocks: sum(&contexts.peak_blocks),
            temporary_blocks: sum(&contexts.temporary),
            peak_at_s: 1.5,
        };
        self.profile.totals = totals;
        self.profile
    }
}

pub const MB: u64 = 1 << 20;

pub fn server() -> Profile {
    build().finish()
}

fn build() -> Builder {
    let mut b = Builder::new();
    about(&mut b.profile);
    let main = b.owner(OwnerKind::Thread, "main");
    let worker = b.owner(OwnerKind::Thread, "tokio-rt-worker");
    let handler = b.owner(OwnerKind::Task, "server::handler");
    let ticker = b.owner(OwnerKind::Task, "server::ticker");
    // The same async fn spawned on another runtime is another owner.
    let handler_too = b.owner(OwnerKind::Task, "server::handler");
    let worker_loop = b.owner(OwnerKind::Task, "tokio-rt-worker");
    b.profile.owners[worker_loop.index()].runtime_own = true;

    let copy = b.stack(&[LIBC, RUN, POLL, HANDLER, TO_VEC], 0);
    let parse = b.stack(&[LIBC, RUN, POLL, HANDLER, PARSE, TO_VEC], 0);
    let buffer = b.stack(&[LIBC, RUN, POLL, TICKER, TO_VEC], 0);
    let spawn = b.stack(&[MAIN, RUN, SPAWN], 0);
    let setup = b.stack(&[MAIN, TO_VEC], 0);
    let cut = b.stack(&[TO_VEC], NodeFlags::TRUNCATED);
    let shared = b.stack(&[LIBC, ONCE, RULES, TO_VEC], NodeFlags::SHARED_INIT);
    let local = b.stack(&[LIBC, CACHE, TO_VEC], NodeFlags::THREAD_LOCAL_INIT);

    b.blocks(copy, handler, 4 * MB, [40, 40, 40]);
    b.blocks(copy, handler_too, 4 * MB, [20, 20, 20]);
    b.blocks(parse, handler, 100, [10_000, 40, 0]);
    let cells = b.blocks(spawn, handler, 512, [60, 60, 60]);
    b.blocks(buffer, ticker, 16_384, [3_000, 3_000, 2_900]);
    let ticker_cells = b.blocks(spawn, ticker, 256, [3_000, 3_000, 3_000]);
    b.blocks(setup, main, 1_000, [7, 5, 1]);
    b.blocks(cut, OwnerId(0), 64, [3, 1, 1]);
    b.blocks(shared, handler, 5 * MB, [1, 1, 1]);
    b.blocks(local, worker, 2 * MB, [2, 2, 2]);
    b.blocks(setup, worker_loop, 300, [9, 2, 2]);

    let owners = &mut b.profile.owners;
    let spread = |values: &[(u64, u64)]| Spread(values.to_vec());
    owners[main.index()].spawned = 1;
    owners[main.index()].alive = 1;
    owners[worker.index()].spawned = 2;
    owners[worker.index()].alive = 2;
    task(
        &mut owners[handler.index()],
        cells,
        512,
        [40, 40],
        spread(&[(4 * MB + 512, 40)]),
    );
    task(
        &mut owners[handler_too.index()],
        cells,
        512,
        [20, 20],
        spread(&[(4 * MB, 20)]),
    );
    let each = spread(&[(256, 100), (16_640, 2_900)]);
    task(
        &mut owners[ticker.index()],
        ticker_cells,
        256,
        [3_000, 3_000],
        each,
    );
    owners[ticker.index()].finished_allocated = Some(100);
    owners[ticker.index()].idle_ms = spread(&[(1_500, 2_900)]);
    b
}

fn task(owner: &mut Owner, cells: ContextId, cell: u64, [spawned, alive]: [u64; 2], each: Spread) {
    owner.spawn_context = Some(cells);
    owner.spawned = spawned;
    owner.alive = alive;
    owner.finished_allocated = Some(0);
    owner.cell_bytes = cell;
    owner.live_bytes = each.sum();
    owner.per_live = each.clone();
    owner.per_peak = each;
}

fn about(profile: &mut Profile) {
    profile.program = Program {
        path: "/srv/bin/server".to_owned(),
        args: vec!["--tasks".to_owned(), "60".to_owned()],
        pid: 4242,
        started_unix_s: 1_700_000_000,
        duration_s: 2.25,
        exit_signal: Some(9),
        allocators: vec!["glibc".to_owned()],
        recorder_version: "0.1.0".to_owned(),
        ..Program::default()
    };
    profile.recording = Recording {
        task_ids: "tokio-dwarf".to_owned(),
        truncated_stacks: 3,
        peak_bound_bytes: 65_536,
        debug_info: true,
        ..Recording::default()
    };
}

/// The same program, ended in good order with everything freed, and looked into at its peak.
pub fn walked() -> Profile {
    let mut profile = server();
    profile.program.exit_signal = None;
    profile.program.exit_code = Some(0);
    let contexts = &mut profile.contexts;
    let at_peak = (0..contexts.node.len())
        .map(|at| {
            (
                ContextId(at as u32),
                contexts.peak_bytes[at],
                contexts.peak_blocks[at],
            )
        })
        .collect();
    contexts.live_bytes.fill(0);
    contexts.live_blocks.fill(0);
    profile.totals.live_bytes = 0;
    profile.totals.live_blocks = 0;
    let memory = memory();
    profile.walks = vec![
        Walk {
            at_s: 0.5,
            live_bytes: 40 * MB,
            ..Walk::default()
        },
        facts(at_peak, profile.totals.peak_live_bytes, memory.clone()),
    ];
    profile.memory = Some(memory.clone());
    profile.memory_at_peak = Some(memory);
    profile
}

fn memory() -> Memory {
    Memory {
        moment: "walk 2 at 1.50 s".to_owned(),
        at_s: 1.5,
        rss_bytes: 320 * MB,
        rss_peak_bytes: 330 * MB,
        live_resident_bytes: 290 * MB,
        retained_bytes: 10 * MB,
        fragmented_bytes: MB,
        stacks_bytes: MB,
        mapped_files_bytes: 8 * MB,
        other_mappings_bytes: 0,
        profiler_bytes: 9 * MB,
        unexplained_bytes: 2 * MB as i64,
        allocators: vec![AllocatorMemory {
            name: "jemalloc".to_owned(),
            reserved_bytes: 384 * MB,
            resident_bytes: 300 * MB,
            told_at_s: Some(1.5),
            active_bytes: Some(292 * MB),
            dirty_bytes: Some(7 * MB),
            muzzy_bytes: Some(0),
            ..AllocatorMemory::default()
        }],
    }
}

fn facts(contexts: Vec<(ContextId, u64, u64)>, live_bytes: u64, memory: Memory) -> Walk {
    Walk {
        at_s: 1.5,
        reason: WalkReason::Growth,
        pause_s: 0.02,
        live_bytes,
        blocks: 6_000,
        contexts,
        memory,
        tasks: walk_tasks(),
        threads: vec![WalkThread {
            name: "tokio-rt-worker".to_owned(),
            count: 2,
            stack_reserved_each: 2 * MB,
            stack_resident: 64 * 1024,
            owned_bytes: 4 * MB,
        }],
        thread_locals: vec![WalkThreadLocal {
            name: "server::CACHE".to_owned(),
            node: None,
            threads: 2,
            bytes: 4 * MB,
            per_thread: Spread(vec![(2 * MB, 2)]),
            identical: Some(true),
            equal_share: 1.0,
        }],
        statics: vec![WalkStatic {
            name: "server::RULES".to_owned(),
            bytes: 5 * MB,
            blocks: 1,
            first_touched_by: Some(OwnerId(3)),
            ..WalkStatic::default()
        }],
        copies: vec![WalkCopies {
            node: Some(NodeId(4)),
            holder: Holder::Task,
            owner: Some(OwnerId(3)),
            copies: 60,
            bytes_each: 4 * MB,
            blocks_each: 1,
            bytes: 240 * MB,
            identical: Some(true),
            equal_share: 1.0,
            waste_bytes: 236 * MB,
            ..WalkCopies::default()
        }],
        leaks: walk_leaks(),
        owner_gone: vec![WalkOwnerGone {
            context: Some(ContextId(4)),
            owner: Some(OwnerId(4)),
            owners: 10,
            blocks: 10,
            bytes: 163_840,
            kept_by: String::new(),
        }],
        ..Walk::default()
    }
}

fn walk_tasks() -> Vec<WalkTask> {
    let task = |owner, live, cell_bytes, owned: u64| WalkTask {
        owner: Some(OwnerId(owner)),
        live,
        cell_bytes,
        owned: Spread(vec![(owned, live)]),
        retained: Spread(vec![(owned, live)]),
        retained_bytes: owned * live,
        ..WalkTask::default()
    };
    let mut ticker = task(4, 2_900, 256, 16_640);
    ticker.finished = 100;
    ticker.idle_ms = Spread(vec![(1_200, 2_900)]);
    vec![
        task(3, 40, 512, 4 * MB + 512),
        task(5, 20, 512, 4 * MB),
        ticker,
    ]
}

fn walk_leaks() -> Vec<WalkLeak> {
    let leak = |context, blocks, bytes, possible| WalkLeak {
        context: Some(ContextId(context)),
        blocks,
        bytes,
        possible,
        ..WalkLeak::default()
    };
    let mut cycle = leak(2, 10, 1_000, false);
    cycle.cycle = true;
    cycle.indirect_bytes = 200;
    vec![cycle, leak(6, 2, 2_000, false), leak(4, 1, 16_384, true)]
}
