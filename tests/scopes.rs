//! Scopes as owners in a recording that the program makes of itself.
#![cfg(all(feature = "cli", target_os = "linux", target_arch = "x86_64"))]

use std::alloc::System;

use taskheap::{HeapScope, Recorder, analyze, profile};

#[global_allocator]
static ALLOC: taskheap::Alloc<System> = taskheap::Alloc::new(System);

#[test]
fn scopes_are_owners_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scopes.taskheap");
    let recorder = Recorder::start(&file).unwrap();
    let first = {
        let _cache = taskheap::scope("cache");
        let first = vec![1u8; 10_000];
        let _inner = taskheap::scope("cache::index");
        drop(vec![1u8; 500]);
        first
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let work = async { vec![1u8; 7_000] };
    let second = runtime.unwrap().block_on(work.heap_scope("worker"));
    recorder.finish().unwrap();
    drop((first, second));

    let report = analyze::report(&profile::read(&file).unwrap());
    let scope = |name: &str| {
        let found = report.others.iter().find(|row| row.name == name);
        let row = found.unwrap_or_else(|| panic!("no {name} in {:?}", report.others));
        assert_eq!(row.kind, "scope");
        (row.live_bytes, row.allocated_bytes)
    };
    assert_eq!(scope("cache"), (10_000, 10_000));
    assert_eq!(scope("cache::index"), (0, 500));
    assert_eq!(scope("worker"), (7_000, 7_000));
}
