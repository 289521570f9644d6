//! Why a recording can't begin.

use std::io;
use std::path::PathBuf;

/// Why a recording in the process itself can't begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// This process has been recorded already.
    Again,
    /// There is no memory for the tables.
    Memory,
    /// There is a file of another kind, or it can't be looked at.
    Output { path: PathBuf, error: io::Error },
    /// Nothing can be recorded on this system: stacks and tasks are found on Linux only.
    Unsupported,
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            StartError::Again => f.write_str("this process has been recorded already"),
            StartError::Memory => f.write_str("there is no memory for the recording"),
            StartError::Output { path, error } => {
                write!(f, "{} can't be written: {error}", path.display())
            }
            StartError::Unsupported => f.write_str("taskheap records on Linux only"),
        }
    }
}

impl std::error::Error for StartError {}
