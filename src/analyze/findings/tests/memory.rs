//! Findings about memory beyond live blocks.

use super::sketch::{KB, MB, Sketch};
use crate::analyze::{Finding, Kind};
use crate::profile::{HeldBy, Memory, WalkReason, WalkThread};

fn program(live: u64) -> Sketch {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    let node = sketch.stack(&["server::main"]);
    sketch.block(node, main, HeldBy::Stack(main), live / MB, MB);
    sketch.walk.memory = Memory {
        moment: "walk 1 at 2.0 s".to_owned(),
        at_s: 2.0,
        rss_bytes: live + 10 * MB,
        live_resident_bytes: live,
        mapped_files_bytes: 10 * MB,
        ..Memory::default()
    };
    sketch
}

fn found(sketch: &mut Sketch) -> Vec<Finding> {
    sketch.profile.memory = Some(sketch.walk.memory.clone());
    sketch.findings()
}

#[test]
fn freed_memory_that_stays_is_told_as_cached_or_fragmented() {
    let mut sketch = program(10 * MB);
    sketch.walk.memory.rss_bytes += 80 * MB;
    sketch.walk.memory.retained_bytes = 80 * MB;
    let cached = found(&mut sketch);
    assert_eq!((cached[0].kind, cached[0].bytes), (Kind::Retained, 80 * MB));
    assert!(cached[0].title.contains("cached"), "{}", cached[0].title);
    assert!(cached[0].advice.contains("malloc_trim"));
    sketch.walk.memory.fragmented_bytes = 70 * MB;
    let fragmented = found(&mut sketch);
    assert!(fragmented[0].title.contains("fragmented"));
}

#[test]
fn what_is_freed_just_before_the_end_is_no_finding() {
    let mut sketch = program(10 * MB);
    sketch.walk.memory.rss_bytes += 80 * MB;
    sketch.walk.memory.retained_bytes = 80 * MB;
    sketch.walk.reason = WalkReason::Exit;
    sketch.profile.program.duration_s = 2.05;
    assert!(found(&mut sketch).is_empty());
}

#[test]
fn some_free_memory_is_what_allocators_are_for() {
    let mut sketch = program(100 * MB);
    sketch.walk.memory.rss_bytes += 20 * MB;
    sketch.walk.memory.retained_bytes = 20 * MB;
    assert!(found(&mut sketch).is_empty());
}

#[test]
fn memory_outside_the_heap_is_told_when_it_is_much() {
    let mut sketch = program(10 * MB);
    sketch.walk.memory.rss_bytes += 200 * MB;
    sketch.walk.memory.other_mappings_bytes = 200 * MB;
    let told = found(&mut sketch);
    assert_eq!((told[0].kind, told[0].bytes), (Kind::OutsideHeap, 200 * MB));
    let mut sketch = program(100 * MB);
    sketch.walk.memory.rss_bytes += 3 * MB;
    sketch.walk.memory.other_mappings_bytes = 3 * MB;
    assert!(found(&mut sketch).is_empty());
}

#[test]
fn deep_stacks_of_many_threads_are_told() {
    let stacks = |count: u64, each: u64| {
        let mut sketch = program(10 * MB);
        sketch.walk.memory.rss_bytes += count * each;
        sketch.walk.threads.push(WalkThread {
            name: "tokio-rt-worker".to_owned(),
            count,
            stack_reserved_each: 2 * MB,
            stack_resident: count * each,
            owned_bytes: 0,
        });
        found(&mut sketch)
    };
    let told = stacks(64, 256 * KB);
    assert_eq!((told[0].kind, told[0].count), (Kind::ThreadStacks, 64));
    assert_eq!(told[0].bytes, 16 * MB);
    assert!(stacks(8, MB).is_empty());
    assert!(stacks(64, 24 * KB).is_empty());
}
