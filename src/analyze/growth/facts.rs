//! What one run has to say about growth: bytes of everything that may grow, and how many tasks
//! and threads there were to grow with.
//!
//! Bytes are those at the peak of the whole program, which is exact, and so is how many tasks and
//! threads held something then, as their rows remember it. Where rows were used again since, a walk
//! near the peak has counted; counts of another moment are not taken: a slope per task
//! that was not there would be wrong by any factor. What a thread-local keeps is known at a walk;
//! what its initialiser made is known at the peak, too, and stands in where no walk was near it.

use std::collections::{BTreeMap, BTreeSet};

use super::counts;
use super::place::{self, Place};
use crate::analyze::sites::{SiteId, SiteTable};
use crate::analyze::{flames, moment, owners};
use crate::profile::{ContextId, HeldBy, NodeId, Owner, OwnerId, OwnerKind, Profile, Site, Walk};

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
    /// Did anybody look into the heap near the peak? Else some thread-locals are not known.
    pub walked: bool,
    /// Tasks with a cell, and threads, at the peak; none if nobody counted.
    pub tasks: Option<u64>,
    pub threads: Option<u64>,
    /// By name, those that are known.
    pub tasks_of: BTreeMap<String, u64>,
    pub threads_of: BTreeMap<String, u64>,
    /// Threads on which a thread-local has a value.
    pub threads_with: BTreeMap<String, u64>,
    pub measures: BTreeMap<Subject, Measure>,
}

/// Of a profile of one run.
pub fn facts(profile: &Profile) -> Facts {
    let walk = moment::choose(profile).filter(|walk| moment::is_near_peak(profile, walk));
    let sites = SiteTable::new(profile);
    let sums = owners::sums(profile, None);
    let counts = counts::of(profile, walk, &sums);
    let mut facts = Facts {
        walked: walk.is_some(),
        tasks: counts.tasks,
        threads: counts.threads,
        tasks_of: counts.tasks_of,
        threads_of: counts.threads_of,
        ..Facts::default()
    };
    let process = Measure {
        bytes: profile.totals.peak_live_bytes,
        ..Measure::default()
    };
    facts.measures.insert(Subject::Process, process);
    for (subject, parts) in parts(profile, &sites) {
        facts.add(profile, &sites, subject, &parts);
    }
    facts.count_initialised(profile);
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

    /// Threads whose values of a thread-local were made by threads of names that are counted. Where
    /// a task came first on a worker nobody knows how many workers those were.
    fn count_initialised(&mut self, profile: &Profile) {
        let mut makers: BTreeMap<String, BTreeSet<Whose>> = BTreeMap::new();
        for context in profile.context_ids() {
            let lives = profile.contexts.peak_bytes[context.index()] > 0;
            if let Some(name) = initialised(profile, context).filter(|_| lives) {
                let makers = makers.entry(name).or_default();
                makers.insert(kind_of(owner_of(profile, context)));
            }
        }
        for (name, makers) in makers {
            let threads = makers.iter().map(|maker| match maker {
                Whose::Thread(thread) => self.threads_of.get(thread).copied(),
                _ => None,
            });
            if let Some(threads) = threads.sum::<Option<u64>>() {
                self.threads_with.insert(name, threads);
            }
        }
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
        for subject in subjects(profile, context) {
            parts.entry(subject).or_default().push(part);
        }
    }
    for (site, list) in by_site {
        parts.insert(Subject::Site(sites.get(site).clone()), list);
    }
    parts
}

/// Besides its site: who made it, and in whose initialiser.
fn subjects(profile: &Profile, context: ContextId) -> Vec<Subject> {
    let mut subjects = Vec::new();
    if !profile.is_shared(context) {
        match kind_of(owner_of(profile, context)) {
            Whose::Task(name) => subjects.push(Subject::TaskType(name)),
            Whose::Thread(name) => subjects.push(Subject::Threads(name)),
            _ => {}
        }
    }
    subjects.extend(initialised(profile, context).map(Subject::ThreadLocal));
    subjects
}

fn owner_of(profile: &Profile, context: ContextId) -> &Owner {
    &profile.owners[profile.contexts.owner[context.index()].index()]
}

/// The thread-local, if it has a name.
fn initialised(profile: &Profile, context: ContextId) -> Option<String> {
    flames::thread_local(profile, context).filter(|name| name != flames::UNNAMED)
}

fn maker(profile: &Profile, context: ContextId) -> Whose {
    if profile.is_shared(context) {
        return Whose::Nobody;
    }
    match initialised(profile, context) {
        Some(name) => Whose::ThreadLocal(name),
        None => kind_of(owner_of(profile, context)),
    }
}

fn kind_of(owner: &Owner) -> Whose {
    match owner.kind {
        OwnerKind::Task if owner.is_task() => Whose::Task(owner.name.clone()),
        OwnerKind::Task | OwnerKind::Thread => Whose::Thread(owner.name.clone()),
        OwnerKind::Scope | OwnerKind::Unknown => Whose::Nobody,
    }
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
        (facts.threads_with).insert(local.name.clone(), local.threads);
    }
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
