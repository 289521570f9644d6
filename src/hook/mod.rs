//! The ways in: what makes the program's allocations reach the recorder.

mod global_alloc;
#[cfg(target_os = "linux")]
mod listener;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod patch;
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod recorder;
mod start_error;
#[cfg(all(feature = "tokio", target_os = "linux"))]
mod tokio;

pub use global_alloc::Alloc;
pub use recorder::Recorder;
pub use start_error::StartError;
