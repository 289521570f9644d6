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
    let has = |name: &str| symbols.function(name).is_some();
    let mut found = Vec::new();
    if has("_rjem_malloc") || has("_rjem_mallocx") {
        found.push(LinkedAllocator::JemallocPrefixed);
    }
    if has("mallocx") || has("je_malloc") || has("je_mallocx") {
        found.push(LinkedAllocator::Jemalloc);
    }
    if has("mi_malloc") {
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
