//! Runtime workers: how busy they were, and which tasks held them.
//!
//! A held worker is told by what holds it: stays of one type of task at one place, doing one
//! thing, are one mistake, however many workers it met.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::{count, counted, seconds};
use super::{Finding, Kind};
use crate::profile::{Held, OwnerId, Profile, Site, Worker};

/// A single stay of this length is a fault by itself; shorter ones have to recur.
const LONG_S: f64 = 0.5;
const LEAST_STAYS: usize = 3;

#[derive(Clone, Debug, Serialize)]
pub struct WorkerRow {
    /// Of the thread.
    pub name: String,
    pub tid: i32,
    /// Share of the time a task ran on it, with the number of looks that say so.
    pub busy_share: f64,
    pub looks: u64,
    /// Null if none was longer than a look can miss (20 ms).
    pub longest_stay_s: Option<f64>,
    pub longest_on: Option<String>,
    pub held: Vec<HeldRow>,
}

/// A stay on one task beyond the threshold.
#[derive(Clone, Debug, Serialize)]
pub struct HeldRow {
    pub task: Option<String>,
    pub at_s: f64,
    pub seconds: f64,
    /// `sleeping`, `waiting for a lock`, `waiting to be woken`, `waiting for an initialiser`,
    /// `computing`, `in a system call`.
    pub state: String,
    /// The task may have been left and entered again meanwhile.
    pub uncertain: bool,
    pub site: Site,
    /// Functions, innermost first.
    pub stack: Vec<String>,
}

pub fn rows(profile: &Profile) -> Vec<WorkerRow> {
    let mut rows: Vec<WorkerRow> = profile.workers.iter().map(|w| row(profile, w)).collect();
    rows.sort_by(|a, b| {
        b.longest_stay_s
            .unwrap_or(0.0)
            .total_cmp(&a.longest_stay_s.unwrap_or(0.0))
    });
    rows
}

fn row(profile: &Profile, worker: &Worker) -> WorkerRow {
    let held = worker.held.iter().map(|held| HeldRow {
        task: held.owner.map(|owner| name(profile, owner)),
        at_s: held.at_s,
        seconds: held.seconds,
        state: held.state.clone(),
        uncertain: held.uncertain,
        site: profile.site_of_stack(held.stack.iter().copied()),
        stack: held
            .stack
            .iter()
            .map(|frame| profile.function(*frame).to_owned())
            .collect(),
    });
    WorkerRow {
        name: worker.thread_name.clone(),
        tid: worker.tid,
        busy_share: worker.busy_share,
        looks: worker.looks,
        longest_stay_s: (worker.longest_stay_s > 0.0).then_some(worker.longest_stay_s),
        longest_on: worker.longest_on.map(|owner| name(profile, owner)),
        held: held.collect(),
    }
}

fn name(profile: &Profile, owner: OwnerId) -> String {
    profile.owners[owner.index()].name.clone()
}

/// Stays of one type of task, at one place, doing one thing.
struct Group<'a> {
    task: String,
    state: &'a str,
    site: Site,
    stays: Vec<&'a Held>,
}

impl Group<'_> {
    fn longest(&self) -> f64 {
        self.stays
            .iter()
            .map(|held| held.seconds)
            .fold(0.0, f64::max)
    }

    fn is_worth_telling(&self) -> bool {
        self.longest() >= LONG_S || self.stays.len() >= LEAST_STAYS
    }
}

/// One finding for each mistake, the longest stay first.
pub fn findings(profile: &Profile) -> Vec<Finding> {
    let mut groups: BTreeMap<(String, &str, Site), Vec<&Held>> = BTreeMap::new();
    for held in profile.workers.iter().flat_map(|worker| &worker.held) {
        let Some(owner) = held.owner.filter(|_| !held.uncertain) else {
            continue;
        };
        let site = profile.site_of_stack(held.stack.iter().copied());
        let key = (name(profile, owner), held.state.as_str(), site);
        groups.entry(key).or_default().push(held);
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|((task, state, site), stays)| Group {
            task,
            state,
            site,
            stays,
        })
        .filter(Group::is_worth_telling)
        .collect();
    groups.sort_by(|a, b| b.longest().total_cmp(&a.longest()));
    groups.iter().map(describe).collect()
}

fn describe(group: &Group) -> Finding {
    let times = group.stays.len() as u64;
    let how_often = match times {
        1 => String::new(),
        _ => format!(", {} times", count(times)),
    };
    let mut place = format!("in {}", group.site.function);
    if let (Some(file), Some(line)) = (&group.site.file, group.site.line) {
        place.push_str(&format!(" ({}:{line})", super::findings::short(file)));
    }
    Finding {
        kind: Kind::HeldWorker,
        title: format!(
            "a task of {} held its worker for {}{how_often}: {} {place}",
            group.task,
            seconds(group.longest()),
            group.state,
        ),
        bytes: 0,
        site: Some(group.site.clone()),
        owner_name: Some(group.task.clone()),
        count: times,
        advice: advice(group.state).to_owned(),
    }
}

fn advice(state: &str) -> &'static str {
    match state {
        "sleeping" => "use tokio::time::sleep(..).await: it lets the worker run other tasks",
        "computing" => {
            "move it to spawn_blocking (or rayon), or split it and call \
             tokio::task::yield_now().await between the parts"
        }
        "in a system call" => {
            "use tokio's own I/O, or put the call into spawn_blocking: every other task of this \
             worker waits for it"
        }
        "waiting for a lock" => {
            "hold the lock for less, never across blocking work; or use tokio::sync::Mutex, \
             whose lock().await lets the worker run other tasks"
        }
        _ => {
            "wait with .await (tokio::sync's channels, Notify), or put the wait into \
             spawn_blocking"
        }
    }
}

/// `3 stays, 1.20 s at most`.
pub fn summary(rows: &[WorkerRow]) -> Option<String> {
    let stays: u64 = rows.iter().map(|row| row.held.len() as u64).sum();
    let all = rows.iter().flat_map(|row| &row.held);
    let longest = all.map(|held| held.seconds).fold(0.0, f64::max);
    (stays > 0).then(|| format!("{}, {} at most", counted(stays, "stay"), seconds(longest)))
}
