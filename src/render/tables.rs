//! Each table of the report, whole or its first rows.

use super::table::{Shown, Table};
use super::text::{WIDTH, place, wrap};
use super::units::{bytes_tight, count, count_tight, seconds};
use crate::analyze::written;
use crate::analyze::{
    CopiesRow, Either, LeakRow, MemoryRow, OtherRow, SharedRow, SiteRow, StackTotals, TaskRow,
    ThreadLocalRow, ThreadRow,
};
use crate::profile::Site;

/// How much to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rows of each table; none for all.
    pub limit: Option<usize>,
    /// Columns of a line; none for as many as it takes.
    pub width: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limit: None,
            width: Some(WIDTH),
        }
    }
}

impl Options {
    /// The first of the rows.
    pub fn of<'a, T>(&self, rows: &'a [T]) -> &'a [T] {
        &rows[..self.limit.unwrap_or(rows.len()).min(rows.len())]
    }

    /// `, 5 of 12`, where not all rows are shown.
    pub fn part<T>(&self, rows: &[T]) -> String {
        match self.of(rows).len() {
            shown if shown < rows.len() => format!(", {shown} of {}", rows.len()),
            _ => String::new(),
        }
    }
}

fn size(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), bytes_tight)
}

pub fn tasks(rows: &[TaskRow], options: &Options) -> String {
    let columns: [Shown<TaskRow>; 10] = [
        ("task", &|row| row.name.clone()),
        (">spawned", &|row| count_tight(row.spawned)),
        (">alive", &|row| count_tight(row.live)),
        ("?>done", &|row| {
            row.finished_allocated.map_or("-".to_owned(), count_tight)
        }),
        (">at peak", &|row| bytes_tight(row.peak_live_bytes)),
        ("?>±", &|row| size(row.peak_error_bytes)),
        (">each", &|row| size(row.per_task.mean)),
        (">max", &|row| size(row.per_task.max)),
        ("?>keeps", &|row| size(row.retained_bytes)),
        (">future", &|row| bytes_tight(row.cell_bytes)),
    ];
    Table::of(options.of(rows), &columns).render(options.width)
}

/// What doesn't fit the first screen.
pub fn task_details(rows: &[TaskRow], options: &Options) -> String {
    let columns: [Shown<TaskRow>; 8] = [
        ("task", &|row| row.name.clone()),
        ("?spawned at", &|row| {
            row.site.as_ref().map_or_else(String::new, short_site)
        }),
        (">allocated", &|row| bytes_tight(row.allocated_bytes)),
        (">blocks", &|row| count_tight(row.allocations)),
        (">live", &|row| bytes_tight(row.live_bytes)),
        (">p99", &|row| size(row.per_task.p99)),
        ("?>left", &|row| bytes_tight(row.outlived_bytes)),
        ("?>idle p50", &|row| {
            row.idle_s.p50.map_or("-".to_owned(), seconds)
        }),
    ];
    Table::of(options.of(rows), &columns).render(options.width)
}

pub fn threads(rows: &[ThreadRow], options: &Options) -> String {
    let mut table = Table::new(&[
        "thread",
        ">count",
        ">alive",
        ">at peak",
        "?>±",
        ">live",
        ">allocated",
        "?>left",
        "?>stack",
        "?>touched",
    ]);
    for row in options.of(rows) {
        table.row(vec![
            row.name.clone(),
            count_tight(row.count),
            count_tight(row.alive),
            bytes_tight(row.peak_live_bytes),
            size(row.peak_error_bytes),
            bytes_tight(row.live_bytes),
            bytes_tight(row.allocated_bytes),
            bytes_or_nothing(row.owner_gone_bytes),
            size(row.stack.reserved_each),
            size(row.stack.resident_each),
        ]);
    }
    table.render(options.width)
}

fn bytes_or_nothing(value: u64) -> String {
    if value == 0 {
        "-".to_owned()
    } else {
        bytes_tight(value)
    }
}

pub fn others(rows: &[OtherRow], options: &Options) -> String {
    let mut table = Table::new(&["other", ">at peak", "?>±", ">live", ">allocated", ">blocks"]);
    for row in options.of(rows) {
        table.row(vec![
            row.name.clone(),
            bytes_tight(row.peak_live_bytes),
            size(row.peak_error_bytes),
            bytes_tight(row.live_bytes),
            bytes_tight(row.allocated_bytes),
            count_tight(row.allocations),
        ]);
    }
    table.render(options.width)
}

pub fn sites(rows: &[SiteRow], options: &Options) -> String {
    let mut table = Table::new(&[
        "site",
        "?where",
        "?through",
        ">at peak",
        "?>±",
        "?>at end",
        ">allocated",
        ">blocks",
    ]);
    for row in options.of(rows) {
        table.row(vec![
            written(&row.site.function).into_owned(),
            place(row.site.file.as_deref(), row.site.line),
            row.site.library.clone().unwrap_or_default(),
            bytes_tight(row.peak_live_bytes),
            size(row.peak_error_bytes),
            bytes_tight(row.live_bytes),
            bytes_tight(row.allocated_bytes),
            count_tight(row.allocations),
        ]);
    }
    table.render(options.width)
}

/// For a screen with little room: names and bytes.
pub fn sites_short(rows: &[SiteRow], options: &Options) -> String {
    let mut table = Table::new(&["site", "?where", "?through", ">at peak", "?>±", "?>at end"]);
    for row in options.of(rows) {
        table.row(vec![
            written(&row.site.function).into_owned(),
            place(row.site.file.as_deref(), row.site.line),
            row.site.library.clone().unwrap_or_default(),
            bytes_tight(row.peak_live_bytes),
            size(row.peak_error_bytes),
            bytes_tight(row.live_bytes),
        ]);
    }
    table.render(options.width)
}

/// The place if it is known, else the function.
pub fn short_site(site: &Site) -> String {
    match place(site.file.as_deref(), site.line) {
        place if place.is_empty() => written(&site.function).into_owned(),
        place => place,
    }
}

fn known(site: Option<&Site>) -> (String, String) {
    match site {
        Some(site) => (
            written(&site.function).into_owned(),
            place(site.file.as_deref(), site.line),
        ),
        None => ("-".to_owned(), String::new()),
    }
}

fn yes(value: Option<bool>, share: Option<f64>) -> String {
    match (value, share) {
        (None, _) => "-".to_owned(),
        (Some(true), _) => "yes".to_owned(),
        (Some(false), Some(share)) => format!("{:.0}%", share * 100.0),
        (Some(false), None) => "no".to_owned(),
    }
}

pub fn copies(rows: &[CopiesRow], options: &Options) -> String {
    let mut table = Table::new(&[
        "made in", "?where", "by each", "?named", ">copies", ">each", ">bytes", ">waste", "?>equal",
    ]);
    for row in options.of(rows) {
        let (function, place) = known(row.site.as_ref());
        table.row(vec![
            function,
            place,
            row.owner.to_owned(),
            row.owner_name.clone().unwrap_or_default(),
            count_tight(row.copies),
            bytes_tight(row.bytes_each),
            bytes_tight(row.bytes),
            bytes_tight(row.waste_bytes),
            yes(row.identical, row.equal_share),
        ]);
    }
    table.render(options.width)
}

pub fn thread_locals(rows: &[ThreadLocalRow], options: &Options) -> String {
    let mut table = Table::new(&[
        "thread-local",
        "?made in",
        ">threads",
        ">bytes",
        ">mean",
        ">max",
        "?>equal",
    ]);
    for row in options.of(rows) {
        table.row(vec![
            row.name.clone(),
            row.site.as_ref().map_or_else(String::new, short_site),
            count_tight(row.threads),
            bytes_tight(row.bytes),
            size(row.per_thread.mean),
            size(row.per_thread.max),
            yes(row.identical, row.equal_share),
        ]);
    }
    table.render(options.width)
}

pub fn shared(rows: &[SharedRow], options: &Options) -> String {
    let mut table = Table::new(&[
        "static",
        "?first touched by",
        "?made in",
        ">bytes",
        ">blocks",
    ]);
    for row in options.of(rows) {
        table.row(vec![
            row.name.clone(),
            row.first_touched_by.clone().unwrap_or_default(),
            row.site.as_ref().map_or_else(String::new, short_site),
            bytes_tight(row.bytes),
            count_tight(row.blocks),
        ]);
    }
    table.render(options.width)
}

pub fn leaks(rows: &[LeakRow], options: &Options) -> String {
    let mut table = Table::new(&["made in", "?where", ">blocks", ">bytes", "?>indirect", "?"]);
    for row in options.of(rows) {
        table.row(vec![
            written(&row.site.function).into_owned(),
            place(row.site.file.as_deref(), row.site.line),
            count(row.blocks),
            bytes_tight(row.bytes),
            bytes_or_nothing(row.indirect_bytes),
            if row.cycle { "cycle" } else { "" }.to_owned(),
        ]);
    }
    table.render(options.width)
}

pub fn memory(memory: &MemoryRow, options: &Options) -> String {
    let mut table = Table::new(&["part of resident memory", ">bytes", ">share"]);
    let rss = memory.rss_bytes.unwrap_or(0);
    let mut part = |name: &str, value: Option<u64>| {
        let value = value.unwrap_or(0);
        table.row(vec![
            name.to_owned(),
            bytes_tight(value),
            super::units::percent(value, rss),
        ]);
    };
    part("live heap blocks", memory.live_resident_bytes);
    part("free, kept by the allocator", memory.retained_bytes);
    if memory.fragmented_bytes.unwrap_or(0) > 0 {
        part(
            "  of it in holes between live blocks",
            memory.fragmented_bytes,
        );
    }
    part("thread stacks", memory.stacks_bytes);
    part("mapped files", memory.mapped_files_bytes);
    part("mapped by the program itself", memory.other_mappings_bytes);
    part("taskheap's own", memory.profiler_bytes);
    let rest = memory.unexplained_bytes.unwrap_or(0);
    table.row(vec![
        "unexplained".to_owned(),
        super::units::bytes_signed(i128::from(rest)),
        super::units::percent(rest.unsigned_abs(), rss),
    ]);
    table.row(vec![
        "resident (RSS)".to_owned(),
        bytes_tight(rss),
        String::new(),
    ]);
    table.render(options.width)
}

pub fn stacks(stacks: &StackTotals, options: &Options) -> String {
    let mut tasks = Table::new(&["task", ">alive", ">bytes each", ">together"]);
    for row in options.of(&stacks.tasks) {
        tasks.row(vec![
            row.name.clone(),
            count(row.live),
            bytes_tight(row.bytes_each),
            bytes_tight(row.bytes_each.saturating_mul(row.live)),
        ]);
    }
    let mut threads = Table::new(&["thread", ">alive", ">reserved each", ">touched each"]);
    for row in options.of(&stacks.threads) {
        threads.row(vec![
            row.name.clone(),
            count(row.count),
            size(row.reserved_each),
            size(row.resident_each),
        ]);
    }
    let mut out = String::new();
    for table in [tasks, threads] {
        if !table.is_empty() {
            out.push_str(&table.render(options.width));
            out.push('\n');
        }
    }
    let mut means = Vec::new();
    let mut say = |what: &str, value: Option<u64>| {
        means.extend(value.map(|value| format!("{what} {}", super::units::bytes(value))));
    };
    say("a task takes", stacks.per_task_bytes);
    say("a thread touches", stacks.per_thread_resident_bytes);
    say("reserves", stacks.per_thread_reserved_bytes);
    out.push_str(&format!("  on average {}\n", means.join(", ")));
    if let Some(either) = &stacks.either {
        let text = format!("  {}", wrap(&either_way(either), WIDTH - 2, 2));
        out.push_str(&text);
        out.push('\n');
    }
    out
}

/// `64 tasks take 24.0 KB; as many threads would touch 1.0 MB and reserve 128 MB`.
pub fn either_way(either: &Either) -> String {
    let reserve = either.reserved_bytes.map_or(String::new(), |reserved| {
        format!(" and reserve {}", super::units::bytes(reserved))
    });
    format!(
        "{} {} {}; as many threads would touch {}{reserve} (calculated)",
        super::units::counted(either.tasks, "task"),
        if either.tasks == 1 { "takes" } else { "take" },
        super::units::bytes(either.task_bytes),
        super::units::bytes(either.resident_bytes),
    )
}

/// What linked allocators have of the system, and what they say it is for. Empty without one.
pub fn allocators(memory: &MemoryRow, options: &Options) -> String {
    if memory.allocators.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        "allocator",
        ">address space",
        ">resident",
        "?>with blocks",
        "?>dirty",
        "?>muzzy",
        "?>thread caches",
        "?>its own",
    ]);
    for row in &memory.allocators {
        table.row(vec![
            row.name.clone(),
            bytes_tight(row.reserved_bytes),
            bytes_tight(row.resident_bytes),
            row.active_bytes.map_or_else(String::new, bytes_tight),
            row.dirty_bytes.map_or_else(String::new, bytes_tight),
            row.muzzy_bytes.map_or_else(String::new, bytes_tight),
            row.thread_cache_bytes.map_or_else(String::new, bytes_tight),
            row.metadata_bytes.map_or_else(String::new, bytes_tight),
        ]);
    }
    table.render(options.width)
}
