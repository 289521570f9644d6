//! Scopes as owners in a recording of this process.

use crate::hook::switch::{self, OWN};
use crate::record::{self, ScopeBefore};

/// From here on the thread's blocks are the scope's, if this process records itself.
pub fn enter(name: &'static str) -> Option<ScopeBefore> {
    if switch::recording() != OWN {
        return None;
    }
    record::enter_scope(name)
}

pub fn leave(before: ScopeBefore) {
    record::leave_scope(before);
}
