//! Which machine code to change so that a statically linked allocator is recorded.
//!
//! An allocator that is linked into the executable is reached without the dynamic linker, so a
//! preloaded `malloc` never hears of it, and a profile would show a small heap in a large
//! process. Asking for a rebuild is the tempting answer. Instead its entry points are found by
//! name, disassembled here where a crash can't hurt the program, and changed in its memory at
//! start. What is found but can't be changed, and what allocates without being known, is told:
//! see [`Plan::unpatched`] and [`Plan::bypass`].

mod entries;
mod flow;
mod image;
mod inner;
mod outer;
mod relocate;
mod rust_alloc;

use std::collections::HashMap;

use entries::Entry;
use image::{Function, Image};
use inner::InnerCalls;
use object::elf;
use relocate::{Refusal, Relocated};
use rust_alloc::Rust;

pub use rust_alloc::{Bypass, name_of};

use crate::profile::target::Target;
use crate::wire::{Allocator, MAX_PATCHES, PATCH_CODE, Patch, PatchFixup, PatchRole, Redirect};

/// What to change in an executable, and what will not be seen all the same.
#[derive(Default)]
pub struct Plan {
    /// Allocators inside the executable, each once.
    pub allocators: Vec<Allocator>,
    pub patches: Vec<Patch>,
    pub redirects: Vec<Redirect>,
    /// Address of jemalloc's `mallctl`, 0 if it is not there.
    pub mallctl: u64,
    /// Names of entry points that stay as they are, with the reason.
    pub unpatched: Vec<(String, String)>,
    /// Nothing here can see what Rust code allocates, but `taskheap::Alloc` in the program can.
    pub wrapper: bool,
    /// Set if the program allocates in a way that nothing here can see.
    pub bypass: Option<Bypass>,
}

pub fn plan(target: &Target) -> Plan {
    let mut plan = Plan::default();
    if target.image().machine() != elf::EM_X86_64.0 {
        return plan;
    }
    let image = Image::of(target);
    for group in known_entries(&image) {
        add_group(&image, group, &mut plan);
    }
    plan.mallctl = entries::mallctl_names()
        .find_map(|name| image.address_of(&name))
        .unwrap_or(0);
    match rust_alloc::look(&image, &plan) {
        Rust::Seen => {}
        Rust::Wrapped => plan.wrapper = true,
        Rust::Hidden(bypass) => plan.bypass = Some(bypass),
    }
    plan
}

/// An entry point that is in the executable.
struct Found<'i, 'data> {
    function: &'i Function<'data>,
    name: String,
    entry: Entry,
}

/// Entry points by allocator. One function is only in one group: `malloc` may be another name
/// of `mi_malloc`.
fn known_entries<'i, 'data>(image: &'i Image<'data>) -> Vec<Vec<Found<'i, 'data>>> {
    let mut mimalloc = present(image, entries::mimalloc_names());
    let malloc = image.address_of("malloc");
    if malloc.is_some() && malloc == image.address_of("mi_malloc") {
        // Its build that overrides malloc: some of the C names are functions of their own.
        mimalloc.extend(present(image, entries::mimalloc_override_names()));
    }
    let mut groups = vec![mimalloc];
    for (prefix, names) in entries::jemalloc_names() {
        let has = |stem: &str| image.address_of(&format!("{prefix}{stem}")).is_some();
        // A plain `malloc` is jemalloc's only if functions that nobody else has are there.
        let is_jemalloc = [
            "mallocx",
            "sdallocx",
            "rallocx",
            "mallctl",
            "malloc_stats_print",
        ];
        if is_jemalloc.into_iter().any(has) {
            groups.push(present(image, names));
        }
    }
    groups.push(present(image, entries::own_malloc_names()));
    let mut taken = HashMap::new();
    for group in &mut groups {
        group.retain(|found| taken.insert(found.function.start, ()).is_none());
    }
    groups.retain(|group| is_whole(group));
    groups
}

/// One function of a common name does not make an allocator.
fn is_whole(group: &[Found]) -> bool {
    let has = |name: &str| group.iter().any(|found| found.name == name);
    match group.first().map(|found| found.entry.allocator) {
        None => false,
        Some(Allocator::Mimalloc) => has("mi_free"),
        Some(Allocator::OwnMalloc) => ["malloc", "calloc", "realloc", "free"].into_iter().all(has),
        Some(_) => true,
    }
}

fn present<'i, 'data>(
    image: &'i Image<'data>,
    names: Vec<(String, Entry)>,
) -> Vec<Found<'i, 'data>> {
    let found = names.into_iter().filter_map(|(name, entry)| {
        let start = image.address_of(&name)?;
        let function = image
            .function_at(start)
            .filter(|function| function.start == start)?;
        Some(Found {
            function,
            name,
            entry,
        })
    });
    found.collect()
}

/// Adds patches for the entry points of one allocator, and for the calls it makes to itself.
fn add_group(image: &Image, group: Vec<Found>, plan: &mut Plan) {
    let Some(first) = group.first() else { return };
    if !plan.allocators.contains(&first.entry.allocator) {
        plan.allocators.push(first.entry.allocator);
    }
    let inside = flow::reach(image, allocator_functions(image, &group));
    let calls = InnerCalls::of(image, &inside);
    let allocator = first.entry.allocator;
    let start = first.function.start;
    let mut rows: HashMap<u64, u32> = HashMap::new();
    for found in group {
        let made = if calls.reach_shortly(found.function.start) {
            Err(Refusal::ShortCall)
        } else if plan.patches.len() == MAX_PATCHES {
            Err(Refusal::TooMany)
        } else {
            relocate::relocate(image, found.function)
        };
        match made {
            Ok(relocated) => {
                rows.insert(found.function.start, plan.patches.len() as u32);
                plan.patches.push(patch(&found.entry, &relocated));
            }
            Err(refusal) => plan.unpatched.push((found.name, refusal.to_string())),
        }
    }
    calls.redirect(image, &rows, plan);
    calls.watch_system(image, start, allocator, plan);
    for name in entries::NAMELESS {
        let function = image.address_of(name);
        if function.is_some_and(|svma| outer::is_called(image, svma, &inside)) {
            let reason = "it frees blocks without naming them, and they stay in the report until \
                          their memory is used again";
            plan.unpatched.push(((*name).to_owned(), reason.to_owned()));
        }
    }
}

/// Functions of the allocator: those that are patched, and for mimalloc, which manages its heaps
/// through its own entry points, all that have its name. Not those that make a text for the
/// program, which frees it.
fn allocator_functions(image: &Image, group: &[Found]) -> Vec<u64> {
    let mut starts: Vec<u64> = group.iter().map(|found| found.function.start).collect();
    if group[0].entry.allocator == Allocator::Mimalloc {
        let own = |name: &&str| {
            (name.starts_with("mi_") || name.starts_with("_mi_")) && !name.contains("stats")
        };
        let all = image
            .functions()
            .iter()
            .filter(|function| function.names.iter().any(own));
        starts.extend(all.map(|function| function.start));
    }
    starts
}

fn patch(entry: &Entry, relocated: &Relocated) -> Patch {
    let mut patch = empty_patch(relocated.svma, entry.allocator, entry.role);
    patch.arguments = entry.arguments;
    patch.stolen_len = relocated.stolen.len() as u8;
    patch.code_len = relocated.code.len() as u8;
    patch.fixup_count = relocated.fixups.len() as u8;
    patch.stolen[..relocated.stolen.len()].copy_from_slice(&relocated.stolen);
    patch.code[..relocated.code.len()].copy_from_slice(&relocated.code);
    patch.fixups[..relocated.fixups.len()].copy_from_slice(&relocated.fixups);
    patch
}

fn empty_patch(svma: u64, allocator: Allocator, role: PatchRole) -> Patch {
    Patch {
        svma,
        allocator: allocator as u32,
        role: role as u32,
        arguments: entries::NO_ARGUMENTS,
        stolen_len: 0,
        code_len: 0,
        fixup_count: 0,
        _pad: [0; 5],
        stolen: [0; 24],
        code: [0xcc; PATCH_CODE],
        fixups: [PatchFixup::default(); 6],
    }
}
