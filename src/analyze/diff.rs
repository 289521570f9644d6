//! What changed between two profiles: by task type, thread-local, site and finding.
//!
//! Lines of code move between two builds, so sites are compared by function and library. What is
//! equal is left out; what only one of the two has counts as zero in the other.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Report;

#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Change {
    pub name: String,
    pub base: u64,
    pub new: u64,
    /// `new - base`.
    pub change: i64,
}

/// Most changed first in every list.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    pub schema: u32,
    /// Bytes: `peak`, `live at the end`, `allocated`; blocks: `allocations`.
    pub totals: Vec<Change>,
    /// Bytes at the peak.
    pub tasks: Vec<Change>,
    /// Mean bytes of one task.
    pub per_task: Vec<Change>,
    pub threads: Vec<Change>,
    /// Null unless both were looked into: what nobody saw is not nothing.
    pub thread_locals: Option<Vec<Change>>,
    /// Bytes at the peak.
    pub sites: Vec<Change>,
    /// Null unless both were looked into.
    pub findings: Option<Vec<Change>>,
}

pub fn diff(base: &Report, new: &Report) -> Diff {
    let both = |rows: &dyn Fn(&Report) -> Vec<(String, u64)>| changes(rows(base), rows(new));
    let walked = !base.walks.is_empty() && !new.walks.is_empty();
    let locals = |r: &Report| {
        r.thread_locals
            .iter()
            .map(|t| (t.name.clone(), t.bytes))
            .collect()
    };
    Diff {
        schema: 1,
        totals: totals(base, new),
        tasks: both(&|r| {
            r.tasks
                .iter()
                .map(|t| (t.name.clone(), t.peak_live_bytes))
                .collect()
        }),
        per_task: both(&|r| {
            let mean = |t: &super::TaskRow| Some((t.name.clone(), t.per_task.mean?));
            r.tasks.iter().filter_map(mean).collect()
        }),
        threads: both(&|r| {
            r.threads
                .iter()
                .map(|t| (t.name.clone(), t.peak_live_bytes))
                .collect()
        }),
        thread_locals: walked.then(|| both(&locals)),
        sites: both(&sites),
        findings: walked.then(|| both(&findings)),
    }
}

fn totals(base: &Report, new: &Report) -> Vec<Change> {
    let figures = |report: &Report| {
        let totals = &report.totals;
        [
            ("peak", totals.peak_live_bytes),
            ("live at the end", totals.live_bytes),
            ("allocated", totals.allocated_bytes),
            ("allocations", totals.allocations),
        ]
    };
    let pairs = figures(base).into_iter().zip(figures(new));
    pairs
        .map(|((name, base), (_, new))| change(name.to_owned(), base, new))
        .collect()
}

fn sites(report: &Report) -> Vec<(String, u64)> {
    let name = |site: &crate::profile::Site| match &site.library {
        Some(library) => format!("{} through {library}", site.function),
        None => site.function.clone(),
    };
    report
        .sites
        .iter()
        .map(|row| (name(&row.site), row.peak_live_bytes))
        .collect()
}

fn findings(report: &Report) -> Vec<(String, u64)> {
    let name = |finding: &super::Finding| {
        let site = finding.site.as_ref().map(|site| site.function.as_str());
        let whose = finding
            .owner_name
            .as_deref()
            .or(site)
            .unwrap_or("the program");
        format!("{}: {whose}", finding.kind.name())
    };
    report.findings.iter().map(|f| (name(f), f.bytes)).collect()
}

fn changes(base: Vec<(String, u64)>, new: Vec<(String, u64)>) -> Vec<Change> {
    let mut figures: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (side, rows) in [base, new].into_iter().enumerate() {
        for (name, value) in rows {
            figures.entry(name).or_default()[side] += value;
        }
    }
    let mut changes: Vec<Change> = figures
        .into_iter()
        .filter(|(_, [base, new])| base != new)
        .map(|(name, [base, new])| change(name, base, new))
        .collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.change.unsigned_abs()));
    changes
}

fn change(name: String, base: u64, new: u64) -> Change {
    Change {
        name,
        base,
        new,
        change: new.cast_signed().wrapping_sub(base.cast_signed()),
    }
}
