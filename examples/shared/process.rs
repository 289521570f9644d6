//! What the examples ask of the system about themselves.
#![allow(dead_code)]

use std::process::Command;

fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).expect("a figure")
}

/// Resident bytes.
pub fn resident() -> u64 {
    status("VmRSS:") * 1024
}

pub fn threads() -> u64 {
    status("Threads:")
}

/// Runs this program once more: what one mode leaves in the allocator must not help the next.
pub fn again(args: &[&str]) {
    let program = std::env::current_exe().expect("its own path");
    let ended = Command::new(program).args(args).status().expect("a child");
    assert!(ended.success(), "{args:?}: {ended}");
}
