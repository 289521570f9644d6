//! Signals that are meant for the program.
//!
//! Ctrl-C in a terminal goes to the whole foreground group, so the program has it already; what
//! somebody sends to the command alone is handed on. The command itself ends when the program
//! does, not before, or the profile would be lost.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32};

static CHILD: AtomicI32 = AtomicI32::new(0);
static ASKED_TO_END: AtomicBool = AtomicBool::new(false);

const HANDED_ON: [i32; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

extern "C" fn hand_on(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
    if ends.contains(&signal) {
        ASKED_TO_END.store(true, Relaxed);
    }
    let child = CHILD.load(Acquire);
    // SAFETY: the kernel passes a valid description to a SA_SIGINFO handler.
    let from_somebody = unsafe { (*info).si_code } <= 0;
    if child > 0 && from_somebody {
        // SAFETY: async-signal-safe; takes no pointer.
        unsafe { libc::kill(child, signal) };
    }
}

/// From here on signals do not end the command. One that is ignored stays ignored, as the program
/// inherits it.
pub fn catch() {
    for signal in HANDED_ON {
        // SAFETY: zero is a value of every field; the handler is async-signal-safe.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut before);
            if before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = hand_on as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Who is to have them.
pub fn hand_on_to(child: i32) {
    CHILD.store(child, Release);
}

/// The child has ended: its number may be another's soon.
pub fn stop() {
    CHILD.store(0, Relaxed);
}

/// Was the command asked to end? Who starts several programs, one after the other, starts no more.
pub fn asked_to_end() -> bool {
    ASKED_TO_END.load(Relaxed)
}
