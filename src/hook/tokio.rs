//! The current task, as tokio itself tells it.

use std::fmt::Write;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use tokio::task::{Id, try_id};

/// Id of the task that runs, 0 outside tasks. Called inside the allocator: must not allocate.
pub(super) fn current_id() -> u64 {
    try_id().map_or(0, number)
}

const UNKNOWN: u8 = 0;
const IS_WORD: u8 = 1;
const AS_TEXT: u8 = 2;
/// Whether an id is the number itself, as it has been in every tokio so far.
static LAYOUT: AtomicU8 = AtomicU8::new(UNKNOWN);

/// tokio gives the number as text only, which takes a while. So the first id is looked at both
/// ways, and if they agree its bytes are taken from then on.
fn number(id: Id) -> u64 {
    match LAYOUT.load(Relaxed) {
        IS_WORD => word(id).unwrap_or(0),
        AS_TEXT => as_text(id),
        _ => {
            let told = as_text(id);
            let layout = if word(id) == Some(told) {
                IS_WORD
            } else {
                AS_TEXT
            };
            LAYOUT.store(layout, Relaxed);
            told
        }
    }
}

fn word(id: Id) -> Option<u64> {
    const { assert!(size_of::<u64>() == 8) };
    if size_of::<Id>() != size_of::<u64>() {
        return None;
    }
    // SAFETY: an id is plain data (`Copy`) of eight bytes, whatever they say.
    Some(unsafe { std::mem::transmute_copy::<Id, u64>(&id) })
}

fn as_text(id: Id) -> u64 {
    let mut digits = Digits(0);
    let _ = write!(digits, "{id}");
    digits.0
}

/// Reads a number from the text written to it.
struct Digits(u64);

impl Write for Digits {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for digit in text.bytes().filter(u8::is_ascii_digit) {
            self.0 = self
                .0
                .wrapping_mul(10)
                .wrapping_add(u64::from(digit - b'0'));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_become_a_number() {
        let mut digits = Digits(0);
        write!(digits, "{}", 1_234_567u64).unwrap();
        assert_eq!(digits.0, 1_234_567);
    }
}
