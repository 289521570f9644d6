//! Walks of real processes whose heap is known: this binary, started again, makes a heap, tells
//! where its blocks are, and waits. No recorder is needed.
#![cfg(all(feature = "cli", target_os = "linux"))]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Child, Command, Stdio};

use taskheap::profile::Walk;
use taskheap::walk::{
    Block, ContextInfo, Heap, NodeTable, Noted, Options, OwnMaps, Roots, StaticSlot,
    ThreadLocalSlot, analyze, capture,
};

#[path = "walk_facts/programs.rs"]
mod programs;

/// A program that waits, with what it told.
struct Program {
    child: Child,
    blocks: Vec<(String, u64, u64)>,
    names: BTreeMap<String, (u64, u64)>,
    local: Option<(i64, u64)>,
    maps: Vec<Range<u64>>,
}

impl Program {
    fn start(name: &str) -> Program {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "programs::program",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("WALK_PROGRAM", name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program {
            child,
            blocks: Vec::new(),
            names: BTreeMap::new(),
            local: None,
            maps: Vec::new(),
        };
        for line in out.lines() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse().unwrap();
            match words.first() {
                Some(&"BLOCK") => program
                    .blocks
                    .push((words[1].to_owned(), number(2), number(3))),
                Some(&"STATIC") => {
                    program
                        .names
                        .insert(words[1].to_owned(), (number(2), number(3)));
                }
                Some(&"LOCAL") => program.local = Some((words[1].parse().unwrap(), number(2))),
                Some(&"MAP") => program.maps.push(number(1)..number(1) + number(2)),
                Some(&"READY") => return program,
                _ => {}
            }
        }
        panic!("{name} does not get ready");
    }

    /// The walk, and the contexts by the names that the program gave its blocks.
    fn walk(&self) -> (Walk, BTreeMap<String, u32>) {
        self.walk_beside(OwnMaps::default())
    }

    /// As if a recorder had mapped this.
    fn walk_beside(&self, own: OwnMaps) -> (Walk, BTreeMap<String, u32>) {
        let mut contexts = BTreeMap::new();
        for (name, ..) in &self.blocks {
            let next = contexts.len() as u32 + 1;
            contexts.entry(name.clone()).or_insert(next);
        }
        let block = |(name, address, size): &(String, u64, u64)| Block {
            address: *address,
            size: *size,
            context: contexts[name],
            row: 0,
        };
        let blocks: Vec<Block> = self.blocks.iter().map(block).collect();
        let pid = self.child.id() as i32;
        let noted = || {
            Ok(Noted {
                own,
                ..Noted::plain(blocks, ())
            })
        };
        let captured = capture(pid, &Options::default(), noted);
        let captured = captured.unwrap();
        let info = |at: usize| ContextInfo {
            node: at as u32,
            ..ContextInfo::default()
        };
        let nodes = contexts.len() + 1;
        let mut heap = Heap {
            blocks: captured.blocks,
            contexts: (0..nodes).map(info).collect(),
            nodes: NodeTable {
                parent: vec![0; nodes],
                address: (0..nodes as u64).map(|at| 0x1000 + at).collect(),
                flags: vec![0; nodes],
                machinery: Vec::new(),
            },
            ..Heap::default()
        };
        let fixed = |(name, (avma, size)): (&String, &(u64, u64))| StaticSlot {
            name: name.clone(),
            avma: *avma,
            size: *size,
        };
        let local = self.local.map(|(offset, size)| ThreadLocalSlot {
            name: "LOCAL".to_owned(),
            offset,
            size,
        });
        let roots = Roots {
            thread_locals: local.into_iter().collect(),
            statics: self.names.iter().map(fixed).collect(),
            static_tls_bytes: 0,
        };
        (analyze(&captured.image, &mut heap, &roots), contexts)
    }

    /// Names of blocks that are called leaked, with how many.
    fn leaks(&self) -> BTreeMap<String, u64> {
        let (walk, contexts) = self.walk();
        let name = |id: u32| {
            contexts
                .iter()
                .find(|(_, at)| **at == id)
                .unwrap()
                .0
                .clone()
        };
        let rows = walk.leaks.iter().filter(|leak| !leak.possible);
        rows.map(|leak| (name(leak.context.unwrap().0), leak.blocks))
            .collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_is_held_in_any_way_is_not_leaked_and_the_rest_is() {
    let program = Program::start("holders");
    let expected = BTreeMap::from([("lost".to_owned(), 20)]);
    assert_eq!(program.leaks(), expected);
}

#[test]
fn hidden_pointers_make_a_leak_a_possible_one() {
    let program = Program::start("hidden");
    let (walk, contexts) = program.walk();
    let possible: Vec<u32> = walk
        .leaks
        .iter()
        .filter(|leak| leak.possible)
        .map(|leak| leak.context.unwrap().0)
        .collect();
    for way in ["tagged", "inverted", "masked", "linked"] {
        assert!(
            possible.contains(&contexts[way]),
            "{way}: {:#?}",
            walk.leaks
        );
    }
    assert_eq!(program.leaks(), BTreeMap::from([("lost".to_owned(), 20)]));
}

#[test]
fn threads_statics_and_thread_locals_have_what_only_they_reach() {
    let program = Program::start("owners");
    let (walk, _) = program.walk();
    let local = walk
        .thread_locals
        .iter()
        .find(|local| local.name == "LOCAL")
        .unwrap();
    assert_eq!(local.threads, programs::THREADS as u64);
    assert_eq!(local.per_thread.0, [(50_000, programs::THREADS as u64)]);
    assert_eq!(local.identical, Some(true));
    let fixed = walk
        .statics
        .iter()
        .find(|fixed| fixed.name == "TABLE")
        .unwrap();
    assert_eq!((fixed.bytes, fixed.blocks), (101 * 1000, 101));
    assert!(walk.leaks.is_empty(), "{:#?}", walk.leaks);
}

#[test]
fn memory_adds_up_and_neighbours_are_told_apart() {
    let program = Program::start("neighbours");
    let (walk, _) = program.walk();
    let memory = &walk.memory;
    let near = |value: u64, wanted: u64| value.abs_diff(wanted) <= wanted / 20 + (1 << 20);
    // 40 blocks of 1 MB that malloc has mapped, of which a quarter is touched; 64 MB that the
    // program has mapped itself; 8 stacks of which 512 KB are touched.
    assert!(near(memory.live_resident_bytes, 10 << 20), "{memory:#?}");
    assert!(near(memory.other_mappings_bytes, 64 << 20), "{memory:#?}");
    assert!(near(memory.stacks_bytes, 4 << 20), "{memory:#?}");
    assert_eq!(memory.unexplained_bytes, 0, "{memory:#?}");
    let untouched: u64 = walk.oversized.iter().map(|row| row.untouched_bytes).sum();
    assert!(near(untouched, 30 << 20), "{:#?}", walk.oversized);
}

#[test]
fn what_the_recorder_has_mapped_is_its_own_beside_any_neighbours() {
    let program = Program::start("neighbours");
    let plain = program.walk().0.memory;
    let mut ranges: Vec<_> = program.maps.iter().step_by(3).cloned().collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let own = OwnMaps {
        ranges,
        unlisted_bytes: 0,
    };
    let memory = program.walk_beside(own.clone()).0.memory;
    assert_eq!(plain.profiler_bytes + (24 << 20), memory.profiler_bytes);
    assert_eq!(
        plain.other_mappings_bytes - (24 << 20),
        memory.other_mappings_bytes
    );
    assert_eq!(memory.stacks_bytes, plain.stacks_bytes);
    assert_eq!(memory.unexplained_bytes, 0, "{memory:#?}");
    // What may be anywhere is nobody's.
    let memory = program.walk_beside(OwnMaps {
        unlisted_bytes: 1 << 20,
        ..own
    });
    let memory = memory.0.memory;
    assert_eq!(
        plain.other_mappings_bytes - (25 << 20),
        memory.other_mappings_bytes
    );
    assert_eq!(memory.unexplained_bytes, 1 << 20, "{memory:#?}");
}

#[test]
fn looking_touches_nothing() {
    let program = Program::start("neighbours");
    let resident = || {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", program.child.id()));
        text.unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    program.walk();
    let before = resident();
    program.walk();
    // A page or two for the signal that is none.
    assert!(resident() <= before + 8, "{} {before}", resident());
}

#[test]
fn room_without_elements_is_told_and_slices_that_pin_a_block_are() {
    let program = Program::start("buffers");
    let (walk, contexts) = program.walk();
    let of = |name: &str| {
        let context = Some(contexts[name]);
        walk.oversized
            .iter()
            .find(|row| row.context.map(|id| id.0) == context)
            .cloned()
    };
    let emptied = of("emptied").unwrap();
    assert_eq!((emptied.blocks, emptied.bytes), (10, 10 << 16));
    assert_eq!(
        emptied.untouched_bytes + emptied.zero_bytes + emptied.spare_bytes,
        10 << 16
    );
    assert!(of("full").is_none());
    assert!(of("boxed").is_none());
}
