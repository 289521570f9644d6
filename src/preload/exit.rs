//! The ends of a process: so that a last walk can be made while everything is still there.
//!
//! `exit` and `_exit` are held back until the command has looked, for as long as it shows signs
//! of life. Whoever returns from `main` is caught by a destructor, when the program's own exit
//! handlers have run. `exec` only leaves a note: on success it does not return, and the kernel
//! takes the mappings away.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::next::Next;
use crate::record;
use crate::sys::thread::keep_errno;
use crate::wire::{Header, State};

static ARMED: AtomicBool = AtomicBool::new(false);

/// The recording has begun.
pub fn arm() {
    ARMED.store(true, Relaxed);
}

/// The header, if this is the process that records. A child of `vfork` shares all memory with its
/// parent, and is not it.
fn own_header() -> Option<&'static Header> {
    let header = record::header().filter(|_| record::is_active())?;
    // SAFETY: takes no arguments.
    (header.pid.load(Relaxed) == unsafe { libc::getpid() }).then_some(header)
}

/// Lets the command look once more.
fn last_look() {
    let Some(header) = own_header() else { return };
    if !ARMED.swap(false, Relaxed) {
        return;
    }
    let recording = State::Recording as u32;
    let exiting = State::Exiting as u32;
    if header
        .state
        .compare_exchange(recording, exiting, Release, Relaxed)
        .is_err()
        || header.walks.load(Relaxed) == 0
    {
        return;
    }
    record::wait_at_the_end(header);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    last_look();
}

macro_rules! exits {
    ($($name:ident, $text:literal;)*) => {$(
        /// # Safety
        ///
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(code: c_int) -> ! {
            static NEXT: Next = Next::new($text);
            last_look();
            if let Some(found) = NEXT.get() {
                type Exit = extern "C" fn(c_int) -> !;
                // SAFETY: the symbol has this signature; the caller's argument, handed on.
                unsafe { std::mem::transmute::<*mut c_void, Exit>(found)(code) }
            }
            // SAFETY: ends the process, as asked.
            unsafe { libc::syscall(libc::SYS_exit_group, code) };
            std::process::abort()
        }
    )*};
}

exits! {
    exit, c"exit";
    _exit, c"_exit";
    _Exit, c"_Exit";
    quick_exit, c"quick_exit";
}

/// Notes that the process is about to be another program; takes it back if that fails.
fn replacing(go: impl FnOnce() -> c_int) -> c_int {
    let Some(header) = own_header() else {
        return go();
    };
    let (recording, replaced) = (State::Recording as u32, State::Replaced as u32);
    let _ = header
        .state
        .compare_exchange(recording, replaced, Release, Relaxed);
    let result = go();
    keep_errno(|| {
        let _ = header
            .state
            .compare_exchange(replaced, recording, Release, Relaxed);
    });
    result
}

type List = *const *const c_char;

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, args: List, env: List) -> c_int {
    type Exec = unsafe extern "C" fn(*const c_char, List, List) -> c_int;
    static NEXT: Next = Next::new(c"execve");
    let Some(found) = NEXT.get() else { return -1 };
    // SAFETY: the symbol has this signature.
    let next = unsafe { std::mem::transmute::<*mut c_void, Exec>(found) };
    // SAFETY: the caller's arguments, handed on.
    replacing(|| unsafe { next(path, args, env) })
}

macro_rules! execs {
    ($($name:ident, $text:literal;)*) => {$(
        /// # Safety
        ///
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, args: List) -> c_int {
            type Exec = unsafe extern "C" fn(*const c_char, List) -> c_int;
            static NEXT: Next = Next::new($text);
            let Some(found) = NEXT.get() else { return -1 };
            // SAFETY: the symbol has this signature.
            let next = unsafe { std::mem::transmute::<*mut c_void, Exec>(found) };
            // SAFETY: the caller's arguments, handed on.
            replacing(|| unsafe { next(path, args) })
        }
    )*};
}

execs! {
    execv, c"execv";
    execvp, c"execvp";
}
