//! What one run has to say about growth: bytes of everything that may grow, and how many tasks
//! and threads there were to grow with.
//!
//! Bytes are those at the peak of the whole program, which is exact. How many tasks there
//! were is known where somebody counted: at a walk, if that was near the peak, else as the rows
//! remember it. Counts of another moment are not taken: a slope per task that was not there
//! would be wrong by any factor.

use std::collections::BTreeMap;

use super::place::{self, Place};
use crate::analyze::owners::{self, OwnerSums};
use crate::analyze::sites::{SiteId, SiteTable};
use crate::analyze::tasks::merged;
use crate::analyze::{moment, threads};
use crate::profile::{
    ContextId, HeldBy, NodeId, Owner, OwnerId, OwnerKind, Profile, Site, Timeline, Walk,
};

/// What may grow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Process,
    /// By name.
    TaskType(String),
    ThreadLocal(String),
    /// By folded name.
    Threads(String),
    Site(Site),
}

/// Who keeps, else made, most of something.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    #[default]
    Nobody,
    Task(String),
    Thread(String),
    ThreadLocal(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measure {
    /// At the peak; of a thread-local: at the walk.
    pub bytes: u64,
    pub whose: Whose,
    pub place: Option<Place>,
}

/// Of one run.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Did anybody look into the heap near the peak? Else nothing is known of thread-locals.
    pub walked: bool,
    /// Tasks with a cell, and threads, at the peak; none if nobody counted.
    pub tasks: Option<u64>,
    pub threads: Option<u64>,
    /// By name. A name that is not there has none, if they were counted.
    pub tasks_of: Option<BTreeMap<String, u64>>,
    pub threads_of: Option<BTreeMap<String, u64>>,
    pub measures: BTreeMap<Subject, Measure>,
}

/// Of a profile of one run.
pub fn facts(profile: &Profile) -> Facts {
    let walk = moment::choose(profile).filter(|walk| moment::is_near_peak(profile, walk));
    let sites = SiteTable::new(profile);
    let sums = owners::sums(profile, walk);
    let tasks_of = tasks_of(profile, walk, &sums);
    let threads_of = walk.map(|_| {
        let rows = threads::rows(profile, walk, &sums);
        rows.into_iter().map(|row| (row.name, row.alive)).collect()
    });
    let (tasks, threads) = counted_at_peak(profile);
    let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    let mut facts = Facts {
        walked: walk.is_some(),
        tasks: tasks_of.as_ref().map(sum).or(tasks),
        threads: threads_of.as_ref().map(sum).or(threads),
        tasks_of,
        threads_of,
        measures: BTreeMap::new(),
    };
    let process = Measure {
        bytes: profile.totals.peak_live_bytes,
        ..Measure::default()
    };
    facts.measures.insert(Subject::Process, process);
    for (subject, parts) in parts(profile, &sites) {
        facts.add(profile, &sites, subject, &parts);
    }
    if let Some(walk) = walk {
        add_thread_locals(profile, walk, &sites, &mut facts);
    }
    add_keepers(profile, walk, &sites, &mut facts);
    facts
}

impl Facts {
    fn add(
        &mut self,
        profile: &Profile,
        sites: &SiteTable,
        subject: Subject,
        parts: &[(NodeId, u64)],
    ) {
        let bytes = parts.iter().map(|(_, bytes)| bytes).sum();
        let whose = match &subject {
            Subject::TaskType(name) => Whose::Task(name.clone()),
            Subject::Threads(name) => Whose::Thread(name.clone()),
            Subject::ThreadLocal(name) => Whose::ThreadLocal(name.clone()),
            Subject::Process | Subject::Site(_) => Whose::Nobody,
        };
        let place = place::of(profile, sites, parts);
        let measure = Measure {
            bytes,
            whose,
            place,
        };
        self.measures.insert(subject, measure);
    }
}

/// Bytes at the peak by stack, of each site, task type and kind of thread.
fn parts(profile: &Profile, sites: &SiteTable) -> BTreeMap<Subject, Vec<(NodeId, u64)>> {
    let mut parts: BTreeMap<Subject, Vec<(NodeId, u64)>> = BTreeMap::new();
    let mut by_site: BTreeMap<SiteId, Vec<(NodeId, u64)>> = BTreeMap::new();
    for context in profile.context_ids() {
        let bytes = profile.contexts.peak_bytes[context.index()];
        if bytes == 0 {
            continue;
        }
        let part = (profile.contexts.node[context.index()], bytes);
        by_site.entry(sites.of_node(part.0)).or_default().push(part);
        let subject = match maker(profile, context) {
            Whose::Task(name) => Subject::TaskType(name),
            Whose::Thread(name) => Subject::Threads(name),
            _ => continue,
        };
        parts.entry(subject).or_default().push(part);
    }
    for (site, list) in by_site {
        parts.insert(Subject::Site(sites.get(site).clone()), list);
    }
    parts
}

fn maker(profile: &Profile, context: ContextId) -> Whose {
    if profile.is_shared(context) {
        return Whose::Nobody;
    }
    kind_of(&profile.owners[profile.contexts.owner[context.index()].index()])
}

fn kind_of(owner: &Owner) -> Whose {
    match owner.kind {
        OwnerKind::Task if owner.is_task() => Whose::Task(owner.name.clone()),
        OwnerKind::Task | OwnerKind::Thread => Whose::Thread(owner.name.clone()),
        OwnerKind::Scope | OwnerKind::Unknown => Whose::Nobody,
    }
}

/// Tasks with a cell, by type, at the walk; else as the rows remember the peak. Rows are used
/// again, so they count only if they still add up to what the type had.
fn tasks_of(
    profile: &Profile,
    walk: Option<&Walk>,
    sums: &OwnerSums,
) -> Option<BTreeMap<String, u64>> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    if let Some(walk) = walk {
        for row in &walk.tasks {
            let owner = row.owner.map(|id| &profile.owners[id.index()]);
            if let Some(owner) = owner.filter(|owner| owner.is_task()) {
                *counts.entry(owner.name.clone()).or_default() += row.live + row.finished;
            }
        }
        return Some(counts);
    }
    for (at, owner) in profile.owners.iter().enumerate() {
        if owner.is_task() {
            let remembered = merged(std::iter::once(&owner.per_peak));
            let had = sums.of(OwnerId(at as u32)).peak_bytes;
            if remembered.sum() < had / 100 * 98 {
                return None;
            }
            *counts.entry(owner.name.clone()).or_default() += remembered.count();
        }
    }
    Some(counts)
}

/// Tasks and threads at the sample that was taken nearest to the peak, if one was near.
fn counted_at_peak(profile: &Profile) -> (Option<u64>, Option<u64>) {
    let Timeline {
        at_ms,
        live_bytes,
        tasks_alive,
        threads_alive,
        ..
    } = &profile.timeline;
    let peak_ms = profile.totals.peak_at_s * 1000.0;
    let away = |at: &usize| (f64::from(at_ms[*at]) - peak_ms).abs();
    let full = |at: &usize| live_bytes[*at] >= profile.totals.peak_live_bytes / 10 * 9;
    let nearest = (0..at_ms.len())
        .filter(full)
        .min_by(|a, b| away(a).total_cmp(&away(b)));
    let tasks = nearest.and_then(|at| tasks_alive.get(at).copied());
    let threads = nearest.and_then(|at| threads_alive.get(at).copied());
    (tasks, threads.map(u64::from))
}

fn add_thread_locals(profile: &Profile, walk: &Walk, sites: &SiteTable, facts: &mut Facts) {
    let mut parts: BTreeMap<u32, Vec<(NodeId, u64)>> = BTreeMap::new();
    for row in &walk.held {
        if let HeldBy::ThreadLocal(local) = row.by {
            let node = profile.contexts.node[row.context.index()];
            parts.entry(local).or_default().push((node, row.bytes));
        }
    }
    for (at, local) in walk.thread_locals.iter().enumerate() {
        let held = parts.remove(&(at as u32)).unwrap_or_default();
        let made = local.node.map(|node| vec![(node, local.bytes)]);
        let parts = match held.is_empty() {
            true => made.unwrap_or_default(),
            false => held,
        };
        let subject = Subject::ThreadLocal(local.name.clone());
        facts.add(profile, sites, subject.clone(), &parts);
        if let Some(measure) = facts.measures.get_mut(&subject) {
            measure.bytes = local.bytes;
        }
        let threads = facts.threads_of.get_or_insert_default();
        threads.insert(thread_local_key(&local.name), local.threads);
    }
}

/// Threads on which a thread-local has a value, among the counts of threads by name.
pub fn thread_local_key(name: &str) -> String {
    format!("thread_local!{name}")
}

/// Says of each site who keeps most of it; where that says nothing, who made it.
fn add_keepers(profile: &Profile, walk: Option<&Walk>, sites: &SiteTable, facts: &mut Facts) {
    let mut shares: BTreeMap<SiteId, BTreeMap<Whose, u64>> = BTreeMap::new();
    let mut add = |context: ContextId, whose: Whose, bytes: u64| {
        let site = sites.of_context(profile, context);
        *shares.entry(site).or_default().entry(whose).or_default() += bytes;
    };
    match walk {
        Some(walk) => {
            for row in &walk.held {
                add(
                    row.context,
                    keeper(profile, walk, row.by, row.context),
                    row.bytes,
                );
            }
        }
        None => {
            for context in profile.context_ids() {
                let bytes = profile.contexts.peak_bytes[context.index()];
                add(context, maker(profile, context), bytes);
            }
        }
    }
    for (site, shares) in shares {
        let whole: u64 = shares.values().sum();
        let most = shares.into_iter().max_by_key(|(_, bytes)| *bytes);
        let subject = Subject::Site(sites.get(site).clone());
        if let (Some((whose, bytes)), Some(measure)) = (most, facts.measures.get_mut(&subject))
            && bytes * 2 > whole
        {
            measure.whose = whose;
        }
    }
}

fn keeper(profile: &Profile, walk: &Walk, by: HeldBy, context: ContextId) -> Whose {
    let owner = |id: OwnerId| kind_of(&profile.owners[id.index()]);
    match by {
        HeldBy::Task(id) | HeldBy::FinishedTask(id) => owner(id),
        HeldBy::Thread(id) | HeldBy::Stack(id) => owner(id),
        HeldBy::ThreadLocal(at) => match walk.thread_locals.get(at as usize) {
            Some(local) => Whose::ThreadLocal(local.name.clone()),
            None => Whose::Nobody,
        },
        HeldBy::Static(_) | HeldBy::Data => Whose::Nobody,
        HeldBy::Nobody | HeldBy::Several | HeldBy::Elsewhere => maker(profile, context),
    }
}
