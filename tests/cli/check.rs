//! `taskheap check`: what it judges, what it refuses to judge, and how it says so.

use crate::command::{Folder, fits, two};
use crate::{golden, sample};

/// Runs `taskheap check ARGS` with this budget.
fn check(folder: &Folder, budget: &str, args: &str) -> (i32, String) {
    std::fs::write(folder.path("taskheap.toml"), budget).unwrap();
    let output = folder.run(&format!("check {args}"));
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

fn judged(budget: &str) -> (i32, String) {
    check(&two(), budget, "walked.taskheap --budget taskheap.toml")
}

#[test]
fn within_over_and_not_judged() {
    let program = "[program]\npeak = \"300 MB\"\nlive_at_end = 0\nallocations = 20_000\n";
    let (code, text) = judged(program);
    golden::check("check-within.txt", &text);
    assert_eq!(code, 0);

    let handler = "[task.handler]\nmean = \"1 MB\"\nmax = \"8 MB\"\nfinished = 0\nfuture = 512\n";
    let (code, text) = judged(&format!(
        "{program}{handler}[task.\"server::t*\"]\nlive = 2899\n"
    ));
    golden::check("check-over.txt", &text);
    assert_eq!(code, 1);

    let (code, text) = judged(&format!("{program}[task.handel]\nmean = 1\n"));
    golden::check("check-not-judged.txt", &text);
    assert_eq!(code, 2);

    assert_eq!(judged("").0, 2, "a budget without limits");
    let (code, text) = judged("[program]\npaek = 1\n");
    assert!(code == 2 && text.contains("did you mean peak?"), "{text}");
}

#[test]
fn a_missing_budget_is_told() {
    let output = two().run("check walked.taskheap");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("taskheap.toml") && error.contains("--budget"),
        "{error}"
    );
}

#[test]
fn a_lossy_profile_is_not_judged() {
    let folder = Folder::new();
    let mut profile = sample::server();
    profile.recording.lost_events = 7;
    folder.profile("x.taskheap", &profile);
    std::fs::write(folder.path("taskheap.toml"), "[program]\npeak = \"1 GB\"\n").unwrap();
    let output = folder.run("check x.taskheap");
    assert_eq!(output.status.code(), Some(2));
}

const EVERYTHING: &str = "
[program]
peak = \"300 MB\"
temporary = 0
rss_peak = \"100 MB\"
unexplained = \"5%\"
[task.\"server::*\"]
live_bytes = \"1 GB\"
p99 = \"8 MB\"
spawned = 3_000
[thread.main]
count = 1
peak = \"1 MB\"
[thread_local.CACHE]
bytes = \"1 MB\"
threads = 1
max = \"2 MB\"
[site.\"server::*\"]
peak = \"1 MB\"
[site.\"server::handler\"]
live_at_end = 0
[site.\"handler.rs:42\"]
allocations = 60
[leaks]
bytes = 0
blocks = 20
[copies]
waste = \"64 MB\"
";

#[test]
fn every_table_is_judged_in_every_format() {
    let folder = two();
    let (code, text) = check(&folder, EVERYTHING, "walked.taskheap");
    golden::check("check-tables.txt", &text);
    fits(&text);
    assert_eq!(code, 1, "{text}");
    for format in ["json", "junit", "github", "markdown"] {
        let (code, text) = check(
            &folder,
            EVERYTHING,
            &format!("walked.taskheap --format {format}"),
        );
        golden::check(&format!("check-tables.{format}"), &text);
        assert_eq!(code, 1, "{text}");
    }
}

#[test]
fn what_cannot_be_judged_is_told_in_every_format() {
    let budget = "[program]\npeak = \"1 GB\"\n[leaks]\nbytes = 0\n[site.nowhere]\npeak = 1\n\
                  [growth.handler]\nper_task = 100\n";
    let folder = two();
    for format in ["text", "junit", "github", "markdown"] {
        let (code, text) = check(
            &folder,
            budget,
            &format!("server.taskheap --format {format}"),
        );
        golden::check(&format!("check-refused.{format}"), &text);
        if format == "text" {
            fits(&text);
        }
        assert_eq!(code, 2, "{text}");
    }
}

#[test]
fn several_profiles_are_judged_each() {
    let budget = "[program]\nlive_at_end = \"1 MB\"\n";
    let (code, text) = check(&two(), budget, "walked.taskheap server.taskheap");
    golden::check("check-several.txt", &text);
    assert_eq!(code, 1, "one of them is over");
}

#[test]
fn a_baseline_may_be_exceeded_by_what_the_budget_allows() {
    let folder = two();
    let mut larger = sample::walked();
    larger.totals.peak_live_bytes = larger.totals.peak_live_bytes / 100 * 115;
    folder.profile("larger.taskheap", &larger);
    let against = "larger.taskheap --baseline walked.taskheap";
    let output = folder.run(&format!("check {against}"));
    let text = String::from_utf8(output.stdout).unwrap();
    golden::check("check-baseline.txt", &text);
    assert_eq!(output.status.code(), Some(1), "10% is allowed: {text}");
    let (code, text) = check(&folder, "[baseline]\ntolerance = \"20%\"\n", against);
    assert_eq!(code, 0, "{text}");
    let (code, text) = check(&folder, "", "walked.taskheap --baseline walked.taskheap");
    assert_eq!(code, 0, "{text}");
}

#[test]
fn a_task_type_that_grew_is_over_its_baseline() {
    let folder = two();
    let (code, text) = check(&folder, "", "walked.taskheap --baseline server.taskheap");
    assert_eq!(code, 0, "less is no fault: {text}");
    let mut base = sample::walked();
    base.walks.clear();
    for owner in &mut base.owners {
        owner.name = owner.name.replace("handler", "another");
    }
    folder.profile("base.taskheap", &base);
    let (code, text) = check(&folder, "", "server.taskheap --baseline base.taskheap");
    assert!(code == 1 && text.contains("server::handler"), "{text}");
}

/// The first budget holds the profile that it is made of, and says what was measured.
#[test]
fn a_first_budget_is_written_and_holds() {
    let folder = two();
    for name in ["server", "walked"] {
        let said = folder.shown(&format!("check {name}.taskheap --write {name}.toml"));
        assert!(said.contains("taskheap check"), "{said}");
        let text = std::fs::read_to_string(folder.path(&format!("{name}.toml"))).unwrap();
        golden::check(&format!("first-budget-{name}.toml"), &text);
        folder.shown(&format!("check {name}.taskheap --budget {name}.toml"));
    }
    let again = folder.run("check walked.taskheap --write walked.toml");
    assert_eq!(again.status.code(), Some(2), "it is not replaced");
    folder.shown("check walked.taskheap --write walked.toml --force");
    let both = folder.run("check walked.taskheap server.taskheap --write both.toml");
    assert_eq!(both.status.code(), Some(2));
}

/// What a sweep found is the measure of the next one: by the names that its screen shows.
#[test]
fn a_first_budget_of_a_sweep_holds_it() {
    let folder = Folder::new();
    let sweep = include_str!("golden/sweep.json");
    std::fs::write(folder.path("sweep.json"), sweep).unwrap();
    let said = folder.shown("check sweep.json --write growth.toml");
    assert!(said.contains("next: taskheap check sweep.json"), "{said}");
    let text = std::fs::read_to_string(folder.path("growth.toml")).unwrap();
    golden::check("first-budget-sweep.toml", &text);
    folder.shown("check sweep.json --budget growth.toml");

    // `Rules::clone`, as shown, for `<server::Rules as core::clone::Clone>::clone`.
    for pattern in [
        "Rules::clone",
        "<server::Rules as core::clone::Clone>::clone",
    ] {
        let budget = format!("[growth.\"{pattern}\"]\nper_task = \"1 MB\"\n");
        let (code, text) = check(&folder, &budget, "sweep.json");
        assert!(code == 1 && text.contains("server::Rules::clone"), "{text}");
    }
    let (code, text) = check(
        &folder,
        "[growth.\"the process\"]\nper_step = 1\n",
        "sweep.json",
    );
    assert!(code == 1 && text.contains("the process, n"), "{text}");
    std::fs::write(folder.path("none.json"), r#"{"schema": 1, "growth": []}"#).unwrap();
    let none = folder.run("check none.json --write none.toml");
    assert_eq!(none.status.code(), Some(2));
    assert!(!folder.path("none.toml").exists());
}

#[test]
fn a_peak_is_not_judged_within_its_bound() {
    let folder = Folder::new();
    let mut profile = sample::server();
    profile.recording.peak_bound_bytes = 1 << 20;
    folder.profile("x.taskheap", &profile);
    let peak = profile.totals.peak_live_bytes;
    let at = |limit: u64| {
        check(
            &folder,
            &format!("[program]\npeak = {limit}\n"),
            "x.taskheap",
        )
        .0
    };
    assert_eq!(at(peak + (2 << 20)), 0);
    assert_eq!(at(peak + 1), 2, "it may be over or not");
    assert_eq!(at(peak - (2 << 20)), 1);
}

#[test]
fn a_sample_is_judged_where_it_is_sure() {
    let folder = Folder::new();
    let mut profile = sample::server();
    profile.recording.sample_bytes = 64 << 10;
    folder.profile("x.taskheap", &profile);
    let peak = profile.totals.peak_live_bytes;
    let judged = |budget: String| check(&folder, &budget, "x.taskheap").0;
    assert_eq!(judged(format!("[program]\npeak = {}\n", 2 * peak)), 0);
    assert_eq!(judged(format!("[program]\npeak = {}\n", peak / 2)), 1);
    assert_eq!(
        judged(format!("[program]\npeak = {}\n", peak + peak / 50)),
        2
    );
    assert_eq!(judged("[program]\nallocations = 1_000_000\n".to_owned()), 2);
}

const SWEEP: &str = r#"{"schema": 1, "growth": [
  {"of": "process", "name": "server", "site": null, "unit": "n", "bytes_per_unit": 4200000.4,
   "r2": 0.999, "variable": "n", "over_variable": {"bytes_per_step": 4200000.4, "r2": 0.999}},
  {"of": "task-type", "name": "server::handler", "unit": "task", "bytes_per_unit": 4194304.0,
   "site": {"function": "server::Rules::clone", "file": "src/rules.rs", "line": 12, "library": null},
   "r2": 1.0, "variable": "n", "over_variable": {"bytes_per_step": 4194304.0, "r2": 1.0}},
  {"of": "site", "name": "server::log", "site": null, "unit": "n", "bytes_per_unit": 10.0,
   "r2": 0.3, "variable": "n", "over_variable": {"bytes_per_step": 10.0, "r2": 0.3}}
]}"#;

#[test]
fn growth_of_a_sweep_is_judged() {
    let folder = two();
    std::fs::write(folder.path("sweep.json"), SWEEP).unwrap();
    let judged = |budget: &str, args: &str| check(&folder, budget, args);

    let handler = "[growth.handler]\nper_task = \"1 MB\"\n";
    let process = "[growth.server]\nper_step = \"8 MB\"\n[program]\npeak = \"1 GB\"\n";
    let both = format!("{handler}{process}");
    let (code, text) = judged(&both, "walked.taskheap sweep.json");
    golden::check("check-sweep.txt", &text);
    assert_eq!(code, 1);

    let (code, text) = judged("[growth.log]\nper_step = 100\n", "sweep.json");
    assert!(code == 2 && text.contains("r² is 0.30"), "{text}");
    let (code, text) = judged("[growth.handler]\nper_thread = 1\n", "sweep.json");
    assert!(
        code == 2 && text.contains("server::handler (per_task)"),
        "{text}"
    );
    let (code, text) = judged("[program]\npeak = 1\n", "sweep.json");
    assert!(code == 2 && text.contains("no limit"), "{text}");
    std::fs::write(folder.path("other.json"), "{}").unwrap();
    let (code, text) = judged(handler, "other.json");
    assert!(code == 2 && text.contains("is no sweep.json"), "{text}");
}
