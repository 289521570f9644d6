//! What each owner made: sums of the contexts, so that owners add up to the totals.
//!
//! The rows of single owners know the same figures, but they also count what an initialiser of a
//! `OnceLock` made: that belongs to all and must not be charged to whoever came first. Contexts
//! know which is which, so every byte is counted in exactly one place here.

use serde::Serialize;

use crate::profile::{OwnerId, OwnerKind, Profile, Walk};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerSum {
    pub allocated_bytes: u64,
    pub allocations: u64,
    /// At the moment shown.
    pub live_bytes: u64,
    pub live_blocks: u64,
    pub peak_bytes: u64,
}

pub struct OwnerSums {
    /// By owner; contexts of an owner that the profile doesn't list can't exist.
    of_owner: Vec<OwnerSum>,
    shared: OwnerSum,
}

/// Bytes that belong to no task and no thread.
#[derive(Clone, Debug, Serialize)]
pub struct OtherRow {
    /// `[shared]`, `[unknown]`, or the name of a scope.
    pub name: String,
    /// `shared`, `unknown` or `scope`.
    pub kind: &'static str,
    pub allocated_bytes: u64,
    pub allocations: u64,
    pub live_bytes: u64,
    pub peak_live_bytes: u64,
    /// Standard error of `peak_live_bytes`, in a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_error_bytes: Option<u64>,
}

impl OwnerSums {
    pub fn of(&self, owner: OwnerId) -> OwnerSum {
        self.of_owner[owner.index()]
    }
}

impl OwnerSum {
    pub fn add(&mut self, other: OwnerSum) {
        self.allocated_bytes += other.allocated_bytes;
        self.allocations += other.allocations;
        self.live_bytes += other.live_bytes;
        self.live_blocks += other.live_blocks;
        self.peak_bytes += other.peak_bytes;
    }
}

/// Live bytes as of the walk, else as of the end.
pub fn sums(profile: &Profile, walk: Option<&Walk>) -> OwnerSums {
    let mut sums = OwnerSums {
        of_owner: vec![OwnerSum::default(); profile.owners.len()],
        shared: OwnerSum::default(),
    };
    let contexts = &profile.contexts;
    for context in profile.context_ids() {
        let at = context.index();
        let live = walk.is_none();
        let sum = OwnerSum {
            allocated_bytes: contexts.allocated_bytes[at],
            allocations: contexts.allocations[at],
            live_bytes: if live { contexts.live_bytes[at] } else { 0 },
            live_blocks: if live { contexts.live_blocks[at] } else { 0 },
            peak_bytes: contexts.peak_bytes[at],
        };
        sums.entry(profile, context).add(sum);
    }
    for (context, bytes, blocks) in walk.iter().flat_map(|walk| &walk.contexts) {
        let entry = sums.entry(profile, *context);
        entry.live_bytes += bytes;
        entry.live_blocks += blocks;
    }
    sums
}

impl OwnerSums {
    fn entry(&mut self, profile: &Profile, context: crate::profile::ContextId) -> &mut OwnerSum {
        if profile.is_shared(context) {
            return &mut self.shared;
        }
        &mut self.of_owner[profile.contexts.owner[context.index()].index()]
    }
}

/// What neither the tasks nor the threads have; rows without any allocation are left out.
pub fn others(profile: &Profile, sums: &OwnerSums) -> Vec<OtherRow> {
    let mut unknown = OwnerSum::default();
    let mut rows = Vec::new();
    for (owner, sum) in profile.owners.iter().zip(&sums.of_owner) {
        match owner.kind {
            OwnerKind::Unknown => unknown.add(*sum),
            OwnerKind::Scope => rows.push(row(&owner.name, "scope", *sum)),
            OwnerKind::Task | OwnerKind::Thread => {}
        }
    }
    rows.push(row("[shared]", "shared", sums.shared));
    rows.push(row("[unknown]", "unknown", unknown));
    rows.retain(|row| row.allocations > 0 || row.live_bytes > 0);
    rows.sort_by(|a, b| {
        let size = |row: &OtherRow| (row.peak_live_bytes, row.live_bytes);
        size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
    });
    rows
}

fn row(name: &str, kind: &'static str, sum: OwnerSum) -> OtherRow {
    OtherRow {
        name: name.to_owned(),
        kind,
        allocated_bytes: sum.allocated_bytes,
        allocations: sum.allocations,
        live_bytes: sum.live_bytes,
        peak_live_bytes: sum.peak_bytes,
        peak_error_bytes: None,
    }
}
