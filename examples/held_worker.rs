//! 200 tasks each hold their own lock for 50 ms: blocking the worker, or letting it go.
//!
//! `cargo run --release --example held_worker [SECONDS] [sleep|lock|async|threads]`; without a mode
//! all of them. `lock` has one lock for all: its waiters hold their workers, too. The probe is a task that wants to wake
//! every 10 ms; how late it wakes is what everybody else on the runtime feels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const TASKS: usize = 200;
const HELD: Duration = Duration::from_millis(50);

async fn blocking() {
    let lock = std::sync::Mutex::new(());
    let _held = lock.lock().expect("not poisoned");
    std::thread::sleep(HELD);
}

async fn one_lock() {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _held = LOCK.lock().expect("not poisoned");
    std::thread::sleep(HELD);
}

async fn letting_go() {
    let lock = tokio::sync::Mutex::new(());
    let _held = lock.lock().await;
    tokio::time::sleep(HELD).await;
}

async fn on_blocking_threads() {
    let work = || std::thread::sleep(HELD);
    tokio::task::spawn_blocking(work).await.expect("no panic");
}

/// How late the probe was at most, and when it is to wake next, in microseconds since the start. One
/// that never woke is late, too.
#[derive(Default)]
struct Probe {
    worst: AtomicU64,
    due: AtomicU64,
}

async fn probe(probe: Arc<Probe>, started: Instant) {
    loop {
        let due = started.elapsed() + Duration::from_millis(10);
        probe.due.store(due.as_micros() as u64, Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
        probe.worst.fetch_max(probe.late(started), Relaxed);
    }
}

impl Probe {
    fn late(&self, started: Instant) -> u64 {
        let now = started.elapsed().as_micros() as u64;
        now.saturating_sub(self.due.load(Relaxed))
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Blocking,
    OneLock,
    LettingGo,
    BlockingThreads,
}

fn measure(name: &str, mode: Mode, seconds: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let (done, watch) = (Arc::new(AtomicU64::new(0)), Arc::new(Probe::default()));
    let started = Instant::now();
    runtime.spawn(probe(watch.clone(), started));
    for _ in 0..TASKS {
        let done = done.clone();
        runtime.spawn(async move {
            loop {
                match mode {
                    Mode::Blocking => blocking().await,
                    Mode::OneLock => one_lock().await,
                    Mode::LettingGo => letting_go().await,
                    Mode::BlockingThreads => on_blocking_threads().await,
                }
                done.fetch_add(1, Relaxed);
                tokio::task::yield_now().await;
            }
        });
    }
    std::thread::sleep(Duration::from_secs(seconds));
    let rate = done.load(Relaxed) as f64 / started.elapsed().as_secs_f64();
    let late = watch.worst.load(Relaxed).max(watch.late(started)) as f64 / 1000.0;
    println!("{name:28} {rate:>10.1} {late:>22.1}");
    runtime.shutdown_background();
}

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .map_or(5, |n| n.parse().expect("seconds"));
    let wanted = std::env::args().nth(2);
    println!("mode                         requests/s  probe at most late, ms");
    for (word, name, mode) in [
        ("sleep", "std Mutex, thread::sleep", Mode::Blocking),
        ("lock", "one std Mutex for all", Mode::OneLock),
        ("async", "tokio Mutex, async sleep", Mode::LettingGo),
        ("threads", "spawn_blocking", Mode::BlockingThreads),
    ] {
        if wanted.as_ref().is_none_or(|wanted| wanted == word) {
            measure(name, mode, seconds);
        }
    }
}
