//! The ways in: what makes the program's allocations reach the recorder.

mod global_alloc;
#[cfg(target_os = "linux")]
mod listener;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod patch;
#[cfg(target_os = "linux")]
mod recorder;
#[cfg(all(feature = "tokio", target_os = "linux"))]
mod tokio;

pub use global_alloc::Alloc;
#[cfg(target_os = "linux")]
pub use recorder::{Recorder, StartError};
