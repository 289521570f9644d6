//! (to come)
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod maps;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod mem;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod ptrace;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod sched;
