//! Which threads exist, by folded name, and what they made.
//!
//! A runtime worker spends its life inside a blocking task of tokio's own: what is allocated
//! there between two tasks belongs to the worker, so those loops are merged into the entry of
//! the threads that run them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::owners::{OwnerSum, OwnerSums};
use crate::profile::{Owner, OwnerId, OwnerKind, Profile, Walk};

#[derive(Clone, Debug, Serialize)]
pub struct ThreadRow {
    /// Numbers folded.
    pub name: String,
    /// Threads of this name in the whole run.
    pub count: u64,
    pub alive: u64,
    pub allocated_bytes: u64,
    pub allocations: u64,
    pub live_bytes: u64,
    pub peak_live_bytes: u64,
    /// Standard error of `peak_live_bytes`, in a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_error_bytes: Option<u64>,
    /// Of the live bytes, what threads made that are gone.
    pub owner_gone_bytes: u64,
    pub stack: ThreadStackSize,
}

/// Null where nobody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThreadStackSize {
    pub reserved_each: Option<u64>,
    pub resident_each: Option<u64>,
}

#[derive(Default)]
struct Group {
    count: u64,
    alive: u64,
    outlived: u64,
    sum: OwnerSum,
    stack: ThreadStackSize,
}

/// One row per folded name, most bytes at the peak first.
pub fn rows(profile: &Profile, walk: Option<&Walk>, sums: &OwnerSums) -> Vec<ThreadRow> {
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for (at, owner) in profile.owners.iter().enumerate() {
        let is_thread = owner.kind == OwnerKind::Thread;
        if !is_thread && !owner.runtime_own {
            continue;
        }
        let group = groups.entry(thread_of(profile, owner)).or_default();
        group.sum.add(sums.of(OwnerId(at as u32)));
        if is_thread {
            group.count += owner.spawned;
        }
        if walk.is_none() {
            group.outlived += owner.outlived_bytes;
            group.alive += if is_thread { owner.alive } else { 0 };
        }
    }
    if let Some(walk) = walk {
        add_walk(profile, walk, &mut groups);
    }
    let mut rows: Vec<ThreadRow> = groups.into_iter().map(|(n, g)| g.row(n)).collect();
    rows.sort_by(|a, b| {
        let size = |row: &ThreadRow| (row.peak_live_bytes.max(row.live_bytes), row.count);
        size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
    });
    rows
}

/// The name of the thread to which an owner belongs. A loop carries that name, unless nothing
/// was left of it in the end; then it goes where the other loops are, or to the threads that
/// tokio names itself.
fn thread_of<'p>(profile: &'p Profile, owner: &'p Owner) -> &'p str {
    let is_thread = |name: &str| {
        let mut threads = profile
            .owners
            .iter()
            .filter(|o| o.kind == OwnerKind::Thread);
        threads.any(|thread| thread.name == name)
    };
    if owner.kind == OwnerKind::Thread || is_thread(&owner.name) {
        return &owner.name;
    }
    let mut loops = profile.owners.iter().filter(|o| o.runtime_own);
    let beside = loops.find(|other| is_thread(&other.name));
    let mut tokios = profile
        .owners
        .iter()
        .filter(|o| o.kind == OwnerKind::Thread);
    let home = beside.or_else(|| tokios.find(|thread| thread.name.starts_with("tokio-r")));
    home.map_or(&owner.name, |home| &home.name)
}

fn add_walk<'p>(profile: &'p Profile, walk: &'p Walk, groups: &mut BTreeMap<&'p str, Group>) {
    for thread in &walk.threads {
        let group = groups.entry(&thread.name).or_default();
        group.alive += thread.count;
        group.count = group.count.max(group.alive);
        let reserved = group.stack.reserved_each.unwrap_or(0);
        group.stack.reserved_each = Some(reserved.max(thread.stack_reserved_each));
        let resident = thread.stack_resident / thread.count.max(1);
        group.stack.resident_each = Some(resident.max(group.stack.resident_each.unwrap_or(0)));
    }
    for gone in &walk.owner_gone {
        let Some(owner) = gone.owner.map(|id| &profile.owners[id.index()]) else {
            continue;
        };
        if let Some(group) = groups
            .get_mut(owner.name.as_str())
            .filter(|_| !owner.is_task())
        {
            group.outlived += gone.bytes;
        }
    }
}

impl Group {
    fn row(self, name: &str) -> ThreadRow {
        ThreadRow {
            name: if name.is_empty() { "[unnamed]" } else { name }.to_owned(),
            count: self.count,
            alive: self.alive,
            allocated_bytes: self.sum.allocated_bytes,
            allocations: self.sum.allocations,
            live_bytes: self.sum.live_bytes,
            peak_live_bytes: self.sum.peak_bytes,
            peak_error_bytes: None,
            owner_gone_bytes: self.outlived,
            stack: self.stack,
        }
    }
}
