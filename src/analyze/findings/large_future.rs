//! Futures that are large themselves: what lives across an await is stored in the task's cell,
//! for as long as the task lives, and an argument is stored again in each async fn it is passed
//! through.

use std::collections::BTreeMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, places, size};
use crate::analyze::figures::count;
use crate::analyze::{Finding, Kind};
use crate::profile::{OwnerId, Site};

/// A future of some hundred bytes is normal, of one or two thousand common.
const LEAST_EACH: u64 = 4096;

pub struct LargeFuture;

pub struct Large {
    name: String,
    owners: Vec<OwnerId>,
    tasks: u64,
    /// Cell, and box where tokio made one.
    each: u64,
    boxed: bool,
    bytes: u64,
    claims: Claims,
}

impl Rule for LargeFuture {
    type Suspect = Large;

    fn looks_for(&self, facts: &Facts) -> String {
        format!(
            "futures of {} or more each, {} or more in all",
            size(LEAST_EACH),
            size(facts.least())
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<Large> {
        let mut types: BTreeMap<&str, Large> = BTreeMap::new();
        for task in facts.walk.tasks.iter().filter(|task| task.live > 0) {
            let Some(id) = task.owner else { continue };
            let owner = facts.owner(id);
            let each = task.cell_bytes.saturating_add(owner.box_bytes);
            if !owner.is_task() || each < LEAST_EACH {
                continue;
            }
            let sum = types.entry(&owner.name).or_insert_with(|| Large {
                name: owner.name.clone(),
                owners: Vec::new(),
                tasks: 0,
                each: 0,
                boxed: false,
                bytes: 0,
                claims: Claims::default(),
            });
            sum.owners.push(id);
            sum.tasks += task.live;
            sum.each = sum.each.max(each);
            sum.boxed |= owner.box_bytes > 0;
            sum.bytes += task.live.saturating_mul(each);
        }
        let mut found: Vec<Large> = types.into_values().collect();
        found.retain(|large| large.bytes >= facts.least());
        for large in &mut found {
            large.claims = cells(facts, &large.owners);
        }
        found
    }

    fn claims(&self, large: &Large) -> Claims {
        large.claims.clone()
    }

    fn describe(&self, facts: &Facts, large: &Large) -> Finding {
        let owner = large.owners.first().map(|id| facts.owner(*id));
        let written = owner.filter(|owner| !owner.file.is_empty());
        let site = Site {
            function: large.name.clone(),
            file: written.map(|owner| owner.file.clone()),
            line: written.map(|owner| owner.line).filter(|line| *line > 0),
            library: None,
        };
        let place = match (&site.file, site.line) {
            (Some(file), Some(line)) => {
                format!(" ({}:{line})", places::short(file))
            }
            _ => String::new(),
        };
        let boxed = match large.boxed {
            true => ", so large that tokio boxes it",
            false => "",
        };
        Finding {
            kind: Kind::LargeFuture,
            title: format!(
                "the future of {}{place} takes {}{boxed}: {} tasks, {}",
                large.name,
                size(large.each),
                count(large.tasks),
                size(large.bytes),
            ),
            bytes: large.bytes,
            site: Some(site),
            owner_name: Some(large.name.clone()),
            count: large.tasks,
            advice: "put large arrays and structs that live across an await into a Box or Vec, \
                     pass them by reference, or drop them before the await"
                .to_owned(),
        }
    }
}

fn cells(facts: &Facts, owners: &[OwnerId]) -> Claims {
    let contexts = facts.walk.contexts.iter();
    let of_cells = contexts.filter(|(context, ..)| {
        owners.contains(&facts.context_owner(*context)) && facts.is_cell(*context)
    });
    Claims::of(of_cells.map(|(context, bytes, _)| (*context, *bytes)))
}
