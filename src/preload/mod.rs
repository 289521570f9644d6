//! The preload library: the exported malloc family. Compiled only into the library that
//! `taskheap run` preloads (`--cfg taskheap_preload`): exported `malloc` symbols in an ordinary
//! build would interpose the command itself.
//!
//! Each function stands in front of the next one of its name (glibc's, or another preloaded
//! allocator's), passes the call on and tells the recorder. An exported function is a few
//! instructions that note the caller's stack and frame pointer, so that unwinding starts at the
//! caller and no frame of ours is ever unwound.

mod bump;
mod exit;
mod family;
mod next;
mod notice;
mod sampled;

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::hook::patch;
use crate::record::{self, Caller, Setup};
use crate::sys::thread;
use crate::wire::{Allocator, SESSION_VARIABLE, WRAPPER_VERSION, WrapperHooks};

/// 0: not tried, 1: being tried, 2: done.
static STARTED: AtomicU32 = AtomicU32::new(0);

static WRAPPER_HOOKS: WrapperHooks = WrapperHooks {
    version: WRAPPER_VERSION,
    _pad: 0,
    allocated: wrapper_allocated,
    freed: wrapper_freed,
};

/// Asks `taskheap::Alloc` in the program for what it sees, where nothing else can.
#[unsafe(no_mangle)]
pub extern "C" fn taskheap_wrapper_hooks() -> *const WrapperHooks {
    start();
    let wanted = record::header()
        .is_some_and(|header| record::is_active() && header.config.wrapper.load(Relaxed) != 0);
    if wanted {
        &WRAPPER_HOOKS
    } else {
        std::ptr::null()
    }
}

extern "C" fn wrapper_allocated(
    block: *mut u8,
    size: usize,
    align: usize,
    pc: u64,
    sp: u64,
    bp: u64,
) {
    if block.is_null() {
        return record::on_failure();
    }
    record::on_alloc(
        block,
        size,
        align,
        Allocator::Wrapper,
        &Caller { pc, sp, bp },
    );
}

extern "C" fn wrapper_freed(block: *mut u8) {
    record::on_free(block);
}

/// Tells `taskheap::Recorder` in the program that it is recorded already.
#[unsafe(no_mangle)]
pub extern "C" fn taskheap_is_preloaded() {}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    start();
}

/// Starts the recording, at the first call of any hook or in the constructor, whichever comes
/// first. Until the environment is there, later calls try again.
#[inline(always)]
fn start() {
    if STARTED.load(Acquire) == 0 {
        start_once();
    }
}

#[cold]
#[inline(never)]
fn start_once() {
    // SAFETY: in the first calls of a process there is one thread.
    let Some(value) = (unsafe { thread::variable(SESSION_VARIABLE) }) else {
        // SAFETY: as above.
        if unsafe { thread::has_environment() } {
            STARTED.store(2, Release);
        }
        return;
    };
    if STARTED.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return;
    }
    let id = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    let setup = id.map_or(Setup::Dormant, record::start_in_session);
    let follows = record::header().is_some_and(|h| h.config.follow.load(Relaxed) != 0);
    if !follows {
        // SAFETY: as above.
        unsafe { thread::leave_environment(SESSION_VARIABLE) };
    }
    if setup == Setup::Recording {
        if let Some(header) = record::header() {
            // SAFETY: the first call of a hook in this process: the program has not begun, and
            // libraries that start threads before it does are unheard of.
            unsafe { patch::apply_configured(header, record::extents()) };
        }
        exit::arm();
        if record::is_sample() {
            next::early_so_far()
                .step_by(16)
                .for_each(|at| record::always_look(at as *mut u8));
            family::sample();
        }
    }
    STARTED.store(2, Release);
}

/// The caller of an exported function, from the stack pointer at its entry.
#[inline(always)]
fn caller(entry: *const u64, bp: u64) -> Caller {
    // SAFETY: at the entry of a function the return address is on top of the stack.
    let pc = unsafe { *entry };
    Caller {
        pc,
        sp: entry as u64 + 8,
        bp,
    }
}
