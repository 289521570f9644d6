//! What a measurement has found.

use std::fmt;
use std::sync::Arc;

use super::ledger::{Counts, Group, SiteCounts, Snapshot, WHOLE};
use super::verdict::{Metric, bytes};
use super::{resolve, verdict};

/// What [`measure`](crate::measure) counted. Sizes are requested bytes.
#[derive(Clone)]
#[non_exhaustive]
pub struct Measured<T> {
    /// What the measured code returned.
    pub value: T,
    /// Bytes that were live when they were most. What was live before counts as nothing.
    pub peak: u64,
    /// Bytes not freed when the measured code ended; what it returned among them.
    pub live: u64,
    /// Blocks not freed when the measured code ended.
    pub live_blocks: u64,
    /// Bytes of all blocks ever. A realloc counts as a free and an allocation of the new size.
    pub allocated: u64,
    /// All blocks ever.
    pub allocations: u64,
    /// Blocks that were freed before the same thread's next allocation.
    pub temporary: u64,
    /// Tasks that were spawned and whose allocations are not in these figures. Always 0 with
    /// feature `tokio`; without it wrap them by [`heap_scope`](crate::HeapScope::heap_scope).
    /// [`assert_budget!`](crate::assert_budget) fails if there are any.
    pub not_followed: u64,
    scopes: Vec<ScopeFigures>,
    sites: Arc<[SiteCounts]>,
}

/// What one scope of a measurement did: all its instances, that is each guard of
/// [`scope`](crate::scope) and each future of [`heap_scope`](crate::HeapScope::heap_scope).
/// What happened in scopes inside of it counts, too.
#[derive(Clone)]
#[non_exhaustive]
pub struct ScopeFigures {
    pub name: Arc<str>,
    /// How often it was made.
    pub instances: u64,
    /// Bytes of one instance when it had most: on average over the instances, rounded.
    pub mean: u64,
    /// Bytes of one instance when it had most: the largest.
    pub max: u64,
    /// Bytes that one instance allocated: the largest.
    pub max_allocated: u64,
    /// Blocks that one instance allocated: the largest.
    pub max_allocations: u64,
    /// Bytes of all instances together, when they were most.
    pub peak: u64,
    /// Bytes not freed when the measurement ended.
    pub live: u64,
    pub live_blocks: u64,
    /// Bytes of all blocks ever.
    pub allocated: u64,
    pub allocations: u64,
    /// Blocks that were freed before the same thread's next allocation.
    pub temporary: u64,
    group: u32,
    sites: Arc<[SiteCounts]>,
}

/// A line of the measured code, and what it allocated. Sizes are requested bytes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Site {
    /// Innermost function that is not of the standard library or a registry's crate.
    pub function: String,
    /// File and line of the call; none without debug info.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// Those that called it, innermost first, as `function file:line`.
    pub callers: Vec<String>,
    /// Bytes and blocks that were live when the measurement's live bytes were most.
    pub at_peak: u64,
    pub at_peak_blocks: u64,
    pub live: u64,
    pub live_blocks: u64,
    pub allocated: u64,
    pub allocations: u64,
    pub temporary: u64,
}

impl<T> Measured<T> {
    pub(super) fn new(value: T, snapshot: Snapshot) -> Measured<T> {
        let sites: Arc<[SiteCounts]> = snapshot.sites.into();
        let scopes = (0..).zip(&snapshot.groups).skip(1);
        let scopes = scopes
            .map(|(at, group)| ScopeFigures::new(at, group, &sites))
            .collect();
        let whole = snapshot.groups[WHOLE as usize].counts;
        Measured {
            value,
            peak: whole.peak,
            live: whole.live,
            live_blocks: whole.live_blocks,
            allocated: whole.allocated,
            allocations: whole.allocations,
            temporary: whole.temporary,
            not_followed: snapshot.not_followed,
            scopes,
            sites,
        }
    }

    /// Every scope that was made in the measured code, in the order of their first instances.
    pub fn scopes(&self) -> &[ScopeFigures] {
        &self.scopes
    }

    /// The scope of this name.
    ///
    /// # Panics
    ///
    /// If there was none: a budget on it would hold nothing.
    #[track_caller]
    pub fn scope(&self, name: &str) -> &ScopeFigures {
        let found = self.scopes.iter().find(|scope| &*scope.name == name);
        found.unwrap_or_else(|| {
            let names: Vec<&str> = self.scopes.iter().map(|scope| &*scope.name).collect();
            let had = match names.is_empty() {
                true => "no scopes at all".to_owned(),
                false => format!("the scopes {}", names.join(", ")),
            };
            panic!("no scope {name:?} was made in the measured code, which had {had}")
        })
    }

    /// The lines that allocated, those that held most at the peak first. Reads the program's
    /// debug info, which takes a moment.
    pub fn sites(&self) -> Vec<Site> {
        resolve::sites(&self.sites, None, Metric::AtPeak)
    }
}

impl ScopeFigures {
    fn new(at: u32, group: &Group, sites: &Arc<[SiteCounts]>) -> ScopeFigures {
        let Counts {
            allocations,
            allocated,
            live,
            live_blocks,
            peak,
            temporary,
        } = group.counts;
        ScopeFigures {
            name: Arc::clone(&group.name),
            instances: group.instances,
            mean: (group.sum_of_peaks + group.instances / 2) / group.instances.max(1),
            max: group.max_peak,
            max_allocated: group.max_allocated,
            max_allocations: group.max_allocations,
            peak,
            live,
            live_blocks,
            allocated,
            allocations,
            temporary,
            group: at,
            sites: Arc::clone(sites),
        }
    }
}

/// What a budget is held against.
pub trait Spent {
    /// The sites that spent it, most of the metric first.
    fn spenders(&self, metric: Metric) -> Vec<Site>;
    fn title(&self) -> String;
    /// Scopes to list beside the sites.
    fn parts(&self) -> &[ScopeFigures];
    /// Tasks that the figures leave out.
    fn not_followed(&self) -> u64;
}

impl<T> Spent for Measured<T> {
    fn spenders(&self, metric: Metric) -> Vec<Site> {
        resolve::sites(&self.sites, None, metric)
    }

    fn title(&self) -> String {
        "the measured code".to_owned()
    }

    fn parts(&self) -> &[ScopeFigures] {
        &self.scopes
    }

    fn not_followed(&self) -> u64 {
        self.not_followed
    }
}

impl Spent for ScopeFigures {
    fn spenders(&self, metric: Metric) -> Vec<Site> {
        resolve::sites(&self.sites, Some(self.group), metric)
    }

    fn title(&self) -> String {
        format!("scope {:?}", self.name)
    }

    fn parts(&self) -> &[ScopeFigures] {
        std::slice::from_ref(self)
    }

    /// The scope has figures: what it wraps is followed.
    fn not_followed(&self) -> u64 {
        0
    }
}

impl<S: Spent + ?Sized> Spent for &S {
    fn spenders(&self, metric: Metric) -> Vec<Site> {
        (**self).spenders(metric)
    }

    fn title(&self) -> String {
        (**self).title()
    }

    fn parts(&self) -> &[ScopeFigures] {
        (**self).parts()
    }

    fn not_followed(&self) -> u64 {
        (**self).not_followed()
    }
}

impl<T> fmt::Display for Measured<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "peak {}, live {} in {} blocks, allocated {} in {} blocks, {} of them temporary",
            bytes(self.peak),
            bytes(self.live),
            self.live_blocks,
            bytes(self.allocated),
            self.allocations,
            self.temporary,
        )?;
        verdict::write_scopes(f, &self.scopes)
    }
}

impl<T> fmt::Debug for Measured<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Measured({self})")
    }
}

impl fmt::Debug for ScopeFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        verdict::write_scopes(f, std::slice::from_ref(self))
    }
}
