//! Which types of task exist, how many of each, and what one of them holds.
//!
//! tokio knows a vtable per future and scheduler, so one `async fn` spawned from two runtimes is
//! two owners; a person sees one task type. Rows are merged by name.

use std::collections::BTreeMap;

use serde::Serialize;

use super::moment;
use super::owners::{OwnerSum, OwnerSums};
use super::sites::SiteTable;
use crate::profile::{Owner, OwnerId, Profile, Site, Spread, Walk, WalkTask, percentile};

#[derive(Clone, Debug, Serialize)]
pub struct TaskRow {
    pub name: String,
    /// The whole type of the root future, if known.
    pub full_name: Option<String>,
    /// Where they are spawned.
    pub site: Option<Site>,
    /// Where the root future is written.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub spawned: u64,
    /// Not finished.
    pub live: u64,
    /// Finished, but their cell is still allocated; null if nobody could look.
    pub finished_allocated: Option<u64>,
    /// Future and header of one task.
    pub cell_bytes: u64,
    pub allocated_bytes: u64,
    pub allocations: u64,
    /// Cells included.
    pub live_bytes: u64,
    pub peak_live_bytes: u64,
    /// Standard error of `peak_live_bytes`, in a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_error_bytes: Option<u64>,
    /// Of live bytes, at the peak.
    pub per_task: PerOwner,
    /// Of the live bytes, what tasks made that are gone.
    pub outlived_bytes: u64,
    /// Seconds since the last event.
    pub idle_s: Idle,
    /// Reachable only from these tasks; null without a walk.
    pub retained_bytes: Option<u64>,
    /// Of all cells, those whose `JoinHandle` is gone; null without a walk.
    pub join_dropped: Option<u64>,
}

/// Null where there is nothing to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PerOwner {
    pub mean: Option<u64>,
    pub p50: Option<u64>,
    pub p99: Option<u64>,
    pub max: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Idle {
    pub p50: Option<f64>,
    pub max: Option<f64>,
}

impl PerOwner {
    pub fn of(spread: &Spread) -> PerOwner {
        if spread.count() == 0 {
            return PerOwner::default();
        }
        PerOwner {
            mean: Some(spread.mean().round() as u64),
            p50: Some(percentile(spread, 0.5)),
            p99: Some(percentile(spread, 0.99)),
            max: Some(spread.max()),
        }
    }
}

/// What the owners of one name have together.
#[derive(Default)]
struct Group<'p> {
    owners: Vec<(OwnerId, &'p Owner)>,
    sum: OwnerSum,
    walked: Vec<&'p WalkTask>,
    gone_bytes: u64,
}

/// One row per name, most bytes at the peak first.
pub fn rows(
    profile: &Profile,
    walk: Option<&Walk>,
    sums: &OwnerSums,
    sites: &SiteTable,
) -> Vec<TaskRow> {
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for (at, owner) in profile.owners.iter().enumerate() {
        if owner.is_task() {
            let id = OwnerId(at as u32);
            let group = groups.entry(&owner.name).or_default();
            group.owners.push((id, owner));
            group.sum.add(sums.of(id));
        }
    }
    if let Some(walk) = walk {
        add_walk(profile, walk, &mut groups);
    }
    let mut rows: Vec<TaskRow> = groups
        .into_iter()
        .map(|(name, group)| group.row(profile, walk, sites, name))
        .collect();
    rows.sort_by(|a, b| {
        let size = |row: &TaskRow| (row.peak_live_bytes.max(row.live_bytes), row.spawned);
        size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
    });
    rows
}

fn add_walk<'p>(profile: &'p Profile, walk: &'p Walk, groups: &mut BTreeMap<&str, Group<'p>>) {
    let name = |id: OwnerId| profile.owners[id.index()].name.as_str();
    for task in &walk.tasks {
        if let Some(group) = task.owner.and_then(|id| groups.get_mut(name(id))) {
            group.walked.push(task);
        }
    }
    for gone in &walk.owner_gone {
        if let Some(group) = gone.owner.and_then(|id| groups.get_mut(name(id))) {
            group.gone_bytes += gone.bytes;
        }
    }
}

impl Group<'_> {
    fn row(
        &self,
        profile: &Profile,
        walk: Option<&Walk>,
        sites: &SiteTable,
        name: &str,
    ) -> TaskRow {
        let (live, finished) = match walk {
            Some(_) => (
                self.walked.iter().map(|t| t.live).sum(),
                Some(self.walked.iter().map(|t| t.finished).sum()),
            ),
            None => self.alive_at_end(),
        };
        let written = self.owners.iter().find(|(_, o)| !o.file.is_empty());
        let full_name = self.owners.iter().find(|(_, o)| !o.full_name.is_empty());
        TaskRow {
            name: name.to_owned(),
            full_name: full_name.map(|(_, o)| o.full_name.clone()),
            site: self.spawn_site(profile, sites),
            file: written.map(|(_, o)| o.file.clone()),
            line: written.and_then(|(_, o)| (o.line != 0).then_some(o.line)),
            spawned: self.owners.iter().map(|(_, o)| o.spawned).sum(),
            live,
            finished_allocated: finished,
            cell_bytes: self.cell_bytes(),
            allocated_bytes: self.sum.allocated_bytes,
            allocations: self.sum.allocations,
            live_bytes: self.sum.live_bytes,
            peak_live_bytes: self.sum.peak_bytes,
            peak_error_bytes: None,
            per_task: PerOwner::of(&self.per_task(profile, walk)),
            outlived_bytes: match walk {
                Some(_) => self.gone_bytes,
                None => self.owners.iter().map(|(_, o)| o.outlived_bytes).sum(),
            },
            idle_s: self.idle(walk),
            retained_bytes: walk.map(|_| self.walked.iter().map(|t| t.retained_bytes).sum()),
            join_dropped: walk.map(|_| self.walked.iter().map(|t| t.join_dropped).sum()),
        }
    }

    fn alive_at_end(&self) -> (u64, Option<u64>) {
        let alive: u64 = self.owners.iter().map(|(_, o)| o.alive).sum();
        let finished = self
            .owners
            .iter()
            .try_fold(0, |sum, (_, o)| Some(sum + o.finished_allocated?));
        (alive.saturating_sub(finished.unwrap_or(0)), finished)
    }

    fn spawn_site(&self, profile: &Profile, sites: &SiteTable) -> Option<Site> {
        let context = self.owners.iter().find_map(|(_, o)| o.spawn_context)?;
        Some(sites.get(sites.of_context(profile, context)).clone())
    }

    fn cell_bytes(&self) -> u64 {
        let seen = self.owners.iter().map(|(_, o)| o.cell_bytes);
        let walked = self.walked.iter().map(|t| t.cell_bytes);
        seen.chain(walked).max().unwrap_or(0)
    }

    /// At the peak: as the walk saw it if that was near the peak, else as the rows remember it.
    /// Rows are used again, so they count only if they still add up to the type's peak.
    fn per_task(&self, profile: &Profile, walk: Option<&Walk>) -> Spread {
        let remembered = merged(self.owners.iter().map(|(_, o)| &o.per_peak));
        let complete = remembered.sum() >= self.sum.peak_bytes / 100 * 98;
        let remembered = if complete {
            remembered
        } else {
            Spread::default()
        };
        let Some(walk) = walk else {
            return remembered;
        };
        if !moment::is_near_peak(profile, walk) && remembered.count() > 0 {
            return remembered;
        }
        // Of tasks that run; where none does, of those that are finished.
        let running = merged(self.walked.iter().map(|t| &t.owned));
        match running.count() {
            0 => merged(self.walked.iter().map(|t| &t.owned_finished)),
            _ => running,
        }
    }

    fn idle(&self, walk: Option<&Walk>) -> Idle {
        let spread = match walk {
            Some(_) => merged(self.walked.iter().map(|t| &t.idle_ms)),
            None => merged(self.owners.iter().map(|(_, o)| &o.idle_ms)),
        };
        if spread.count() == 0 {
            return Idle::default();
        }
        Idle {
            p50: Some(percentile(&spread, 0.5) as f64 / 1000.0),
            max: Some(spread.max() as f64 / 1000.0),
        }
    }
}

/// All values of several spreads.
pub fn merged<'a>(spreads: impl Iterator<Item = &'a Spread>) -> Spread {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (value, count) in spreads.flat_map(|spread| &spread.0) {
        *counts.entry(*value).or_default() += count;
    }
    Spread(counts.into_iter().collect())
}
