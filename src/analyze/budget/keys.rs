//! What can be limited: each key of a budget, with where its figure stands.
//!
//! A key is one line here: the table and the name as they are written, the unit, and how to read
//! the figure. Parsing, judging and the first budget that `--write` makes all go by this list.

use serde::Serialize;

use super::growth::Slope;
use super::{Row, matches};
use crate::analyze::figures::{bytes, count};
use crate::analyze::{Report, SiteRow, TaskRow, ThreadLocalRow, ThreadRow, written};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    Program,
    Task,
    Thread,
    ThreadLocal,
    Site,
    Leaks,
    Copies,
    Growth,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Bytes,
    Count,
    /// Tenths of a percent.
    Permille,
}

/// A figure and how far the true one may be from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figure {
    pub value: u64,
    pub error: u64,
}

/// Or why there is none.
pub type Reading = Result<Figure, String>;

#[derive(Debug)]
pub struct Key {
    pub table: Table,
    pub name: &'static str,
    pub unit: Unit,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Report(fn(&Report) -> Reading),
    Task(fn(&TaskRow) -> Reading),
    Thread(fn(&ThreadRow) -> Reading),
    ThreadLocal(fn(&ThreadLocalRow) -> Reading),
    Site(fn(&SiteRow) -> u64),
    /// Per task, thread, or step of the variable that was swept.
    Growth(&'static str),
}

impl Table {
    pub const ALL: [Table; 8] = [
        Table::Program,
        Table::Task,
        Table::Thread,
        Table::ThreadLocal,
        Table::Site,
        Table::Leaks,
        Table::Copies,
        Table::Growth,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Table::Program => "program",
            Table::Task => "task",
            Table::Thread => "thread",
            Table::ThreadLocal => "thread_local",
            Table::Site => "site",
            Table::Leaks => "leaks",
            Table::Copies => "copies",
            Table::Growth => "growth",
        }
    }

    /// Is it a table for each pattern?
    pub fn has_patterns(self) -> bool {
        !matches!(self, Table::Program | Table::Leaks | Table::Copies)
    }

    /// What a pattern of it matches.
    pub fn row(self) -> &'static str {
        match self {
            Table::Task => "task type",
            Table::Thread => "thread name",
            Table::ThreadLocal => "thread-local",
            Table::Growth => "row of growth",
            _ => self.name(),
        }
    }

    /// What there is to match, the largest first.
    pub fn names(self, report: &Report) -> Vec<String> {
        match self {
            Table::Task => report.tasks.iter().map(|row| row.name.clone()).collect(),
            Table::Thread => report.threads.iter().map(|row| row.name.clone()).collect(),
            Table::ThreadLocal => named(&report.thread_locals, |row| &row.name),
            Table::Site => {
                let name = |row: &SiteRow| written(&row.site.function).into_owned();
                let mut names: Vec<String> = report.sites.iter().map(name).collect();
                names.dedup();
                names
            }
            Table::Growth => Slope::names(&Slope::of(&report.growth)),
            _ => Vec::new(),
        }
    }
}

fn named<T>(rows: &[T], name: impl Fn(&T) -> &String) -> Vec<String> {
    rows.iter().map(|row| name(row).clone()).collect()
}

impl Unit {
    pub fn shown(self, value: u64) -> String {
        match self {
            Unit::Bytes => bytes(value),
            Unit::Count => count(value),
            Unit::Permille => format!("{}.{}%", value / 10, value % 10),
        }
    }
}

const fn key(table: Table, name: &'static str, unit: Unit, source: Source) -> Key {
    Key {
        table,
        name,
        unit,
        source,
    }
}

use Source as S;
use Table as T;
use Unit::{Bytes, Count, Permille};

/// Every key of a budget.
#[rustfmt::skip]
pub static KEYS: [Key; 36] = [
    key(T::Program, "peak", Bytes, S::Report(peak)),
    key(T::Program, "live_at_end", Bytes, S::Report(|r| exact(r.totals.live_bytes))),
    key(T::Program, "allocated", Bytes, S::Report(|r| exact(r.totals.allocated_bytes))),
    key(T::Program, "allocations", Count, S::Report(|r| exact(r.totals.allocations))),
    key(T::Program, "temporary", Count, S::Report(|r| exact(r.totals.temporary_blocks))),
    key(T::Program, "rss_peak", Bytes, S::Report(|r| looked(rss_peak(r)))),
    key(T::Program, "unexplained", Permille, S::Report(|r| looked(unexplained(r)))),
    key(T::Task, "peak", Bytes, S::Task(|t| exact(t.peak_live_bytes))),
    key(T::Task, "mean", Bytes, S::Task(|t| alive(t.per_task.mean))),
    key(T::Task, "p99", Bytes, S::Task(|t| alive(t.per_task.p99))),
    key(T::Task, "max", Bytes, S::Task(|t| alive(t.per_task.max))),
    key(T::Task, "keeps", Bytes, S::Task(keeps)),
    key(T::Task, "future", Bytes, S::Task(cell)),
    key(T::Task, "live", Count, S::Task(|t| exact(t.live))),
    key(T::Task, "live_bytes", Bytes, S::Task(|t| exact(t.live_bytes))),
    key(T::Task, "finished", Count, S::Task(|t| looked(t.finished_allocated))),
    key(T::Task, "spawned", Count, S::Task(|t| exact(t.spawned))),
    key(T::Thread, "peak", Bytes, S::Thread(|t| exact(t.peak_live_bytes))),
    key(T::Thread, "live_bytes", Bytes, S::Thread(|t| exact(t.live_bytes))),
    key(T::Thread, "count", Count, S::Thread(|t| exact(t.count))),
    key(T::Thread, "stack", Bytes, S::Thread(|t| looked(t.stack.resident_each))),
    key(T::ThreadLocal, "bytes", Bytes, S::ThreadLocal(|t| exact(t.bytes))),
    key(T::ThreadLocal, "threads", Count, S::ThreadLocal(|t| exact(t.threads))),
    key(T::ThreadLocal, "mean", Bytes, S::ThreadLocal(|t| alive(t.per_thread.mean))),
    key(T::ThreadLocal, "max", Bytes, S::ThreadLocal(|t| alive(t.per_thread.max))),
    key(T::Site, "peak", Bytes, S::Site(|s| s.peak_live_bytes)),
    key(T::Site, "live_at_end", Bytes, S::Site(|s| s.live_bytes)),
    key(T::Site, "allocated", Bytes, S::Site(|s| s.allocated_bytes)),
    key(T::Site, "allocations", Count, S::Site(|s| s.allocations)),
    key(T::Site, "temporary", Count, S::Site(|s| s.temporary_blocks)),
    key(T::Leaks, "bytes", Bytes, S::Report(|r| walked(r, sum(&r.leaks, |l| l.bytes)))),
    key(T::Leaks, "blocks", Count, S::Report(|r| walked(r, sum(&r.leaks, |l| l.blocks)))),
    key(T::Copies, "waste", Bytes, S::Report(|r| walked(r, sum(&r.copies, |c| c.waste_bytes)))),
    key(T::Growth, "per_task", Bytes, S::Growth("task")),
    key(T::Growth, "per_thread", Bytes, S::Growth("thread")),
    key(T::Growth, "per_step", Bytes, S::Growth("step")),
];

fn exact(value: u64) -> Reading {
    Ok(Figure { value, error: 0 })
}

fn looked(value: Option<u64>) -> Reading {
    value.map_or_else(|| Err("nobody looked (no walk)".to_owned()), exact)
}

fn alive(value: Option<u64>) -> Reading {
    let why = "none of it was alive when it was looked at";
    value.map_or_else(|| Err(why.to_owned()), exact)
}

/// What one task keeps alive, whoever made it: reachable from these tasks only.
fn keeps(task: &TaskRow) -> Reading {
    let Some(bytes) = task.retained_bytes else {
        return looked(None);
    };
    alive((task.live > 0).then(|| bytes / task.live))
}

fn walked(report: &Report, value: u64) -> Reading {
    looked((!report.walks.is_empty()).then_some(value))
}

fn sum<T>(rows: &[T], of: impl Fn(&T) -> u64) -> u64 {
    rows.iter().map(of).sum()
}

fn peak(report: &Report) -> Reading {
    Ok(Figure {
        value: report.totals.peak_live_bytes,
        error: report.recording.peak_bound_bytes,
    })
}

/// Nothing is known of a type whose cell was never seen.
fn cell(task: &TaskRow) -> Reading {
    match task.cell_bytes {
        0 => Err("no cell of this type was seen".to_owned()),
        size => exact(size),
    }
}

fn rss_peak(report: &Report) -> Option<u64> {
    report
        .memory
        .rss_peak_bytes
        .max(report.memory_at_peak.rss_peak_bytes)
}

/// Share of the resident set that nothing accounts for: at the peak, else at the last look.
fn unexplained(report: &Report) -> Option<u64> {
    let share = |row: &crate::analyze::MemoryRow| {
        let rest = row.unexplained_bytes?.unsigned_abs();
        Some((rest * 1000).div_ceil(row.rss_bytes.filter(|rss| *rss > 0)?))
    };
    share(&report.memory_at_peak).or_else(|| share(&report.memory))
}

impl Key {
    pub fn find(table: Table, name: &str) -> Option<&'static Key> {
        KEYS.iter()
            .find(|key| key.table == table && key.name == name)
    }

    /// What a limit of this key and pattern is held against.
    pub(super) fn rows(&self, report: &Report, pattern: Option<&str>) -> Vec<Row> {
        let fits = |name: &str| pattern.is_some_and(|pattern| matches(pattern, name));
        let mut rows = match self.source {
            Source::Report(read) => vec![Row {
                subject: self.table.name().to_owned(),
                site: None,
                reading: read(report),
            }],
            Source::Task(read) => {
                let tasks = report.tasks.iter().filter(|task| fits(&task.name));
                let row = |task: &TaskRow| Row {
                    subject: task.name.clone(),
                    site: task.site.clone(),
                    reading: read(task),
                };
                tasks.map(row).collect()
            }
            Source::Thread(read) => {
                let threads = report.threads.iter().filter(|thread| fits(&thread.name));
                let row = |thread: &ThreadRow| Row {
                    subject: thread.name.clone(),
                    site: None,
                    reading: read(thread),
                };
                threads.map(row).collect()
            }
            Source::ThreadLocal(read) => {
                let locals = report
                    .thread_locals
                    .iter()
                    .filter(|local| fits(&local.name));
                let row = |local: &ThreadLocalRow| Row {
                    subject: local.name.clone(),
                    site: local.site.clone(),
                    reading: read(local),
                };
                locals.map(row).collect()
            }
            Source::Site(read) => sites(report, read, pattern).into_iter().collect(),
            Source::Growth(_) => self.slopes(&Slope::of(&report.growth), pattern),
        };
        for row in &mut rows {
            self.widen(row, report.recording.sample_bytes);
        }
        rows
    }

    /// What a limit of growth is held against.
    pub(super) fn slopes(&self, slopes: &[Slope], pattern: Option<&str>) -> Vec<Row> {
        let Source::Growth(unit) = self.source else {
            return Vec::new();
        };
        let fits = |slope: &&Slope| {
            slope.unit == unit && pattern.is_some_and(|pattern| slope.fits(pattern))
        };
        slopes.iter().filter(fits).map(Slope::row).collect()
    }

    /// Of a sample, bytes are known to within two standard deviations (of Poisson sampling, whose
    /// variance is at most value × interval); how they are spread over owners, and counts, are not.
    fn widen(&self, row: &mut Row, interval: u64) {
        let Ok(figure) = &mut row.reading else { return };
        let measured_otherwise = ["rss_peak", "unexplained", "stack"].contains(&self.name);
        if interval == 0 || measured_otherwise {
            return;
        }
        let is_sum = !["mean", "p99", "max", "keeps", "future"].contains(&self.name);
        if self.unit == Unit::Bytes && is_sum {
            figure.error += (2.0 * (figure.value as f64 * interval as f64).sqrt()) as u64;
        } else {
            row.reading = Err("the recording is a sample, which can't tell it".to_owned());
        }
    }
}

/// All lines that match are one row.
fn sites(report: &Report, read: fn(&SiteRow) -> u64, pattern: Option<&str>) -> Option<Row> {
    let pattern = pattern?;
    let matching = |row: &&SiteRow| {
        let site = &row.site;
        let line = site.file.as_ref().zip(site.line);
        let in_file = site
            .file
            .as_deref()
            .is_some_and(|file| ends_in(file, pattern));
        let on_line = line.is_some_and(|(file, line)| ends_in(&format!("{file}:{line}"), pattern));
        let named = matches(pattern, &site.function) || matches(pattern, &written(&site.function));
        named || in_file || on_line
    };
    let rows: Vec<&SiteRow> = report.sites.iter().filter(matching).collect();
    let largest = rows.iter().max_by_key(|row| read(row))?;
    Some(Row {
        subject: match &rows[..] {
            [one] => written(&one.site.function).into_owned(),
            _ => format!("{pattern} ({} sites)", rows.len()),
        },
        site: Some(largest.site.clone()),
        reading: exact(rows.iter().map(|row| read(row)).sum()),
    })
}

/// Is the path the pattern, or does it end in it after a slash?
fn ends_in(path: &str, pattern: &str) -> bool {
    path.strip_suffix(pattern)
        .is_some_and(|rest| !pattern.is_empty() && (rest.is_empty() || rest.ends_with('/')))
}
