//! A lock for the recorder's slow paths.
//!
//! A pthread mutex may allocate, be interposed, or be left locked in a forked child; a child does
//! not record, so a word is enough. Held for a few hundred nanoseconds, never while the
//! program's allocator or any code of the program runs.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Lock(AtomicU32);

/// Unlocks when dropped.
pub struct Held<'a>(&'a AtomicU32);

impl Lock {
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    pub fn hold(&self) -> Held<'_> {
        acquire(&self.0, 1);
        Held(&self.0)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Takes the lock word for `who`. After some spinning the processor goes to whoever holds it.
#[inline(always)]
pub fn acquire(word: &AtomicU32, who: u32) {
    if word
        .compare_exchange(0, who, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        acquire_slowly(word, who);
    }
}

#[cold]
#[inline(never)]
fn acquire_slowly(word: &AtomicU32, who: u32) {
    let mut spins = 0u32;
    loop {
        if word.load(Ordering::Relaxed) == 0
            && word
                .compare_exchange(0, who, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
        spins += 1;
        if spins.is_multiple_of(128) {
            // SAFETY: takes no arguments and gives the processor away.
            unsafe { libc::sched_yield() };
        } else {
            spin_loop();
        }
    }
}
