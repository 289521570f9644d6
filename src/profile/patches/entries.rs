//! The entry points of the allocators: names, and what their arguments mean.
//!
//! A table of every spelling would be long and wrong at the edges: mimalloc has each function
//! again with a heap in front (`mi_heap_`, `mi_theap_`), and jemalloc is built with prefixes. So
//! the tables hold stems. Letters stand for arguments in order: `p` the block, `o` where the
//! block's address is kept, `s` its size, `n` a factor of the size, `x` extra bytes, `a` its
//! alignment, `f` jemalloc's flags, `-` anything else.

use crate::wire::{Allocator, NO_ARGUMENT, PatchArguments, PatchRole};

/// What is known of an entry point from its name alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub allocator: Allocator,
    pub role: PatchRole,
    pub arguments: PatchArguments,
}

type Row = (&'static str, PatchRole, &'static str);

use PatchRole::*;

/// The C names, which jemalloc may prefix and a program's own malloc uses as they are.
const MALLOC: &[Row] = &[
    ("malloc", Allocate, "s"),
    ("calloc", Allocate, "ns"),
    ("realloc", ReallocateOrFree, "ps"),
    ("reallocarray", ReallocateOrFree, "pns"),
    ("reallocf", ReallocateAlwaysFree, "ps"),
    ("posix_memalign", AllocateInto, "oas"),
    ("aligned_alloc", Allocate, "as"),
    ("memalign", Allocate, "as"),
    ("valloc", Allocate, "s"),
    ("pvalloc", Allocate, "s"),
    ("free", Free, "p"),
    ("cfree", Free, "p"),
    ("free_sized", Free, "p"),
    ("free_aligned_sized", Free, "p"),
];

const JEMALLOC: &[Row] = &[
    ("mallocx", Allocate, "sf"),
    ("rallocx", Reallocate, "psf"),
    ("xallocx", Xallocx, "psx"),
    ("dallocx", Free, "p"),
    ("sdallocx", Free, "p"),
];

/// Prefixes that builds of jemalloc are known to have.
const JEMALLOC_PREFIXES: &[&str] = &["_rjem_", "je_", "rjem_", "jem_", ""];

/// mimalloc's functions that also exist with a heap as first argument.
const MIMALLOC_HEAP: &[Row] = &[
    ("malloc", Allocate, "s"),
    ("zalloc", Allocate, "s"),
    ("calloc", Allocate, "ns"),
    ("mallocn", Allocate, "ns"),
    ("malloc_small", Allocate, "s"),
    ("zalloc_small", Allocate, "s"),
    ("malloc_aligned", Allocate, "sa"),
    ("malloc_aligned_at", Allocate, "s-"),
    ("zalloc_aligned", Allocate, "sa"),
    ("zalloc_aligned_at", Allocate, "s-"),
    ("calloc_aligned", Allocate, "nsa"),
    ("calloc_aligned_at", Allocate, "ns-"),
    ("realloc", Reallocate, "ps"),
    ("reallocn", Reallocate, "pns"),
    ("reallocf", ReallocateAlwaysFree, "ps"),
    ("rezalloc", Reallocate, "ps"),
    ("recalloc", Reallocate, "pns"),
    ("realloc_aligned", Reallocate, "psa"),
    ("realloc_aligned_at", Reallocate, "ps-"),
    ("rezalloc_aligned", Reallocate, "psa"),
    ("rezalloc_aligned_at", Reallocate, "ps-"),
    ("recalloc_aligned", Reallocate, "pnsa"),
    ("recalloc_aligned_at", Reallocate, "pns-"),
    ("strdup", AllocateString, "-"),
    ("strndup", AllocateString, "--"),
    ("realpath", AllocateString, "-p"),
    ("alloc_new", Allocate, "s"),
    ("alloc_new_n", Allocate, "ns"),
];

const MIMALLOC: &[Row] = &[
    ("umalloc", Allocate, "s-"),
    ("uzalloc", Allocate, "s-"),
    ("ucalloc", Allocate, "ns-"),
    ("umalloc_small", Allocate, "s-"),
    ("uzalloc_small", Allocate, "s-"),
    ("umalloc_aligned", Allocate, "sa"),
    ("uzalloc_aligned", Allocate, "sa"),
    ("urealloc", Reallocate, "ps"),
    ("reallocarray", Reallocate, "pns"),
    ("reallocarr", ReallocateInto, "ons"),
    ("aligned_recalloc", Reallocate, "pnsa"),
    ("aligned_offset_recalloc", Reallocate, "pns-"),
    ("posix_memalign", AllocateInto, "oas"),
    ("memalign", Allocate, "as"),
    ("aligned_alloc", Allocate, "as"),
    ("valloc", Allocate, "s"),
    ("pvalloc", Allocate, "s"),
    ("new", Allocate, "s"),
    ("new_aligned", Allocate, "sa"),
    ("new_nothrow", Allocate, "s"),
    ("new_aligned_nothrow", Allocate, "sa"),
    ("new_n", Allocate, "ns"),
    ("new_realloc", Reallocate, "ps"),
    ("new_reallocn", Reallocate, "pns"),
    ("mbsdup", AllocateString, "-"),
    ("wcsdup", AllocateWide, "-"),
    ("dupenv_s", AllocateStringInto, "o"),
    ("expand", Expand, "ps"),
    ("_expand", Expand, "ps"),
    ("free", Free, "p"),
    ("cfree", Free, "p"),
    ("ufree", Free, "p"),
    ("free_small", Free, "p"),
    ("free_size", Free, "p"),
    ("free_size_aligned", Free, "p"),
    ("free_aligned", Free, "p"),
];

/// Functions that free blocks without naming them.
pub const NAMELESS: &[&str] = &["mi_heap_destroy"];

/// Names to look for, allocator by allocator: prefix, stems, arguments in front of the stem's own.
pub fn jemalloc_names() -> impl Iterator<Item = (&'static str, Vec<(String, Entry)>)> {
    JEMALLOC_PREFIXES.iter().map(|&prefix| {
        let rows = MALLOC.iter().chain(JEMALLOC);
        (prefix, named(prefix, rows, Allocator::Jemalloc, 0))
    })
}

pub fn mallctl_names() -> impl Iterator<Item = String> {
    JEMALLOC_PREFIXES
        .iter()
        .map(|prefix| format!("{prefix}mallctl"))
}

pub fn mimalloc_names() -> Vec<(String, Entry)> {
    let all = MIMALLOC_HEAP.iter().chain(MIMALLOC);
    let mut names = named("mi_", all, Allocator::Mimalloc, 0);
    for prefix in ["mi_heap_", "mi_theap_"] {
        names.extend(named(prefix, MIMALLOC_HEAP.iter(), Allocator::Mimalloc, 1));
    }
    names
}

/// The C names in a mimalloc that overrides them.
pub fn mimalloc_override_names() -> Vec<(String, Entry)> {
    let mut names = named("", MALLOC.iter(), Allocator::Mimalloc, 0);
    for (_, entry) in &mut names {
        // mimalloc never answers a size of 0 with null.
        if entry.role == ReallocateOrFree {
            entry.role = Reallocate;
        }
    }
    names
}

pub fn own_malloc_names() -> Vec<(String, Entry)> {
    named("", MALLOC.iter(), Allocator::OwnMalloc, 0)
}

fn named<'a>(
    prefix: &str,
    rows: impl Iterator<Item = &'a Row>,
    allocator: Allocator,
    shift: u8,
) -> Vec<(String, Entry)> {
    rows.map(|&(stem, role, letters)| {
        let arguments = arguments(letters, shift);
        (
            format!("{prefix}{stem}"),
            Entry {
                allocator,
                role,
                arguments,
            },
        )
    })
    .collect()
}

pub const NO_ARGUMENTS: PatchArguments = PatchArguments {
    pointer: NO_ARGUMENT,
    size: NO_ARGUMENT,
    count: NO_ARGUMENT,
    extra: NO_ARGUMENT,
    align: NO_ARGUMENT,
    flags: NO_ARGUMENT,
    _pad: [0; 2],
};

fn arguments(letters: &str, shift: u8) -> PatchArguments {
    let place = |wanted: &[char]| {
        letters
            .find(wanted)
            .map_or(NO_ARGUMENT, |at| at as u8 + shift)
    };
    PatchArguments {
        pointer: place(&['p', 'o']),
        size: place(&['s']),
        count: place(&['n']),
        extra: place(&['x']),
        align: place(&['a']),
        flags: place(&['f']),
        _pad: [0; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_in_front_moves_the_arguments() {
        let names = mimalloc_names();
        let of = |name: &str| names.iter().find(|(n, _)| n == name).unwrap().1.arguments;
        assert_eq!(
            (
                of("mi_recalloc").pointer,
                of("mi_recalloc").count,
                of("mi_recalloc").size
            ),
            (0, 1, 2)
        );
        let moved = of("mi_heap_recalloc");
        assert_eq!(
            (moved.pointer, moved.count, moved.size, moved.extra),
            (1, 2, 3, NO_ARGUMENT)
        );
    }

    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<_> = mimalloc_names().into_iter().map(|(name, _)| name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
