//! A sample that is recorded in the process itself is right within its error.
#![cfg(all(feature = "cli", target_os = "linux"))]

use std::alloc::System;

use taskheap::{Alloc, Recorder};

#[global_allocator]
static ALLOC: Alloc<System> = Alloc::new(System);

const DISTANCE: u64 = 64 << 10;

#[test]
fn a_sample_in_the_process_is_right_within_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sampled.taskheap");
    let mut kept: Vec<Vec<u8>> = Vec::with_capacity(100_000);
    let recorder = Recorder::start_sampled(&file, DISTANCE).unwrap();
    let (mut allocated, mut live) = (0u64, 0u64);
    for n in 0..200_000u64 {
        let size = 50 + n * 7919 % 1500;
        let block = std::hint::black_box(vec![1u8; size as usize]);
        allocated += size;
        if n % 2 == 0 {
            live += size;
            kept.push(block);
        }
    }
    recorder.finish().unwrap();
    let profile = taskheap::profile::read(&file).unwrap();
    assert_eq!(profile.recording.sample_bytes, DISTANCE);
    assert_eq!(profile.recording.lost_events, 0);
    for (name, found, truth) in [
        ("allocated", profile.totals.allocated_bytes, allocated),
        ("live", profile.totals.live_bytes, live),
    ] {
        let error = 5.0 * (truth as f64 * DISTANCE as f64).sqrt();
        let off = found as f64 - truth as f64;
        assert!(off.abs() < error, "{name}: {found}, but {truth}");
    }
    assert_eq!(kept.len(), 100_000);
}
