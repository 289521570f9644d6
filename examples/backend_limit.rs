//! 1,000 requests in flight and a backend with 10 connections, 10 ms each: everything queues. With
//! 32 admitted at a time the others are told at once, and try again 50 ms later.
//!
//! `cargo run --release --example backend_limit [MODE]`. Percentiles are of answered requests, from
//! their last try.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use std::time::Duration;
use tokio::sync::Semaphore;

#[path = "shared/load.rs"]
mod load;
#[path = "shared/process.rs"]
mod process;

const LENGTH: Duration = Duration::from_secs(6);
const IN_FLIGHT: usize = 1000;

async fn query(connections: &Semaphore) {
    let _one = connections.acquire().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
}

fn run(mode: &str) {
    let runtime = load::runtime();
    let connections = Arc::new(Semaphore::new(10));
    let limit = if mode == "no limit" { IN_FLIGHT } else { 32 };
    let admitted = Arc::new(Semaphore::new(limit));
    let (answers, refused) = (
        Arc::new(load::Answers::default()),
        Arc::new(AtomicU64::new(0)),
    );
    let started = Instant::now();
    for _ in 0..IN_FLIGHT {
        let (connections, admitted) = (connections.clone(), admitted.clone());
        let (answers, refused) = (answers.clone(), refused.clone());
        runtime.spawn(async move {
            loop {
                let asked = Instant::now();
                if let Ok(_one) = admitted.try_acquire() {
                    query(&connections).await;
                    answers.note(asked);
                    continue;
                }
                refused.fetch_add(1, Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
    std::thread::sleep(LENGTH);
    answers.tell(mode, started, runtime.metrics().num_alive_tasks());
    println!(
        "  refused: {:.0}/s",
        refused.load(Relaxed) as f64 / started.elapsed().as_secs_f64()
    );
    runtime.shutdown_background();
}

fn main() {
    load::each(&["no limit", "32 in front"], run);
}
