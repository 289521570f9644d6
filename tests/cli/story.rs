//! The story that the demo tells, of runs made by hand.

use taskheap::analyze::growth::facts::Measure;
use taskheap::analyze::growth::{self, Facts, Limit, Sample, Setting, Subject, Sweep, Whose};
use taskheap::analyze::story::{Story, Way};
use taskheap::analyze::{self, Report, TaskStack, ThreadStack};
use taskheap::render::chart_svg;
use taskheap::render::story::page::{self, Parts, Picture, Place};
use taskheap::render::story::{Names, charts, text};

use crate::{command, golden, sample};

const MB: u64 = 1 << 20;
const VALUES: [u64; 4] = [1, 4, 16, 64];
const NAMES: Names = Names {
    variable: "requests",
    object: "4 MB of rules",
    wrong: "per-task",
    right: "shared",
};
const WAYS: [(&str, &str); 4] = [
    ("threads", "threads, a copy on each"),
    ("per-task", "tasks, a copy for each"),
    ("per-thread", "tasks, a copy per worker"),
    ("shared", "tasks, one for all (Arc)"),
];

/// What the process holds.
fn bytes(way: &str, n: u64) -> u64 {
    match way {
        "threads" => n * 4 * MB,
        "per-task" => 4 * MB + n * 4 * MB,
        "per-thread" => n.min(2) * 4 * MB,
        _ => 4 * MB + n * 384,
    }
}

fn run(way: &str, n: u64) -> Sample {
    let setting = |name: &str, value: String| Setting {
        name: name.to_owned(),
        number: value.parse().ok(),
        value,
    };
    let measure = Measure {
        bytes: bytes(way, n),
        whose: Whose::Nobody,
        place: None,
    };
    Sample {
        settings: vec![
            setting("cache", way.to_owned()),
            setting("requests", n.to_string()),
        ],
        facts: Facts {
            walked: true,
            tasks: (way != "threads").then_some(n),
            threads: Some(if way == "threads" { n + 1 } else { 3 }),
            measures: [(Subject::Process, measure)].into(),
            ..Facts::default()
        },
    }
}

/// A thread touches 12 KB and reserves 2 MB, a task has 384 bytes.
fn report(way: &str, n: u64) -> Report {
    let mut report = analyze::report(&sample::walked());
    report.totals.peak_live_bytes = bytes(way, n);
    report.stacks.tasks = Vec::new();
    report.stacks.threads = Vec::new();
    match way {
        "threads" => report.stacks.threads.push(ThreadStack {
            name: "request-*".to_owned(),
            count: n,
            reserved_each: Some(2 * MB),
            resident_each: Some(12 << 10),
        }),
        _ => report.stacks.tasks.push(TaskStack {
            name: "server::<handle>".to_owned(),
            bytes_each: 384,
            live: n,
        }),
    }
    if way == "shared" {
        report.findings.clear();
    }
    report
}

fn story() -> Story {
    let limit = Limit {
        bytes: 16 << 30,
        what: "given",
    };
    let samples: Vec<Sample> = (WAYS.iter())
        .flat_map(|(key, _)| VALUES.map(|n| run(key, n)))
        .collect();
    let sweep = Sweep {
        schema: 1,
        command: Vec::new(),
        variables: Vec::new(),
        limit: Some(limit),
        runs: Vec::new(),
        growth: growth::rows(&samples, Some(limit.bytes)),
        findings: Vec::new(),
        threshold: String::new(),
    };
    let way = |(key, title): (&'static str, &'static str)| {
        let runs = VALUES.map(|n| (n, report(key, n))).to_vec();
        Way::of(&sweep, "cache", (key, title), runs).unwrap()
    };
    Story::of(&sweep, WAYS.map(way).to_vec(), "threads", "per-task")
}

#[test]
fn the_figures_can_be_checked_in_the_head() {
    let story = story();
    assert_eq!((story.most, story.runs), (64, 16));
    assert_eq!(story.touched.as_ref().unwrap().each(), 12 << 10);
    assert_eq!(story.reserved.as_ref().unwrap().each(), 2 * MB);
    assert_eq!(story.cells.as_ref().unwrap().each(), 384);
    let full = |key: &str| {
        let law = &story.way(key).unwrap().law.over_variable;
        law.limit_value.map(f64::round)
    };
    // 16 GB by 4 MB, less the one that all are copied from; the others never get there.
    assert_eq!(full("threads"), Some(4096.0));
    assert_eq!(full("per-task"), Some(4095.0));
    assert_eq!((full("per-thread"), full("shared")), (None, None));
    let forecast = story.forecast();
    let most = forecast.last().unwrap();
    assert!(forecast[0].measured && !most.measured);
    assert_eq!(most.count, 60_000);
    assert_eq!(most.cells, Some(60_000 * 384));
    let near = |at: usize, expected: u64| {
        let found = most.ways[at].unwrap() as f64;
        assert!((found / expected as f64 - 1.0).abs() < 1e-6, "{found}");
    };
    near(0, 60_000 * 4 * MB);
    near(1, 60_001 * 4 * MB);
    near(2, 8 * MB);
    near(3, 4 * MB + 60_000 * 384);
}

#[test]
fn tasks_of_one_run_stand_beside_threads_of_another() {
    let stacks = story().stacks("per-task", "threads").unwrap();
    assert_eq!(stacks.per_thread_resident_bytes, Some(12 << 10));
    let either = stacks.either.unwrap();
    assert_eq!((either.tasks, either.task_bytes), (64, 64 * 384));
    assert_eq!(either.resident_bytes, 64 * (12 << 10));
    assert_eq!(either.reserved_bytes, Some(64 * 2 * MB));
}

#[test]
fn the_terminal() {
    let text = text::render(&story(), &NAMES, "out");
    let text = anstream::adapter::strip_str(&text).to_string();
    command::fits(&text);
    golden::check("story.txt", &text);
}

/// Names that would be markup stay names.
#[test]
fn the_page() {
    let picture = |file: &str, place| Picture {
        file: file.to_owned(),
        shows: "a <picture>".to_owned(),
        place,
    };
    let screen = "server (pid 7)\n<script>alert(1)</script>\nLooked for: much";
    let parts = Parts {
        names: NAMES,
        about: "A service & its rules.",
        first_screen: screen,
        screen_after: screen,
        before: "Rules::clone(&rules)",
        after: "Arc::clone(&rules)",
        pictures: &[
            picture("growth.svg", Place::Kept),
            picture("x\"onload=\"y.svg", Place::Found),
        ],
        files: &[("a.txt".to_owned(), "the <first> screen".to_owned())],
        folder: "out",
    };
    let page = page::render(&story(), &parts);
    for wrong in [
        "<script",
        "<picture>",
        "<first>",
        "\"onload",
        "http:",
        "https:",
    ] {
        assert!(!page.contains(wrong), "{wrong} in {page}");
    }
    golden::check("story.html", &page);
}

#[test]
fn the_charts() {
    let story = story();
    let kept = chart_svg::draw(&charts::kept(&story, "requests")).unwrap();
    assert!(
        kept.contains("the limit of 16.0 GB is full at 4,095 requests"),
        "{kept}"
    );
    golden::check("story-kept.svg", &kept);
    let waiting = chart_svg::draw(&charts::waiting(&story, "requests").unwrap()).unwrap();
    assert!(
        waiting.contains("12.0 KB for a thread, 384 B for a task"),
        "{waiting}"
    );
    golden::check("story-waiting.svg", &waiting);
}
