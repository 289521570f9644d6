//! The finished profile: its model, its file, the names in it, and shared ways to look at it.

mod format;
mod memory;
mod model;
mod output;
pub mod patches;
mod read;
#[cfg(target_os = "linux")]
pub mod recording;
pub mod symbolize;
pub mod target;
mod validate;
mod view;
mod watched;
mod weigh;
mod write;

pub use format::{MAJOR, MINOR, Major, Minor, readable};
pub use memory::{AllocatorMemory, Memory};
pub use model::*;
pub use output::{Options, Output, OutputError};
pub use read::{ReadError, read, read_from};
pub use validate::Invalid;
pub use view::{Site, SiteSearch, percentile};
pub use watched::*;
pub use write::{encode, write, write_to};
