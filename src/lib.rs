//! taskheap: which tokio task, thread and thread-local owns every byte of a Rust program's heap.

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod analyze;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod hook;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod profile;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod record;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod render;
#[doc(hidden)]
pub mod sys;
#[cfg(all(feature = "cli", target_os = "linux"))]
#[doc(hidden)]
pub mod walk;
#[doc(hidden)]
pub mod wire;

#[cfg(taskheap_preload)]
pub mod preload;

pub use hook::{
    Alloc, Bytes, HeapScope, Measured, Recorder, Scope, ScopeFigures, Scoped, Site, StartError,
    carried, measure, measure_async, scope,
};
