//! Walks come at the moments that matter: short peaks and programs that are never quiet show their
//! culprit, and thousands of healthy idle connections show none.
#![cfg(all(feature = "cli", target_os = "linux"))]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use serde_json::Value;

/// Builds `tests/fixtures/held`.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/held");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moments");
        std::fs::create_dir_all(folder.join("src/bin")).unwrap();
        for (from, to) in [
            ("Cargo.toml.template", "Cargo.toml"),
            ("src/bin/moments.rs", "src/bin/moments.rs"),
        ] {
            let text = std::fs::read_to_string(source.join(from)).unwrap();
            // Only what is new, so that cargo does not build again.
            if std::fs::read_to_string(folder.join(to)).ok().as_ref() != Some(&text) {
                std::fs::write(folder.join(to), text).unwrap();
            }
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release", "--quiet", "--bin", "moments"])
            .current_dir(&folder)
            .env_remove("RUSTFLAGS")
            .env("CARGO_TARGET_DIR", folder.join("../held/target"))
            .status()
            .unwrap();
        assert!(built.success(), "the fixture does not build");
        folder.join("../held/target/release/moments")
    })
}

/// The report on the program in this mode. One at a time: they are about time.
fn report(mode: &str) -> Value {
    static ONE: Mutex<()> = Mutex::new(());
    let program = program();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("moments.taskheap");
    let taskheap = || Command::new(env!("CARGO_BIN_EXE_taskheap"));
    let ran = taskheap()
        .args(["run", "-o"])
        .arg(&profile)
        .arg("--")
        .arg(program)
        .arg(mode)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    let report = taskheap()
        .arg("report")
        .arg(&profile)
        .arg("--json")
        .output()
        .unwrap();
    serde_json::from_slice(&report.stdout).unwrap()
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
    let met = (0..4).map(|_| report("peak")).find(|report| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().any(|found| found["kind"] == "copies")
    });
    // A walker built without optimization may meet the beginning of the peak only.
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
