//! What exists several times over. Only a walk can tell.

use serde::Serialize;

use super::sites::SiteTable;
use crate::profile::{Holder, Profile, Site, Walk};

#[derive(Clone, Debug, Serialize)]
pub struct CopiesRow {
    /// The calling frame under which the whole structure is made.
    pub site: Option<Site>,
    /// `task`, `thread`, `thread-local` or `instance`.
    pub owner: &'static str,
    pub owner_name: Option<String>,
    pub copies: u64,
    pub bytes_each: u64,
    pub blocks_each: u64,
    pub bytes: u64,
    pub identical: Option<bool>,
    /// Share of the bytes that are equal; null if not compared.
    pub equal_share: Option<f64>,
    /// What sharing one would save.
    pub waste_bytes: u64,
    /// Zero or never touched.
    pub blank_bytes: u64,
}

/// Most bytes first.
pub fn rows(profile: &Profile, walk: Option<&Walk>, sites: &SiteTable) -> Vec<CopiesRow> {
    let mut rows: Vec<CopiesRow> = walk
        .iter()
        .flat_map(|walk| &walk.copies)
        .map(|group| {
            let owner = group
                .owner
                .map(|id| profile.owners[id.index()].name.as_str());
            let name = match group.holder_name.as_str() {
                "" => owner.unwrap_or(""),
                name => name,
            };
            CopiesRow {
                site: group
                    .node
                    .map(|node| sites.get(sites.of_node(node)).clone()),
                owner: match group.holder {
                    Holder::Task => "task",
                    Holder::Thread => "thread",
                    Holder::ThreadLocal => "thread-local",
                    Holder::Instance => "instance",
                },
                owner_name: (!name.is_empty()).then(|| name.to_owned()),
                copies: group.copies,
                bytes_each: group.bytes_each,
                blocks_each: group.blocks_each,
                bytes: group.bytes,
                identical: group.identical,
                equal_share: group.identical.map(|_| group.equal_share),
                waste_bytes: group.waste_bytes,
                blank_bytes: group.blank_bytes,
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        let size = |row: &CopiesRow| (row.bytes, row.copies);
        size(b).cmp(&size(a)).then_with(|| a.site.cmp(&b.site))
    });
    rows
}
