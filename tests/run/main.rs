//! `taskheap run` on programs that do what programs must not: they have to go on as without it,
//! and the record has to be right.
#![cfg(target_os = "linux")]

mod sweep;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();

fn folder() -> &'static Path {
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

/// Builds a program of `tests/run/programs`.
fn build(name: &str, flags: &[&str]) -> PathBuf {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/run/programs/{name}.rs"));
    let program = folder().join(format!("{name}{}", flags.concat().replace(['/', '='], "-")));
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let done = Command::new(rustc)
        .args(["--edition=2024", "-O", "-g", "-o"])
        .arg(&program)
        .args(flags)
        .arg(source)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    program
}

struct Recorded {
    bare: Output,
    output: Output,
    report: Value,
}

fn taskheap() -> Command {
    Command::new(env!("CARGO_BIN_EXE_taskheap"))
}

/// Runs the program bare and recorded.
fn record(program: &Path, args: &[&str]) -> Recorded {
    let profile = folder().join(format!(
        "{}.taskheap",
        program.file_name().unwrap().display()
    ));
    let bare = Command::new(program).args(args).output().unwrap();
    let output = taskheap()
        .args(["run", "--force", "-o"])
        .arg(&profile)
        .arg("--")
        .arg(program)
        .args(args)
        .output()
        .unwrap();
    let report = taskheap()
        .arg("report")
        .arg(&profile)
        .arg("--json")
        .output()
        .unwrap();
    assert!(
        report.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report = serde_json::from_slice(&report.stdout).unwrap();
    Recorded {
        bare,
        output,
        report,
    }
}

impl Recorded {
    fn is_unharmed(&self) {
        assert_eq!(self.bare.stdout, self.output.stdout);
        assert_eq!(self.bare.status.code(), self.output.status.code());
        assert_eq!(
            self.report["recording"]["lost_events"], 0,
            "{}",
            self.report["recording"]
        );
    }

    fn number(&self, group: &str, name: &str) -> u64 {
        self.report[group][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {group}.{name}"))
    }
}

#[test]
fn threads_that_name_themselves_at_once_are_all_named() {
    let program = build("names", &[]);
    for _ in 0..4 {
        let recorded = record(&program, &[]);
        recorded.is_unharmed();
        let threads = recorded.report["threads"].as_array().unwrap();
        let named = threads.iter().find(|row| row["name"] == "at-once");
        assert_eq!(
            named.map(|row| &row["count"]),
            Some(&8.into()),
            "{threads:#?}"
        );
    }
}

#[test]
fn a_snapshot_is_a_profile_of_a_program_that_goes_on() {
    let (whole, part) = (
        folder().join("whole.taskheap"),
        folder().join("part.taskheap"),
    );
    let mut running = taskheap()
        .args(["run", "-o"])
        .arg(&whole)
        .args(["--", "sh", "-c", "sleep 2; exit 7"])
        .spawn()
        .unwrap();
    let id = running.id();
    let program = loop {
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        if let Some(child) = children.split_whitespace().next() {
            break child.to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    std::thread::sleep(std::time::Duration::from_millis(300));
    let asked = taskheap()
        .args(["snapshot", &program, "-o"])
        .arg(&part)
        .output()
        .unwrap();
    assert!(
        asked.status.success(),
        "{}",
        String::from_utf8_lossy(&asked.stderr)
    );
    let report = taskheap()
        .arg("report")
        .arg(&part)
        .arg("--json")
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let exit = &report["program"]["exit"];
    assert!(exit["code"].is_null() && exit["signal"].is_null(), "{exit}");
    let walks = report["walks"].as_array().unwrap();
    assert_eq!(walks.last().unwrap()["reason"], "snapshot");
    assert!(report["totals"]["live_bytes"].as_u64().unwrap() > 0);
    assert_eq!(running.wait().unwrap().code(), Some(7));
    assert!(whole.exists());
    let nobody = taskheap().args(["snapshot", &program]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("is not being recorded"));
}

#[test]
fn a_sample_is_right_within_its_error() {
    let program = build("sampled", &[]);
    let profile = folder().join("sampled.taskheap");
    let run = |distance: &str| {
        let output = taskheap()
            .args(["run", "--force", "--sample", distance, "-o"])
            .arg(&profile)
            .arg("--")
            .arg(&program)
            .output()
            .unwrap();
        assert!(output.status.success());
        let truth = String::from_utf8(output.stdout).unwrap();
        let truth: Vec<f64> = truth
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        let report = taskheap()
            .arg("report")
            .arg(&profile)
            .arg("--json")
            .output();
        let report: Value = serde_json::from_slice(&report.unwrap().stdout).unwrap();
        (truth, report)
    };
    for (distance, bytes) in [("16KiB", 16e3 * 1.024), ("512KiB", 512e3 * 1.024)] {
        let (truth, report) = run(distance);
        assert_eq!(report["recording"]["mode"], "sampled");
        assert_eq!(report["recording"]["lost_events"], 0);
        let of = |name: &str| report["totals"][name].as_f64().unwrap();
        // The room for the kept blocks is known, what std itself allocates is small.
        let room = 100_000.0 * 24.0;
        let near = |name: &str, truth: f64| {
            let error = 5.0 * (truth * bytes).sqrt() + 64e3;
            assert!(
                (of(name) - truth).abs() < error,
                "{distance} {name}: {} {truth}",
                of(name)
            );
        };
        near("allocated_bytes", truth[0] + room);
        near("live_bytes", truth[1] + room);
        let told = report["recording"]["allocated_error_bytes"]
            .as_f64()
            .unwrap();
        assert!(
            (told / (truth[0] * bytes).sqrt() - 1.0).abs() < 0.2,
            "{told}"
        );
        // Blocks of about 1 KB: their number is as certain as their bytes.
        let error = 5.0 * truth[2] * (bytes / truth[0]).sqrt() * 2.0 + 500.0;
        assert!(
            (of("allocations") - truth[2]).abs() < error,
            "{}",
            of("allocations")
        );
        for owner in ["tasks", "threads", "others", "sites"] {
            for row in report[owner].as_array().unwrap() {
                assert!(row["peak_error_bytes"].is_u64(), "{row}");
            }
        }
    }
}

#[test]
fn two_thousand_threads_at_once() {
    let recorded = record(&build("threads", &[]), &["2000"]);
    recorded.is_unharmed();
    let threads = recorded.report["threads"].as_array().unwrap();
    let pool = threads
        .iter()
        .find(|t| t["name"] == "conn-*")
        .expect("threads of one name");
    assert_eq!(pool["count"], 2000);
    // A block of 1,000 bytes and one of the last destructor each; the C library keeps some
    // stacks, and a few hundred bytes with each of them.
    let live = recorded.number("totals", "live_bytes");
    assert!(
        (2000 * 1077..2000 * 1077 + 600_000).contains(&live),
        "{live}"
    );
}

#[test]
fn what_the_profiler_takes_for_threads_is_its_own_and_little() {
    let program = build("parked", &[]);
    let take = |passing: &str, waiting: &str| {
        let recorded = record(&program, &[passing, waiting]);
        recorded.is_unharmed();
        let memory = &recorded.report["memory"];
        assert_eq!(memory["unexplained_bytes"], 0, "{memory}");
        let others = recorded.number("memory", "other_mappings_bytes");
        assert!(others < 256 << 10, "{memory}");
        recorded.number("memory", "profiler_bytes")
    };
    let few = take("0", "1");
    // A page for the stack, a state, an index of counters, and what is shared with the command.
    let each = (take("0", "2000") - few) / 1999;
    assert!((5_000..8_000).contains(&each), "{each}");
    // Threads that come and go use again what others have left.
    let passed = take("10000", "1");
    assert!(passed < few + (256 << 10), "{passed} {few}");
}

#[test]
fn malloc_in_signal_handlers() {
    let recorded = record(&build("signals", &[]), &[]);
    recorded.is_unharmed();
    let live = recorded.number("totals", "live_bytes");
    assert!(live < 100_000, "{live}");
}

#[test]
fn coroutines_whose_stacks_go_away() {
    let recorded = record(&build("stacks", &[]), &[]);
    recorded.is_unharmed();
    let live = recorded.number("totals", "live_bytes");
    assert!((200 * 5000..200 * 5000 + 100_000).contains(&live), "{live}");
}

#[test]
fn deep_recursion_is_cut_and_counted() {
    let recorded = record(&build("deep", &[]), &[]);
    recorded.is_unharmed();
    assert!(recorded.number("recording", "truncated_stacks") > 19_000);
    assert!(recorded.number("totals", "peak_live_bytes") >= 20_000 * 32);
}

#[test]
fn what_cannot_be_preloaded_is_refused_with_the_remedy() {
    let fixed = build("deep", &["-Ctarget-feature=+crt-static"]);
    let text = folder().join("text");
    std::fs::write(&text, "no program").unwrap();
    std::fs::set_permissions(&text, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for program in [fixed, text, folder().join("nothing")] {
        let output = taskheap()
            .args(["run", "--"])
            .arg(&program)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", program.display());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("error:") && told.contains("hint:"), "{told}");
    }
}

#[test]
fn children_are_recorded_only_when_followed() {
    let own = tempfile::tempdir().unwrap();
    let shell = "/bin/sh -c 'exit 3'; exit 4";
    for (flags, wanted) in [(&[][..], 1), (&["--follow"][..], 2)] {
        let output = taskheap()
            .current_dir(own.path())
            .arg("run")
            .args(flags)
            .args(["--", "/bin/sh", "-c", shell])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(4));
        let files = std::fs::read_dir(own.path()).unwrap().count();
        assert_eq!(files, wanted, "{}", String::from_utf8_lossy(&output.stderr));
        for file in std::fs::read_dir(own.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}

#[test]
fn the_users_own_preload_and_environment_stay() {
    let output = taskheap()
        .args(["run", "--force", "-o"])
        .arg(folder().join("env.taskheap"))
        .args(["--", "/bin/sh", "-c", "env"])
        .env("LD_PRELOAD", "libc.so.6")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        shown.lines().any(|line| line == "LD_PRELOAD=libc.so.6"),
        "{shown}"
    );
    assert!(!shown.contains("TASKHEAP_SESSION"), "{shown}");
}
