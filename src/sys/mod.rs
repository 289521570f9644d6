//! Every call of the operating system, behind functions with stated preconditions.
//!
//! The recorder calls some of these from inside `malloc`: those neither allocate nor let the
//! program see a changed `errno`.

#[cfg(target_os = "linux")]
pub mod executable;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod held;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod installed;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod maps;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod mem;
#[cfg(feature = "cli")]
pub mod prefetch;
#[cfg(target_os = "linux")]
pub mod private;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod ptrace;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod sched;
#[cfg(target_os = "linux")]
pub mod segment;
#[cfg(target_os = "linux")]
pub mod thread;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub mod watchpoint;
