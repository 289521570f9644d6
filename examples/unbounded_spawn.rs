//! 10,000 requests a second come in, the backend does 2,000: spawning for each one grows without
//! end, a limit refuses what can't be done.
//!
//! `cargo run --release --example unbounded_spawn [MODE]`. Each request holds a buffer of 4 KB.

use std::sync::Arc;
use std::time::Instant;

use std::time::Duration;
use tokio::sync::Semaphore;

#[path = "shared/load.rs"]
mod load;
#[path = "shared/process.rs"]
mod process;

const LENGTH: Duration = Duration::from_secs(5);
const PER_SECOND: f64 = 10_000.0;

async fn request(backend: Arc<Semaphore>, answers: Arc<load::Answers>) {
    let asked = Instant::now();
    let buffer = vec![1_u8; 4096];
    let one = backend.acquire().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    drop(one);
    std::hint::black_box(buffer);
    answers.note(asked);
}

fn run(mode: &str) {
    let runtime = load::runtime();
    let (backend, answers) = (
        Arc::new(Semaphore::new(20)),
        Arc::new(load::Answers::default()),
    );
    let limit = if mode == "unbounded" {
        Semaphore::MAX_PERMITS
    } else {
        200
    };
    let limit = Arc::new(Semaphore::new(limit));
    let (started, mut came, mut refused) = (Instant::now(), 0_u64, 0_u64);
    while started.elapsed() < LENGTH {
        while (came as f64) < started.elapsed().as_secs_f64() * PER_SECOND {
            came += 1;
            let Ok(admitted) = limit.clone().try_acquire_owned() else {
                refused += 1;
                continue;
            };
            let request = request(backend.clone(), answers.clone());
            runtime.spawn(async move {
                request.await;
                drop(admitted);
            });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    answers.tell(mode, started, runtime.metrics().num_alive_tasks());
    let rate = |count: u64| count as f64 / started.elapsed().as_secs_f64();
    println!(
        "  came: {:.0}/s, refused: {:.0}/s",
        rate(came),
        rate(refused)
    );
    runtime.shutdown_background();
}

fn main() {
    load::each(&["unbounded", "200 admitted"], run);
}
