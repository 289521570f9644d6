//! The command itself: what it prints, where, and what it ends with.

use std::path::PathBuf;
use std::process::{Command, Output};

use taskheap::profile::{self, Options, Profile};

use crate::{golden, sample};

pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn profile(&self, name: &str, profile: &Profile) {
        profile::write(profile, &self.path(name), Options::default()).unwrap();
    }

    /// Runs `taskheap ARGS` in the folder.
    pub fn run(&self, args: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_taskheap"))
            .args(args.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    /// What it prints; it has to succeed.
    pub fn shown(&self, args: &str) -> String {
        let output = self.run(args);
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args}: {text}{error}");
        text
    }
}

fn two() -> Folder {
    let folder = Folder::new();
    folder.profile("server.taskheap", &sample::server());
    folder.profile("walked.taskheap", &sample::walked());
    folder
}

fn fits(text: &str) {
    for line in text.lines() {
        assert!(
            line.chars().count() <= 80,
            "{} columns: {line}",
            line.chars().count()
        );
        assert!(!line.contains('\u{1b}'), "styled though piped: {line}");
    }
}

#[test]
fn first_screen() {
    let folder = two();
    for name in ["server", "walked"] {
        let text = folder.shown(&format!("report {name}.taskheap"));
        fits(&text);
        golden::check(&format!("report-{name}.txt"), &text);
    }
}

#[test]
fn tables_whole() {
    let all =
        "--tasks --threads --sites --memory --copies --thread-locals --shared --leaks --stacks";
    let folder = two();
    for name in ["server", "walked"] {
        let text = folder.shown(&format!("report {name}.taskheap {all}"));
        fits(&text);
        golden::check(&format!("tables-{name}.txt"), &text);
    }
}

#[test]
fn json() {
    let folder = two();
    for name in ["server", "walked"] {
        let text = folder.shown(&format!("report {name}.taskheap --json"));
        golden::check(&format!("report-{name}.json"), &text);
    }
}

#[test]
fn colours_only_when_wanted() {
    let folder = two();
    assert!(
        folder
            .shown("--color always report server.taskheap")
            .contains("\u{1b}[1m")
    );
    assert!(
        !folder
            .shown("--color never report server.taskheap")
            .contains('\u{1b}')
    );
}

#[test]
fn what_is_no_profile_is_told_with_a_hint() {
    let folder = Folder::new();
    std::fs::write(folder.path("x"), "hello").unwrap();
    for (args, expected) in [
        ("report nowhere", "No such file"),
        ("report x", "no taskheap profile"),
    ] {
        let output = folder.run(args);
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            error.contains(expected) && error.contains("hint:"),
            "{error}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let folder = two();
    let taskheap = env!("CARGO_BIN_EXE_taskheap");
    let line = format!(
        "{taskheap} report server.taskheap --json | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    );
    let output = Command::new("bash")
        .args(["-c", &line])
        .current_dir(folder.path("").parent().unwrap().join(folder.path("")))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
