//! A million tasks and ten thousand threads that wait: what each takes is what the program counts
//! itself, run without taskheap.

use std::process::Command;

use serde_json::Value;

use crate::programs::{number, program, recorded, report, told};

/// How many there are, bytes of each on the heap, resident bytes of each stack.
fn own(args: &[&str]) -> [u64; 3] {
    let text = told(Command::new(program("parked")).args(args));
    let text = String::from_utf8(text).unwrap();
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap());
    std::array::from_fn(|_| numbers.next().unwrap())
}

fn reported(args: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("run.taskheap");
    told(&mut recorded(&profile, &program("parked"), args));
    let report = report(&profile);
    assert_eq!(number(&report["recording"], "lost_events"), 0);
    assert_eq!(number(&report["memory"], "unexplained_bytes"), 0);
    report
}

/// Within 2 percent.
#[track_caller]
fn close(measured: u64, truth: u64) {
    assert!(
        measured.abs_diff(truth) * 50 <= truth,
        "{measured} against {truth}"
    );
}

#[test]
fn a_million_tasks_take_what_they_take() {
    let args = ["tasks", "1000000"];
    let [count, each, _] = own(&args);
    let report = reported(&args);
    let task = &report["tasks"][0];
    assert_eq!(task["name"], "parked::waits", "{task:#}");
    assert_eq!(number(task, "live"), count);
    close(number(task, "live_bytes") / count, each);
    let stacks = &report["stacks"]["tasks"][0];
    close(number(stacks, "bytes_each"), each);
}

#[test]
fn ten_thousand_threads_take_what_they_take() {
    let args = ["threads", "10000"];
    let [count, each, stack] = own(&args);
    let report = reported(&args);
    let threads = report["threads"].as_array().unwrap();
    let named = |thread: &&Value| number(thread, "count") >= count;
    let thread = threads.iter().find(named).expect("all under one name");
    assert_eq!(number(thread, "alive"), count + 1, "with the main one");
    close(number(&thread["stack"], "resident_each"), stack);
    // Beside what the program counts there is what the C library keeps for a thread.
    assert!(number(thread, "live_bytes") >= count * each, "{thread:#}");
}
