//! The executable as code: its functions, their bytes, and what it imports.
//!
//! Symbol sizes can be 0 (assembly) and two names can share one function
//! (identical code folding, aliases): a function here is an address, it ends at its size or where
//! the next one starts, and it has all of its names.

use std::collections::HashMap;

use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
    SectionKind,
};

use crate::profile::target::Target;

/// Code between two link-time addresses.
#[derive(Clone, Debug)]
pub struct Function<'data> {
    pub start: u64,
    pub end: u64,
    pub names: Vec<&'data str>,
}

/// What a slot through which code calls leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot<'data> {
    Import(&'data str),
    /// A function of the executable itself.
    Own(u64),
}

pub struct Image<'data> {
    /// Sorted by start, none of them empty, none overlapping.
    functions: Vec<Function<'data>>,
    by_name: HashMap<&'data str, u64>,
    /// Address and bytes of the sections that hold code.
    code: Vec<(u64, &'data [u8])>,
    /// What the dynamic linker puts into a slot.
    slots: HashMap<u64, Slot<'data>>,
    /// Address and bytes of the sections that hold data with a value in the file.
    data: Vec<(u64, &'data [u8])>,
    /// Has `.symtab`, so that what is not found is not there.
    pub has_symbols: bool,
    /// Constant data, to look for what only an allocator says.
    constants: Vec<&'data [u8]>,
}

impl<'data> Image<'data> {
    pub fn of(target: &'data Target) -> Image<'data> {
        let elf = target.image().elf();
        let mut code = Vec::new();
        let mut constants = Vec::new();
        let mut others = Vec::new();
        for section in elf.sections() {
            let Ok(data) = section.data() else { continue };
            match section.kind() {
                SectionKind::Text => code.push((section.address(), data)),
                SectionKind::ReadOnlyData | SectionKind::ReadOnlyString => constants.push(data),
                SectionKind::Data => others.push((section.address(), data)),
                _ => {}
            }
        }
        let symbols = target.symbols().functions();
        let named: Vec<(u64, u64, &str)> = symbols.map(|s| (s.svma, s.size, s.name)).collect();
        let by_name = named
            .iter()
            .map(|&(start, _, name)| (name, start))
            .collect();
        Image {
            functions: merge(named, &code),
            by_name,
            code,
            slots: slots(elf),
            data: others,
            has_symbols: target.has_symtab,
            constants,
        }
    }

    /// The address of the function of this name.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }

    pub fn functions(&self) -> &[Function<'data>] {
        &self.functions
    }

    /// The function that `svma` is in.
    pub fn function_at(&self, svma: u64) -> Option<&Function<'data>> {
        let after = self
            .functions
            .partition_point(|function| function.start <= svma);
        let function = &self.functions[after.checked_sub(1)?];
        (svma < function.end).then_some(function)
    }

    /// Where the first function after `svma` starts.
    pub fn next_start(&self, svma: u64) -> u64 {
        let after = self
            .functions
            .partition_point(|function| function.start <= svma);
        self.functions
            .get(after)
            .map_or(u64::MAX, |next| next.start)
    }

    /// Address and bytes of everything that can be executed.
    pub fn code(&self) -> &[(u64, &'data [u8])] {
        &self.code
    }

    /// Code from `start` to at most `end`, less where its section ends.
    pub fn bytes(&self, start: u64, end: u64) -> &'data [u8] {
        bytes_at(&self.code, start, end)
    }

    /// Where a call through the slot at `svma` leads.
    pub fn slot(&self, svma: u64) -> Option<Slot<'data>> {
        if let Some(slot) = self.slots.get(&svma) {
            return Some(*slot);
        }
        // Packed relocations, and executables at a fixed address, have the value in the file.
        let word = bytes_at(&self.data, svma, svma + 8).try_into().ok()?;
        let target = u64::from_le_bytes(word);
        self.function_at(target).map(|_| Slot::Own(target))
    }

    /// Does constant data hold these bytes?
    pub fn says(&self, text: &[u8]) -> bool {
        let mut windows = self
            .constants
            .iter()
            .flat_map(|data| data.windows(text.len()));
        windows.any(|window| window == text)
    }
}

/// Functions out of symbols: one for each address, cut where the next begins.
fn merge<'data>(named: Vec<(u64, u64, &'data str)>, code: &[(u64, &[u8])]) -> Vec<Function<'data>> {
    let mut functions: Vec<Function> = Vec::new();
    for (start, size, name) in named {
        match functions.last_mut() {
            Some(last) if last.start == start => {
                last.end = last.end.max(start + size);
                last.names.push(name);
            }
            _ => functions.push(Function {
                start,
                end: start.saturating_add(size),
                names: vec![name],
            }),
        }
    }
    for index in 0..functions.len() {
        let start = functions[index].start;
        let section = code
            .iter()
            .find(|(at, data)| start.wrapping_sub(*at) < data.len() as u64);
        let limit = section.map_or(start, |(at, data)| at + data.len() as u64);
        let next = functions
            .get(index + 1)
            .map_or(u64::MAX, |next| next.start)
            .min(limit);
        let function = &mut functions[index];
        function.end = if function.end == start {
            next
        } else {
            function.end.min(next)
        };
    }
    functions.retain(|function| function.end > function.start);
    functions
}

fn bytes_at<'data>(sections: &[(u64, &'data [u8])], start: u64, end: u64) -> &'data [u8] {
    for &(address, data) in sections {
        let Some(from) = start.checked_sub(address) else {
            continue;
        };
        if from < data.len() as u64 {
            let to = end.saturating_sub(address).min(data.len() as u64).max(from);
            return &data[from as usize..to as usize];
        }
    }
    &[]
}

fn slots<'data>(elf: &ElfFile64<'data, Endianness, &'data [u8]>) -> HashMap<u64, Slot<'data>> {
    let mut slots = HashMap::new();
    let table = elf.dynamic_symbol_table();
    for (at, relocation) in elf.dynamic_relocations().into_iter().flatten() {
        match relocation.target() {
            RelocationTarget::Symbol(index) => {
                let symbol = table
                    .as_ref()
                    .and_then(|table| table.symbol_by_index(index).ok());
                let Some(symbol) = symbol else { continue };
                if !symbol.is_undefined() {
                    slots.insert(at, Slot::Own(symbol.address()));
                } else if let Ok(name) = symbol.name() {
                    slots.insert(at, Slot::Import(name));
                }
            }
            RelocationTarget::Absolute => {
                slots.insert(at, Slot::Own(relocation.addend() as u64));
            }
            _ => {}
        }
    }
    slots
}
