//! Formats of other tools: one file each, from a profile to bytes.

pub mod collapsed;
pub mod dhat;
pub mod pprof;
