//! The symbol table: which function is at an address, and where a name is.
//!
//! The nearest symbol below an address is a tempting answer and often a wrong one: a stripped
//! function's address then gets its neighbour's name. A symbol counts only as far as its size
//! reaches; hand-written assembly, which has no sizes, reaches to the next symbol.
//!
//! Several names may stand at one address: the compiler merges functions whose code is equal.
//! All are kept, since whoever names things by their function has to know of it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use object::Endianness;
use object::elf;
use object::read::elf::{SectionHeader, Sym, SymbolTable};

use super::Image;

/// Symbols looked back over for one that encloses an address.
const LOOK_BACK: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// As in the file: mangled.
    pub name: &'a str,
    pub svma: u64,
    pub size: u64,
}

#[derive(Clone, Copy)]
struct Function {
    svma: u64,
    size: u64,
    /// Lower is better where several are at one address.
    rank: u8,
    index: u32,
}

pub struct Symbols {
    /// The file that has the table: the image itself or its debug file.
    image: Arc<Image>,
    /// Which of its tables.
    dynamic: bool,
    /// Sorted by address, the best name of an address first.
    functions: Vec<Function>,
    by_name: OnceLock<HashMap<&'static str, (u64, u64)>>,
}

impl Symbols {
    /// `.symtab` of the image, else of its debug file, else `.dynsym`.
    pub fn of(image: &Arc<Image>) -> Symbols {
        let in_debug_file = || image.debug_image().filter(|file| has_symtab(file));
        let (image, dynamic) = if has_symtab(image) {
            (image.clone(), false)
        } else if let Some(file) = in_debug_file() {
            (file, false)
        } else {
            (image.clone(), true)
        };
        let mut functions: Vec<Function> = Vec::new();
        for (index, symbol) in table(&image, dynamic).enumerate() {
            functions.extend(function(&image, index.0, symbol));
        }
        functions.sort_unstable_by_key(|f| (f.svma, f.rank, std::cmp::Reverse(f.size), f.index));
        Symbols {
            image,
            dynamic,
            functions,
            by_name: OnceLock::new(),
        }
    }

    /// Are functions that are not exported in it too?
    pub fn is_complete(&self) -> bool {
        !self.dynamic
    }

    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// All functions by address, aliases included.
    pub fn functions(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.functions.iter().map(|function| self.symbol(function))
    }

    /// Address and size of the function of this (mangled) name.
    pub fn function(&self, name: &str) -> Option<(u64, u64)> {
        let names = self.by_name.get_or_init(|| {
            // SAFETY: the map is private, `image` is kept beside it, and no name leaves it.
            let bytes = unsafe { self.image.bytes_unbound() };
            let of = |function: &Function| {
                let name = name_of(&self.image, self.dynamic, function.index)?;
                let at = name.as_ptr() as usize - bytes.as_ptr() as usize;
                let name = std::str::from_utf8(&bytes[at..at + name.len()]).ok()?;
                Some((name, (function.svma, function.size)))
            };
            self.functions.iter().filter_map(of).collect()
        });
        names.get(name).copied()
    }

    /// The function whose code contains the address, under its best name.
    pub fn containing(&self, svma: u64) -> Option<Symbol<'_>> {
        let after = self.functions.partition_point(|f| f.svma <= svma);
        let next = self.functions.get(after).map_or(u64::MAX, |f| f.svma);
        let mut best: Option<&Function> = None;
        for function in self.functions[..after].iter().rev().take(LOOK_BACK) {
            if best.is_some_and(|best| best.svma != function.svma) {
                break;
            }
            let end = match function.size {
                0 => next,
                size => function.svma.saturating_add(size),
            };
            if svma < end {
                best = Some(function);
            }
        }
        best.map(|function| self.symbol(function))
    }

    /// Every name of the function that starts here.
    pub fn at(&self, svma: u64) -> impl Iterator<Item = Symbol<'_>> {
        let first = self.functions.partition_point(|f| f.svma < svma);
        self.functions[first..]
            .iter()
            .take_while(move |f| f.svma == svma)
            .map(|function| self.symbol(function))
    }

    /// Symbols of data: STT_OBJECT, with the section they are in.
    pub fn objects(&self) -> impl Iterator<Item = (Symbol<'_>, usize)> {
        self.of_kind(elf::STT_OBJECT)
    }

    /// Symbols of thread-local storage; `svma` is the offset in the TLS block.
    pub fn thread_locals(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.of_kind(elf::STT_TLS).map(|(symbol, _)| symbol)
    }

    fn of_kind(&self, kind: elf::SymbolType) -> impl Iterator<Item = (Symbol<'_>, usize)> {
        let endian = self.image.endian();
        let table = table(&self.image, self.dynamic);
        table.enumerate().filter_map(move |(_, symbol)| {
            let section = symbol.st_shndx(endian);
            if symbol.st_type() != kind || section.0 == 0 {
                return None;
            }
            let name = table.symbol_name(endian, symbol).ok()?;
            let found = Symbol {
                name: std::str::from_utf8(name).ok()?,
                svma: symbol.st_value(endian),
                size: symbol.st_size(endian),
            };
            Some((found, usize::from(section.0)))
        })
    }

    fn symbol(&self, function: &Function) -> Symbol<'_> {
        Symbol {
            name: name_of(&self.image, self.dynamic, function.index).unwrap_or_default(),
            svma: function.svma,
            size: function.size,
        }
    }
}

fn has_symtab(image: &Image) -> bool {
    !image.elf().elf_symbol_table().is_empty()
}

fn table(
    image: &Image,
    dynamic: bool,
) -> &SymbolTable<'_, elf::FileHeader64<Endianness>, &'_ [u8]> {
    if dynamic {
        image.elf().elf_dynamic_symbol_table()
    } else {
        image.elf().elf_symbol_table()
    }
}

fn name_of(image: &Image, dynamic: bool, index: u32) -> Option<&str> {
    let table = table(image, dynamic);
    let symbol = table.symbol(object::SymbolIndex(index as usize)).ok()?;
    let name = table.symbol_name(image.endian(), symbol).ok()?;
    std::str::from_utf8(name).ok()
}

fn function(image: &Image, index: usize, symbol: &elf::Sym64<Endianness>) -> Option<Function> {
    let endian = image.endian();
    let section = symbol.st_shndx(endian);
    if section.0 == 0 || symbol.st_name(endian) == 0 {
        return None;
    }
    let size = symbol.st_size(endian);
    let kind = symbol.st_type();
    if kind == elf::STT_NOTYPE {
        // Labels of assembly; those outside of code mark the edges of sections.
        let index = object::SectionIndex(usize::from(section.0));
        let section = image.elf().elf_section_table().section(index).ok()?;
        if section.sh_flags(endian) & elf::SHF_EXECINSTR != elf::SHF_EXECINSTR {
            return None;
        }
    } else if kind != elf::STT_FUNC && kind != elf::STT_GNU_IFUNC {
        return None;
    }
    let rank = u8::from(size == 0) * 4
        + u8::from(kind == elf::STT_NOTYPE) * 2
        + u8::from(symbol.st_bind() == elf::STB_LOCAL);
    Some(Function {
        svma: symbol.st_value(endian),
        size,
        rank,
        index: u32::try_from(index).ok()?,
    })
}
