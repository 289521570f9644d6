//! The books of one measurement.
//!
//! Every block that the measured code makes is booked under its site (the stack that asked for
//! it), under the instance of the scope that ran, and under every instance around that one; the
//! first instance is the measurement itself. One lock for all of it: only threads that work for
//! the same measurement ever wait for each other, and the peak is exact, of the whole and of every
//! site at the moment of the whole's peak.
//!
//! What a site held at the peak is not copied at every new peak. A site saves what it holds before
//! its first change after a peak; one that has not changed since holds it still (`epoch`).

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard};

use super::current::Context;

/// Index of the measurement itself among the instances and the groups.
pub const WHOLE: u32 = 0;

#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub allocations: u64,
    /// Bytes.
    pub allocated: u64,
    /// Bytes; never negative, since only blocks that were added are subtracted.
    pub live: u64,
    pub live_blocks: u64,
    /// Bytes.
    pub peak: u64,
    pub temporary: u64,
}

/// A stack within the measured code, for one scope.
#[derive(Clone, Debug)]
pub struct SiteCounts {
    /// Return addresses, innermost first.
    pub stack: Box<[usize]>,
    /// The scopes around it, innermost first; indices of groups.
    pub groups: Box<[u32]>,
    pub counts: Counts,
    /// Live bytes and blocks when the whole held most.
    pub at_peak: (u64, u64),
    epoch: u64,
}

/// One run of a scope, one polled future, one task.
#[derive(Clone, Copy, Debug)]
struct Instance {
    group: u32,
    parent: u32,
    counts: Counts,
}

/// All instances of one name.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: Arc<str>,
    pub counts: Counts,
    pub instances: u64,
    /// Over the instances: sum and largest of their peaks, largest of what they allocated.
    pub sum_of_peaks: u64,
    pub max_peak: u64,
    pub max_allocated: u64,
    pub max_allocations: u64,
}

#[derive(Default)]
struct Books {
    instances: Vec<Instance>,
    groups: Vec<Group>,
    sites: Vec<SiteCounts>,
    site_of: HashMap<u64, u32>,
    epoch: u64,
    /// The event before was a new peak.
    at_peak: bool,
}

/// What is left when a measurement is over. The first group is the whole.
pub struct Snapshot {
    pub groups: Vec<Group>,
    pub sites: Vec<SiteCounts>,
    /// Tasks that were spawned and whose allocations nobody counted.
    pub not_followed: u64,
}

pub struct Ledger {
    books: Mutex<Books>,
    /// The measurement in which this one runs.
    pub outer: Option<Arc<Context>>,
    closed: AtomicBool,
}

impl Counts {
    fn add(&mut self, size: u64) {
        self.allocations += 1;
        self.allocated += size;
        self.live += size;
        self.live_blocks += 1;
        self.peak = self.peak.max(self.live);
    }

    fn subtract(&mut self, size: u64, temporary: bool) {
        self.live -= size;
        self.live_blocks -= 1;
        self.temporary += u64::from(temporary);
    }
}

impl Group {
    fn new(name: Arc<str>) -> Group {
        Group {
            name,
            counts: Counts::default(),
            instances: 0,
            sum_of_peaks: 0,
            max_peak: 0,
            max_allocated: 0,
            max_allocations: 0,
        }
    }
}

impl Ledger {
    pub fn new(outer: Option<Arc<Context>>) -> Arc<Ledger> {
        let mut books = Books::default();
        books.instance("", WHOLE);
        Arc::new(Ledger {
            books: Mutex::new(books),
            outer,
            closed: AtomicBool::new(false),
        })
    }

    /// A poisoned lock means that a thread ran out of memory: its books are as right as before.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// A new run of the scope `name` within another instance.
    pub fn instance(&self, name: &str, parent: u32) -> u32 {
        self.books().instance(name, parent)
    }

    /// Books a new block; returns its site. The key is a hash of the stack.
    pub fn allocated(&self, instance: u32, size: usize, key: u64, stack: &[usize]) -> u32 {
        let size = size as u64;
        let mut books = self.books();
        let site = books.site(instance, key, stack);
        books.before_change(site, size);
        books.each(instance, |counts| counts.add(size));
        books.sites[site as usize].counts.add(size);
        site
    }

    pub fn freed(&self, instance: u32, size: usize, site: u32, temporary: bool) {
        let size = size as u64;
        let mut books = self.books();
        books.before_change(site, 0);
        books.each(instance, |counts| counts.subtract(size, temporary));
        books.sites[site as usize].counts.subtract(size, temporary);
    }

    /// What is booked from here on is lost.
    pub fn close(&self) -> Snapshot {
        self.closed.store(true, Release);
        let mut books = self.books();
        books.raise_epoch();
        let epoch = books.epoch;
        for site in &mut books.sites {
            site.save(epoch);
        }
        for at in 0..books.instances.len() {
            let Instance { group, counts, .. } = books.instances[at];
            let group = &mut books.groups[group as usize];
            group.instances += 1;
            group.sum_of_peaks += counts.peak;
            group.max_peak = group.max_peak.max(counts.peak);
            group.max_allocated = group.max_allocated.max(counts.allocated);
            group.max_allocations = group.max_allocations.max(counts.allocations);
        }
        Snapshot {
            groups: books.groups.clone(),
            sites: books.sites.clone(),
            not_followed: 0,
        }
    }
}

impl SiteCounts {
    fn save(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.at_peak = (self.counts.live, self.counts.live_blocks);
            self.epoch = epoch;
        }
    }
}

impl Books {
    fn instance(&mut self, name: &str, parent: u32) -> u32 {
        let known = self.groups.iter().position(|group| &*group.name == name);
        let group = known.unwrap_or_else(|| {
            self.groups.push(Group::new(name.into()));
            self.groups.len() - 1
        }) as u32;
        self.instances.push(Instance {
            group,
            parent,
            counts: Counts::default(),
        });
        self.instances.len() as u32 - 1
    }

    /// The instance and those around it, up to the whole.
    fn chain(&self, instance: u32) -> impl Iterator<Item = u32> + '_ {
        let around = move |at: &u32| (*at != WHOLE).then(|| self.instances[*at as usize].parent);
        std::iter::successors(Some(instance), around)
    }

    /// Changes an instance and all around it, and their groups, each once.
    fn each(&mut self, instance: u32, mut change: impl FnMut(&mut Counts)) {
        let mut at = instance;
        loop {
            let Instance { group, parent, .. } = self.instances[at as usize];
            change(&mut self.instances[at as usize].counts);
            // A scope within a scope of its own name counts in both, and once for the name.
            let mut inner = instance;
            while inner != at && self.instances[inner as usize].group != group {
                inner = self.instances[inner as usize].parent;
            }
            if inner == at {
                change(&mut self.groups[group as usize].counts);
            }
            if at == WHOLE {
                return;
            }
            at = parent;
        }
    }

    fn site(&mut self, instance: u32, key: u64, stack: &[usize]) -> u32 {
        let group = u64::from(self.instances[instance as usize].group);
        let key = key ^ group.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(site) = self.site_of.get(&key) {
            return *site;
        }
        let mut groups: Vec<u32> = Vec::new();
        for at in self.chain(instance) {
            groups.push(self.instances[at as usize].group);
        }
        self.sites.push(SiteCounts {
            stack: stack.into(),
            groups: groups.into(),
            counts: Counts::default(),
            at_peak: (0, 0),
            epoch: 0,
        });
        let site = self.sites.len() as u32 - 1;
        self.site_of.insert(key, site);
        site
    }

    /// To be called before a site changes; `added` is 0 for a block that goes.
    fn before_change(&mut self, site: u32, added: u64) {
        let whole = &self.instances[WHOLE as usize].counts;
        let is_peak = whole.live + added > whole.peak;
        if !is_peak {
            self.raise_epoch();
        }
        self.at_peak = is_peak;
        let epoch = self.epoch;
        self.sites[site as usize].save(epoch);
    }

    fn raise_epoch(&mut self) {
        if self.at_peak {
            self.epoch += 1;
            self.at_peak = false;
        }
    }
}
