//! Findings about structures and blocks.

use super::sketch::{KB, MB, Sketch};
use crate::analyze::Kind;
use crate::profile::{
    HeldBy, Holder, Spread, WalkLeak, WalkOwnerGone, WalkPinned, WalkThreadLocal,
};

#[test]
fn a_leaked_structure_is_one_mistake_at_its_root() {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    let root = sketch.stack(&["server::connect"]);
    let part = sketch.stack(&["server::connect", "server::buffer"]);
    let root = sketch.block(root, main, HeldBy::Nobody, 500, 32);
    let part = sketch.block(part, main, HeldBy::Nobody, 500, 64 * KB);
    for (context, blocks, bytes, indirect_blocks) in
        [(root, 500, 500 * 32, 0), (part, 500, 500 * 64 * KB, 500)]
    {
        sketch.walk.leaks.push(WalkLeak {
            context: Some(context),
            root_context: Some(root),
            blocks,
            bytes,
            indirect_blocks,
            cycle: true,
            ..WalkLeak::default()
        });
    }
    let found = sketch.finding();
    assert_eq!(found.kind, Kind::Leak);
    assert_eq!(found.site.unwrap().function, "server::connect");
    assert_eq!((found.count, found.bytes), (500, 500 * (64 * KB + 32)));
    assert!(found.advice.contains("Weak"), "{}", found.advice);
}

#[test]
fn small_and_possible_leaks_accuse_nobody() {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    let node = sketch.stack(&["server::main"]);
    sketch.leak(node, main, 100, KB);
    let hidden = sketch.stack(&["server::hidden"]);
    sketch.leak(hidden, main, 10, MB);
    sketch.walk.leaks[1].possible = true;
    assert!(sketch.is_silent());
}

fn thread_local(threads: u64, each: u64, identical: bool) -> Sketch {
    let mut sketch = Sketch::new();
    let worker = sketch.thread("worker-*", threads);
    let node = sketch.stack(&["server::RULES::__init", "server::load"]);
    let values = sketch.block(node, worker, HeldBy::ThreadLocal(0), threads, each);
    sketch.walk.thread_locals.push(WalkThreadLocal {
        name: "server::RULES".to_owned(),
        node: Some(node),
        threads,
        bytes: threads * each,
        per_thread: Spread(vec![(each, threads)]),
        identical: Some(identical),
        equal_share: 1.0,
    });
    if threads > 1 {
        sketch.copies(values, Holder::ThreadLocal, threads, 1);
    }
    sketch
}

#[test]
fn a_value_on_each_thread_is_one_finding() {
    let found = thread_local(16, 4 * MB, true).finding();
    assert_eq!(found.kind, Kind::ThreadLocal);
    assert_eq!((found.count, found.bytes), (16, 15 * 4 * MB));
    assert_eq!(found.owner_name.as_deref(), Some("server::RULES"));
    assert!(found.advice.contains("OnceLock"), "{}", found.advice);
    let found = thread_local(64, MB, false).finding();
    assert_eq!(found.bytes, 64 * MB);
    assert!(found.advice.contains("pool"), "{}", found.advice);
}

#[test]
fn thread_locals_of_one_thread_or_of_little_are_what_they_are_for() {
    assert!(thread_local(1, 64 * MB, true).is_silent());
    assert!(thread_local(500, 8 * KB, false).is_silent());
}

fn left(kind_is_thread: bool, owners: u64, each: u64) -> Sketch {
    let mut sketch = Sketch::new();
    let gone = match kind_is_thread {
        true => sketch.thread("scanner-*", owners),
        false => sketch.tasks("server::scan", [0, 0], 256, 0),
    };
    let node = sketch.stack(&["server::scan", "regex_automata::Cache::new"]);
    let context = sketch.block(node, gone, HeldBy::Static(0), owners * 4, each / 4);
    sketch.walk.statics.push(Default::default());
    sketch.copies(context, Holder::Instance, owners, 4);
    sketch.untouched(context, 90, 1);
    sketch.walk.owner_gone.push(WalkOwnerGone {
        context: Some(context),
        owner: Some(gone),
        owners,
        blocks: owners * 4,
        bytes: owners * each,
        kept_by: "server::MAIL".to_owned(),
    });
    sketch
}

#[test]
fn what_each_of_many_threads_left_is_told_with_its_keeper() {
    let found = left(true, 32, 2 * MB).finding();
    assert_eq!(found.kind, Kind::OwnerGone);
    assert_eq!((found.count, found.bytes), (32, 64 * MB));
    assert!(
        found.title.contains("kept by server::MAIL"),
        "{}",
        found.title
    );
    assert_eq!(
        found.site.unwrap().library.as_deref(),
        Some("regex_automata")
    );
}

#[test]
fn data_that_outlives_its_maker_is_no_fault() {
    let none = |sketch: Sketch| {
        let kinds: Vec<Kind> = sketch.findings().iter().map(|f| f.kind).collect();
        assert!(!kinds.contains(&Kind::OwnerGone), "{kinds:?}");
    };
    none(left(true, 2, 30 * MB));
    none(left(false, 1_000, 64 * KB));
    none(left(true, 1_000, 2 * KB));
}

/// One structure for each of so many tasks, made by cloning.
fn clones(copies: u64, each: u64, blocks: u64) -> Sketch {
    let mut sketch = Sketch::new();
    let tasks = sketch.tasks("server::handler", [copies, 0], 384, 2_000);
    let clone = sketch.stack(&[
        "tokio::runtime::run",
        "server::handler::{closure}",
        "<server::Rules as core::clone::Clone>::clone",
        "hashbrown::clone",
    ]);
    let trees = sketch.block(
        clone,
        tasks,
        HeldBy::Task(tasks),
        copies * blocks,
        each / blocks,
    );
    sketch.copies(trees, Holder::Task, copies, blocks);
    sketch
}

#[test]
fn a_clone_for_each_task_is_told_as_copies() {
    let found = clones(64, 4 * MB, 1024).finding();
    assert_eq!(found.kind, Kind::Copies);
    assert_eq!((found.count, found.bytes), (64, 63 * 4 * MB));
    assert_eq!(found.owner_name.as_deref(), Some("server::handler"));
    assert!(
        found.title.contains("server::Rules::clone"),
        "{}",
        found.title
    );
    assert!(found.advice.contains("Arc"), "{}", found.advice);
}

#[test]
fn small_copies_and_pairs_are_silent() {
    assert!(clones(5_000, KB, 4).is_silent());
    assert!(clones(2, 40 * MB, 1024).is_silent());
}

#[test]
fn different_contents_are_no_copies() {
    let mut sketch = clones(64, 4 * MB, 1024);
    sketch.walk.copies[0].identical = Some(false);
    sketch.walk.copies[0].waste_bytes = 0;
    assert!(sketch.is_silent());
}

#[test]
fn caches_that_grew_a_little_differently_are_one_group() {
    let mut sketch = clones(200, MB, 64);
    let mut other = sketch.walk.copies[0].clone();
    sketch.walk.copies[0].copies = 120;
    sketch.walk.copies[0].bytes = 120 * MB;
    sketch.walk.copies[0].waste_bytes = 119 * MB;
    other.copies = 80;
    other.bytes_each = MB + 32;
    other.bytes = 80 * (MB + 32);
    other.waste_bytes = 79 * (MB + 32);
    sketch.walk.copies.push(other);
    let found = sketch.finding();
    assert_eq!(found.count, 200);
    assert_eq!(found.bytes, 199 * MB + 79 * 32);
}

#[test]
fn elements_that_are_alike_need_to_be_many_and_much() {
    let elements = |copies: u64, each: u64, others: u64| {
        let mut sketch = Sketch::new();
        let main = sketch.thread("main", 1);
        let node = sketch.stack(&[
            "server::main",
            "<server::Rules as core::clone::Clone>::clone",
        ]);
        let list = sketch.block(node, main, HeldBy::Stack(main), copies * 8, each / 8);
        sketch.copies(list, Holder::Instance, copies, 8);
        let rest = sketch.stack(&["server::load"]);
        sketch.block(rest, main, HeldBy::Stack(main), others, MB);
        sketch
    };
    assert_eq!(elements(200, 100 * KB, 10).finding().kind, Kind::Copies);
    assert!(elements(4, 2 * MB, 10).is_silent());
    assert!(elements(200, 100 * KB, 500).is_silent());
    assert!(elements(20_000, KB, 10).is_silent());
}

#[test]
fn untouched_buffers_are_oversized_and_no_copies() {
    let mut sketch = Sketch::new();
    let tasks = sketch.tasks("server::connection", [1_000, 0], 640, 60_000);
    let node = sketch.stack(&["server::connection", "bytes::BytesMut::with_capacity"]);
    let buffers = sketch.block(node, tasks, HeldBy::Task(tasks), 1_000, 128 * KB);
    sketch.copies(buffers, Holder::Task, 1_000, 1);
    sketch.untouched(buffers, 100, 1_000);
    let found = sketch.finding();
    assert_eq!(found.kind, Kind::Oversized);
    assert_eq!(found.count, 1_000);
    assert_eq!(found.bytes, 1_000 * 128 * KB / 100 * 100);
    assert_eq!(found.owner_name.as_deref(), Some("server::connection"));
    assert_eq!(found.site.unwrap().library.as_deref(), Some("bytes"));
}

fn blocks(count: u64, each: u64, untouched: u64, others: u64) -> Sketch {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    let node = sketch.stack(&["server::table", "hashbrown::with_capacity"]);
    let tables = sketch.block(node, main, HeldBy::Stack(main), count, each);
    sketch.untouched(tables, untouched, 1);
    let rest = sketch.stack(&["server::load"]);
    sketch.block(rest, main, HeldBy::Stack(main), others, MB);
    sketch
}

#[test]
fn many_empty_tables_or_a_very_large_one_are_oversized() {
    let found = blocks(512, 300 * KB, 98, 0).finding();
    assert_eq!((found.kind, found.count), (Kind::Oversized, 512));
    assert_eq!(blocks(1, 500 * MB, 90, 100).finding().count, 1);
}

#[test]
fn room_to_grow_is_no_fault() {
    // A table that has just doubled, buffers of the usual size, one arena for a large program.
    assert!(blocks(8, 10 * MB, 60, 0).is_silent());
    assert!(blocks(10_000, 8 * KB, 95, 0).is_silent());
    assert!(blocks(1, 20 * MB, 95, 200).is_silent());
}

#[test]
fn blocks_that_small_slices_keep_are_pinned() {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    let node = sketch.stack(&["server::read_message"]);
    let buffers = sketch.block(node, main, HeldBy::Thread(main), 1_000, 64 * KB);
    sketch.walk.pinned.push(WalkPinned {
        context: Some(buffers),
        blocks: 1_000,
        bytes: 1_000 * 64 * KB,
        used_bytes: 1_000 * 16,
        owners: 1,
    });
    sketch.copies(buffers, Holder::Thread, 1_000, 1);
    let found = sketch.finding();
    assert_eq!(found.kind, Kind::Pinned);
    assert_eq!((found.count, found.bytes), (1_000, 1_000 * (64 * KB - 16)));
    assert!(found.advice.contains("copy"), "{}", found.advice);
}

#[test]
fn room_without_elements_is_oversized() {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    let node = sketch.stack(&["server::read_message"]);
    let buffers = sketch.block(node, main, HeldBy::Thread(main), 100, MB);
    sketch.untouched(buffers, 10, 100);
    sketch.walk.oversized[0].spare_bytes = 80 * MB;
    let found = sketch.finding();
    assert_eq!(found.kind, Kind::Oversized);
    assert!(found.title.contains("without elements"), "{}", found.title);
    assert_eq!(found.count, 100);
}
