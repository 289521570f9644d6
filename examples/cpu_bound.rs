//! 200 requests of about 10 ms of arithmetic each: what tasks are not for.
//!
//! `cargo run --release --example cpu_bound [MODE]`.

use std::sync::Arc;
use std::time::Duration;

#[path = "shared/load.rs"]
mod load;
#[path = "shared/process.rs"]
mod process;

const LENGTH: Duration = Duration::from_secs(4);
const IN_FLIGHT: usize = 200;

fn work(_number: usize) {
    load::compute(10.0);
}

fn run(mode: &str) {
    match mode {
        "pool of 2" => load::pool(mode, 2, IN_FLIGHT, LENGTH, work),
        "pool of 200" => load::pool(mode, 200, IN_FLIGHT, LENGTH, work),
        "tasks" => load::tasks(mode, IN_FLIGHT, LENGTH, |n| async move { work(n) }),
        _ => {
            let two = Arc::new(tokio::sync::Semaphore::new(2));
            load::tasks(mode, IN_FLIGHT, LENGTH, move |n| {
                let two = two.clone();
                async move {
                    let _one = two.acquire().await;
                    // Cancelled at the end.
                    let _ = tokio::task::spawn_blocking(move || work(n)).await;
                }
            });
        }
    }
}

fn main() {
    load::each(
        &["pool of 2", "pool of 200", "tasks", "spawn_blocking, 2"],
        run,
    );
}
