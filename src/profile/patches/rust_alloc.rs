//! Does what Rust code allocates reach an allocator that is recorded?
//!
//! A `#[global_allocator]` may be anything. Searching the file for the names of allocators finds
//! those that somebody thought of. Instead the direct calls of `__rust_alloc`, which the compiler
//! makes for every program, are followed: they lead to an imported `malloc`, to an entry point
//! that is patched, or to neither. In the last case `__rust_alloc` and its sisters are recorded
//! themselves; what that allocator takes from `malloc` for itself is then not counted.
//!
//! Limit: link-time optimisation may put `__rust_alloc` into its callers. Then nothing is known
//! here, and only the comparison with the process's resident memory tells.

use std::collections::HashSet;

use super::entries::{self, Entry};
use super::flow;
use super::image::{Function, Image, Slot};
use super::{Found, Plan, add_group};
use crate::wire::Allocator;

/// Allocations that will not be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bypass {
    /// An allocator is inside, and the executable has no symbols to find it by.
    Stripped(Allocator),
    /// The global allocator never calls malloc and can't be patched itself.
    Unknown { reason: String },
}

impl std::fmt::Display for Bypass {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Bypass::Stripped(allocator) => write!(
                f,
                "the program has {} linked in, but its symbols were stripped, so its allocations \
                 are not recorded; build it with `strip = \"none\"` or `strip = \"debuginfo\"`",
                name_of(*allocator)
            ),
            Bypass::Unknown { reason } => write!(
                f,
                "the program's `#[global_allocator]` never calls malloc and can't be recorded \
                 ({reason}); wrap it: `#[global_allocator] static A: taskheap::Alloc<…>`"
            ),
        }
    }
}

/// The name that reports use.
pub fn name_of(allocator: Allocator) -> &'static str {
    match allocator {
        Allocator::Malloc => "glibc",
        Allocator::Jemalloc => "jemalloc",
        Allocator::Mimalloc => "mimalloc",
        Allocator::Wrapper => "taskheap::Alloc",
        Allocator::OwnMalloc => "own malloc",
        Allocator::OwnRust => "global allocator",
    }
}

/// Adds what it takes to see Rust's allocations, or says why they can't be seen.
pub fn complete(image: &Image, plan: &mut Plan) {
    if !image.has_symbols {
        plan.bypass = hidden_allocator(image)
            .filter(|a| !plan.allocators.contains(a))
            .map(Bypass::Stripped);
        return;
    }
    let group: Vec<Found> = rust_entries(image);
    let is_alloc = |found: &&Found| found.name == "__rust_alloc";
    let Some(alloc) = group.iter().find(is_alloc) else {
        return;
    };
    if leads_to_malloc(image, alloc.function, plan) {
        return;
    }
    let before = plan.unpatched.len();
    add_group(image, group, false, plan);
    if let Some((name, reason)) = plan.unpatched.get(before) {
        plan.bypass = Some(Bypass::Unknown {
            reason: format!("{name}: {reason}"),
        });
    }
}

/// `__rust_alloc` and its sisters, whatever the version of the compiler has made of their names.
fn rust_entries<'i, 'data>(image: &'i Image<'data>) -> Vec<Found<'i, 'data>> {
    let wanted: Vec<(String, String, Entry)> = entries::rust_names()
        .into_iter()
        .map(|(name, entry)| (format!("_7___rustc{}_{name}", name.len()), name, entry))
        .collect();
    let mut found = Vec::new();
    for function in image.functions() {
        for symbol in &function.names {
            let plain = symbol.split('.').next().unwrap_or(symbol);
            let of = |(mangled, name, _): &&(String, String, Entry)| {
                plain == name || plain.ends_with(mangled.as_str())
            };
            if let Some((_, name, entry)) = wanted.iter().find(of) {
                found.push(Found {
                    function,
                    name: name.clone(),
                    entry: *entry,
                });
                break;
            }
        }
    }
    found
}

/// Functions looked at on the way from `__rust_alloc`; the way itself is three calls long.
const MOST_FUNCTIONS: usize = 200;

fn leads_to_malloc(image: &Image, from: &Function, plan: &Plan) -> bool {
    let mut open = vec![from.start];
    let mut seen = HashSet::new();
    while let Some(start) = open.pop() {
        if seen.len() == MOST_FUNCTIONS || !seen.insert(start) {
            continue;
        }
        let patched = |svma: u64| {
            plan.patches
                .iter()
                .any(|patch| (svma..svma + 5).contains(&patch.svma))
        };
        if patched(start) {
            return true;
        }
        let function = image.function_at(start);
        if function.is_some_and(|function| function.names.iter().any(|name| is_failure(name))) {
            continue;
        }
        // Without a symbol it is a stub that jumps to an imported function.
        let end = function.map_or(start + 16, |function| function.end);
        let leads = flow::leads(image, start, end);
        for branch in &leads.slots {
            match image.slot(branch.slot) {
                Some(Slot::Import(name)) if is_malloc(name) => return true,
                Some(Slot::Own(svma)) => open.push(svma),
                _ => {}
            }
        }
        open.extend(leads.branches.iter().map(|branch| branch.target));
    }
    false
}

/// Code that runs when something has failed may allocate in any way it likes.
fn is_failure(name: &str) -> bool {
    ["panic", "handle_alloc_error", "oom", "unwrap_failed"]
        .iter()
        .any(|word| name.contains(word))
}

fn is_malloc(name: &str) -> bool {
    matches!(
        name,
        "malloc" | "calloc" | "posix_memalign" | "aligned_alloc" | "memalign" | "realloc"
    )
}

/// The allocator whose messages are among the constants.
fn hidden_allocator(image: &Image) -> Option<Allocator> {
    if image.says(b"<jemalloc>: ") {
        return Some(Allocator::Jemalloc);
    }
    image.says(b"mimalloc: ").then_some(Allocator::Mimalloc)
}
