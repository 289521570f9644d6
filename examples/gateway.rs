//! A gateway waits 100 ms for another service: 200 threads with a queue, or a task per request.
//!
//! `cargo run --release --example gateway [MODE]`. Each mode keeps so many requests in flight; by
//! Little's law that is the rate times the mean latency.

use std::time::Duration;

#[path = "shared/load.rs"]
mod load;
#[path = "shared/process.rs"]
mod process;

const CALL: Duration = Duration::from_millis(100);
const LENGTH: Duration = Duration::from_millis(2500);

fn run(mode: &str) {
    let (kind, count) = mode.split_once('-').expect("pool-N or tasks-N");
    let count = count.parse().expect("a number");
    match kind {
        "pool" => load::pool(mode, 200, count, LENGTH, |_| std::thread::sleep(CALL)),
        _ => load::tasks(mode, count, LENGTH, |_| async {
            tokio::time::sleep(CALL).await
        }),
    }
}

fn main() {
    let modes = [
        "pool-200",
        "tasks-200",
        "pool-1000",
        "tasks-1000",
        "pool-5000",
        "tasks-5000",
    ];
    load::each(&modes, run);
}
