//! Budgets in tests, as a user's test binary has them: with an allocator of its own, under the
//! harness's threads, with tasks on runtimes of one and of many threads.

use std::alloc::System;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use taskheap::{HeapScope, assert_budget, measure, measure_async};
use tokio::sync::Barrier;

#[global_allocator]
static ALLOC: taskheap::Alloc<System> = taskheap::Alloc::new(System);

const TASKS: u64 = 60;
const RULES: usize = 64 << 10;

/// What a service caches.
#[derive(Clone)]
struct Rules(Vec<u8>);

impl Rules {
    fn load() -> Rules {
        Rules(vec![7; RULES])
    }
}

/// Holds the rules until all others do, however late the machine lets them start.
async fn handler(rules: impl AsRef<Rules>, all: Arc<Barrier>) -> u64 {
    all.wait().await;
    rules.as_ref().0.iter().map(|byte| u64::from(*byte)).sum()
}

impl AsRef<Rules> for Rules {
    fn as_ref(&self) -> &Rules {
        self
    }
}

struct Shared(Arc<Rules>);

impl AsRef<Rules> for Shared {
    fn as_ref(&self) -> &Rules {
        &self.0
    }
}

/// Runs all tasks side by side; each gets what `each` makes in it.
async fn serve<R: AsRef<Rules> + Send + 'static>(each: fn(&Arc<Rules>) -> R) {
    let rules = Arc::new(Rules::load());
    let all = Arc::new(Barrier::new(TASKS as usize));
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let (rules, all) = (Arc::clone(&rules), Arc::clone(&all));
        let work = async move { handler(each(&rules), all).await };
        tasks.push(tokio::spawn(work.heap_scope("handler")));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap(), 7 * RULES as u64);
    }
}

fn cloned(rules: &Arc<Rules>) -> Rules {
    Rules::clone(rules)
}

/// The message of the panic.
fn failure(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("the budget holds");
    *panic.downcast::<String>().unwrap()
}

fn holds_when_shared(m: &taskheap::Measured<()>) {
    let handler = m.scope("handler");
    assert_budget!(m, peak <= 1.mib());
    assert_budget!(handler, max <= 4.kib(), instances == TASKS);
}

fn fails_when_cloned(m: &taskheap::Measured<()>) {
    let text = failure(|| assert_budget!(m, peak <= 1.mib(), allocations <= 100_000));
    assert!(text.contains("peak") && text.contains("OVER"), "{text}");
    assert!(text.contains("held at the peak by"), "{text}");
    assert!(
        text.contains("Rules") && text.contains("tests/budgets.rs:"),
        "{text}"
    );
    assert!(text.contains("60 instances of 64.0 KB each"), "{text}");
    let text = failure(|| assert_budget!(m.scope("handler"), max <= 4.kib()));
    assert!(
        text.contains("scope \"handler\" is over its budget"),
        "{text}"
    );
    assert_budget!(
        m.scope("handler"),
        max >= 64.kib(),
        mean >= 64.kib(),
        instances == TASKS
    );
}

#[tokio::test]
async fn shared_rules_are_within_the_budget() {
    holds_when_shared(&measure_async(serve(|rules| Shared(Arc::clone(rules)))).await);
}

#[tokio::test]
async fn a_clone_for_each_task_is_over_it() {
    fails_when_cloned(&measure_async(serve(cloned)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shared_rules_are_within_the_budget_on_many_threads() {
    holds_when_shared(&measure_async(serve(|rules| Shared(Arc::clone(rules)))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_clone_for_each_task_is_over_it_on_many_threads() {
    fails_when_cloned(&measure_async(serve(cloned)).await);
}

#[test]
fn figures_are_exact() {
    let outside = vec![0u8; 1000];
    let m = measure(|| {
        drop(outside);
        let mut first = Vec::<u8>::with_capacity(100);
        drop(vec![0u8; 300]);
        first.reserve_exact(200);
        first
    });
    assert_budget!(m, peak == 400, live == 200, live_blocks == 1);
    assert_budget!(m, allocated == 600, allocations == 3, temporary == 1);
    assert_eq!(m.value.capacity(), 200);
}

#[test]
fn other_threads_do_not_count() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(std::hint::black_box(vec![1u8; 5000]));
                }
            });
        }
        for _ in 0..200 {
            let m = measure(|| std::hint::black_box(vec![0u8; 10]).len());
            assert_budget!(m, peak == 10, allocations == 1, live == 0, allocated == 10);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn what_another_thread_frees_is_freed() {
    let m = measure(|| {
        let (send, receive) = std::sync::mpsc::channel::<Vec<u8>>();
        let other = std::thread::spawn(move || receive.into_iter().map(|b| b.len()).sum::<usize>());
        for _ in 0..100 {
            send.send(vec![0; 10_000]).unwrap();
        }
        drop(send);
        other.join().unwrap()
    });
    assert_eq!(m.value, 1_000_000);
    // What std keeps for the thread it frees in its own time.
    assert_budget!(m, allocated >= 1_000_000, live < 10_000);
}

#[test]
fn carried_closures_count_on_their_thread() {
    let m = measure(|| {
        let work = taskheap::carried("parser", || vec![0u8; 50_000].len());
        std::thread::spawn(work).join().unwrap()
    });
    assert_budget!(m.scope("parser"), max == 50_000, live == 0, instances == 1);
    assert_budget!(m, peak >= 50_000);
}

#[test]
fn scopes_nest_and_end_in_any_order() {
    let m = measure(|| {
        let outer = taskheap::scope("outer");
        let a = vec![0u8; 10];
        let inner = taskheap::scope("inner");
        let b = vec![0u8; 20];
        drop(outer);
        let c = vec![0u8; 40];
        drop(inner);
        let d = vec![0u8; 80];
        (a, b, c, d)
    });
    assert_budget!(m, live == 150);
    assert_budget!(m.scope("inner"), live == 60);
    assert_budget!(m.scope("outer"), live == 70);
    let text = failure(|| {
        let _ = m.scope("outre");
    });
    assert!(text.contains("outer, inner"), "{text}");
}

#[test]
fn measurements_nest() {
    let m = measure(|| {
        let before = vec![0u8; 10];
        let inner = measure(|| vec![0u8; 100]);
        assert_budget!(inner, peak == 100, live == 100);
        (before, inner.value)
    });
    assert!(m.live >= 110 && m.peak >= 110, "{m}");
}

#[test]
fn a_panic_ends_the_measurement() {
    let caught = catch_unwind(|| measure(|| -> () { panic!("as planned") }));
    assert!(caught.is_err());
    let m = measure(|| ());
    assert_budget!(m, allocations == 0, peak == 0);
}

/// Where every block's peak is known, the sites at the peak add up to it.
#[test]
fn sites_at_the_peak_add_up() {
    let m = measure(|| {
        let a = vec![0u8; 3000];
        let b = vec![0u8; 5000];
        drop(a);
        let c = vec![0u8; 1000];
        drop(b);
        let d = vec![0u8; 2000];
        (c, d)
    });
    let sites = m.sites();
    assert_eq!(m.peak, 8000);
    assert_eq!(sites.iter().map(|site| site.at_peak).sum::<u64>(), m.peak);
    assert_eq!(sites.iter().map(|site| site.live).sum::<u64>(), m.live);
    assert_eq!(sites[0].at_peak, 5000);
    assert!(
        sites[0]
            .file
            .as_deref()
            .unwrap()
            .ends_with("tests/budgets.rs")
    );
}

/// Spawns what nobody wrapped; each task holds a copy of the rules for a while.
async fn serve_unwrapped() {
    let rules = Arc::new(Rules::load());
    let all = Arc::new(Barrier::new(TASKS as usize));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let (rules, all) = (Arc::clone(&rules), Arc::clone(&all));
        tasks.spawn(async move { handler(cloned(&rules), all).await });
    }
    while let Some(sum) = tasks.join_next().await {
        assert_eq!(sum.unwrap(), 7 * RULES as u64);
    }
}

#[cfg(all(feature = "tokio", target_os = "linux"))]
fn unwrapped_tasks(m: &taskheap::Measured<()>) {
    assert_budget!(m, peak >= TASKS * RULES as u64, not_followed == 0);
    let text = failure(|| assert_budget!(m, peak <= 1.mib()));
    assert!(text.contains("tests/budgets.rs:"), "{text}");
    let tasks = m.scope("[tasks]");
    assert_budget!(tasks, instances == TASKS, max >= 64.kib(), max <= 80.kib());
}

#[cfg(all(not(feature = "tokio"), target_os = "linux"))]
fn unwrapped_tasks(m: &taskheap::Measured<()>) {
    assert_eq!(m.not_followed, TASKS);
    let text = failure(|| assert_budget!(m, peak <= 1.gib()));
    assert!(
        text.contains("60 spawned tasks are not in the figures"),
        "{text}"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn tasks_that_nobody_wrapped_are_no_hole() {
    unwrapped_tasks(&measure_async(serve_unwrapped()).await);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_that_nobody_wrapped_are_no_hole_on_many_threads() {
    unwrapped_tasks(&measure_async(serve_unwrapped()).await);
}

/// tokio puts a large future into a box of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn large_futures_are_followed_where_they_are_wrapped() {
    let work = async |all: Arc<Barrier>| {
        let large = [1u8; 40_000];
        all.wait().await;
        drop(std::hint::black_box(vec![0u8; 10_000]));
        large.iter().map(|byte| u64::from(*byte)).sum::<u64>()
    };
    let m = measure_async(async {
        let all = Arc::new(Barrier::new(4));
        let spawn = |_| tokio::spawn(work(Arc::clone(&all)).heap_scope("large"));
        for task in (0..4).map(spawn).collect::<Vec<_>>() {
            assert_eq!(task.await.unwrap(), 40_000);
        }
    })
    .await;
    assert_budget!(m, not_followed == 0, peak >= 160_000);
    assert_budget!(m.scope("large"), max == 10_000, instances == 4);
}
