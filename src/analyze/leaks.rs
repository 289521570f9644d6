//! Blocks that nothing reaches. Only a walk can tell.
//!
//! What is leaked stays leaked, so the last walk knows all of it, whichever walk the other
//! tables describe. A leaked structure is made on several lines of one function (an `Arc`, then
//! the `Vec` in it): rows are merged by function, and show the line that made most of it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sites::SiteTable;
use crate::profile::{ContextId, Profile, Site, WalkLeak};

#[derive(Clone, Debug, Serialize)]
pub struct LeakRow {
    pub site: Site,
    pub blocks: u64,
    pub bytes: u64,
    /// Functions, innermost first.
    pub stack: Vec<String>,
    /// Of all blocks and bytes, those that another leaked block reaches.
    pub indirect_blocks: u64,
    pub indirect_bytes: u64,
    /// It reaches itself: a cycle of `Arc` or `Rc`.
    pub cycle: bool,
}

/// Certain and possible leaks, most bytes first.
pub fn rows(profile: &Profile, sites: &SiteTable) -> (Vec<LeakRow>, Vec<LeakRow>) {
    let leaks = profile.walks.last().map_or(&[][..], |walk| &walk.leaks);
    let part = |possible| {
        merged(
            profile,
            sites,
            leaks.iter().filter(|l| l.possible == possible),
        )
    };
    (part(false), part(true))
}

fn merged<'p>(
    profile: &'p Profile,
    sites: &SiteTable,
    leaks: impl Iterator<Item = &'p WalkLeak>,
) -> Vec<LeakRow> {
    let mut rows: BTreeMap<(String, Option<String>), (LeakRow, u64)> = BTreeMap::new();
    for leak in leaks {
        let site = match leak.context {
            Some(context) => sites.get(sites.of_context(profile, context)).clone(),
            None => unknown(),
        };
        let key = (site.function.clone(), site.file.clone());
        let (row, largest) = rows
            .entry(key)
            .or_insert_with(|| (LeakRow::empty(&site), 0));
        row.blocks += leak.blocks;
        row.bytes += leak.bytes;
        row.indirect_blocks += leak.indirect_blocks;
        row.indirect_bytes += leak.indirect_bytes;
        row.cycle |= leak.cycle;
        if row.stack.is_empty() || leak.bytes > *largest {
            *largest = leak.bytes;
            row.site = site;
            row.stack = leak.context.map_or(Vec::new(), |id| stack(profile, id));
        }
    }
    let mut rows: Vec<LeakRow> = rows.into_values().map(|(row, _)| row).collect();
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.site.cmp(&b.site)));
    rows
}

fn stack(profile: &Profile, context: ContextId) -> Vec<String> {
    profile
        .frames_outwards(profile.contexts.node[context.index()])
        .map(|frame| profile.function(frame).to_owned())
        .collect()
}

fn unknown() -> Site {
    Site {
        function: "[unknown]".to_owned(),
        ..Site::default()
    }
}

impl LeakRow {
    fn empty(site: &Site) -> LeakRow {
        LeakRow {
            site: site.clone(),
            blocks: 0,
            bytes: 0,
            stack: Vec::new(),
            indirect_blocks: 0,
            indirect_bytes: 0,
            cycle: false,
        }
    }
}
