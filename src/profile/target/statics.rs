//! Static variables by name: what a program can keep heap memory in without any stack.
//!
//! Only writable data counts. Vtables and constants are in data that becomes read-only once
//! relocated; a pointer to the heap can't have been stored there.

use object::elf;
use object::read::elf::SectionHeader;

use super::{Image, Symbols, names};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticSymbol {
    pub name: String,
    pub svma: u64,
    pub size: u64,
}

/// Sorted by address; each place once.
pub(super) fn symbols(image: &Image, table: &Symbols) -> Vec<StaticSymbol> {
    let writable = writable_sections(image);
    let mut found: Vec<StaticSymbol> = table
        .objects()
        .filter(|(symbol, section)| {
            symbol.size > 0 && writable.get(*section) == Some(&true) && is_variable(symbol.name)
        })
        .map(|(symbol, _)| StaticSymbol {
            name: names::static_variable(symbol.name),
            svma: symbol.svma,
            size: symbol.size,
        })
        .collect();
    found.sort_by(|a, b| (a.svma, &a.name).cmp(&(b.svma, &b.name)));
    found.dedup_by_key(|symbol| symbol.svma);
    found
}

/// By section index: is it writable data that stays so?
fn writable_sections(image: &Image) -> Vec<bool> {
    let endian = image.endian();
    let table = image.elf().elf_section_table();
    let is_writable = |section: &elf::SectionHeader64<_>| {
        let flags = section.sh_flags(endian);
        let name = table.section_name(endian, section).unwrap_or_default();
        let kind = section.sh_type(endian);
        flags & elf::SHF_WRITE == elf::SHF_WRITE
            && flags & elf::SHF_ALLOC == elf::SHF_ALLOC
            && flags & elf::SHF_TLS != elf::SHF_TLS
            && (kind == elf::SHT_PROGBITS || kind == elf::SHT_NOBITS)
            && !name.starts_with(b".data.rel.ro")
            && !name.starts_with(b".bss.rel.ro")
            && !name.starts_with(b".got")
    };
    table.iter().map(is_writable).collect()
}

/// Names that compilers and linkers make for themselves.
fn is_variable(name: &str) -> bool {
    let made = [
        "anon.",
        ".L",
        "DW.ref.",
        "__TMC_",
        "vtable",
        "switch.table",
        "_GLOBAL_OFFSET",
        "_rust_extern_with_linkage",
    ];
    let made_whole = ["_DYNAMIC", "__dso_handle", "completed.0", "_IO_stdin_used"];
    !made.iter().any(|prefix| name.starts_with(*prefix)) && !made_whole.contains(&name)
}
