//! What can be known of a program from its file, before it runs.
//!
//! Everything here is read once, from one mapping, by the command; the profiled process is told
//! the results. What a file does not say is absent from [`Target`], never guessed.

mod allocators;
mod debug_file;
pub(in crate::profile) mod debug_info;
mod error;
mod image;
mod init_ranges;
mod loadable;
pub mod names;
mod statics;
mod symbols;
mod task_ids;
mod thread_locals;

use std::path::Path;
use std::sync::Arc;

pub use allocators::LinkedAllocator;
pub use debug_info::DebugInfo;
pub use error::TargetError;
pub use image::Image;
pub use loadable::interpreter_of;
pub use statics::StaticSymbol;
pub use symbols::{Symbol, Symbols};
pub use task_ids::{TaskIdMethod, TaskIdPlace};
pub use thread_locals::{ThreadLocalSymbol, TlsBlock};

use crate::wire::InitRange;

/// Facts about an executable or shared object.
pub struct Target {
    pub build_id: Vec<u8>,
    /// Of the program's own code, in the file or in a separate one that was found.
    pub has_debug_info: bool,
    /// Without it, only exported functions have names.
    pub has_symtab: bool,
    pub tls: Option<TlsBlock>,
    pub thread_locals: Vec<ThreadLocalSymbol>,
    pub statics: Vec<StaticSymbol>,
    /// One for each tokio in the executable; empty if it has none, or no symbols.
    pub task_ids: Vec<TaskIdPlace>,
    /// Sorted.
    pub init_ranges: Vec<InitRange>,
    pub linked_allocators: Vec<LinkedAllocator>,
    image: Arc<Image>,
    symbols: Symbols,
}

impl Target {
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Functions by address and by mangled name.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Address and size of a function by its mangled name.
    pub fn symbol(&self, name: &str) -> Option<(u64, u64)> {
        self.symbols.function(name)
    }

    /// The best of the methods by which task ids are read, as in `Recording::task_ids`.
    pub fn task_id_method(&self) -> &'static str {
        let best = self.task_ids.iter().map(|place| place.method).min();
        best.map_or("none", TaskIdMethod::name)
    }
}

/// Facts about a program, which must be one that the recorder can be preloaded into.
pub fn inspect(exe: &Path) -> Result<Target, TargetError> {
    let image = Image::open(exe)?;
    loadable::check(&image)?;
    Ok(facts(image))
}

/// Facts about any ELF file of this architecture.
pub fn inspect_object(path: &Path) -> Result<Target, TargetError> {
    Image::open(path).map(facts)
}

fn facts(image: Arc<Image>) -> Target {
    let symbols = Symbols::of(&image);
    let debug_info = DebugInfo::of(&image);
    let tls = thread_locals::block(&image);
    Target {
        build_id: image.build_id().to_owned(),
        has_debug_info: debug_info
            .as_ref()
            .is_some_and(DebugInfo::describes_program),
        has_symtab: symbols.is_complete(),
        tls,
        thread_locals: thread_locals::symbols(&symbols),
        statics: statics::symbols(&image, &symbols),
        task_ids: task_ids::find(&image, &symbols, tls, debug_info.as_ref()),
        init_ranges: init_ranges::find(&symbols, debug_info.as_ref()),
        linked_allocators: allocators::find(&image, &symbols),
        image,
        symbols,
    }
}
