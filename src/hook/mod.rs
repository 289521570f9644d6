//! The ways in: what makes the program's allocations reach the recorder.

#[cfg(target_os = "linux")]
pub mod patch;
