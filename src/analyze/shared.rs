//! What statics keep, and who touched them first.
//!
//! A walk knows statics by name and what only they reach. Without one, the stacks under an
//! initialiser still tell who made what: where a frame below the initialiser is the code of a
//! static's own initial value (`crate::DICTIONARY::{{closure}}`), its name is a fact, and the
//! bytes are those that were made there. `basis` says which of the two a row is. Nothing else
//! is named here: a static whose initialiser has no name of its own would be a guess.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sites::SiteTable;
use super::statics;
use crate::profile::{NodeId, OwnerId, Profile, Site, Walk};
use crate::wire::NodeFlags;

#[derive(Clone, Debug, Serialize)]
pub struct SharedRow {
    /// Of the static.
    pub name: String,
    /// Where its value is made.
    pub site: Option<Site>,
    pub bytes: u64,
    pub blocks: u64,
    pub first_touched_by: Option<String>,
    /// `reachable`: only from it, by a walk. `made`: by its initialiser, and live.
    pub basis: &'static str,
}

/// Most bytes first.
pub fn rows(profile: &Profile, walk: Option<&Walk>, sites: &SiteTable) -> Vec<SharedRow> {
    let mut rows = match walk {
        Some(walk) => reachable(profile, walk, sites),
        None => made(profile, sites),
    };
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    rows
}

fn owner_name(profile: &Profile, owner: OwnerId) -> Option<String> {
    let name = &profile.owners[owner.index()].name;
    (!name.is_empty()).then(|| name.clone())
}

fn reachable(profile: &Profile, walk: &Walk, sites: &SiteTable) -> Vec<SharedRow> {
    let row = |item: &crate::profile::WalkStatic| SharedRow {
        name: item.name.clone(),
        site: item.node.map(|node| sites.get(sites.of_node(node)).clone()),
        bytes: item.bytes,
        blocks: item.blocks,
        first_touched_by: item.first_touched_by.and_then(|id| owner_name(profile, id)),
        basis: "reachable",
    };
    walk.statics.iter().map(row).collect()
}

fn made(profile: &Profile, sites: &SiteTable) -> Vec<SharedRow> {
    let mut rows: BTreeMap<String, (SharedRow, u64)> = BTreeMap::new();
    for context in profile.context_ids().filter(|id| profile.is_shared(*id)) {
        let at = context.index();
        let node = profile.contexts.node[at];
        let Some(name) = initialised_static(profile, node) else {
            continue;
        };
        let bytes = profile.contexts.live_bytes[at];
        let (row, largest) = rows.entry(name).or_insert_with_key(|name| {
            let row = SharedRow {
                name: name.clone(),
                site: None,
                bytes: 0,
                blocks: 0,
                first_touched_by: owner_name(profile, profile.contexts.owner[at]),
                basis: "made",
            };
            (row, 0)
        });
        row.bytes += bytes;
        row.blocks += profile.contexts.live_blocks[at];
        if row.site.is_none() || bytes > *largest {
            row.site = Some(sites.get(sites.of_node(node)).clone());
            *largest = bytes;
        }
    }
    rows.into_values().map(|(row, _)| row).collect()
}

/// The static whose initial value this stack computes: the outermost function below the
/// initialiser that is written inside a static.
fn initialised_static(profile: &Profile, node: NodeId) -> Option<String> {
    let flags = |node: NodeId| profile.nodes.flags[node.index()];
    let mut name = None;
    for node in profile.nodes_outwards(node) {
        if flags(node) & NodeFlags::SHARED_INIT == 0 {
            break;
        }
        let first = profile.nodes.first_frame[node.index()];
        let count = profile.nodes.frame_count[node.index()];
        for frame in (first..first + count).rev() {
            let function = profile.function(crate::profile::FrameId(frame));
            name = statics::initialised(function).map(str::to_owned).or(name);
        }
    }
    name
}
