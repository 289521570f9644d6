//! Programs with an allocator linked in, recorded from outside and from within.
//!
//! What is recorded is held against the allocator's own statistics, and against what the program
//! counts itself.
#![cfg(all(feature = "cli", target_os = "linux", target_arch = "x86_64"))]

use std::path::{Path, PathBuf};
use std::process::Command;

use taskheap::profile::{self, Profile};

const FILES: [&str; 4] = ["main.rs", "own.rs", "bump.rs", "count.rs"];

/// The fixture with these features.
fn build(features: &str, environment: &[(&str, &str)]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("tests/fixtures/allocators");
    let name = format!("allocators-{}", features.replace(',', "-"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = std::fs::read_to_string(source.join("Cargo.toml.template")).unwrap();
    let manifest = manifest.replace("TASKHEAP", root.to_str().unwrap());
    write(&folder.join("Cargo.toml"), &manifest);
    for file in FILES {
        let text = std::fs::read_to_string(source.join("src").join(file)).unwrap();
        write(&folder.join("src").join(file), &text);
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--quiet", "--features", features]);
    cargo.current_dir(&folder).env_remove("RUSTFLAGS");
    cargo.env("CARGO_TARGET_DIR", folder.join("target"));
    cargo.envs(environment.iter().copied());
    assert!(
        cargo.status().unwrap().success(),
        "the fixture does not build"
    );
    folder.join("target/release/allocators")
}

/// Writes only what is new, so that cargo does not build again.
fn write(path: &Path, text: &str) {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    std::fs::write(path, text).unwrap();
}

/// The numbers behind a word that the program prints.
fn said(output: &str, word: &str) -> Vec<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix(word));
    let numbers = line.unwrap_or_else(|| panic!("no {word} in {output}"));
    numbers
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect()
}

fn output_of(command: &mut Command) -> String {
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// Runs the program bare and under `taskheap run`.
fn record(program: &Path) -> (Profile, String) {
    let bare = output_of(&mut Command::new(program));
    let file = program.with_extension("taskheap");
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskheap"));
    command
        .args(["run", "--force", "-o"])
        .arg(&file)
        .arg("--")
        .arg(program);
    let output = output_of(&mut command);
    assert_eq!(said(&output, "SUM"), said(&bare, "SUM"));
    (profile::read(&file).unwrap(), output)
}

/// The recorded blocks against what the allocator says is allocated.
fn agrees(program: &Path, allocator: &str) {
    let (profile, output) = record(program);
    let allocators = &profile.program.allocators;
    assert!(
        allocators.iter().any(|name| name == allocator),
        "{allocators:?}"
    );
    assert_eq!(profile.program.warnings, Vec::<String>::new());
    assert_eq!(profile.recording.lost_events, 0);
    assert_eq!(profile.recording.unknown_frees, 0);
    let allocated = said(&output, "ALLOCATED")[0] as f64;
    let glibc = allocators.iter().any(|name| name == "glibc");
    // The C library's blocks stand beside the allocator's.
    let live = profile.totals.live_bytes as f64 - if glibc { 777_777.0 } else { 0.0 };
    let off = (live - allocated).abs() / allocated;
    assert!(off < 0.01, "recorded {live}, allocated {allocated}");
}

#[test]
fn jemalloc_agrees() {
    agrees(&build("jemalloc", &[]), "jemalloc");
}

#[test]
fn mimalloc_agrees() {
    agrees(&build("mimalloc", &[]), "mimalloc");
}

#[test]
#[ignore = "minutes of builds: CI runs it"]
fn other_builds_agree() {
    let fat = [
        ("CARGO_PROFILE_RELEASE_LTO", "fat"),
        ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ];
    let debug = [("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")];
    for (features, allocator) in [("unprefixed", "jemalloc"), ("override", "mimalloc")] {
        agrees(&build(features, &[]), allocator);
        agrees(&build(features, &fat), allocator);
        agrees(&build(features, &debug), allocator);
    }
}

#[test]
fn an_unknown_allocator_is_told() {
    let (profile, _) = record(&build("bump", &[]));
    let warnings = &profile.program.warnings;
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("never calls malloc")),
        "{warnings:?}"
    );
}

#[test]
fn the_wrapper_counts_what_the_program_counts() {
    let program = build("wrapped", &[]);
    let file = program.with_extension("recording");
    let _ = std::fs::remove_file(&file);
    let output = output_of(Command::new(&program).arg(&file));
    let counted = said(&output, "COUNTED");
    let profile = profile::read(&file).unwrap();
    assert_eq!(profile.program.allocators, ["taskheap::Alloc"]);
    assert_eq!(profile.recording.lost_events, 0);
    assert_eq!(profile.totals.allocations, counted[0]);
    assert_eq!(profile.totals.allocated_bytes, counted[1]);
    assert_eq!(profile.totals.live_bytes, counted[1] - counted[2]);
}

#[test]
fn the_wrapper_tells_of_an_unknown_allocator_under_run() {
    let (profile, output) = record(&build("bump,wrapped", &[]));
    assert_eq!(profile.program.warnings, Vec::<String>::new());
    assert_eq!(profile.recording.lost_events, 0);
    let counted = said(&output, "COUNTED");
    let live = (counted[1] - counted[2]) as f64;
    let off = (profile.totals.live_bytes as f64 - 777_777.0 - live).abs() / live;
    assert!(
        off < 0.001,
        "recorded {}, counted {live}",
        profile.totals.live_bytes
    );
}

#[test]
fn the_wrapper_stands_down_under_run() {
    let (bare, _) = record(&build("", &[]));
    let program = build("wrapped", &[]);
    let (profile, _) = record(&program);
    assert_eq!(profile.program.allocators, ["glibc"]);
    assert_eq!(profile.totals.allocations, bare.totals.allocations);
}
