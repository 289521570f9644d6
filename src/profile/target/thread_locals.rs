//! Thread-local variables by name, and where they are.
//!
//! The symbol table names every `thread_local!` with its offset in the module's TLS block, also
//! in a release build without debug info. The executable's block ends at the thread pointer
//! (x86-64, variant II), but not exactly: the linker pads so that alignment holds for the block's
//! own start address, and forgetting that puts every variable a few words off.

use object::elf;
use object::read::elf::ProgramHeader;

use super::{Image, Symbols, names};

/// A module's thread-local block, from PT_TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsBlock {
    pub size: u64,
    pub align: u64,
    /// Link-time address of its initial image.
    pub svma: u64,
    /// Bytes of `size` that have an initial image; the rest is zero.
    pub initialised: u64,
    /// From the thread pointer to the block, if this is the main executable.
    pub offset_in_executable: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadLocalSymbol {
    /// `crate::module::RULES`.
    pub name: String,
    pub offset_in_block: u64,
    pub size: u64,
}

pub(super) fn block(image: &Image) -> Option<TlsBlock> {
    let endian = image.endian();
    let headers = image.elf().elf_program_headers();
    let header = headers.iter().find(|h| h.p_type(endian) == elf::PT_TLS)?;
    let align = header.p_align(endian).max(1);
    let (size, svma) = (header.p_memsz(endian), header.p_vaddr(endian));
    Some(TlsBlock {
        size,
        align,
        svma,
        initialised: header.p_filesz(endian),
        offset_in_executable: executable_offset(image.machine(), size, align, svma)?,
    })
}

/// As the linkers compute it, so that code compiled for it and we agree.
fn executable_offset(machine: u16, size: u64, align: u64, svma: u64) -> Option<i64> {
    if !align.is_power_of_two() || size > i64::MAX as u64 / 4 || align > i64::MAX as u64 / 4 {
        return None;
    }
    if machine == elf::EM_AARCH64.0 {
        // Variant I: after the two words of the control block.
        let gap = svma.wrapping_sub(16) & (align - 1);
        return Some((16 + gap) as i64);
    }
    let gap = 0u64.wrapping_sub(svma).wrapping_sub(size) & (align - 1);
    Some(-((size + gap) as i64))
}

/// Sorted by offset; each place once.
pub(super) fn symbols(table: &Symbols) -> Vec<ThreadLocalSymbol> {
    let mut found: Vec<ThreadLocalSymbol> = table
        .thread_locals()
        .filter(|symbol| symbol.size > 0)
        .filter_map(|symbol| {
            Some(ThreadLocalSymbol {
                name: names::thread_local(symbol.name)?,
                offset_in_block: symbol.svma,
                size: symbol.size,
            })
        })
        .collect();
    found.sort_by(|a, b| (a.offset_in_block, &a.name).cmp(&(b.offset_in_block, &b.name)));
    found.dedup_by_key(|symbol| symbol.offset_in_block);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_ends_at_the_thread_pointer() {
        let x86 = |size, align, svma| executable_offset(62, size, align, svma);
        assert_eq!(x86(0x108, 8, 0xc0ca0), Some(-0x108));
        assert_eq!(x86(0x109, 8, 0xc0ca0), Some(-0x110));
        // The start keeps its place relative to the alignment: (-off) % 64 == 0x20.
        assert_eq!(x86(0x30, 64, 0x1020), Some(-0x60));
        assert_eq!(x86(0x30, 3, 0x1020), None);
        assert_eq!(executable_offset(183, 0x30, 64, 0x1000), Some(64));
    }
}
