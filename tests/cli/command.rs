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

pub fn two() -> Folder {
    let folder = Folder::new();
    folder.profile("server.taskheap", &sample::server());
    folder.profile("walked.taskheap", &sample::walked());
    folder
}

pub fn fits(text: &str) {
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
fn stacks_drawn() {
    let folder = two();
    let text = folder.shown("report walked.taskheap --stacks --svg stacks.svg");
    assert!(text.contains("wrote stacks.svg ("), "{text}");
    let svg = std::fs::read_to_string(folder.path("stacks.svg")).unwrap();
    golden::check("stacks.svg", &svg);
    let again = folder.run("report walked.taskheap --stacks --svg stacks.svg");
    assert_eq!(again.status.code(), Some(2));
    folder.shown("report walked.taskheap --stacks --svg stacks.svg --force");
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
        .current_dir(folder.path(""))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn help_of_every_command() {
    let folder = Folder::new();
    let first = folder.shown("--help");
    for expected in ["taskheap run --", "Exit codes:", "report", "flamegraph"] {
        assert!(first.contains(expected), "{first}");
    }
    let mut text = String::new();
    let commands = [
        "run",
        "snapshot",
        "report",
        "flamegraph",
        "export",
        "diff",
        "check",
        "sweep",
        "demo",
    ];
    for command in commands {
        text.push_str(&format!(
            "\n---- {command}\n{}",
            folder.shown(&format!("{command} --help"))
        ));
    }
    fits(&first);
    fits(&text);
    golden::check("help.txt", &text);
}

#[test]
fn comparison() {
    let folder = two();
    let text = folder.shown("diff server.taskheap walked.taskheap");
    fits(&text);
    golden::check("diff.txt", &text);
    let same = folder.shown("diff server.taskheap server.taskheap");
    assert!(same.contains("no change: task types"), "{same}");
    let json = folder.shown("diff server.taskheap walked.taskheap --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["totals"][1]["new"], 0);
}

#[test]
fn pictures_are_written_beside_the_profile_and_not_over_another() {
    let folder = two();
    let text = folder.shown("flamegraph walked.taskheap --by task");
    assert!(text.contains("walked.peak.by-task.svg"), "{text}");
    let first = std::fs::read(folder.path("walked.peak.by-task.svg")).unwrap();
    let again = folder.run("flamegraph walked.taskheap --by task");
    assert_eq!(again.status.code(), Some(2));
    folder.shown("flamegraph walked.taskheap --by task --force");
    assert_eq!(
        std::fs::read(folder.path("walked.peak.by-task.svg")).unwrap(),
        first
    );
}

/// Growth of one run is shown where the tasks varied, and where they did not it is said why.
#[test]
fn growth_of_one_run() {
    let folder = two();
    let text = folder.shown("report server.taskheap --growth");
    assert!(text.contains("not seen: "), "{text}");
    let mut profile = sample::walked();
    let timeline = &mut profile.timeline;
    for n in 1..=64 {
        timeline.at_ms.push(n * 10);
        timeline.tasks_alive.push(u64::from(n));
        timeline.threads_alive.push(3);
        timeline
            .live_bytes
            .push((5 << 20) + u64::from(n) * (4 << 20));
        timeline.rss_bytes.push(0);
    }
    folder.profile("grows.taskheap", &profile);
    let text = folder.shown("report grows.taskheap --growth");
    fits(&text);
    golden::check("growth-of-one-run.txt", &text);
    let screen = folder.shown("report grows.taskheap");
    assert!(
        screen.contains("4.0 MB for each task while 1 to 64 of them were alive"),
        "{screen}"
    );
}

/// What is gone has a box only in the widths of the base.
#[test]
fn a_picture_of_a_change_has_the_widths_of_either() {
    let folder = two();
    let drawn = |args: &str| {
        let args = format!("flamegraph server.taskheap --diff walked.taskheap {args} -o -");
        folder.shown(&args)
    };
    let (new, base) = (drawn(""), drawn("--widths base"));
    assert!(new.contains("what is gone has no box"), "{new}");
    assert!(base.contains("what is new has no box"), "{base}");
    assert_ne!(new, base);
    let zero = "flamegraph server.taskheap --diff walked.taskheap --metric live --widths base -o -";
    let zero = folder.run(zero);
    let error = String::from_utf8_lossy(&zero.stderr).into_owned();
    assert!(error.contains("--widths new"), "{error}");
    let alone = folder.run("flamegraph server.taskheap --widths base");
    assert_eq!(alone.status.code(), Some(2));
    let named = folder.shown("flamegraph server.taskheap --title <A> --subtitle B -o -");
    assert!(
        named.contains("&lt;A&gt;") && named.contains(">B<"),
        "{named}"
    );
    assert!(!named.contains("pid"), "{named}");
}

#[test]
fn every_picture_says_what_it_draws() {
    let folder = two();
    for (args, expected) in [
        ("", "Heap at its peak, by call stack: 297 MB"),
        (
            "--by thread --metric allocated",
            "Bytes allocated in the whole run, by thread: 298 MB",
        ),
        ("--by thread-local", "made for thread-locals: 4.0 MB"),
        (
            "--metric allocations",
            "Allocations in the whole run, by call stack: 16,142",
        ),
        ("--metric temporary", "Temporary allocations"),
        ("--metric leaked", "Leaked heap, by call stack: 2.9 KB"),
        (
            "--diff server.taskheap --metric allocated",
            "from 298 MB to 298 MB",
        ),
        ("--runtime-frames", "every frame shown"),
        ("--by task", "[60 copies]"),
    ] {
        let svg = folder.shown(&format!("flamegraph walked.taskheap {args} -o -"));
        assert!(svg.contains(expected), "{args}");
        assert!(
            svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"),
            "{args}"
        );
    }
}

#[test]
fn a_picture_of_nothing_is_refused_with_the_reason() {
    let folder = two();
    for (args, expected) in [
        ("server.taskheap --metric leaked", "no walk"),
        ("walked.taskheap --metric live", "--metric peak"),
        (
            "server.taskheap --by thread-local --metric temporary",
            "thread-local",
        ),
    ] {
        let output = folder.run(&format!("flamegraph {args}"));
        assert_eq!(output.status.code(), Some(2), "{args}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn collapsed() {
    let folder = two();
    let text = folder.shown("export collapsed server.taskheap -o -");
    golden::check("server.collapsed", &text);
    let sum: u64 = text
        .lines()
        .map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, sample::server().totals.peak_live_bytes);
}

#[test]
fn what_is_not_made_yet_is_refused_with_what_does_the_job() {
    let folder = two();
    for (args, expected) in [
        (
            "html server.taskheap",
            "taskheap flamegraph server.taskheap",
        ),
        ("top", "taskheap run"),
        ("attach 42", "was not started by"),
        ("export speedscope server.taskheap", "export collapsed"),
    ] {
        let output = folder.run(args);
        assert_eq!(output.status.code(), Some(2), "{args}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(expected), "{error}");
    }
}
