//! Names for the addresses of one file.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use gimli::UnitOffset;

use super::ResolvedFrame;
use super::entries::Entries;
use super::origin::{self, Crates, Source};
use super::own;
use crate::profile::Origin;
use crate::profile::target::debug_info::Slice;
use crate::profile::target::names::{self, Language};
use crate::profile::target::{DebugInfo, Image, Symbols, TargetError};

pub(super) struct Module {
    pub image: Arc<Image>,
    pub symbols: Symbols,
    pub debug_info: Option<DebugInfo>,
    file_name: String,
    crates: OnceCell<Crates>,
    entries: OnceCell<Entries>,
}

impl Module {
    pub fn open(path: &Path) -> Result<Module, TargetError> {
        let image = Image::open(path)?;
        Ok(Module {
            symbols: Symbols::of(&image),
            debug_info: DebugInfo::of(&image),
            file_name: file_name(path),
            image,
            crates: OnceCell::new(),
            entries: OnceCell::new(),
        })
    }

    /// The functions at an address (not a return address), outermost first. Empty if unknown.
    pub fn frames(&self, svma: u64) -> Vec<ResolvedFrame> {
        let described = self.described(svma);
        if !described.is_empty() {
            return described;
        }
        let symbol = self.symbols.containing(svma);
        symbol
            .map(|symbol| vec![self.by_symbol(symbol.name)])
            .unwrap_or_default()
    }

    fn by_symbol(&self, symbol: &str) -> ResolvedFrame {
        let (name, language) = names::demangle(symbol);
        let spelled = match language {
            Language::Rust => names::spelled(&name),
            _ => name.into_owned(),
        };
        let source = self.crates().by_name(&spelled, language, &self.file_name);
        ResolvedFrame {
            function: names::readable_of(&spelled, language).into(),
            file: Arc::default(),
            line: 0,
            library: source.library.into(),
            origin: source.origin,
            inlined: false,
        }
    }

    /// From debug info.
    fn described(&self, svma: u64) -> Vec<ResolvedFrame> {
        let context = self
            .debug_info
            .as_ref()
            .and_then(|info| Some((info, info.context()?)));
        let Some((info, context)) = context else {
            return Vec::new();
        };
        let Ok(mut frames) = context.find_frames(svma).skip_all_loads() else {
            return Vec::new();
        };
        let unit = context.find_dwarf_and_unit(svma).skip_all_loads();
        let folder = unit
            .and_then(|unit| unit.comp_dir)
            .map(|folder| folder.to_string_lossy());
        let folder = folder.unwrap_or_default();
        let unit_start = unit
            .and_then(|unit| unit.header.debug_info_offset())
            .map(|offset| offset.0);
        let mut found = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let entry = frame.dw_die_offset.zip(unit_start);
            let Some(resolved) = self.describe(info, &frame, entry, &folder, svma) else {
                return Vec::new();
            };
            found.push(resolved);
        }
        found.reverse();
        for frame in found.iter_mut().skip(1) {
            frame.inlined = true;
        }
        found
    }

    fn describe(
        &self,
        info: &DebugInfo,
        frame: &addr2line::Frame<'_, Slice>,
        entry: Option<(UnitOffset, usize)>,
        folder: &str,
        svma: u64,
    ) -> Option<ResolvedFrame> {
        let language = frame
            .function
            .as_ref()
            .and_then(|function| function.language);
        let raw = frame
            .function
            .as_ref()
            .and_then(|function| function.raw_name().ok());
        let raw = match raw {
            Some(raw) => raw,
            // Line tables of functions without an entry: assembly.
            None => self.symbols.containing(svma)?.name.into(),
        };
        let (name, scheme) = names::demangle(&raw);
        let mut spelled = match scheme {
            Language::Rust => names::spelled(&name),
            _ => name.into_owned(),
        };
        if let Some((entry, unit)) = entry
            && let Some(base) = spelled.strip_suffix("::{closure}")
        {
            let entries = self.entries.get_or_init(|| Entries::of(info));
            let kind = entries.name(info, unit + entry.0).unwrap_or_default();
            spelled = closure_name(base, kind);
        }
        let location = frame.location.as_ref();
        let path = location
            .and_then(|location| location.file)
            .unwrap_or_default();
        let is_rust = language == Some(gimli::DW_LANG_Rust) || scheme == Language::Rust;
        let source = self.source(path, &spelled, scheme, is_rust);
        Some(ResolvedFrame {
            function: names::readable_of(&spelled, scheme).into(),
            file: origin::shown_path(path, folder).into(),
            line: location.and_then(|location| location.line).unwrap_or(0),
            library: source.library.into(),
            origin: source.origin,
            inlined: false,
        })
    }

    fn source(&self, path: &str, spelled: &str, scheme: Language, is_rust: bool) -> Source {
        if !is_rust {
            // C and C++: named by the package that brought it, else by the file it ended up in.
            let known = origin::by_path(path);
            let library = known.map_or_else(|| self.file_name.clone(), |source| source.library);
            let origin = Origin::Foreign;
            return Source { origin, library };
        }
        match scheme {
            Language::Rust => self.crates().by_name_and_path(spelled, path),
            // `#[no_mangle]`: only the path can tell.
            _ if !path.is_empty() => origin::by_path(path).unwrap_or(Source {
                origin: Origin::Own,
                library: String::new(),
            }),
            _ => self.crates().by_name(spelled, scheme, &self.file_name),
        }
    }

    pub fn crates(&self) -> &Crates {
        let of = || own::of(&self.image, &self.symbols, self.debug_info.as_ref());
        self.crates.get_or_init(of)
    }

    pub fn entries(&self) -> Option<(&DebugInfo, &Entries)> {
        let info = self.debug_info.as_ref()?;
        Some((info, self.entries.get_or_init(|| Entries::of(info))))
    }
}

/// rustc notes what a closure was written as.
fn closure_name(base: &str, kind: &[u8]) -> String {
    let kind = std::str::from_utf8(kind).unwrap_or_default();
    if kind.starts_with("{async_fn") {
        // The body of an async fn goes by the function's name.
        base.to_owned()
    } else if kind.starts_with("{async_block") {
        format!("{base}::{{async block}}")
    } else if kind.starts_with("{async_closure") {
        format!("{base}::{{async closure}}")
    } else {
        format!("{base}::{{closure}}")
    }
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
