//! From facts to findings: what deserves a person's attention, and what to do about it.
//!
//! The tempting way is to print every table's largest row. Then one mistake shows five times (a
//! clone per task is copies, a task type, a site, growth, and an idle buffer), and a healthy
//! program shows five rows of nothing. So each kind is one small [`Rule`], a rule claims the
//! bytes that it explains, and bytes that are claimed are not explained again: the rules stand in
//! the order in which one says the cause of what another only notices. Below its threshold a rule
//! is silent, and the thresholds are part of the report: a false accusation costs more than a
//! miss.
//!
//! Without a walk nobody knows who holds what, and there are no findings at all.

mod claims;
mod copies;
mod facts;
mod finished_tasks;
mod growth;
mod idle_tasks;
mod large_future;
mod leaks;
mod left_behind;
mod outside_heap;
mod oversized;
mod owner_gone;
mod pinned;
pub mod places;
mod retained;
#[cfg(test)]
mod tests;
mod thread_locals;
mod thread_stacks;
mod wasted;

use claims::{Claims, Ledger};
use facts::Facts;
pub use places::short;

use super::Finding;
use super::figures;
use super::sites::SiteTable;
use crate::profile::{Profile, Walk};

/// One kind of finding: what counts as one, whose bytes it explains, and how it is told.
trait Rule {
    /// What [`Rule::check`] finds.
    type Suspect;

    /// What it looks for and from which size on, for the reader of an empty list.
    fn looks_for(&self, facts: &Facts) -> String;

    /// Everything beyond the threshold. `ledger` knows what is explained already.
    fn check(&self, facts: &Facts, ledger: &Ledger) -> Vec<Self::Suspect>;

    /// The live bytes that it explains. Empty for what is not on the heap.
    fn claims(&self, suspect: &Self::Suspect) -> Claims;

    fn describe(&self, facts: &Facts, suspect: &Self::Suspect) -> Finding;
}

/// Findings, most bytes first, and what they looked for, a sentence each.
pub fn find(
    profile: &Profile,
    walk: Option<&Walk>,
    sites: &SiteTable,
) -> (Vec<Finding>, Vec<String>) {
    let Some(walk) = walk else {
        return (Vec::new(), Vec::new());
    };
    let facts = Facts::new(profile, walk, sites);
    let mut court = Court {
        ledger: Ledger::new(walk),
        facts,
        found: Vec::new(),
        looked_for: Vec::new(),
    };
    // The cause before what only notices it.
    court.hear(&leaks::Leaks);
    court.hear(&finished_tasks::FinishedTasks);
    court.hear(&thread_locals::ThreadLocals);
    court.hear(&large_future::LargeFuture);
    court.hear(&owner_gone::OwnerGone);
    court.hear(&pinned::Pinned);
    court.hear(&copies::Copies);
    court.hear(&oversized::Oversized);
    court.hear(&idle_tasks::IdleTasks);
    court.hear(&left_behind::LeftBehind);
    court.hear(&growth::Growth);
    court.hear(&thread_stacks::ThreadStacks);
    court.hear(&retained::Retained);
    court.hear(&outside_heap::OutsideHeap);
    court.found.sort_by(|a, b| {
        b.bytes
            .cmp(&a.bytes)
            .then_with(|| a.kind.cmp(&b.kind))
            .then_with(|| a.title.cmp(&b.title))
    });
    (court.found, court.looked_for)
}

struct Court<'a> {
    facts: Facts<'a>,
    ledger: Ledger,
    found: Vec<Finding>,
    looked_for: Vec<String>,
}

impl Court<'_> {
    fn hear<R: Rule>(&mut self, rule: &R) {
        self.looked_for.push(rule.looks_for(&self.facts));
        for suspect in rule.check(&self.facts, &self.ledger) {
            let claims = rule.claims(&suspect);
            if self.ledger.is_explained(&claims) {
                continue;
            }
            self.ledger.explain(&claims);
            self.found.push(rule.describe(&self.facts, &suspect));
        }
    }
}

/// `4.0 MB`.
fn size(bytes: u64) -> String {
    figures::bytes(bytes)
}
