//! What each `thread_local!` keeps, over all threads. Only a walk can tell.

use serde::Serialize;

use super::sites::SiteTable;
use super::tasks::PerOwner;
use crate::profile::{Site, Walk};

#[derive(Clone, Debug, Serialize)]
pub struct ThreadLocalRow {
    pub name: String,
    /// Where its value is made, if known.
    pub site: Option<Site>,
    pub threads: u64,
    /// Reachable only from it.
    pub bytes: u64,
    pub per_thread: PerOwner,
    /// Are the threads' values equal? Null if not compared.
    pub identical: Option<bool>,
    pub equal_share: Option<f64>,
}

/// Most bytes first.
pub fn rows(walk: Option<&Walk>, sites: &SiteTable) -> Vec<ThreadLocalRow> {
    let mut rows: Vec<ThreadLocalRow> = walk
        .iter()
        .flat_map(|walk| &walk.thread_locals)
        .map(|local| ThreadLocalRow {
            name: local.name.clone(),
            site: local
                .node
                .map(|node| sites.get(sites.of_node(node)).clone()),
            threads: local.threads,
            bytes: local.bytes,
            per_thread: PerOwner::of(&local.per_thread),
            identical: local.identical,
            equal_share: local.identical.map(|_| local.equal_share),
        })
        .collect();
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    rows
}
