//! Tasks that hold their worker are named, with the line and what they do there; tasks that come
//! back, and those that were told to block elsewhere, are not.
#![cfg(all(feature = "cli", target_os = "linux"))]

#[path = "fixtures/build.rs"]
mod build;

use serde_json::Value;

fn report(mode: &str) -> Value {
    build::report(&build::programs("held").join("held"), mode)
}

fn held(report: &Value) -> Vec<&Value> {
    let findings = report["findings"].as_array().unwrap();
    let held = findings.iter().filter(|f| f["kind"] == "held-worker");
    held.collect()
}

/// The finding of this state: its task and line.
#[track_caller]
fn names(mode: &str, state: &str, task: &str, line_of: &str) {
    let report = report(mode);
    let found = held(&report);
    let title = |f: &&&Value| f["title"].as_str().unwrap().contains(state);
    let found = found.iter().find(title);
    let found = found.unwrap_or_else(|| panic!("{mode}: {:#}", report["findings"]));
    assert_eq!(found["owner_name"], task, "{found:#}");
    assert_eq!(found["bytes"], 0);
    let source = include_str!("fixtures/held/src/main.rs");
    let line = source.lines().position(|line| line.contains(line_of));
    assert_eq!(found["site"]["line"], line.unwrap() + 1, "{found:#}");
    let workers = report["workers"].as_array().unwrap();
    let longest = workers.iter().filter_map(|w| w["longest_stay_s"].as_f64());
    assert!(longest.fold(0.0, f64::max) > 0.15, "{workers:#?}");
}

#[test]
fn a_sleeping_task_is_named() {
    names(
        "sleep",
        "sleeping",
        "held::sleeper",
        "thread::sleep(HOLD); // sleeper",
    );
}

#[test]
fn a_task_that_waits_for_a_lock_is_named() {
    names("lock", "waiting for a lock", "held::locker", "LOCK.lock()");
}

#[test]
fn a_task_that_reads_is_named() {
    names("call", "in a system call", "held::reader", "read_exact");
}

#[test]
fn a_task_that_computes_is_named() {
    let report = report("compute");
    let found = held(&report);
    assert_eq!(found[0]["owner_name"], "held::cruncher", "{found:#?}");
    assert!(found[0]["title"].as_str().unwrap().contains("computing"));
}

#[test]
fn tasks_that_let_others_run_are_not_blamed() {
    for mode in ["async", "polite", "in-place", "pool"] {
        let report = report(mode);
        assert!(held(&report).is_empty(), "{mode}: {:#}", report["findings"]);
    }
}
