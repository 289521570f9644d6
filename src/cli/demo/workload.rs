//! The program that the demo records: a service whose handlers look up a rule object of 4 MB.
//!
//! The same requests three times, with the object where a programmer may put it: a copy for each
//! task, a copy for each worker thread, one for all.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::ValueEnum;
use tokio::sync::Barrier;

/// Where the rule object is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cache {
    PerTask,
    PerThread,
    Shared,
}

/// How long the requests wait with what they hold, so that the heap can be looked at.
const HOLD: Duration = Duration::from_millis(1500);

#[derive(Clone)]
struct Rule {
    path: String,
    allowed: Vec<u64>,
}

/// 4 MB in 8,256 blocks.
#[derive(Clone)]
struct Rules {
    by_host: HashMap<String, Vec<Rule>>,
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

thread_local! {
    static RULES: Rules = Rules::load();
}

async fn handle_with_own_copy(user: u64, ready: Arc<Barrier>) {
    let rules = Rules::clone(SHARED.get_or_init(|| Arc::new(Rules::load())));
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
    let rules = SHARED.get_or_init(|| Arc::new(Rules::load())).clone();
    assert!(rules.allows(user % 64, 7) || !user.is_multiple_of(64));
    ready.wait().await;
    pending::<()>().await;
    drop(rules);
}

/// Serves so many requests at once and holds them for a moment.
pub fn run(cache: Cache, tasks: u64) -> std::io::Result<()> {
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
                Cache::Shared => drop(tokio::spawn(handle_with_shared(user, ready))),
            }
        }
        ready.wait().await;
        tokio::time::sleep(HOLD).await;
    });
    Ok(())
}
