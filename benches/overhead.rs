//! What recording costs: programs run bare, under `taskheap run`, and under heaptrack where it is
//! installed, in turn.
//!
//! `cargo bench --bench overhead`, or with other programs
//! `cargo bench --bench overhead -- ./server --once`. The programs that come with it are this
//! binary, started again. Printed are medians of the pairs: a machine that is busy with other
//! things slows both of a pair.
#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const PAIRS: usize = 5;

/// Name, and what it does.
const PROGRAMS: [(&str, &str); 4] = [
    (
        "churn",
        "2 threads x 2 million pairs of malloc and free, 12 frames, 50 stacks",
    ),
    (
        "tasks",
        "40,000 tokio tasks in waves of 10,000, 20 blocks each",
    ),
    ("json", "a JSON document of 2 MB parsed 10 times"),
    ("blocks", "4 million blocks that stay"),
];

fn main() {
    if let Ok(name) = std::env::var("OVERHEAD_PROGRAM") {
        return program(&name);
    }
    let given: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let heaptrack = Command::new("heaptrack").arg("--version").output().is_ok();
    println!(
        "{:10} {:>8} {:>9} {:>9} {:>9} {:>10} {:>8} {:>9} {:>9}",
        "program",
        "bare s",
        "taskheap",
        "cpu",
        "memory",
        "profile",
        "report s",
        "heaptrack",
        "its file"
    );
    if !given.is_empty() {
        return measure("given", &given, &[], heaptrack);
    }
    let own = std::env::current_exe().unwrap().display().to_string();
    for (name, _) in PROGRAMS {
        measure(
            name,
            std::slice::from_ref(&own),
            &[("OVERHEAD_PROGRAM", name)],
            heaptrack,
        );
    }
    for (name, what) in PROGRAMS {
        println!("{name}: {what}");
    }
}

/// Wall and CPU seconds, and the largest resident set in KB.
#[derive(Clone, Copy)]
struct Run {
    wall: f64,
    cpu: f64,
    memory: f64,
}

fn run(command: &[String], environment: &[(&str, &str)]) -> Run {
    let began = Instant::now();
    let mut child = Command::new(&command[0]);
    child
        .args(&command[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    child.envs(environment.iter().copied());
    #[allow(clippy::zombie_processes)] // waited for below, with what it used
    let child = child.spawn().unwrap();
    let mut status = 0;
    // SAFETY: zero is a value of every field; waits for the child that was just started.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::wait4(child.id() as i32, &mut status, 0, &mut usage);
        usage
    };
    assert!(libc::WIFEXITED(status), "{command:?} was killed");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Run {
        wall: began.elapsed().as_secs_f64(),
        cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        memory: usage.ru_maxrss as f64,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(name: &str, program: &[String], environment: &[(&str, &str)], heaptrack: bool) {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("profile.taskheap");
    let ours: Vec<String> = [env!("CARGO_BIN_EXE_taskheap"), "run", "--force", "-o"]
        .iter()
        .map(ToString::to_string)
        .chain([profile.display().to_string(), "--".to_owned()])
        .chain(program.iter().cloned())
        .collect();
    let theirs_file = folder.path().join("heaptrack");
    let theirs: Vec<String> = [
        "heaptrack".to_owned(),
        "-o".to_owned(),
        theirs_file.display().to_string(),
    ]
    .into_iter()
    .chain(program.iter().cloned())
    .collect();
    let mut columns: HashMap<&str, Vec<f64>> = HashMap::new();
    for _ in 0..PAIRS {
        let bare = run(program, environment);
        let recorded = run(&ours, environment);
        let mut add = |column, value| columns.entry(column).or_default().push(value);
        add("bare", bare.wall);
        add("wall", recorded.wall / bare.wall);
        add("cpu", recorded.cpu / bare.cpu);
        add("memory", recorded.memory / bare.memory);
        if heaptrack {
            add("heaptrack", run(&theirs, environment).wall / bare.wall);
        }
    }
    let began = Instant::now();
    let report = Command::new(env!("CARGO_BIN_EXE_taskheap"))
        .arg("report")
        .arg(&profile)
        .output();
    let report_s = began.elapsed().as_secs_f64();
    assert!(report.unwrap().status.success());
    let mut of = |column: &str| columns.remove(column).map_or(f64::NAN, median);
    println!(
        "{name:10} {:8.2} {:8.2}x {:8.2}x {:8.2}x {:>10} {report_s:8.2} {:8.2}x {:>9}",
        of("bare"),
        of("wall"),
        of("cpu"),
        of("memory"),
        size(&profile),
        of("heaptrack"),
        size(&newest(folder.path(), "heaptrack")),
    );
}

fn newest(folder: &Path, prefix: &str) -> PathBuf {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let mut found = files.filter(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    });
    found.next().unwrap_or_default()
}

fn size(path: &Path) -> String {
    match std::fs::metadata(path) {
        Ok(about) => format!("{:.1} KB", about.len() as f64 / 1024.0),
        Err(_) => "-".to_owned(),
    }
}

fn program(name: &str) {
    match name {
        "churn" => churn(),
        "tasks" => tasks(),
        "json" => json(),
        _ => {
            let blocks: Vec<Box<[u64; 4]>> = (0..4_000_000).map(|n| Box::new([n; 4])).collect();
            black_box(&blocks);
        }
    }
}

#[inline(never)]
fn deep(depth: u32, which: u32, size: usize) -> Vec<u8> {
    if depth == 0 {
        return black_box(Vec::with_capacity(size));
    }
    match (which >> (2 * (depth % 3))) & 3 {
        0 => black_box(left(depth - 1, which, size)),
        1 => black_box(right(depth - 1, which, size)),
        _ => black_box(deep(depth - 1, which, size)),
    }
}

#[inline(never)]
fn left(depth: u32, which: u32, size: usize) -> Vec<u8> {
    black_box(deep(depth, which, size))
}

#[inline(never)]
fn right(depth: u32, which: u32, size: usize) -> Vec<u8> {
    black_box(deep(depth, which ^ 1, size))
}

fn churn() {
    let work = |seed: u64| {
        let mut window: Vec<Vec<u8>> = (0..10_000).map(|_| Vec::new()).collect();
        let mut state = seed;
        for _ in 0..2_000_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (slot, which) = ((state >> 33) as usize % 10_000, (state >> 50) as u32 % 50);
            window[slot] = deep(10, which, 16 + (state >> 40) as usize % 497);
        }
        black_box(&window);
    };
    let threads = [1, 2].map(|seed| std::thread::spawn(move || work(seed)));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

fn document(items: usize) -> String {
    let item = |n: usize| {
        format!(
            "{{\"id\":{n},\"name\":\"user-{n:x}\",\"tags\":[\"t{}\",\"t{}\"],\"pos\":{{\"x\":{n},\"y\":1}}}}",
            n % 7,
            n % 11
        )
    };
    format!("[{}]", (0..items).map(item).collect::<Vec<_>>().join(","))
}

fn json() {
    let text = document(25_000);
    for _ in 0..10 {
        let value: serde_json::Value = serde_json::from_str(black_box(&text)).unwrap();
        black_box(&value);
    }
}

async fn handle(text: std::sync::Arc<String>, gate: std::sync::Arc<tokio::sync::Barrier>) {
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    tokio::task::yield_now().await;
    gate.wait().await;
    black_box(&value);
}

fn tasks() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let text = std::sync::Arc::new(document(3));
    for _ in 0..4 {
        runtime.block_on(async {
            let gate = std::sync::Arc::new(tokio::sync::Barrier::new(10_000));
            let spawn = |_| tokio::spawn(handle(text.clone(), gate.clone()));
            let handles: Vec<_> = (0..10_000).map(spawn).collect();
            for handle in handles {
                handle.await.unwrap();
            }
        });
    }
}
