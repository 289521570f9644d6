//! Machines for which no code is patched yet: the command plans nothing for them.

use super::{Failure, Recorder};
use crate::wire::{Patch, Redirect};

/// # Safety
///
/// None is needed: nothing is changed.
pub unsafe fn apply<R: Recorder>(_: &[Patch], _: &[Redirect], _: u64) -> Result<u32, Failure> {
    Err(Failure::Architecture)
}
