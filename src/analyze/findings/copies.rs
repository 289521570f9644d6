//! The same structure for each task, thread or element, where one would do.
//!
//! Equal contents alone accuse nobody: healthy programs are full of small equal objects, of
//! empty buffers, and of buffers that many idle tasks filled alike. So a copy has to be of some
//! size, in use, and more than a buffer: it has several blocks, or was made by cloning, or is
//! large. What is equal and hardly used is `oversized`; buffers of idle tasks are `idle-tasks`.

use std::collections::BTreeMap;

use super::claims::{Claims, Ledger};
use super::facts::Facts;
use super::{Rule, idle_tasks, places, size};
use crate::analyze::figures::count;
use crate::analyze::{Finding, Kind};
use crate::profile::{Holder, NodeId, OwnerId, Site, WalkCopies};

/// Copies of owners that have a name.
const LEAST_COPIES: u64 = 3;
/// Elements of a collection are often alike.
const LEAST_ELEMENTS: u64 = 8;
const LEAST_ELEMENT_SHARE: u64 = 20;
/// Used bytes of one copy.
const LEAST_EACH: u64 = 2048;
const LEAST_ELEMENT: u64 = 4096;
/// A structure of which less than a twentieth is used is an empty buffer.
const LEAST_USED: u64 = 20;
/// One or two blocks that were not cloned are a buffer, up to this size.
const BUFFER_BLOCKS: u64 = 2;
const LEAST_BUFFER: u64 = 32 << 10;
const MOST_BUFFER: u64 = 256 << 10;
/// Groups of about one size from one place are one: caches that grew a little differently.
const ALIKE: f64 = 0.1;

pub struct Copies;

pub struct Group {
    holder: Holder,
    owner: Option<OwnerId>,
    holder_name: String,
    node: Option<NodeId>,
    copies: u64,
    each: u64,
    blocks: u64,
    bytes: u64,
    waste: u64,
    blank: u64,
    identical: bool,
    claims: Claims,
}

impl Rule for Copies {
    type Suspect = Group;

    fn looks_for(&self, facts: &Facts) -> String {
        format!(
            "equal structures, {LEAST_COPIES} or more of tasks or threads ({LEAST_ELEMENTS} \
             elsewhere), {} or more beyond the first",
            size(facts.least())
        )
    }

    fn check(&self, facts: &Facts, _: &Ledger) -> Vec<Group> {
        let mut groups: Vec<Group> = merged(facts, &facts.walk.copies);
        groups.retain(|group| is_worth_telling(facts, group));
        groups.sort_by_key(|group| std::cmp::Reverse(group.waste));
        groups
    }

    fn claims(&self, group: &Group) -> Claims {
        group.claims.clone()
    }

    fn describe(&self, facts: &Facts, group: &Group) -> Finding {
        let site = places::of_structure(facts, group.node, &group.claims);
        let owner = group.owner.map(|id| facts.owner(id).name.clone());
        let whose = match (group.holder, &owner) {
            // A type without a name is told by what its tasks run, or who spawns them.
            (Holder::Task, Some(name)) if name.starts_with("task ") => {
                format!("one for each {name}")
            }
            (Holder::Task, Some(name)) => format!("one for each task of {name}"),
            (Holder::Thread, Some(name)) => format!("one for each thread {name}"),
            (Holder::ThreadLocal, _) => format!("one for each thread's {}", group.holder_name),
            _ if !group.holder_name.is_empty() => format!("kept by {}", group.holder_name),
            _ => "kept in several places".to_owned(),
        };
        let same = match group.identical {
            true => "identical copies",
            false => "nearly identical copies",
        };
        Finding {
            kind: Kind::Copies,
            title: format!(
                "{} {same} of {}{}, {whose}: {}{}",
                count(group.copies),
                size(group.each),
                blocks(group.blocks),
                size(group.bytes),
                places::made_in(site.as_ref()),
            ),
            bytes: group.waste,
            advice: advice(facts, group, site.as_ref()),
            site,
            owner_name: owner.or_else(|| {
                let name = &group.holder_name;
                (!name.is_empty()).then(|| name.clone())
            }),
            count: group.copies,
        }
    }
}

fn blocks(count: u64) -> String {
    match count {
        0 | 1 => String::new(),
        _ => format!(" ({} blocks)", crate::analyze::figures::count(count)),
    }
}

fn advice(facts: &Facts, group: &Group, site: Option<&Site>) -> String {
    let library = site.and_then(|site| site.library.as_deref()).unwrap_or("");
    let through = |name: &str| {
        library.starts_with(name)
            || group.claims.0.keys().any(|context| {
                facts.passes(*context, |function, _| {
                    function.contains(&format!("{name}::"))
                })
            })
    };
    if library.starts_with("regex") {
        return "share one Regex by reference, an Arc or a static LazyLock: every clone grows \
                match caches of its own"
            .to_owned();
    }
    if library == "tokio" && through("mpsc") {
        return "a channel keeps the blocks of its largest burst: bound it, or make a new one \
                after a burst"
            .to_owned();
    }
    match group.holder {
        Holder::Task if through("axum") => {
            "put the state behind an Arc: State<Arc<T>> clones a pointer where State<T> clones \
             everything for each request"
        }
        Holder::Task => {
            "share one by an Arc: give each task Arc::clone, which copies a pointer, or make it a \
             static LazyLock"
        }
        Holder::Thread | Holder::ThreadLocal => {
            "share one by an Arc given to each thread, or a static LazyLock or OnceLock"
        }
        Holder::Instance => "keep one behind an Arc, and clone the Arc into each place",
    }
    .to_owned()
}

/// Groups of the same holders, of about the same size and from the same place, put together.
fn merged(facts: &Facts, copies: &[WalkCopies]) -> Vec<Group> {
    type Key = (u8, Option<OwnerId>, String, Option<String>);
    let mut found: BTreeMap<Key, Vec<Group>> = BTreeMap::new();
    let mut sorted: Vec<&WalkCopies> = copies.iter().collect();
    sorted.sort_by_key(|row| std::cmp::Reverse((row.bytes_each, row.bytes)));
    for row in sorted {
        let function = row.node.map(|node| facts.site(node).function);
        let key = (
            row.holder as u8,
            row.owner,
            row.holder_name.clone(),
            function,
        );
        let groups = found.entry(key).or_default();
        let alike = |group: &&mut Group| {
            row.holder != Holder::Instance
                && group.each.abs_diff(row.bytes_each) as f64 <= group.each as f64 * ALIKE
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.join(row),
            None => groups.push(Group::of(row)),
        }
    }
    found.into_values().flatten().collect()
}

impl Group {
    fn of(row: &WalkCopies) -> Group {
        Group {
            holder: row.holder,
            owner: row.owner,
            holder_name: row.holder_name.clone(),
            node: row.node,
            copies: row.copies,
            each: row.bytes_each,
            blocks: row.blocks_each,
            bytes: row.bytes,
            waste: row.waste_bytes,
            blank: row.blank_bytes,
            identical: row.identical == Some(true),
            claims: Claims::of(row.contexts.iter().copied()),
        }
    }

    /// Shared by all, one would remain, not one of each size.
    fn join(&mut self, row: &WalkCopies) {
        self.identical &= row.identical == Some(true);
        self.copies += row.copies;
        self.bytes += row.bytes;
        self.waste += row.waste_bytes;
        if row.identical == Some(true) {
            self.waste += row.bytes_each;
        }
        self.blank += row.blank_bytes;
        for (context, bytes) in &row.contexts {
            *self.claims.0.entry(*context).or_default() += bytes;
        }
    }

    fn used_each(&self) -> u64 {
        self.bytes.saturating_sub(self.blank) / self.copies.max(1)
    }

    /// Of the waste, what is in use: empty pages are the same everywhere.
    fn used_waste(&self) -> u64 {
        let used = self.bytes.saturating_sub(self.blank) as f64 / self.bytes.max(1) as f64;
        (self.waste as f64 * used) as u64
    }
}

fn is_worth_telling(facts: &Facts, group: &Group) -> bool {
    let used = group.used_each();
    let in_use = used.saturating_mul(LEAST_USED) >= group.each;
    if group.used_waste() < facts.least() || !in_use {
        return false;
    }
    let enough = match group.holder {
        Holder::Instance => {
            group.copies >= LEAST_ELEMENTS
                && used >= LEAST_ELEMENT
                && group.waste >= facts.walk.live_bytes / LEAST_ELEMENT_SHARE
        }
        _ => group.copies >= LEAST_COPIES && used >= LEAST_EACH,
    };
    enough && (!is_buffer(facts, group) || is_large_buffer(facts, group))
}

/// A block or two that each owner filled for itself.
fn is_buffer(facts: &Facts, group: &Group) -> bool {
    group.blocks <= BUFFER_BLOCKS && group.each < MOST_BUFFER && !is_cloned(facts, group)
}

fn is_large_buffer(facts: &Facts, group: &Group) -> bool {
    let idle = group
        .owner
        .filter(|_| group.holder == Holder::Task)
        .is_some_and(|owner| idle_tasks::are_idle(facts, &facts.owner(owner).name));
    group.each >= LEAST_BUFFER && !idle
}

/// Was it made by cloning something?
fn is_cloned(facts: &Facts, group: &Group) -> bool {
    const NAMES: [&str; 4] = ["::clone", "::to_vec", "::to_owned", "::clone_from"];
    let made_by_cloning = |function: &str| {
        let end = function.trim_end_matches(['>', ':']);
        NAMES.iter().any(|name| end.ends_with(name)) || function.contains("::clone::")
    };
    let cloned = (group.claims.0.iter())
        .filter(|(context, _)| facts.passes(**context, |function, _| made_by_cloning(function)))
        .map(|(_, bytes)| bytes)
        .sum::<u64>();
    cloned * 2 >= group.claims.bytes()
}
