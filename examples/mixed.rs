//! 200 requests in flight, half of them wait 100 ms, half compute 10 ms: who computes on a runtime
//! worker makes all others wait.
//!
//! `cargo run --release --example mixed [MODE]`. All requests count for the rate and percentiles;
//! the second row of each mode has those alone that wait.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

#[path = "shared/load.rs"]
mod load;
#[path = "shared/process.rs"]
mod process;

const LENGTH: Duration = Duration::from_secs(4);
const IN_FLIGHT: usize = 200;
const CALL: Duration = Duration::from_millis(100);

async fn compute(mode: &str, two: &tokio::sync::Semaphore) {
    match mode {
        "inline" => load::compute(10.0),
        "yield each 0.5 ms" => {
            for _ in 0..20 {
                load::compute(0.5);
                tokio::task::yield_now().await;
            }
        }
        _ => {
            let _one = two.acquire().await;
            // Cancelled at the end.
            let _ = tokio::task::spawn_blocking(|| load::compute(10.0)).await;
        }
    }
}

fn run(mode: &str) {
    if mode == "pool of 200" {
        let request = |number: usize| match number % 2 {
            0 => std::thread::sleep(CALL),
            _ => load::compute(10.0),
        };
        return load::pool(mode, 200, IN_FLIGHT, LENGTH, request);
    }
    let two = Arc::new(tokio::sync::Semaphore::new(2));
    let (waiting, started) = (Arc::new(load::Answers::default()), Instant::now());
    load::tasks(mode, IN_FLIGHT, LENGTH, |number| {
        let (mode, two, waiting) = (mode.to_owned(), two.clone(), waiting.clone());
        async move {
            let asked = Instant::now();
            match number % 2 {
                0 => {
                    tokio::time::sleep(CALL).await;
                    waiting.note(asked);
                }
                _ => compute(&mode, &two).await,
            }
        }
    });
    waiting.tell("  those that wait", started, 0);
}

fn main() {
    let modes = [
        "pool of 200",
        "inline",
        "yield each 0.5 ms",
        "spawn_blocking, 2",
    ];
    load::each(&modes, run);
}
