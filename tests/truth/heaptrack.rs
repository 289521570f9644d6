//! Where heaptrack is installed: it counts what we count.

use std::path::Path;
use std::process::Command;

use crate::counted::own_counts;
use crate::programs::{adds_up, number, program, recorded, told};

/// heaptrack's library is C++: it brings libstdc++ into the program, which at its start takes one
/// block of 72,704 bytes for exceptions that are thrown when memory is out. With us there is none.
const LIBSTDCXX: u64 = 1;

/// The C library reads the lines of /proc/self/maps at the start, into a buffer that grows with
/// the longest path among the mappings. With the program's own path at some length it grows once
/// with either tool, wherever their libraries are.
const PATH_LENGTH: usize = 120;

fn at_a_long_path(folder: &Path) -> std::path::PathBuf {
    let so_far = folder.join("counted").as_os_str().len();
    let inner = folder.join("p".repeat(PATH_LENGTH.saturating_sub(so_far + 1).max(1)));
    std::fs::create_dir(&inner).unwrap();
    let path = inner.join("counted");
    std::fs::copy(program("counted"), &path).unwrap();
    path
}

/// As `heaptrack_print` says.
fn calls(folder: &Path, program: &Path, rounds: &str) -> u64 {
    let file = folder.join(format!("heaptrack-{rounds}"));
    let mut recorded = Command::new("heaptrack");
    told(recorded.arg("-o").arg(&file).arg(program).arg(rounds));
    let made = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let stem = file.display().to_string() + ".";
    let mut made = made.filter(|path| path.display().to_string().starts_with(&stem));
    let file = made.next().expect("heaptrack's file");
    let text = told(Command::new("heaptrack_print").arg(file));
    let text = String::from_utf8_lossy(&text);
    let calls = text
        .lines()
        .find_map(|line| line.strip_prefix("calls to allocation functions: "));
    let calls = calls
        .and_then(|rest| rest.split(' ').next())
        .expect("the number of calls");
    calls.parse().unwrap()
}

#[test]
fn heaptrack_counts_the_same_calls() {
    let installed = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !installed("heaptrack") || !installed("heaptrack_print") {
        eprintln!("skipped: heaptrack is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = at_a_long_path(folder.path());
    for rounds in ["100", "3000"] {
        let profile = folder.path().join(format!("{rounds}.taskheap"));
        let counted = own_counts(&told(&mut recorded(&profile, &program, &[rounds])));
        let ours = number(&adds_up(&profile)["totals"], "allocations");
        assert!(ours > counted[0][0]);
        assert_eq!(calls(folder.path(), &program, rounds), ours + LIBSTDCXX);
    }
}
