//! Allocators that are linked into the executable, which preloading can't see.

use object::elf;
use object::read::elf::Sym;

use super::{Image, Symbols};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkedAllocator {
    /// `_rjem_malloc`, as Rust's jemalloc crates name it.
    JemallocPrefixed,
    /// `mallocx`, and `malloc` itself unless it is built otherwise.
    Jemalloc,
    Mimalloc,
    /// `malloc` is defined by the executable; whose it is can't be told.
    OtherMalloc,
}

pub(super) fn find(image: &Image, symbols: &Symbols) -> Vec<LinkedAllocator> {
    // Linkers leave out what nobody calls, so that no entry point is sure to be there.
    let has = |name: &str| symbols.function(name).is_some();
    let any = |names: &[&str]| names.iter().any(|name| has(name));
    let mut found = Vec::new();
    if any(&[
        "_rjem_malloc",
        "_rjem_mallocx",
        "_rjem_calloc",
        "_rjem_sdallocx",
    ]) {
        found.push(LinkedAllocator::JemallocPrefixed);
    }
    if any(&["mallocx", "sdallocx", "je_malloc", "je_mallocx"]) {
        found.push(LinkedAllocator::Jemalloc);
    }
    if any(&[
        "mi_malloc",
        "mi_malloc_aligned",
        "mi_zalloc_aligned",
        "mi_free",
    ]) {
        found.push(LinkedAllocator::Mimalloc);
    }
    let defines_malloc = has("malloc") || exports(image, b"malloc");
    if found.is_empty() && defines_malloc {
        found.push(LinkedAllocator::OtherMalloc);
    }
    found
}

/// Is the name defined in the dynamic symbol table? It is there even in a stripped file.
fn exports(image: &Image, name: &[u8]) -> bool {
    let endian = image.endian();
    let table = image.elf().elf_dynamic_symbol_table();
    table.iter().any(|symbol| {
        symbol.st_shndx(endian) != elf::SHN_UNDEF
            && table
                .symbol_name(endian, symbol)
                .is_ok_and(|found| found == name)
    })
}
