//! `assert_budget!`: holds a measurement to limits, and tells who spent it.

use std::fmt::{self, Write};

use super::figures::{ScopeFigures, Site, Spent};
use super::resolve::place;

/// Sizes as they are written in a budget: `64.kib()`. As everywhere in taskheap a KB is 1,024
/// bytes, so that `kb` and `kib` are the same.
pub trait Bytes {
    /// Times 1,024 bytes.
    fn kib(self) -> u64;
    /// Times 1,024² bytes.
    fn mib(self) -> u64;
    /// Times 1,024³ bytes.
    fn gib(self) -> u64;
    /// Times 1,024 bytes.
    fn kb(self) -> u64;
    /// Times 1,024² bytes.
    fn mb(self) -> u64;
    /// Times 1,024³ bytes.
    fn gb(self) -> u64;
}

impl Bytes for u64 {
    fn kib(self) -> u64 {
        self.saturating_mul(1 << 10)
    }

    fn mib(self) -> u64 {
        self.saturating_mul(1 << 20)
    }

    fn gib(self) -> u64 {
        self.saturating_mul(1 << 30)
    }

    fn kb(self) -> u64 {
        self.kib()
    }

    fn mb(self) -> u64 {
        self.mib()
    }

    fn gb(self) -> u64 {
        self.gib()
    }
}

/// Panics unless every limit holds, with what was measured and the lines of code that spent it.
///
/// The first argument is a [`Measured`](crate::Measured) or a scope of one; then follow limits,
/// each a field of it, a comparison, and a number. Sizes may be written `64.kib()`, `4.mib()`.
///
/// ```
/// # use std::alloc::System;
/// # #[global_allocator]
/// # static ALLOC: taskheap::Alloc<System> = taskheap::Alloc::new(System);
/// let m = taskheap::measure(|| vec![0u8; 4096].len());
/// taskheap::assert_budget!(m, peak <= 64.kib(), allocations <= 10, live == 0);
/// ```
#[macro_export]
macro_rules! assert_budget {
    ($spent:expr, $($figure:ident $compare:tt $limit:expr),+ $(,)?) => {{
        #[allow(unused_imports)]
        use $crate::Bytes as _;
        let spent = &$spent;
        let clauses = [$({
            let (measured, limit): (u64, u64) = (spent.$figure, $limit);
            $crate::hook::measure::verdict::Clause {
                figure: stringify!($figure),
                compare: stringify!($compare),
                limit,
                measured,
                holds: measured $compare limit,
            }
        }),+];
        $crate::hook::measure::verdict::hold(&spent, &clauses);
    }};
}

/// One limit of a budget.
#[derive(Clone, Copy, Debug)]
pub struct Clause {
    pub figure: &'static str,
    pub compare: &'static str,
    pub limit: u64,
    pub measured: u64,
    pub holds: bool,
}

/// By what the sites are sorted that a message names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    AtPeak,
    Live,
    Allocated,
    Allocations,
    Temporary,
}

impl Metric {
    fn of_figure(figure: &str) -> Metric {
        match figure {
            "live" | "live_blocks" => Metric::Live,
            "allocated" | "max_allocated" => Metric::Allocated,
            "allocations" | "max_allocations" | "instances" => Metric::Allocations,
            "temporary" => Metric::Temporary,
            _ => Metric::AtPeak,
        }
    }

    pub fn of(self, site: &Site) -> u64 {
        match self {
            Metric::AtPeak => site.at_peak,
            Metric::Live => site.live,
            Metric::Allocated => site.allocated,
            Metric::Allocations => site.allocations,
            Metric::Temporary => site.temporary,
        }
    }

    fn heading(self) -> &'static str {
        match self {
            Metric::AtPeak => "held at the peak by",
            Metric::Live => "not freed, made by",
            Metric::Allocated => "most bytes allocated by",
            Metric::Allocations => "most allocations by",
            Metric::Temporary => "freed at once, made by",
        }
    }

    fn amount(self, site: &Site) -> String {
        match self {
            Metric::AtPeak => size_and_blocks(site.at_peak, site.at_peak_blocks),
            Metric::Live => size_and_blocks(site.live, site.live_blocks),
            Metric::Allocated | Metric::Allocations => {
                size_and_blocks(site.allocated, site.allocations)
            }
            Metric::Temporary => blocks(site.temporary),
        }
    }
}

/// Sites that are named for each kind of limit that does not hold.
const SITES: usize = 5;

/// Panics with the limits and the spenders, unless all limits hold.
#[track_caller]
pub fn hold(spent: &dyn Spent, clauses: &[Clause]) {
    if clauses.iter().any(|clause| !clause.holds) {
        panic!("{}", message(spent, clauses));
    }
    let tasks = spent.not_followed();
    assert!(
        tasks == 0,
        "{tasks} spawned tasks are not in the figures, so the budget can't be judged. Give \
         taskheap feature `tokio`, or wrap what is spawned: work().heap_scope(\"name\")"
    );
}

fn message(spent: &dyn Spent, clauses: &[Clause]) -> String {
    let mut text = format!("{} is over its budget\n", spent.title());
    let mut metrics: Vec<Metric> = Vec::new();
    for clause in clauses {
        let shown = |value| match is_bytes(clause.figure) {
            true => bytes(value),
            false => value.to_string(),
        };
        let Clause {
            figure, compare, ..
        } = clause;
        let word = if clause.holds { "ok" } else { "OVER" };
        let (measured, limit) = (shown(clause.measured), shown(clause.limit));
        let _ = writeln!(
            text,
            "  {figure:<15} {measured:>12}   {compare} {limit:<12} {word}"
        );
        let metric = Metric::of_figure(figure);
        if !clause.holds && !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    for metric in metrics {
        write_sites(&mut text, &spent.spenders(metric), metric);
    }
    if !spent.parts().is_empty() {
        let _ = write_scopes(&mut text, spent.parts());
    }
    text
}

fn write_sites(text: &mut String, sites: &[Site], metric: Metric) {
    let with: Vec<&Site> = sites.iter().filter(|site| metric.of(site) > 0).collect();
    if with.is_empty() {
        return;
    }
    let _ = writeln!(text, "{}:", metric.heading());
    for site in with.iter().take(SITES) {
        let place = place(&site.function, site.file.as_deref(), site.line);
        let _ = writeln!(text, "  {}  {place}", metric.amount(site));
        for caller in &site.callers {
            let _ = writeln!(text, "      called by {caller}");
        }
    }
    if with.len() > SITES {
        let _ = writeln!(text, "  and {} more", with.len() - SITES);
    }
}

/// A line for each scope.
pub fn write_scopes(out: &mut dyn Write, scopes: &[ScopeFigures]) -> fmt::Result {
    for scope in scopes {
        writeln!(
            out,
            "scope {:?}: {} instances of {} each at most (mean {}), together {}",
            scope.name,
            scope.instances,
            bytes(scope.max),
            bytes(scope.mean),
            bytes(scope.peak),
        )?;
    }
    Ok(())
}

fn is_bytes(figure: &str) -> bool {
    !matches!(
        figure,
        "allocations"
            | "live_blocks"
            | "temporary"
            | "instances"
            | "max_allocations"
            | "not_followed"
    )
}

fn size_and_blocks(size: u64, count: u64) -> String {
    format!("{} in {}", bytes(size), blocks(count))
}

fn blocks(count: u64) -> String {
    match count {
        1 => "1 block".to_owned(),
        _ => format!("{count} blocks"),
    }
}

/// `4.0 MB`; up to 10 KB the bytes themselves, since a budget may fail by one.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if value < 10 << 10 {
        return format!("{value} B");
    }
    let (mut number, mut unit) = (value as f64 / 1024.0, 0);
    while number >= 1024.0 && unit < 3 {
        number /= 1024.0;
        unit += 1;
    }
    format!("{number:.1} {}", UNITS[unit])
}
