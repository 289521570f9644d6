//! A rule object of 4 MB, cached for each task, for each thread, or once for all.
//!
//! `cargo run --release --example rule_cache [TASKS] [task|thread|blocking|arc]`; without a mode, each
//! in a process of its own. Peaks are of resident memory, as the system counts it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;

#[path = "shared/process.rs"]
mod process;

/// 22,000 rules in 4 MB.
type Rules = HashMap<u32, Vec<String>>;

fn load() -> Rules {
    let rule = |host: u32, number: u32| {
        format!(
            "/api/v1/tenants/{host:05}/items/{number:06}/{:0>102}",
            number
        )
    };
    (0..220)
        .map(|host| (host, (0..100).map(|n| rule(host, n)).collect()))
        .collect()
}

thread_local!(static CACHE: Rules = load());

fn used(rules: &Rules) {
    assert_eq!(std::hint::black_box(rules).len(), 220);
}

async fn waits(ready: Arc<Barrier>) {
    ready.wait().await;
    ready.wait().await;
}

async fn per_task(rules: Arc<Rules>, ready: Arc<Barrier>) {
    let rules = Rules::clone(&rules);
    waits(ready).await;
    used(&rules);
}

async fn per_thread(ready: Arc<Barrier>) {
    CACHE.with(used);
    waits(ready).await;
}

async fn per_blocking_thread(ready: Arc<Barrier>) {
    let work = || {
        CACHE.with(used);
        std::thread::sleep(Duration::from_millis(200));
    };
    tokio::task::spawn_blocking(work).await.unwrap();
    waits(ready).await;
}

async fn shared(rules: Arc<Rules>, ready: Arc<Barrier>) {
    waits(ready).await;
    used(&rules);
}

#[tokio::main(worker_threads = 2)]
async fn run(mode: &str, tasks: usize) {
    let rules = Arc::new(load());
    let ready = Arc::new(Barrier::new(tasks + 1));
    let before = process::resident();
    for _ in 0..tasks {
        let ready = ready.clone();
        match mode {
            "task" => tokio::spawn(per_task(rules.clone(), ready)),
            "thread" => tokio::spawn(per_thread(ready)),
            "blocking" => tokio::spawn(per_blocking_thread(ready)),
            _ => tokio::spawn(shared(rules.clone(), ready)),
        };
    }
    ready.wait().await;
    let grown = process::resident().saturating_sub(before);
    println!(
        "{mode:10} {tasks:>8} {:>8} {:>10.1} {:>12.3}",
        process::threads(),
        grown as f64 / 1e6,
        grown as f64 / 1e6 / tasks as f64
    );
    // A profiler gets the time to look, and an end at which all of it is still there.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    std::process::exit(0);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let tasks = args
        .first()
        .map_or(60, |n| n.parse().expect("a number of tasks"));
    match args.get(1) {
        Some(mode) => run(mode, tasks),
        None => {
            println!("mode          tasks  threads   MB grown  MB per task");
            let modes = ["task", "thread", "blocking", "arc"];
            for mode in modes {
                process::again(&[&tasks.to_string(), mode]);
            }
        }
    }
}
