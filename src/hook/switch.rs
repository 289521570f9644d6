//! The one word that the wrapped allocator asks: does anybody hear?
//!
//! Two things may want to know of an allocation: a recording, and any number of measurements. With
//! a flag for each, an allocator that nobody listens to would load two words; so both are in one.
//! The low bits say who records (see `listener`), the rest counts the measurements that run.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Who records.
pub const NOBODY: usize = 0;
pub const UNASKED: usize = 1;
pub const OWN: usize = 2;
pub const PRELOADED: usize = 3;
/// As `OWN`, but most blocks are not recorded.
pub const OWN_SAMPLED: usize = 4;

const RECORDING: usize = 0xff;
const MEASUREMENT: usize = RECORDING + 1;

/// Only Linux has somebody to ask.
static WORD: AtomicUsize = AtomicUsize::new(if cfg!(target_os = "linux") {
    UNASKED
} else {
    NOBODY
});

/// Has somebody to be told of a call? Asks `is_met` if a sample of this process's own is all that
/// is taken.
#[inline(always)]
pub fn is_heard(is_met: impl FnOnce() -> bool) -> bool {
    let word = WORD.load(Relaxed);
    word != NOBODY && (word != OWN_SAMPLED || is_met())
}

#[inline(always)]
pub fn is_measuring() -> bool {
    WORD.load(Acquire) >= MEASUREMENT
}

#[inline(always)]
pub fn recording() -> usize {
    WORD.load(Acquire) & RECORDING
}

pub fn set_recording(state: usize) {
    let _ = WORD.fetch_update(AcqRel, Acquire, |word| Some(word & !RECORDING | state));
}

/// Did this call change it from `UNASKED`?
pub fn take_question() -> bool {
    let taken = WORD.fetch_update(AcqRel, Acquire, |word| {
        (word & RECORDING == UNASKED).then_some(word & !RECORDING | NOBODY)
    });
    taken.is_ok()
}

pub fn begin_measuring() {
    WORD.fetch_add(MEASUREMENT, AcqRel);
}

pub fn end_measuring() {
    WORD.fetch_sub(MEASUREMENT, AcqRel);
}
