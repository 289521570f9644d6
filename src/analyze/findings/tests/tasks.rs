//! Findings about tasks.

use super::sketch::{KB, MB, Sketch};
use crate::analyze::Kind;
use crate::profile::{HeldBy, Holder, OwnerId};

#[test]
fn finished_tasks_are_told_with_their_outputs() {
    let mut sketch = Sketch::new();
    let tasks = sketch.tasks("server::resolve", [0, 10_000], 256, 0);
    let node = sketch.stack(&["server::resolve"]);
    let outputs = sketch.block(node, tasks, HeldBy::FinishedTask(tasks), 10_000, 4 * KB);
    // That their outputs are equal, or empty, is no finding of its own.
    sketch.copies(outputs, Holder::Task, 10_000, 1);
    sketch.untouched(outputs, 90, 10_000);
    let found = sketch.finding();
    assert_eq!(found.kind, Kind::FinishedTasks);
    assert_eq!(found.owner_name.as_deref(), Some("server::resolve"));
    assert_eq!(
        (found.count, found.bytes),
        (10_000, 10_000 * (4 * KB + 256))
    );
    assert!(
        found.title.contains("10,000 finished tasks"),
        "{}",
        found.title
    );
    assert!(found.advice.contains("join_next"), "{}", found.advice);
}

#[test]
fn without_join_handles_the_advice_is_another() {
    let mut sketch = Sketch::new();
    sketch.tasks("server::resolve", [0, 10_000], 8 * KB, 0);
    sketch.walk.tasks[0].join_dropped = 10_000;
    let found = sketch.finding();
    assert_eq!(found.kind, Kind::FinishedTasks);
    assert!(found.advice.contains("waker"), "{}", found.advice);
}

#[test]
fn a_few_finished_tasks_are_always_there() {
    let mut sketch = Sketch::new();
    let tasks = sketch.tasks("server::resolve", [100, 10], 256, 0);
    let node = sketch.stack(&["server::resolve"]);
    sketch.block(node, tasks, HeldBy::FinishedTask(tasks), 10, MB);
    let many = sketch.tasks("server::ping", [0, 1_000], 128, 0);
    let node = sketch.stack(&["server::ping"]);
    sketch.block(node, many, HeldBy::FinishedTask(many), 1_000, 8);
    assert!(sketch.is_silent());
}

#[test]
fn a_large_future_is_told_by_its_cells() {
    let mut sketch = Sketch::new();
    let tasks = sketch.tasks("server::upload", [5_000, 0], 16_128, 2_000);
    sketch.profile.owners[tasks.index()].file = "src/upload.rs".to_owned();
    sketch.profile.owners[tasks.index()].line = 20;
    let cells = sketch.profile.owners[tasks.index()].spawn_context.unwrap();
    sketch.untouched(cells, 90, 5_000);
    let found = sketch.finding();
    assert_eq!(found.kind, Kind::LargeFuture);
    assert_eq!((found.count, found.bytes), (5_000, 5_000 * 16_128));
    let site = found.site.unwrap();
    assert_eq!(site.function, "server::upload");
    assert_eq!(
        (site.file.as_deref(), site.line),
        (Some("src/upload.rs"), Some(20))
    );
}

#[test]
fn a_boxed_future_counts_with_its_box() {
    let mut sketch = Sketch::new();
    let tasks = sketch.tasks("server::upload", [5_000, 0], 128, 2_000);
    sketch.profile.owners[tasks.index()].box_bytes = 28 * KB;
    let node = sketch.stack(&["server::main", "tokio::task::spawn", "alloc::boxed::new"]);
    let boxes = sketch.block(node, tasks, HeldBy::Task(tasks), 5_000, 28 * KB);
    sketch.copies(boxes, Holder::Task, 5_000, 1);
    let found = sketch.finding();
    assert_eq!(found.kind, Kind::LargeFuture);
    assert_eq!(found.bytes, 5_000 * (28 * KB + 128));
    assert!(found.title.contains("boxes"), "{}", found.title);
}

#[test]
fn a_common_future_is_silent() {
    let mut sketch = Sketch::new();
    sketch.tasks("server::child", [10_000, 0], 2_432, 2_000);
    sketch.tasks("server::main_loop", [1, 0], 64 * KB, 0);
    assert!(sketch.is_silent());
}

fn tickers(count: u64, idle_ms: u64, each: u64) -> (Sketch, OwnerId) {
    let mut sketch = Sketch::new();
    let tasks = sketch.tasks("server::ticker", [count, 0], 256, idle_ms);
    let node = sketch.stack(&[
        "tokio::runtime::run",
        "server::ticker",
        "alloc::vec::from_elem",
    ]);
    sketch.block(node, tasks, HeldBy::Task(tasks), count, each);
    (sketch, tasks)
}

#[test]
fn many_idle_tasks_that_hold_much_are_told() {
    let (sketch, _) = tickers(3_000, 1_500, 16 * KB);
    let found = sketch.finding();
    assert_eq!(found.kind, Kind::IdleTasks);
    assert_eq!((found.count, found.bytes), (3_000, 3_000 * (16 * KB + 256)));
    assert_eq!(found.owner_name.as_deref(), Some("server::ticker"));
    assert!(found.title.contains("1.50 s"), "{}", found.title);
}

#[test]
fn equal_buffers_of_idle_tasks_are_idle_tasks() {
    let (mut sketch, _) = tickers(3_000, 1_500, 48 * KB);
    let buffers = sketch.walk.contexts.last().unwrap().0;
    sketch.copies(buffers, Holder::Task, 3_000, 1);
    assert_eq!(sketch.finding().kind, Kind::IdleTasks);
}

#[test]
fn cloned_structures_of_idle_tasks_are_copies() {
    let mut sketch = Sketch::new();
    let tasks = sketch.tasks("server::handler", [3_000, 0], 256, 1_500);
    let clone = sketch.stack(&[
        "server::handler",
        "<server::Rules as core::clone::Clone>::clone",
    ]);
    let trees = sketch.block(clone, tasks, HeldBy::Task(tasks), 3_000, 48 * KB);
    sketch.copies(trees, Holder::Task, 3_000, 1);
    assert_eq!(sketch.finding().kind, Kind::Copies);
}

#[test]
fn busy_tasks_and_few_tasks_are_not_idle() {
    assert!(tickers(3_000, 300, 16 * KB).0.is_silent());
    assert!(tickers(64, 60_000, 100 * KB).0.is_silent());
}

#[test]
fn idle_connections_with_small_buffers_are_healthy() {
    let mut sketch = Sketch::new();
    let tasks = sketch.tasks("server::connection", [3_000, 0], 1_536, 30_000);
    let read = sketch.stack(&["server::connection", "bytes::BytesMut::with_capacity"]);
    let read = sketch.block(read, tasks, HeldBy::Task(tasks), 3_000, 4 * KB);
    let write = sketch.stack(&["server::connection", "tokio::io::BufWriter::new"]);
    let write = sketch.block(write, tasks, HeldBy::Task(tasks), 3_000, 8 * KB);
    for buffer in [read, write] {
        sketch.copies(buffer, Holder::Task, 3_000, 1);
        sketch.untouched(buffer, 60, 3_000);
    }
    assert!(sketch.is_silent());
}
