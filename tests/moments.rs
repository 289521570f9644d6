//! Walks come at the moments that matter: short peaks and programs that are never quiet show their
//! culprit, and thousands of healthy idle connections show none.
#![cfg(all(feature = "cli", target_os = "linux"))]

#[path = "fixtures/build.rs"]
mod build;

use std::sync::Mutex;

use serde_json::Value;

/// One program at a time: each is looked at every few milliseconds, and needs a processor for it.
static ALONE: Mutex<()> = Mutex::new(());

fn report(mode: &str) -> Value {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    build::report(&build::programs("held").join("moments"), mode)
}

/// Copies of the rules that tasks of `handler` hold, among the first three findings.
#[track_caller]
fn copies(report: &Value) -> u64 {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().take(3).find(|f| f["kind"] == "copies");
    let found = found.unwrap_or_else(|| panic!("{findings:#?} {:#}", report["walks"]));
    assert_eq!(found["owner_name"], "moments::handler", "{found:#}");
    found["count"].as_u64().unwrap()
}

#[test]
fn a_peak_of_50_milliseconds_shows_its_culprit() {
    // On a busy machine the command may not run at all for so long: then another time.
    let met = (0..6).map(|_| report("peak")).find(|report| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().any(|found| found["kind"] == "copies")
    });
    assert!(copies(&met.expect("a peak that was met")) >= 3);
}

#[test]
fn a_program_that_is_never_quiet_shows_its_culprit() {
    let report = report("never-quiet");
    assert!(copies(&report) >= 16);
}

#[test]
fn three_thousand_idle_connections_are_healthy() {
    let report = report("idle");
    let findings = report["findings"].as_array().unwrap();
    let large = |f: &&Value| f["bytes"].as_u64().unwrap() >= 1 << 20;
    assert_eq!(findings.iter().find(large), None, "{findings:#?}");
    let tasks = report["tasks"].as_array().unwrap();
    assert_eq!(tasks[0]["live"], 3000, "{:#}", tasks[0]);
    assert!(!report["walks"].as_array().unwrap().is_empty());
}

#[test]
fn what_each_request_leaves_is_told_and_a_bounded_cache_is_not() {
    let remembers = report("remembers");
    let found = &remembers["findings"][0];
    assert_eq!(found["kind"], "growth", "{:#}", remembers["findings"]);
    assert_eq!(found["owner_name"], "moments::request", "{found:#}");
    assert_eq!(found["count"], 4000, "{found:#}");
    assert!(found["title"].as_str().unwrap().contains("moments::DONE"));
    let bounded = report("bounded");
    assert_eq!(
        bounded["findings"].as_array().unwrap().len(),
        0,
        "{bounded:#}"
    );
}
