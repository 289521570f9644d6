//! The DWARF of an image, wherever it is: in the file, in a separate one, partly in a shared one.
//!
//! Sections are mapped, not read; only compressed ones take memory. Units are parsed when an
//! address of theirs is asked for.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{EndianSlice, LittleEndian};
use object::Object;

use super::Image;

/// Bytes in the mapping of an [`Image`] that is kept beside them.
pub(in crate::profile) type Slice = EndianSlice<'static, LittleEndian>;

pub(in crate::profile) type Dwarf = gimli::Dwarf<Slice>;

pub struct DebugInfo {
    // Both borrow from what follows them, and go first.
    context: OnceCell<Option<addr2line::Context<Slice>>>,
    dwarf: Arc<Dwarf>,
    _sections: Vec<Box<[u8]>>,
    _images: Vec<Arc<Image>>,
}

impl DebugInfo {
    /// None without debug info.
    pub fn of(image: &Arc<Image>) -> Option<DebugInfo> {
        let file = image.debug_image()?;
        let mut sections = Vec::new();
        let mut images = vec![file.clone()];
        let mut dwarf = load(&file, &mut sections);
        if let Some(shared) = alternative(&file) {
            dwarf.set_sup(load(&shared, &mut sections));
            images.push(shared);
        }
        Some(DebugInfo {
            context: OnceCell::new(),
            dwarf: Arc::new(dwarf),
            _sections: sections,
            _images: images,
        })
    }

    /// Is the program itself described, and not only the std that it was linked with?
    pub fn describes_program(&self) -> bool {
        let mut headers = self.dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Ok(unit) = self.dwarf.unit(header) else {
                continue;
            };
            let made_by = |text: Option<Slice>, start: &[u8]| {
                text.is_some_and(|text| text.slice().starts_with(start))
            };
            let of_std = made_by(unit.comp_dir, b"/rustc/");
            let of_libc = made_by(unit.name, b"../sysdeps") || made_by(unit.name, b"../csu");
            if !of_std && !of_libc {
                return true;
            }
        }
        false
    }

    /// The entries. What is read from them must not be kept longer than `self`.
    pub(in crate::profile) fn dwarf(&self) -> &Dwarf {
        &self.dwarf
    }

    /// Addresses to functions and lines; None if the debug info is damaged.
    pub(in crate::profile) fn context(&self) -> Option<&addr2line::Context<Slice>> {
        let make = || addr2line::Context::from_arc_dwarf(self.dwarf.clone()).ok();
        self.context.get_or_init(make).as_ref()
    }
}

fn load(image: &Image, decompressed: &mut Vec<Box<[u8]>>) -> Dwarf {
    let load = |id: gimli::SectionId| -> Result<Slice, std::convert::Infallible> {
        let bytes = match image.section(id.name()) {
            std::borrow::Cow::Borrowed(bytes) => {
                let start = bytes.as_ptr() as usize - image.bytes().as_ptr() as usize;
                // SAFETY: the caller keeps the image beside what is made of these bytes.
                let whole = unsafe { image.bytes_unbound() };
                if bytes.is_empty() {
                    &[]
                } else {
                    &whole[start..start + bytes.len()]
                }
            }
            std::borrow::Cow::Owned(bytes) => {
                decompressed.push(bytes.into_boxed_slice());
                let last = decompressed.last().map_or(&[][..], |bytes| bytes);
                // SAFETY: a box stays in its place when the vector grows, and the caller keeps
                // the vector beside what is made of these bytes, untouched.
                unsafe { std::slice::from_raw_parts(last.as_ptr(), last.len()) }
            }
        };
        Ok(EndianSlice::new(bytes, LittleEndian))
    };
    let Ok(dwarf) = gimli::Dwarf::load(load);
    dwarf
}

/// The file that holds what several debug files have in common (made by dwz).
fn alternative(image: &Image) -> Option<Arc<Image>> {
    let (name, id) = image.elf().gnu_debugaltlink().ok().flatten()?;
    let name = Path::new(std::str::from_utf8(name).ok()?);
    let folder = image.path().canonicalize().ok()?;
    let beside = folder.parent()?.join(name);
    let by_id: Option<PathBuf> = super::debug_file::by_build_id(id);
    let mut candidates = std::iter::once(beside).chain(by_id);
    candidates.find_map(|path| {
        let found = Image::open(&path).ok()?;
        (found.build_id() == id).then_some(found)
    })
}
