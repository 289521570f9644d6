//! The program that the demo records: a service whose handlers look up a rule object of 4 MB.
//!
//! The same requests with the object where a programmer may put it: a copy for each task, a copy
//! for each worker thread, one for all. And before there were tasks: a thread for each request, with
//! a copy on each.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use tokio::sync::Barrier;

/// Where the rule object is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cache {
    /// A thread for each request.
    Threads,
    PerTask,
    PerThread,
    Shared,
}

/// How long the requests wait with what they hold, so that the heap can be looked at.
const HOLD: Duration = Duration::from_millis(1200);

#[derive(Clone)]
struct Rule {
    path: String,
    allowed: Vec<u64>,
}

/// 4 MB in some 8,200 blocks. A tree rather than a hash table: that has other places in every run,
/// and pictures of two runs are to be the same.
#[derive(Clone)]
struct Rules {
    by_host: BTreeMap<String, Vec<Rule>>,
}

impl Rules {
    #[inline(never)]
    fn load() -> Rules {
        let rule = |number: u64| Rule {
            path: format!("/tenants/{number:04}/items"),
            allowed: (0..118).map(|user| user * 7 + number).collect(),
        };
        let host = |host: u64| {
            let rules = (0..64).map(|number| rule(host * 64 + number)).collect();
            (format!("host-{host:04}.example.com"), rules)
        };
        Rules {
            by_host: (0..64).map(host).collect(),
        }
    }

    fn allows(&self, host: u64, user: u64) -> bool {
        let rules = &self.by_host[&format!("host-{host:04}.example.com")];
        rules
            .iter()
            .any(|rule| rule.path.starts_with('/') && rule.allowed.contains(&user))
    }
}

static SHARED: OnceLock<Arc<Rules>> = OnceLock::new();

fn load() -> Arc<Rules> {
    Arc::new(Rules::load())
}

thread_local! {
    static RULES: Rules = Rules::load();
}

async fn handle_with_own_copy(user: u64, ready: Arc<Barrier>) {
    let rules = Rules::clone(SHARED.get_or_init(load));
    assert!(rules.allows(user % 64, 7) || !user.is_multiple_of(64));
    ready.wait().await;
    pending::<()>().await;
    drop(rules);
}

async fn handle_with_thread_local(user: u64, ready: Arc<Barrier>) {
    RULES.with(|rules| assert!(rules.allows(user % 64, 7) || !user.is_multiple_of(64)));
    ready.wait().await;
    pending::<()>().await;
}

async fn handle_with_shared(user: u64, ready: Arc<Barrier>) {
    let rules = Arc::clone(SHARED.get_or_init(load));
    assert!(rules.allows(user % 64, 7) || !user.is_multiple_of(64));
    ready.wait().await;
    pending::<()>().await;
    drop(rules);
}

fn handle_on_own_thread(user: u64, ready: &std::sync::Barrier) {
    RULES.with(|rules| assert!(rules.allows(user % 64, 7) || !user.is_multiple_of(64)));
    ready.wait();
    loop {
        thread::park();
    }
}

/// Serves so many requests at once and holds them for a moment. Like a server that is told to end it
/// leaves them as they are: what it frees on its way out would be all that is left to see.
pub fn run(cache: Cache, tasks: u64) -> std::io::Result<()> {
    match cache {
        Cache::Threads => run_threads(tasks)?,
        _ => run_tasks(cache, tasks)?,
    }
    Ok(())
}

fn run_threads(tasks: u64) -> std::io::Result<()> {
    let ready = Arc::new(std::sync::Barrier::new(tasks as usize + 1));
    for user in 0..tasks {
        let ready = ready.clone();
        thread::Builder::new()
            .name(format!("request-{user}"))
            .spawn(move || handle_on_own_thread(user, &ready))?;
    }
    ready.wait();
    thread::sleep(HOLD);
    Ok(())
}

fn run_tasks(cache: Cache, tasks: u64) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let ready = Arc::new(Barrier::new(tasks as usize + 1));
        for user in 0..tasks {
            let ready = ready.clone();
            match cache {
                Cache::PerTask => drop(tokio::spawn(handle_with_own_copy(user, ready))),
                Cache::PerThread => drop(tokio::spawn(handle_with_thread_local(user, ready))),
                _ => drop(tokio::spawn(handle_with_shared(user, ready))),
            }
        }
        ready.wait().await;
        tokio::time::sleep(HOLD).await;
    });
    std::mem::forget(runtime);
    Ok(())
}
