//! How many tasks and threads there were at the peak.
//!
//! The rows of single owners remember what each held at the peak, so whoever held something is
//! counted exactly. A row is used again for another owner when its own is gone; then the rows no
//! longer add up to what the type had, and a walk near the peak has to stand in.

use std::collections::BTreeMap;

use crate::analyze::owners::OwnerSums;
use crate::profile::{OwnerId, OwnerKind, Profile, Timeline, Walk};

/// Rows that have so much of what the type had have all of them, in percent.
const COMPLETE: u64 = 98;
/// A sample taken when so much of the peak was live was taken near it, in percent.
const FULL: u64 = 90;

pub struct Counts {
    pub tasks: Option<u64>,
    pub threads: Option<u64>,
    pub tasks_of: BTreeMap<String, u64>,
    pub threads_of: BTreeMap<String, u64>,
}

/// `walk` is one near the peak.
pub fn of(profile: &Profile, walk: Option<&Walk>, sums: &OwnerSums) -> Counts {
    let (tasks_of, threads_of) = walk.map_or_else(Default::default, |w| walked(profile, w));
    let is_task = |at: usize| profile.owners[at].is_task();
    let is_thread = |at: usize| profile.owners[at].kind == OwnerKind::Thread;
    let tasks = remembered(profile, sums, is_task, tasks_of);
    let threads = remembered(profile, sums, is_thread, threads_of);
    let (tasks_sampled, threads_sampled) = sampled(profile);
    let sum = |(counts, all): &(BTreeMap<String, u64>, bool)| all.then(|| counts.values().sum());
    Counts {
        tasks: sum(&tasks).or(tasks_sampled),
        threads: sum(&threads).or(threads_sampled),
        tasks_of: tasks.0,
        threads_of: threads.0,
    }
}

/// What the rows remember, else what was walked; and is that all of them?
fn remembered(
    profile: &Profile,
    sums: &OwnerSums,
    wanted: impl Fn(usize) -> bool,
    walked: BTreeMap<String, u64>,
) -> (BTreeMap<String, u64>, bool) {
    let mut counts: BTreeMap<String, Option<u64>> = BTreeMap::new();
    for (at, owner) in profile.owners.iter().enumerate() {
        let had = sums.of(OwnerId(at as u32)).peak_bytes;
        if !wanted(at) || (had == 0 && owner.per_peak.count() == 0) {
            continue;
        }
        let complete = owner.per_peak.sum() >= had / 100 * COMPLETE;
        let known = complete.then(|| owner.per_peak.count());
        let count = counts.entry(owner.name.clone()).or_insert(Some(0));
        *count = count.zip(known).map(|(sum, more)| sum + more);
    }
    let mut all = true;
    let mut found = BTreeMap::new();
    for (name, count) in counts {
        match count.or(walked.get(&name).copied()) {
            Some(count) => {
                found.insert(name, count);
            }
            None => all = false,
        }
    }
    (found, all)
}

/// Tasks with a cell, and threads, by name.
fn walked(profile: &Profile, walk: &Walk) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let (mut tasks, mut threads) = (BTreeMap::new(), BTreeMap::new());
    for row in &walk.tasks {
        let owner = row.owner.map(|id| &profile.owners[id.index()]);
        if let Some(owner) = owner.filter(|owner| owner.is_task()) {
            *tasks.entry(owner.name.clone()).or_default() += row.live + row.finished;
        }
    }
    for row in &walk.threads {
        *threads.entry(row.name.clone()).or_default() += row.count;
    }
    (tasks, threads)
}

/// Tasks and threads at the sample that was taken nearest to the peak, if one was near.
fn sampled(profile: &Profile) -> (Option<u64>, Option<u64>) {
    let Timeline {
        at_ms,
        live_bytes,
        tasks_alive,
        threads_alive,
        ..
    } = &profile.timeline;
    let peak_ms = profile.totals.peak_at_s * 1000.0;
    let away = |at: &usize| (f64::from(at_ms[*at]) - peak_ms).abs();
    let full = |at: &usize| live_bytes[*at] >= profile.totals.peak_live_bytes / 100 * FULL;
    let nearest = (0..at_ms.len())
        .filter(full)
        .min_by(|a, b| away(a).total_cmp(&away(b)));
    let tasks = nearest.and_then(|at| tasks_alive.get(at).copied());
    let threads = nearest.and_then(|at| threads_alive.get(at).copied());
    (tasks, threads.map(u64::from))
}
