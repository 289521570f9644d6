//! The guard where nothing can be recorded: it says so.

use std::io;
use std::path::{Path, PathBuf};

use super::StartError;

/// Records on Linux only: elsewhere [`Recorder::start`] is an error.
#[derive(Debug)]
pub struct Recorder(());

impl Recorder {
    /// Always an error here.
    pub fn start(_output: impl AsRef<Path>) -> Result<Recorder, StartError> {
        Err(StartError::Unsupported)
    }

    /// Always an error here.
    pub fn start_sampled(_output: impl AsRef<Path>, _bytes: u64) -> Result<Recorder, StartError> {
        Err(StartError::Unsupported)
    }

    /// Never called: there is no recorder.
    pub fn is_recording(&self) -> bool {
        false
    }

    /// Never called: there is no recorder.
    pub fn finish(self) -> io::Result<Option<PathBuf>> {
        Ok(None)
    }
}
