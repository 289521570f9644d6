//! What threads left behind that are gone: one piece for each of them, kept by a pool that
//! nobody shrinks.
//!
//! Most of what outlives its maker is simply data: a thread that fills a table and ends is no
//! fault. What tells a pool's leftovers apart is that every one of many threads left the same
//! kinds of blocks. Tasks are not judged: a request that puts an entry into a cache and ends is
//! how caches are filled.

use std::collections::BTreeMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, places, size};
use crate::analyze::figures::count;
use crate::analyze::{Finding, Kind};
use crate::profile::{OwnerKind, WalkOwnerGone};

const LEAST_OWNERS: u64 = 8;
/// Less than this for each is bookkeeping.
const LEAST_EACH: u64 = 16 << 10;

pub struct OwnerGone;

#[derive(Default)]
pub struct Left {
    threads: String,
    owners: u64,
    bytes: u64,
    kept_by: BTreeMap<String, u64>,
    claims: Claims,
}

impl Rule for OwnerGone {
    type Suspect = Left;

    fn looks_for(&self, facts: &Facts) -> String {
        format!(
            "memory that {LEAST_OWNERS} or more threads left behind alike, {} or more each and {} \
             in all",
            size(LEAST_EACH),
            size(facts.least())
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<Left> {
        let mut kinds: BTreeMap<&str, Vec<&WalkOwnerGone>> = BTreeMap::new();
        for row in &facts.walk.owner_gone {
            let Some(owner) = row.owner.map(|id| facts.owner(id)) else {
                continue;
            };
            if owner.kind == OwnerKind::Thread {
                kinds.entry(&owner.name).or_default().push(row);
            }
        }
        let found = kinds.into_iter().map(|(name, rows)| left(name, &rows));
        found
            .filter(|left| {
                left.owners >= LEAST_OWNERS
                    && left.bytes >= facts.least()
                    && left.bytes / left.owners >= LEAST_EACH
            })
            .collect()
    }

    fn claims(&self, left: &Left) -> Claims {
        left.claims.clone()
    }

    fn describe(&self, facts: &Facts, left: &Left) -> Finding {
        let site = places::of_most(facts, &left.claims);
        let keeper = left.kept_by.iter().max_by_key(|(_, bytes)| **bytes);
        let kept_by = match keeper {
            Some((name, bytes)) if !name.is_empty() && *bytes * 2 > left.bytes => {
                format!(", kept by {name}")
            }
            _ => String::new(),
        };
        Finding {
            kind: Kind::OwnerGone,
            title: format!(
                "{} that are gone left {} ({} each){kept_by}{}",
                threads(left),
                size(left.bytes),
                size(left.bytes / left.owners.max(1)),
                places::made_in(site.as_ref()),
            ),
            bytes: left.bytes,
            site,
            owner_name: Some(left.threads.clone()),
            count: left.owners,
            advice: "what keeps it grows with the most threads that ever met there: meet there \
                     with fewer (a pool of workers), clear or rebuild it after a burst, or give \
                     each worker its own that ends with it"
                .to_owned(),
        }
    }
}

fn threads(left: &Left) -> String {
    format!("{} threads ({})", count(left.owners), left.threads)
}

/// What nearly all of them left.
fn left(name: &str, rows: &[&WalkOwnerGone]) -> Left {
    let owners = rows.iter().map(|row| row.owners).max().unwrap_or(0);
    let mut left = Left {
        threads: name.to_owned(),
        owners,
        ..Left::default()
    };
    let common = |row: &&&WalkOwnerGone| row.owners * 4 >= owners * 3;
    for row in rows.iter().filter(common) {
        let Some(context) = row.context else { continue };
        left.bytes += row.bytes;
        *left.kept_by.entry(row.kept_by.clone()).or_default() += row.bytes;
        *left.claims.0.entry(context).or_default() += row.bytes;
    }
    left
}
