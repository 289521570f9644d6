//! An ELF file, mapped and parsed once, shared by everyone who asks something of it.
//!
//! Binaries have hundreds of megabytes of debug info, so nothing is copied: names, sections and
//! debug entries point into the mapping. Parsers that borrow from their own mapping can't be kept
//! in one struct in safe Rust; the tempting way out, reading the file into leaked memory, costs
//! its whole size. Here the borrowed half is private, dropped first, and handed out only with the
//! lifetime of the [`Image`] that owns the mapping.
//!
//! The limit: a file that is truncated while it is mapped kills its reader. Linkers and package
//! managers replace executables by renaming, and a running one can't be written to.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use memmap2::Mmap;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use object::{Endianness, Object, ObjectSection};

use super::TargetError;

type Elf = ElfFile64<'static, Endianness, &'static [u8]>;

pub struct Image {
    path: PathBuf,
    elf: Elf,
    bytes: &'static [u8],
    relocated: OnceLock<Vec<(u64, u64)>>,
    debug_image: OnceLock<Option<Arc<Image>>>,
    // Last: what borrows from it is dropped before it.
    _map: Mmap,
}

impl Image {
    /// Maps and parses the file.
    pub fn open(path: &Path) -> Result<Arc<Image>, TargetError> {
        let unreadable = |source: io::Error| TargetError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(TargetError::NotElf {
                path: path.to_owned(),
            });
        }
        // SAFETY: the mapping is private and read-only. That nobody truncates the file meanwhile
        // is the user's part; see the module's head for why this is weak but accepted.
        let map = unsafe { Mmap::map(&file) }.map_err(unreadable)?;
        Image::parse(path, map).map(Arc::new)
    }

    fn parse(path: &Path, map: Mmap) -> Result<Image, TargetError> {
        // SAFETY: the bytes stay mapped at this address for as long as `_map` lives, wherever the
        // struct moves. `elf` and `bytes` are private to this module, which hands them out with
        // the lifetime of `&self` only, and are dropped before `_map`.
        let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) };
        check_identity(path, bytes)?;
        let elf = Elf::parse(bytes).map_err(|error| TargetError::Malformed {
            path: path.to_owned(),
            what: error.to_string(),
        })?;
        Ok(Image {
            path: path.to_owned(),
            elf,
            bytes,
            relocated: OnceLock::new(),
            debug_image: OnceLock::new(),
            _map: map,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn elf(&self) -> &ElfFile64<'_, Endianness, &'_ [u8]> {
        &self.elf
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    pub fn endian(&self) -> Endianness {
        self.elf.endian()
    }

    pub fn machine(&self) -> u16 {
        self.elf.elf_header().e_machine(self.endian()).0
    }

    /// Empty if the linker made none.
    pub fn build_id(&self) -> &[u8] {
        self.elf.build_id().ok().flatten().unwrap_or_default()
    }

    /// The contents of a section, decompressed if need be; empty if there is none.
    pub fn section(&self, name: &str) -> std::borrow::Cow<'_, [u8]> {
        let section = self.elf.section_by_name(name);
        section
            .and_then(|section| section.uncompressed_data().ok())
            .unwrap_or_default()
    }

    pub fn has_section(&self, name: &str) -> bool {
        self.elf
            .section_by_name(name)
            .is_some_and(|section| section.size() > 0 && section.file_range().is_some())
    }

    /// Bytes at a link-time address, as the file has them: fewer than `len` at the end of what
    /// the file holds of a segment.
    pub fn read(&self, svma: u64, len: usize) -> &[u8] {
        let endian = self.endian();
        for segment in self.elf.elf_program_headers() {
            let start = segment.p_vaddr(endian);
            let held = segment.p_filesz(endian);
            if segment.p_type(endian) != elf::PT_LOAD || svma < start || svma - start >= held {
                continue;
            }
            let Ok(data) = segment.data(endian, self.bytes) else {
                continue;
            };
            let at = (svma - start) as usize;
            return data
                .get(at..data.len().min(at.saturating_add(len)))
                .unwrap_or_default();
        }
        &[]
    }

    /// The word at `svma` as it will be once the program is loaded, in link-time terms.
    pub fn pointer_at(&self, svma: u64) -> Option<u64> {
        let table = self.relocated.get_or_init(|| self.relocations());
        if let Ok(at) = table.binary_search_by_key(&svma, |(place, _)| *place) {
            return Some(table[at].1);
        }
        // No relocation, or a packed one (RELR), which keeps the value in its place.
        let bytes: [u8; 8] = self.read(svma, 8).try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Where relocations with an addend put which link-time value, sorted by place.
    fn relocations(&self) -> Vec<(u64, u64)> {
        let endian = self.endian();
        let sections = self.elf.elf_section_table();
        let symbols = self.elf.elf_dynamic_symbol_table();
        let relative = relative_kind(self.machine());
        let mut table = Vec::new();
        for section in sections.iter() {
            if section.sh_flags(endian) & elf::SHF_ALLOC != elf::SHF_ALLOC {
                continue;
            }
            let Ok(Some((relas, _))) = section.rela(endian, self.bytes) else {
                continue;
            };
            for rela in relas {
                let addend = rela.r_addend(endian) as u64;
                let value = if rela.r_type(endian, false).0 == relative {
                    Some(addend)
                } else {
                    let symbol = rela.symbol(endian, false);
                    symbol
                        .and_then(|index| symbols.symbol(index).ok())
                        .map(|symbol| symbol.st_value(endian))
                        .filter(|value| *value != 0)
                        .map(|value| value.wrapping_add(addend))
                };
                table.extend(value.map(|value| (rela.r_offset(endian), value)));
            }
        }
        table.sort_unstable();
        table.dedup_by_key(|(place, _)| *place);
        table
    }

    /// The file that has the debug info of this one: itself, a separate one, or none.
    pub fn debug_image(self: &Arc<Self>) -> Option<Arc<Image>> {
        if self.has_section(".debug_info") || self.has_section(".zdebug_info") {
            return Some(self.clone());
        }
        let separate = self
            .debug_image
            .get_or_init(|| super::debug_file::find(self));
        separate.clone()
    }

    /// The same bytes for longer than the borrow checker can follow.
    ///
    /// # Safety
    /// Nothing that is derived from them may live longer than this image: whoever keeps it keeps
    /// the `Arc` beside it, drops it first, and never hands it out with a longer lifetime.
    pub(in crate::profile) unsafe fn bytes_unbound(&self) -> &'static [u8] {
        self.bytes
    }
}

/// R_X86_64_RELATIVE, R_AARCH64_RELATIVE.
fn relative_kind(machine: u16) -> u32 {
    if machine == elf::EM_AARCH64.0 {
        elf::R_AARCH64_RELATIVE.0
    } else {
        elf::R_X86_64_RELATIVE.0
    }
}

fn check_identity(path: &Path, bytes: &[u8]) -> Result<(), TargetError> {
    let path = path.to_owned();
    if !bytes.starts_with(b"\x7fELF") {
        return Err(TargetError::NotElf { path });
    }
    // e_ident[EI_CLASS], e_ident[EI_DATA], e_machine: at the same places in every ELF file.
    let (Some(&class), Some(&data), Some(&[low, high])) = (
        bytes.get(4),
        bytes.get(5),
        bytes.get(18..20).and_then(<[u8]>::first_chunk),
    ) else {
        let what = "it ends within its header".to_owned();
        return Err(TargetError::Malformed { path, what });
    };
    let machine = if data == 2 {
        u16::from_be_bytes([low, high])
    } else {
        u16::from_le_bytes([low, high])
    };
    if class != 2 || data != 1 || machine != HOST_MACHINE {
        return Err(TargetError::OtherArchitecture { path, machine });
    }
    Ok(())
}

/// What programs on this machine are made for.
#[cfg(target_arch = "x86_64")]
pub const HOST_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
pub const HOST_MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub const HOST_MACHINE: u16 = 0;
