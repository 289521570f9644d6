//! Names for addresses, after the program has run.
//!
//! A stack is recorded as return addresses. The instruction that called is the one before, so
//! every address is looked up one byte back; otherwise a call at the end of a function would be
//! charged to its neighbour, and one at the end of an inlined function to the wrong line.
//!
//! The file may have been rebuilt since it was loaded. Names from another build are worse than
//! none, so the build id has to agree; addresses of a file that changed or is gone are unknown,
//! and counted. Files without a build id can't be checked and are taken as they are.
//!
//! Files are mapped and units parsed when an address needs them; each address is looked up once.

mod entries;
mod module;
mod origin;
mod own;
mod stack_names;
mod task_names;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Origin;
use module::Module;

pub use stack_names::{name_by_stacks, settle_by_stacks};
use task_names::TaskTypes;
pub use task_names::{DYN_FUTURE, TaskName};

/// A function that an address is in. An address is in several if some were inlined.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ResolvedFrame {
    pub function: Arc<str>,
    /// Empty if unknown.
    pub file: Arc<str>,
    /// 0 if unknown.
    pub line: u32,
    /// Crate or shared library; empty if unknown, or the program's own.
    pub library: Arc<str>,
    pub origin: Origin,
    /// Into the next outer frame, which stands before it.
    pub inlined: bool,
}

/// A return address, as it stands in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address<'a> {
    pub module: &'a Path,
    /// As loaded, or its first 32 bytes; empty if there was none.
    pub build_id: &'a [u8],
    pub svma: u64,
}

/// What could not be named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Addresses in files that have changed since they were loaded.
    pub changed: u64,
    /// Addresses in files that can't be read.
    pub unreadable: u64,
    /// Addresses that no symbol covers.
    pub nameless: u64,
}

#[derive(Default)]
pub struct Symbolizer {
    modules: HashMap<PathBuf, Opened>,
    resolved: HashMap<(usize, u64), Arc<[ResolvedFrame]>>,
    missing: Missing,
}

struct Opened {
    number: usize,
    module: Option<Module>,
    task_types: TaskTypes,
}

impl Symbolizer {
    pub fn new() -> Symbolizer {
        Symbolizer::default()
    }

    /// The functions that a return address is in, outermost first; never empty.
    pub fn resolve(&mut self, address: Address<'_>) -> Arc<[ResolvedFrame]> {
        let number = self.open(address.module);
        let key = (number, address.svma);
        if let Some(frames) = self.resolved.get(&key) {
            return frames.clone();
        }
        let frames: Arc<[ResolvedFrame]> = self.look_up(address).into();
        self.resolved.insert(key, frames.clone());
        frames
    }

    /// Many addresses, in the order that is fastest; results in the order of the addresses.
    /// `progress` is told (done, all) now and then.
    pub fn resolve_all(
        &mut self,
        addresses: &[Address<'_>],
        progress: &dyn Fn(usize, usize),
    ) -> Vec<Arc<[ResolvedFrame]>> {
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        order.sort_by_key(|at| (addresses[*at].module, addresses[*at].svma));
        let nothing: Arc<[ResolvedFrame]> = Arc::new([]);
        let mut results = vec![nothing; addresses.len()];
        for (done, at) in order.into_iter().enumerate() {
            if done % 256 == 0 {
                progress(done, addresses.len());
            }
            results[at] = self.resolve(addresses[at]);
        }
        progress(addresses.len(), addresses.len());
        results
    }

    pub fn missing(&self) -> Missing {
        self.missing
    }

    /// All task vtables that are found in a file, with their names.
    pub fn task_types(&mut self, exe: &Path) -> Vec<(u64, TaskName)> {
        self.name_task(exe, 0);
        let opened = self.modules.get(exe);
        opened
            .map(|opened| opened.task_types.all())
            .unwrap_or_default()
    }

    /// Is there debug info for this file's own code?
    pub fn has_debug_info(&mut self, path: &Path) -> bool {
        let info = self
            .module(path)
            .and_then(|module| module.debug_info.as_ref());
        info.is_some_and(|info| info.describes_program())
    }

    fn look_up(&mut self, address: Address<'_>) -> Vec<ResolvedFrame> {
        let path = address.module;
        let Some(module) = self
            .modules
            .get(path)
            .and_then(|opened| opened.module.as_ref())
        else {
            self.missing.unreadable += 1;
            return vec![unknown(path)];
        };
        if !same_build(module.image.build_id(), address.build_id) {
            self.missing.changed += 1;
            return vec![unknown(path)];
        }
        let frames = module.frames(address.svma.saturating_sub(1));
        if frames.is_empty() {
            self.missing.nameless += 1;
            return vec![unknown(path)];
        }
        frames
    }

    fn open(&mut self, path: &Path) -> usize {
        if let Some(opened) = self.modules.get(path) {
            return opened.number;
        }
        let number = self.modules.len();
        let module = Module::open(path).ok();
        let task_types = TaskTypes::default();
        let opened = Opened {
            number,
            module,
            task_types,
        };
        self.modules.insert(path.to_owned(), opened);
        number
    }

    fn module(&mut self, path: &Path) -> Option<&Module> {
        self.open(path);
        self.modules.get(path)?.module.as_ref()
    }
}

/// The recording keeps 32 bytes of a build id.
fn same_build(file: &[u8], loaded: &[u8]) -> bool {
    let compared = file.len().min(32);
    loaded.is_empty() || file[..compared] == loaded[..loaded.len().min(32)]
}

fn unknown(path: &Path) -> ResolvedFrame {
    let name = module::file_name(path);
    let is_library = name.contains(".so");
    ResolvedFrame {
        function: format!("[{name}]").into(),
        file: Arc::default(),
        line: 0,
        library: name.into(),
        origin: if is_library {
            Origin::Foreign
        } else {
            Origin::Unknown
        },
        inlined: false,
    }
}
