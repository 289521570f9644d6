//! The programs of `tests/fixtures/truth`, run bare and recorded, and what taskheap says of them.

#[path = "../fixtures/build.rs"]
mod build;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use prost::Message;
use serde_json::Value;
use taskheap::render::export::pprof::PprofProfile;

/// Nothing here takes seconds; a loaded machine may take minutes.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Builds all of them, once.
pub fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| build::programs("truth"));
    folder.join(name)
}

pub fn taskheap() -> Command {
    Command::new(env!("CARGO_BIN_EXE_taskheap"))
}

/// `taskheap run -o PROFILE -- PROGRAM ARGS`.
pub fn recorded(profile: &Path, program: &Path, args: &[&str]) -> Command {
    let mut command = taskheap();
    command.args(["run", "-o"]).arg(profile).arg("--");
    command.arg(program).args(args);
    command
}

/// What the command printed; it has to succeed.
pub fn told(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    output.stdout
}

pub fn report(profile: &Path) -> Value {
    let text = told(taskheap().arg("report").arg(profile).arg("--json"));
    serde_json::from_slice(&text).unwrap()
}

/// The process that `taskheap run` started, while both are there.
pub fn child_of(command: u32) -> Option<i32> {
    let path = format!("/proc/{command}/task/{command}/children");
    let children = std::fs::read_to_string(path).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// A program with its standard output in our hands, killed when it is forgotten.
pub struct Running {
    pub child: Child,
    pub output: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: takes no pointer; the child is not waited for yet, so the id is its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// How it ended.
    pub fn ended(mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already, if all is well; else the program that we run would go on without us.
        if let Some(program) = child_of(self.child.id()) {
            // SAFETY: takes no pointer.
            unsafe { libc::kill(program, libc::SIGKILL) };
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn number(value: &Value, name: &str) -> u64 {
    let number = value[name].as_u64();
    number.unwrap_or_else(|| panic!("no {name} in {value:#}"))
}

pub fn rows<'r>(report: &'r Value, table: &str) -> &'r [Value] {
    report[table].as_array().unwrap()
}

/// The only row whose field has this value.
#[track_caller]
pub fn row<'r>(report: &'r Value, table: &str, pointer: &str, value: &str) -> &'r Value {
    let is_it = |row: &&Value| row.pointer(pointer).is_some_and(|is| is == value);
    let found: Vec<&Value> = rows(report, table).iter().filter(is_it).collect();
    let [row] = found[..] else {
        let all = rows(report, table)
            .iter()
            .filter_map(|r| r.pointer(pointer));
        panic!(
            "{} of {value} in {:?}",
            found.len(),
            all.collect::<Vec<_>>()
        );
    };
    row
}

fn sum(report: &Value, tables: &[&str], figure: &str) -> u64 {
    let all = tables.iter().flat_map(|table| rows(report, table));
    all.map(|row| number(row, figure)).sum()
}

/// Every byte stands at one site and with one owner, in every table and export.
#[track_caller]
pub fn adds_up(profile: &Path) -> Value {
    let report = report(profile);
    let (totals, recording) = (&report["totals"], &report["recording"]);
    for nothing in [
        "lost_events",
        "unknown_frees",
        "missing_stacks",
        "torn_events",
    ] {
        assert_eq!(recording[nothing], 0, "{recording:#}");
    }
    let owners = ["tasks", "threads", "others"];
    for figure in ["allocated_bytes", "allocations"] {
        let whole = number(totals, figure);
        assert_eq!(sum(&report, &owners, figure), whole, "owners: {figure}");
    }
    // What owners hold is of the moment that the report shows.
    let shown = number(&report["moment"], "live_bytes");
    assert_eq!(sum(&report, &owners, "live_bytes"), shown, "owners");
    for figure in [
        "allocated_bytes",
        "allocations",
        "live_bytes",
        "live_blocks",
        "temporary_blocks",
    ] {
        let sites = sum(&report, &["sites"], figure);
        assert_eq!(sites, number(totals, figure), "sites: {figure}");
    }
    exports_add_up(profile, totals);
    report
}

/// Metric of the command, figure of the report, place in pprof's samples.
const METRICS: [(&str, &str, usize); 5] = [
    ("allocations", "allocations", 0),
    ("allocated", "allocated_bytes", 1),
    ("live", "live_bytes", 3),
    ("peak", "peak_live_bytes", 5),
    ("temporary", "temporary_blocks", 6),
];

fn exports_add_up(profile: &Path, totals: &Value) {
    let samples = pprof(profile);
    for (metric, figure, place) in METRICS {
        let whole = number(totals, figure);
        let sum: u64 = samples.iter().map(|sample| sample.values[place]).sum();
        assert_eq!(sum, whole, "pprof: {figure}");
        if whole == 0 {
            continue;
        }
        let lines = export(profile, "collapsed", metric);
        let lines = String::from_utf8(lines).unwrap();
        let figures = lines.lines().map(|line| line.rsplit_once(' ').unwrap().1);
        let sum: u64 = figures.map(|figure| figure.parse::<u64>().unwrap()).sum();
        assert_eq!(sum, whole, "collapsed: {figure}");
    }
    let drawn = ["flamegraph", "--metric", "allocated", "-o", "-"];
    let svg = told(taskheap().args(drawn).arg(profile));
    let svg = String::from_utf8(svg).unwrap();
    let whole = format!("total_samples=\"{}\"", number(totals, "allocated_bytes"));
    assert!(svg.contains(&whole), "the flamegraph is not of {whole}");
}

fn export(profile: &Path, format: &str, metric: &str) -> Vec<u8> {
    let args = ["export", format, "--metric", metric, "-o", "-"];
    told(taskheap().args(args).arg(profile))
}

/// A stack of pprof's, innermost function first, with its figures in pprof's order.
pub struct Sample {
    pub functions: Vec<String>,
    pub values: Vec<u64>,
}

pub fn pprof(profile: &Path) -> Vec<Sample> {
    let file = told(taskheap().args(["export", "pprof", "-o", "-"]).arg(profile));
    let mut bytes = Vec::new();
    let mut unpacked = flate2::read::GzDecoder::new(&file[..]);
    unpacked.read_to_end(&mut bytes).unwrap();
    let message = PprofProfile::decode(&bytes[..]).unwrap();
    let name = |id: u64| {
        let function = &message.function[id as usize - 1];
        message.string_table[function.name as usize].clone()
    };
    let samples = message.sample.iter().map(|sample| Sample {
        functions: (sample.location_id.iter())
            .flat_map(|id| &message.location[*id as usize - 1].line)
            .map(|line| name(line.function_id))
            .collect(),
        values: sample.value.iter().map(|value| *value as u64).collect(),
    });
    samples.collect()
}
