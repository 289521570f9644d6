//! Growth without end: told only where everything speaks for it.

use super::super::super::Kind;
use super::sketch::{MB, Sketch};
use crate::profile::{HeldBy, Profile, Timeline, Walk};

/// A server that somebody ended after 40 s; a history of 10 MB grew by 4 MB in each second.
fn server() -> Profile {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    let table = sketch.stack(&["server::main", "server::load"]);
    sketch.block(table, main, HeldBy::Stack(main), 10, MB);
    let history = sketch.stack(&["server::main", "server::serve", "server::History::push"]);
    let context = sketch.block(history, main, HeldBy::Stack(main), 160, MB);
    sketch.walk.at_s = 39.0;
    let mut profile = sketch.profile();
    profile.program.exit_code = None;
    profile.program.exit_signal = Some(15);
    profile.program.duration_s = 40.0;
    profile.totals.live_bytes = 170 * MB;
    profile.totals.peak_live_bytes = 170 * MB;
    let mut earlier = profile.walks[0].clone();
    earlier.at_s = 10.0;
    earlier.live_bytes = 50 * MB;
    for row in earlier.contexts.iter_mut().filter(|row| row.0 == context) {
        (row.1, row.2) = (40 * MB, 40);
    }
    profile.walks.insert(0, earlier);
    profile.timeline = timeline(|s| 10 * MB + 4 * MB * s, |_| 5);
    profile
}

fn timeline(bytes: impl Fn(u64) -> u64, tasks: impl Fn(u64) -> u64) -> Timeline {
    Timeline {
        at_ms: (0..=40).map(|s| s * 1000).collect(),
        live_bytes: (0..=40).map(&bytes).collect(),
        rss_bytes: (0..=40).map(&bytes).collect(),
        tasks_alive: (0..=40).map(tasks).collect(),
        threads_alive: vec![3; 41],
    }
}

fn growth(profile: &Profile) -> Vec<crate::analyze::Finding> {
    let mut found = crate::analyze::report(profile).findings;
    found.retain(|finding| finding.kind == Kind::Growth);
    found
}

#[test]
fn a_history_without_end_is_told_with_its_line() {
    let found = growth(&server());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].bytes, 120 * MB);
    let site = found[0].site.as_ref().unwrap();
    assert_eq!(site.function, "server::History::push");
    assert!(
        found[0].title.starts_with("120 MB more in 29.00 s"),
        "{}",
        found[0].title
    );
}

#[test]
fn a_program_that_ends_by_itself_was_only_at_work() {
    let mut profile = server();
    profile.program.exit_code = Some(0);
    profile.program.exit_signal = None;
    assert!(growth(&profile).is_empty());
}

#[test]
fn more_tasks_need_more_memory() {
    let mut profile = server();
    profile.timeline = timeline(|s| 10 * MB + 4 * MB * s, |s| 5 + s);
    assert!(growth(&profile).is_empty());
}

#[test]
fn a_cache_that_fills_comes_to_rest() {
    let mut profile = server();
    profile.timeline = timeline(|s| 10 * MB + (8 * MB * s).min(160 * MB), |_| 5);
    assert!(growth(&profile).is_empty());
}

#[test]
fn one_look_is_no_growth() {
    let mut profile = server();
    let last: Walk = profile.walks.remove(1);
    profile.walks = vec![last];
    assert!(growth(&profile).is_empty());
}

#[test]
fn what_leaks_is_a_leak() {
    let mut profile = server();
    let (context, bytes, blocks) = profile.walks[1].contexts[1];
    profile.walks[1].leaks.push(crate::profile::WalkLeak {
        context: Some(context),
        root_context: Some(context),
        blocks,
        bytes,
        ..Default::default()
    });
    assert!(growth(&profile).is_empty());
}
