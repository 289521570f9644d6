//! A profile of 200,000 contexts: what a long run of a large program leaves. A build without
//! optimisation gets a tenth of it, and more time.

use std::time::{Duration, Instant};

use taskheap::profile::*;

use crate::command::Folder;

const CONTEXTS: u32 = if cfg!(debug_assertions) {
    20_000
} else {
    200_000
};
const FUNCTIONS: u32 = 40_000;

/// Deterministic, and different enough not to compress away.
fn random(state: &mut u64) -> u32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

fn large() -> Profile {
    let mut profile = Profile::default();
    let mut state = 1;
    let origins = [
        Origin::Own,
        Origin::Library,
        Origin::Runtime,
        Origin::Std,
        Origin::Std,
    ];
    profile.strings.push(String::new());
    for at in 0..FUNCTIONS {
        let module = random(&mut state) % 500;
        profile.strings.push(format!(
            "crate_{module}::module::function_{at}::<impl for T>::call"
        ));
        let frames = &mut profile.frames;
        frames.function.push(StringId(at + 1));
        frames.file.push(StringId(0));
        frames.line.push(random(&mut state) % 3_000);
        frames.library.push(StringId(0));
        frames
            .origin
            .push(origins[(random(&mut state) % 5) as usize]);
        frames.inlined.push(false);
    }
    for at in 0..CONTEXTS * 2 {
        let nodes = &mut profile.nodes;
        // Near the last: stacks of some depth.
        nodes.parent.push(NodeId(
            at.saturating_sub(1 + random(&mut state) % (at / 2 + 2)),
        ));
        nodes.first_frame.push(random(&mut state) % (FUNCTIONS - 4));
        nodes.frame_count.push(if at == 0 {
            0
        } else {
            1 + random(&mut state) % 4
        });
        nodes.flags.push(0);
    }
    for at in 0..50 {
        let kind = if at % 3 == 0 {
            OwnerKind::Thread
        } else {
            OwnerKind::Task
        };
        profile.owners.push(Owner {
            kind,
            name: format!("server::task_{at}"),
            ..Owner::default()
        });
    }
    for _ in 0..CONTEXTS {
        let contexts = &mut profile.contexts;
        let blocks = u64::from(random(&mut state) % 10_000);
        let live = blocks / (1 + u64::from(random(&mut state) % 50));
        contexts
            .node
            .push(NodeId(1 + random(&mut state) % (CONTEXTS * 2 - 1)));
        contexts.owner.push(OwnerId(random(&mut state) % 50));
        contexts.allocator.push(0);
        contexts.allocations.push(blocks);
        contexts.allocated_bytes.push(blocks * 100);
        contexts.live_bytes.push(live * 100);
        contexts.live_blocks.push(live);
        contexts.peak_bytes.push(live * 120);
        contexts.peak_blocks.push(live);
        contexts.temporary.push(blocks / 3);
    }
    profile
}

#[test]
fn a_large_profile_is_reported_within_a_second() {
    let folder = Folder::new();
    folder.profile("large.taskheap", &large());
    let size = std::fs::metadata(folder.path("large.taskheap"))
        .unwrap()
        .len();
    let limit = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
    for args in [
        "report large.taskheap",
        "report large.taskheap --json",
        "flamegraph large.taskheap -o -",
        "export pprof large.taskheap -o -",
    ] {
        // The quickest of three: other processes may have the machine meanwhile.
        let mut took = Duration::MAX;
        let mut output = None;
        for _ in 0..3 {
            let start = Instant::now();
            output = Some(folder.run(args));
            took = took.min(start.elapsed());
        }
        let output = output.unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        eprintln!(
            "{args}: {took:?}, {} bytes, of a file of {size}",
            output.stdout.len()
        );
        let drawn = args.starts_with("report");
        assert!(took < limit || !drawn, "{args}: {took:?}");
    }
}
