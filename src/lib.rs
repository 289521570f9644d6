//! taskheap: which tokio task, thread and thread-local owns every byte of a Rust program's heap.

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod profile;
pub mod sys;
#[cfg(all(feature = "cli", target_os = "linux"))]
#[doc(hidden)]
pub mod walk;
pub mod wire;
