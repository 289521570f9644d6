//! Does what Rust code allocates reach an allocator that is recorded?
//!
//! A `#[global_allocator]` may be anything. Searching the file for the names of allocators finds
//! those that somebody thought of. Instead the direct calls of `__rust_alloc`, which the compiler
//! makes for every program, are followed: they lead to an imported `malloc`, to an entry point
//! that is patched, or to neither. Recording `__rust_alloc` itself in the last case is tempting,
//! and wrong: optimisation copies allocators written in Rust into most of their callers, and half
//! a heap looks like a whole one. So it is told instead.
//!
//! Limit: where `__rust_alloc` itself has no symbol left, nothing is known here, and only the
//! comparison with the process's resident memory tells.

use std::collections::HashSet;

use super::Plan;
use super::flow;
use super::image::{Function, Image, Slot};
use crate::wire::Allocator;

/// Allocations that will not be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bypass {
    /// An allocator is inside, and the executable has no symbols to find it by.
    Stripped(Allocator),
    /// The global allocator never calls malloc, nor anything else that is recorded.
    Unknown,
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
            Bypass::Unknown => f.write_str(
                "the program's `#[global_allocator]` never calls malloc, so what Rust code \
                 allocates is not recorded; wrap it: \
                 `#[global_allocator] static A: taskheap::Alloc<…> = taskheap::Alloc::new(…);`",
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
    }
}

/// How Rust's allocations can be seen in spite of the plan.
pub enum Rust {
    /// They are, or nothing can be told.
    Seen,
    /// Only `taskheap::Alloc`, which wraps the allocator, can tell of them.
    Wrapped,
    Hidden(Bypass),
}

pub fn look(image: &Image, plan: &Plan) -> Rust {
    if !image.has_symbols {
        return match hidden_allocator(image) {
            Some(hidden) if !plan.allocators.contains(&hidden) => {
                Rust::Hidden(Bypass::Stripped(hidden))
            }
            _ => Rust::Seen,
        };
    }
    let mut functions = image.functions().iter();
    let alloc = functions.find(|function| function.names.iter().any(|name| is_rust_alloc(name)));
    alloc.map_or(Rust::Seen, |alloc| follow(image, alloc, plan))
}

/// What the compiler calls for every allocation, whatever its version makes of the name.
fn is_rust_alloc(symbol: &str) -> bool {
    let plain = symbol.split('.').next().unwrap_or(symbol);
    plain == "__rust_alloc"
        || (plain.starts_with("_R") && plain.ends_with("_7___rustc12___rust_alloc"))
}

/// Functions looked at on the way from `__rust_alloc`; the way itself is three calls long.
const MOST_FUNCTIONS: usize = 200;

fn follow(image: &Image, from: &Function, plan: &Plan) -> Rust {
    let mut wrapped = false;
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
            return Rust::Seen;
        }
        let function = image.function_at(start);
        let names = function.map_or(&[][..], |function| &function.names);
        let is_ours = |name: &&str| name.contains(LISTENER) || name.contains(MEASURE);
        wrapped |= names.iter().any(is_ours);
        if names.iter().any(|name| is_beside(name)) {
            continue;
        }
        // Without a symbol it is a stub that jumps to an imported function.
        let end = function.map_or(start + 16, |function| function.end);
        let leads = flow::leads(image, start, end);
        for branch in &leads.slots {
            match image.slot(branch.slot) {
                Some(Slot::Import(name)) if is_malloc(name) => return Rust::Seen,
                Some(Slot::Own(svma)) => open.push(svma),
                _ => {}
            }
        }
        open.extend(leads.branches.iter().map(|branch| branch.target));
    }
    if wrapped {
        Rust::Wrapped
    } else {
        Rust::Hidden(Bypass::Unknown)
    }
}

/// In the mangled names of what `taskheap::Alloc` calls.
const LISTENER: &str = "8taskheap4hook8listener";
const MEASURE: &str = "8taskheap4hook7measure";

/// Code that runs when something has failed may allocate in any way it likes, and our own wrapper
/// is not the allocator.
fn is_beside(name: &str) -> bool {
    [
        "panic",
        "handle_alloc_error",
        "oom",
        "unwrap_failed",
        LISTENER,
        MEASURE,
        "8taskheap6record",
    ]
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
