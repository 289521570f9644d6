//! Which lines of the program's own code allocate, and how much.
//!
//! Asking every context for its site walks each stack from its leaf: for a tree of stacks that
//! is the same walk many times. A node's site follows from its parent's and its own frames, so
//! one pass over the tree, parents first, answers for all of them.

use std::collections::HashMap;

use serde::Serialize;

use super::written;
use crate::profile::{ContextId, FrameId, NodeId, Profile, Site, SiteSearch, StringId};

/// Into [`SiteTable`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SiteId(u32);

impl SiteId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The site of every node; equal sites have equal numbers.
pub struct SiteTable {
    of_node: Vec<SiteId>,
    sites: Vec<Site>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SiteRow {
    pub site: Site,
    pub allocated_bytes: u64,
    pub allocations: u64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    pub peak_live_bytes: u64,
    /// Standard error of `peak_live_bytes`, in a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_error_bytes: Option<u64>,
    pub peak_live_blocks: u64,
    pub temporary_blocks: u64,
}

impl SiteTable {
    pub fn new(profile: &Profile) -> SiteTable {
        let mut known: Vec<SiteSearch> = Vec::with_capacity(profile.nodes.parent.len());
        let mut table = SiteTable {
            of_node: Vec::with_capacity(profile.nodes.parent.len()),
            sites: Vec::new(),
        };
        let mut by_key = HashMap::new();
        let mut by_text = HashMap::new();
        for (at, parent) in profile.nodes.parent.iter().enumerate() {
            let above = known.get(parent.index()).copied().unwrap_or_default();
            let this = if at == 0 {
                above
            } else {
                look(profile, NodeId(at as u32), above)
            };
            let key = (this.frame(), this.library);
            let id = *by_key
                .entry(key)
                .or_insert_with(|| table.add(profile, key, &mut by_text));
            table.of_node.push(id);
            known.push(this);
        }
        table
    }

    pub fn of_node(&self, node: NodeId) -> SiteId {
        self.of_node[node.index()]
    }

    pub fn of_context(&self, profile: &Profile, context: ContextId) -> SiteId {
        self.of_node(profile.contexts.node[context.index()])
    }

    pub fn get(&self, id: SiteId) -> &Site {
        &self.sites[id.index()]
    }

    pub fn len(&self) -> usize {
        self.sites.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    fn add<'p>(
        &mut self,
        profile: &'p Profile,
        (frame, library): (Option<FrameId>, Option<StringId>),
        by_text: &mut HashMap<(&'p str, &'p str, u32, &'p str), SiteId>,
    ) -> SiteId {
        let (function, file, line) = match frame {
            Some(frame) => (
                profile.function(frame),
                profile.text(profile.frames.file[frame.index()]),
                profile.frames.line[frame.index()],
            ),
            None => ("[unknown]", "", 0),
        };
        let library = library.map_or("", |id| profile.text(id));
        *by_text
            .entry((function, file, line, library))
            .or_insert_with(|| {
                self.sites.push(Site {
                    function: function.to_owned(),
                    file: (!file.is_empty()).then(|| file.to_owned()),
                    line: (line != 0).then_some(line),
                    library: (!library.is_empty()).then(|| library.to_owned()),
                });
                SiteId(self.sites.len() as u32 - 1)
            })
    }
}

/// What the parent knows, then the node's own frames inwards.
fn look(profile: &Profile, node: NodeId, above: SiteSearch) -> SiteSearch {
    let first = profile.nodes.first_frame[node.index()];
    let count = profile.nodes.frame_count[node.index()];
    (first..first + count)
        .map(FrameId)
        .fold(above, |search, frame| search.step(profile, frame))
}

/// One row per site, most bytes at the peak first. Closures of one function on one line look the
/// same to a person, and so they are one row; which of them names it is which comes first.
pub fn rows(profile: &Profile, table: &SiteTable) -> Vec<SiteRow> {
    let looks_like = looks_like(table);
    let mut rows: Vec<Option<SiteRow>> = vec![None; table.len()];
    let contexts = &profile.contexts;
    for context in profile.context_ids() {
        let id = looks_like[table.of_context(profile, context).index()];
        let at = context.index();
        let row = rows[id.index()].get_or_insert_with(|| SiteRow::empty(table.get(id)));
        row.allocated_bytes += contexts.allocated_bytes[at];
        row.allocations += contexts.allocations[at];
        row.live_bytes += contexts.live_bytes[at];
        row.live_blocks += contexts.live_blocks[at];
        row.peak_live_bytes += contexts.peak_bytes[at];
        row.peak_live_blocks += contexts.peak_blocks[at];
        row.temporary_blocks += contexts.temporary[at];
    }
    let mut rows: Vec<SiteRow> = rows.into_iter().flatten().collect();
    rows.sort_by(|a, b| {
        let size = |row: &SiteRow| (row.peak_live_bytes, row.live_bytes, row.allocated_bytes);
        size(b).cmp(&size(a)).then_with(|| a.site.cmp(&b.site))
    });
    rows
}

/// For each site the first one that is shown as it is.
fn looks_like(table: &SiteTable) -> Vec<SiteId> {
    let mut first = HashMap::new();
    (table.sites.iter().enumerate())
        .map(|(at, site)| {
            let shown = (
                written(&site.function),
                &site.file,
                site.line,
                &site.library,
            );
            *first.entry(shown).or_insert(SiteId(at as u32))
        })
        .collect()
}

impl SiteRow {
    fn empty(site: &Site) -> SiteRow {
        SiteRow {
            site: site.clone(),
            allocated_bytes: 0,
            allocations: 0,
            live_bytes: 0,
            live_blocks: 0,
            peak_live_bytes: 0,
            peak_error_bytes: None,
            peak_live_blocks: 0,
            temporary_blocks: 0,
        }
    }
}
