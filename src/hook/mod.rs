//! The ways in: what makes the program's allocations reach the recorder, and budgets in tests.

mod global_alloc;
#[cfg(target_os = "linux")]
mod listener;
#[doc(hidden)]
pub mod measure;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod patch;
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod recorder;
mod start_error;
mod switch;
#[cfg(all(feature = "tokio", target_os = "linux"))]
mod tokio;

pub use global_alloc::Alloc;
pub use measure::{
    Bytes, HeapScope, Measured, Scope, ScopeFigures, Scoped, Site, carried, measure, measure_async,
    scope,
};
pub use recorder::Recorder;
pub use start_error::StartError;
