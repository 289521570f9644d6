//! The rules on profiles made by hand: what they tell, and where they are silent.

mod growth;
mod heap;
mod left_behind;
mod memory;
mod sketch;
mod tasks;

use super::super::Kind;
use sketch::{KB, MB, Sketch};

#[test]
fn without_a_walk_nothing_is_judged() {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    let node = sketch.stack(&["server::main"]);
    sketch.block(node, main, crate::profile::HeldBy::Stack(main), 1, 500 * MB);
    let report = crate::analyze::report(&sketch.without_walk());
    assert!(report.findings.is_empty() && report.thresholds.is_empty());
}

#[test]
fn a_tidy_program_has_no_findings_and_is_told_what_was_looked_for() {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    let node = sketch.stack(&["server::main", "server::load"]);
    sketch.block(
        node,
        main,
        crate::profile::HeldBy::Stack(main),
        10_000,
        4 * KB,
    );
    let report = sketch.report();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert!(report.thresholds.iter().any(|text| text.contains("leaks")));
}

#[test]
fn findings_come_most_bytes_first() {
    let mut sketch = Sketch::new();
    let main = sketch.thread("main", 1);
    for (function, blocks) in [("server::a", 2), ("server::b", 9), ("server::c", 5)] {
        let node = sketch.stack(&["server::main", function]);
        sketch.leak(node, main, blocks, MB);
    }
    let found = sketch.findings();
    let bytes: Vec<u64> = found.iter().map(|finding| finding.bytes).collect();
    assert_eq!(bytes, [9 * MB, 5 * MB, 2 * MB]);
    assert!(found.iter().all(|finding| finding.kind == Kind::Leak));
}
