//! The functions that stand behind ours: the next definition of each name.
//!
//! `dlsym` may itself allocate. What it asks for while it looks comes from a small buffer, which
//! is never freed. Only the thread that looks gets nothing meanwhile: to another one, "there is no
//! such function" would be a lie that it acts on, and waiting for the first could be a deadlock
//! with the loader's lock. So several may look at once, each for itself.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize};

use crate::record;
use crate::sys::thread;

/// A function that is found at its first use.
#[repr(C)]
pub struct Next {
    /// First, because machine code jumps there (see `sampled`).
    found: AtomicPtr<c_void>,
    name: &'static CStr,
}

/// Threads that are inside `dlsym` on our behalf. A fork may leave one behind for ever.
static LOOKING: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

impl Next {
    pub const fn new(name: &'static CStr) -> Next {
        Next {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The function's address. `None` where there is none, and to what `dlsym` itself calls while
    /// this thread looks for one.
    #[inline(always)]
    pub fn get(&self) -> Option<*mut c_void> {
        let found = self.found.load(Acquire);
        if found.is_null() {
            self.look()
        } else {
            Some(found)
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self) -> Option<*mut c_void> {
        let own = thread::id();
        if LOOKING.iter().any(|thread| thread.load(Relaxed) == own) {
            return None;
        }
        let claim = |slot: &&AtomicI32| slot.compare_exchange(0, own, Relaxed, Relaxed).is_ok();
        let slot = LOOKING.iter().find(claim);
        // SAFETY: a C string; the result is checked.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if let Some(slot) = slot {
            slot.store(0, Relaxed);
        }
        self.found.store(found, Release);
        (!found.is_null()).then_some(found)
    }
}

pub type Malloc = unsafe extern "C" fn(usize) -> *mut u8;
pub type Calloc = unsafe extern "C" fn(usize, usize) -> *mut u8;
pub type Realloc = unsafe extern "C" fn(*mut u8, usize) -> *mut u8;
pub type Aligned = unsafe extern "C" fn(usize, usize) -> *mut u8;
pub type PosixMemalign = unsafe extern "C" fn(*mut *mut u8, usize, usize) -> c_int;
pub type Free = unsafe extern "C" fn(*mut u8);

pub static MALLOC: Next = Next::new(c"malloc");
pub static CALLOC: Next = Next::new(c"calloc");
pub static REALLOC: Next = Next::new(c"realloc");
pub static MEMALIGN: Next = Next::new(c"memalign");
pub static ALIGNED_ALLOC: Next = Next::new(c"aligned_alloc");
pub static POSIX_MEMALIGN: Next = Next::new(c"posix_memalign");
pub static VALLOC: Next = Next::new(c"valloc");
pub static PVALLOC: Next = Next::new(c"pvalloc");
pub static FREE: Next = Next::new(c"free");

const EARLY: usize = 64 << 10;

#[repr(C, align(64))]
struct Early(UnsafeCell<[u8; EARLY]>);

// SAFETY: each byte is handed out once, by an atomic bump.
unsafe impl Sync for Early {}

static BUFFER: Early = Early(UnsafeCell::new([0; EARLY]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// A zeroed block from the buffer, or null when it is used up.
pub fn early(size: usize, align: usize) -> *mut u8 {
    let align = align.clamp(16, 4096);
    let Some(room) = size.checked_add(align).filter(|room| *room < EARLY) else {
        return std::ptr::null_mut();
    };
    let start = USED.fetch_add(room.next_multiple_of(16), Relaxed);
    if start + room > EARLY {
        return std::ptr::null_mut();
    }
    let base = BUFFER.0.get() as usize;
    let block = (base + start).next_multiple_of(align) as *mut u8;
    record::always_look(block);
    block
}

/// The blocks of [`early`] so far lie between these addresses.
pub fn early_so_far() -> std::ops::Range<usize> {
    let base = BUFFER.0.get() as usize;
    base..base + USED.load(Relaxed).min(EARLY)
}

/// Was this block handed out by [`early`]?
#[inline(always)]
pub fn is_early(block: *mut u8) -> bool {
    let base = BUFFER.0.get() as usize;
    (base..base + EARLY).contains(&(block as usize))
}

/// Bytes from a block of [`early`] to the end of the buffer.
pub fn early_bytes_from(block: *mut u8) -> usize {
    BUFFER.0.get() as usize + EARLY - block as usize
}
