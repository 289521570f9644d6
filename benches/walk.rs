//! Cost of a walk: the pause, and the analysis, on heaps whose blocks are known.
//!
//! `cargo bench --bench walk`. The program that is looked at is this binary, started again; it
//! tells the addresses of its blocks, so that no recorder is needed.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use taskheap::walk::{
    Block, ContextInfo, Heap, NodeTable, Noted, Options, Roots, analyze, capture,
};

/// Name, blocks, words of each, and how far pointers lead, in blocks.
const HEAPS: [(&str, usize, usize, usize); 5] = [
    ("1,000 blocks of 64 bytes", 1_000, 8, 64),
    (
        "10 million blocks of 64 bytes, near pointers",
        10_000_000,
        8,
        64,
    ),
    (
        "10 million blocks of 64 bytes, random pointers",
        10_000_000,
        8,
        usize::MAX,
    ),
    ("1 GB in blocks of 4 KB, near pointers", 250_000, 512, 64),
    ("2 GB in blocks of 1 MB", 2_000, 131_072, 64),
];

fn main() {
    if let Ok(number) = std::env::var("WALK_BENCH") {
        return program(number.parse().unwrap());
    }
    for (number, (name, count, words, _)) in HEAPS.into_iter().enumerate() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env("WALK_BENCH", number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let mut told = vec![0u8; line.trim().parse::<usize>().unwrap() * 8];
        out.read_exact(&mut told).unwrap();
        let size = words as u64 * 8;
        let block = |word: &[u8]| Block {
            address: u64::from_le_bytes(word.try_into().unwrap()),
            size,
            context: 1,
            row: 0,
        };
        let mut blocks: Vec<Block> = told.chunks_exact(8).map(block).collect();
        // The first is the list of all others.
        blocks[0].size = (blocks.len() as u64 - 1) * 16;
        let options = Options {
            expected_bytes: (count * words * 8) as u64,
            ..Options::default()
        };
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let captured = capture(child.id() as i32, &options, || Ok(Noted::plain(blocks, ())));
        let captured = captured.unwrap();
        let (whole, capture_cpu) = (began.elapsed(), cpu_seconds() - cpu);
        let node = ContextInfo {
            node: 1,
            ..ContextInfo::default()
        };
        let mut heap = Heap {
            blocks: captured.blocks,
            contexts: vec![ContextInfo::default(), node],
            nodes: NodeTable {
                parent: vec![0, 0],
                address: vec![0, 1],
                flags: vec![0, 0],
                machinery: Vec::new(),
            },
            ..Heap::default()
        };
        let cpu = cpu_seconds();
        let walk = analyze(&captured.image, &mut heap, &Roots::default());
        let analysis_cpu = cpu_seconds() - cpu;
        println!(
            "{name}: stopped {:.3} s of {:.3} s ({capture_cpu:.3} s of processor time), read \
             {:.2} GB; analysed in {:.3} s ({analysis_cpu:.3} s of processor time: {:.2} GB/s, \
             {:.2} million blocks/s), {:.2} GB of memory, {} leaks",
            walk.pause_s,
            whole.as_secs_f64(),
            walk.bytes_read as f64 / 1e9,
            walk.analysis_s,
            walk.live_bytes as f64 / 1e9 / analysis_cpu,
            walk.blocks as f64 / 1e6 / analysis_cpu,
            walk.walker_bytes as f64 / 1e9,
            walk.leaks.iter().map(|leak| leak.blocks).sum::<u64>(),
        );
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

/// Of this process, in user mode and in the kernel: other load of the machine does not count.
fn cpu_seconds() -> f64 {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `time` is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Makes a heap in which blocks lead to each other at random, tells where they are, and waits.
fn program(number: usize) {
    let (_, count, words, reach) = HEAPS[number];
    let mut blocks: Vec<Box<[u64]>> = Vec::with_capacity(count);
    let mut random = 1u64;
    for n in 0..count {
        let mut block = vec![0u64; words].into_boxed_slice();
        for (at, word) in block.iter_mut().enumerate() {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let other = (n - (random >> 33) as usize % (n + 1).min(reach)).saturating_sub(1);
            *word = match (at % 4, blocks.get(other)) {
                (0, Some(other)) => other.as_ptr() as u64,
                (1, _) => 0,
                _ => random,
            };
        }
        blocks.push(block);
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", count + 1).unwrap();
    out.write_all(&(blocks.as_ptr() as u64).to_le_bytes())
        .unwrap();
    for block in &blocks {
        out.write_all(&(block.as_ptr() as u64).to_le_bytes())
            .unwrap();
    }
    out.flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    drop(std::hint::black_box(blocks));
}
