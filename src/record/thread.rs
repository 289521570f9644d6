//! What the recorder keeps for each thread.
//!
//! One pointer in the thread's storage (`local`) leads to a state in memory of our own, which is
//! used again by later threads. A pthread key tells when a thread ends; it asks to be called again
//! until the last round, so that the thread's own destructors come first. What a thread allocates
//! after that is recorded by a state that all ending threads share.

use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

use super::live::Found;
use super::lock::Lock;
use super::names::{folded, key_of};
use super::owners::{self, Current};
use super::start::{header, lost};
use super::unwind::{Bounds, Stack};
use super::{arena, counters, digest, local, peak, sample};
use crate::sys::thread as sys;
use crate::wire::sample::Booked;
use crate::wire::{Allocator, OwnerKind, RowState, ThreadSlot};

/// An event that came while its thread was inside the recorder.
#[derive(Clone, Copy)]
pub enum Aside {
    Alloc {
        address: usize,
        size: usize,
        by: Allocator,
    },
    Free {
        address: usize,
    },
    Gone {
        address: usize,
        found: Found,
    },
}

/// An allocation of this thread.
#[derive(Clone, Copy)]
pub struct Last {
    /// 0 once it is freed.
    pub address: usize,
    /// The address under which it stands in the table of live blocks.
    pub entry: usize,
    pub size: usize,
    pub booked: Booked,
    pub context: u32,
    pub node: u32,
    pub row: u32,
}

pub const NO_LAST: Last = Last {
    address: 0,
    entry: 0,
    size: 0,
    booked: Booked {
        bytes: 0,
        blocks: 0,
    },
    context: 0,
    node: 0,
    row: 0,
};

const ASIDES: usize = 16;

/// Owned by one thread, except for what is atomic or behind `pending_lock`.
#[repr(C)]
pub struct Thread {
    busy: bool,
    aside_count: u8,
    rounds: u8,
    pub tid: i32,
    pub pointer: u64,
    /// The thread's own row and owner type.
    pub row: u32,
    pub kind: u32,
    /// The task id met last, and for whom it stands.
    pub task: (u64, Current),
    /// Owner type of the scope that runs, 0 for none.
    pub scope: u32,
    pub last: Last,
    /// Bytes to the next sample when `last` was allocated.
    pub left_at_last: usize,
    pub last_context: (u64, u32),
    pub index: counters::Index,
    pub pending_bytes: i64,
    pub pending_blocks: i64,
    pub bounds: Bounds,
    pub stack: *mut Stack,
    slot: *const ThreadSlot,
    window: *mut u8,
    /// Address of a block that may be a task's cell, 0 for none; details behind the lock.
    pub pending_cell: AtomicUsize,
    pub pending_lock: Lock,
    /// How many threads look at a cell that was pending here.
    pub adopting: AtomicU32,
    pub pending: (Last, Last),
    asides: [Option<Aside>; ASIDES],
    next: *mut Thread,
    next_free: *mut Thread,
}

static ALL: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());
static FREE: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());
static REGISTRY: Lock = Lock::new();
/// A state for which memory did not reach.
static UNFINISHED: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());
static LATE: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());
static LATE_LOCK: AtomicU32 = AtomicU32::new(0);
/// pthread key plus one.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Values of the thread-local pointer that are no state.
const NOT_YET: usize = 0;
const ATTACHING: usize = 1;
const ENDED: usize = 2;

/// Rounds of destructors that the C library promises.
const LAST_ROUND: u8 = 3;

impl Thread {
    /// The calling thread's state, marked as in use; `None` if it is in use already.
    #[inline(always)]
    pub fn enter() -> Option<&'static mut Thread> {
        let state = local::get();
        if state > ENDED {
            // SAFETY: the state that `attach` made for this thread; `busy` keeps a second
            // reference from being made while this one lives.
            let thread = unsafe { &mut *(state as *mut Thread) };
            if thread.busy {
                return None;
            }
            thread.busy = true;
            return Some(thread);
        }
        enter_slowly(state)
    }

    /// The calling thread's number; 0 if it has no state.
    pub fn number() -> i32 {
        let state = local::get();
        if state <= ENDED {
            return 0;
        }
        // SAFETY: the state that `attach` made for this thread, of which this never changes.
        unsafe { (*(state as *const Thread)).tid }
    }

    /// Has the thread allocated a block since `last`? In a sample most are not recorded, but
    /// all take their size off the bytes to the next one.
    #[inline(always)]
    pub fn has_passed_over(&self) -> bool {
        self.left_at_last != local::bytes_to_sample()
    }

    #[inline(always)]
    pub fn leave(&mut self) {
        if self.aside_count > 0 {
            self.digest_asides();
        }
        self.busy = false;
        if self.rounds > LAST_ROUND {
            leave_late();
        }
    }

    #[cold]
    fn digest_asides(&mut self) {
        let mut at = 0;
        while at < usize::from(self.aside_count).min(ASIDES) {
            if let Some(aside) = self.asides[at].take() {
                digest(self, aside);
            }
            at += 1;
        }
        self.aside_count = 0;
    }

    #[inline(always)]
    pub fn slot(&self) -> &'static ThreadSlot {
        // SAFETY: a row of the threads column, set when the state was made; it never moves.
        unsafe { &*self.slot }
    }

    /// A buffer for copies of stack memory.
    pub fn window(&mut self, bytes: usize) -> Option<&'static mut [u8]> {
        if self.window.is_null() {
            self.window = arena::own(bytes);
        }
        if self.window.is_null() {
            return None;
        }
        // SAFETY: mapped with this size (there is one caller), used by this thread only.
        Some(unsafe { std::slice::from_raw_parts_mut(self.window, bytes) })
    }
}

/// The state of a thread whose events are not recorded for the moment.
#[must_use]
pub struct Muted(usize);

/// What the calling thread allocates until [`unmute`] is not recorded: an allocator that is
/// recorded itself takes memory from another one. Costs the other hooks nothing, since the
/// thread looks like one that is only being attached.
pub fn mute() -> Muted {
    if local::get() == NOT_YET
        && super::is_active()
        && let Some(thread) = Thread::enter()
    {
        thread.leave();
    }
    let state = local::get();
    if state > ENDED {
        local::set(ATTACHING);
    }
    Muted(state)
}

pub fn unmute(muted: Muted) {
    if muted.0 > ENDED {
        local::set(muted.0);
    }
}

#[cold]
#[inline(never)]
fn enter_slowly(state: usize) -> Option<&'static mut Thread> {
    match state {
        NOT_YET => {
            local::set(ATTACHING);
            let thread = attach();
            local::set(thread.map_or(NOT_YET, |thread| thread as usize));
            if thread.is_none() {
                lost(1);
            }
            // SAFETY: just made for this thread, `busy` is set.
            thread.map(|thread| unsafe { &mut *thread })
        }
        ENDED => enter_late(),
        _ => None,
    }
}

/// Puts an event aside for the moment when its thread leaves the recorder.
#[cold]
#[inline(never)]
pub fn put_aside(aside: Aside) {
    let state = local::get();
    if state <= ENDED {
        // What the C library allocates on our own behalf while we attach.
        return;
    }
    // SAFETY: this thread's state. Its other reference is suspended: we are in a signal handler
    // above it, and touch only fields that it reads once we are gone.
    unsafe {
        let thread = state as *mut Thread;
        let at = usize::from((*thread).aside_count);
        if at < ASIDES {
            (*thread).asides[at] = Some(aside);
            (*thread).aside_count += 1;
        } else {
            lost(1);
        }
    }
}

/// Makes the key by which the end of a thread is known.
pub fn prepare() {
    let mut key = 0;
    // SAFETY: `key` is a place for the answer; `ended` has the right signature. Called before
    // threads exist, so the key is one of the first, whose values the C library keeps without
    // allocating.
    if unsafe { libc::pthread_key_create(&mut key, Some(ended)) } == 0 {
        KEY.store(key + 1, Relaxed);
    }
}

fn arm(thread: *mut Thread) {
    let key = KEY.load(Relaxed);
    if key != 0 {
        // SAFETY: the key exists; the value is opaque to the C library.
        unsafe { libc::pthread_setspecific(key - 1, thread.cast::<c_void>()) };
    }
}

fn attach() -> Option<*mut Thread> {
    let header = header()?;
    header.threads_alive.fetch_add(1, Relaxed);
    let state = take_free().or_else(make)?;
    // SAFETY: free or just made: no one else uses it.
    let thread = unsafe { &mut *state };
    let marker = 0u8;
    let tid = sys::id();
    let is_main = tid == header.pid.load(Relaxed);
    let pointer = sys::pointer();
    let high = sys::stack_top(is_main);
    thread.busy = true;
    thread.rounds = 0;
    thread.tid = tid;
    thread.pointer = pointer;
    thread.bounds = Bounds::new(high, &raw const marker as u64);
    thread.task = (0, Current { kind: 0, row: 0 });
    thread.scope = 0;
    thread.last = NO_LAST;
    sample::draw(tid);
    thread.left_at_last = local::bytes_to_sample();
    thread.last_context = (0, 0);
    // SAFETY: made with the state; nobody else uses it.
    unsafe { (*thread.stack).forget() };
    let name = folded(&sys::name());
    thread.kind = owners::type_of(OwnerKind::Thread, key_of(&name), &name);
    thread.row = owners::new_row(tid as u64, pointer, thread.kind, RowState::ThreadAlive, 0);
    let slot = thread.slot();
    slot.row.store(thread.row, Relaxed);
    slot.thread_pointer.store(pointer, Relaxed);
    slot.stack_high.store(high, Relaxed);
    slot.stack_low.store(thread.bounds.low, Relaxed);
    slot.tid.store(tid, Release);
    if !thread.slot().shard.counters.is_empty() {
        counters::grow(thread)?;
    }
    peak::set_batch(header);
    arm(state);
    Some(state)
}

fn take_free() -> Option<*mut Thread> {
    let _held = REGISTRY.hold();
    let first = FREE.load(Relaxed);
    // SAFETY: null, or a state that was made and never unmapped.
    let state = unsafe { first.as_ref() }?;
    FREE.store(state.next_free, Relaxed);
    Some(first)
}

fn make() -> Option<*mut Thread> {
    let unfinished = UNFINISHED.swap(std::ptr::null_mut(), Acquire);
    let state = match unfinished.is_null() {
        true => arena::own(size_of::<Thread>()).cast::<Thread>(),
        false => unfinished,
    };
    if state.is_null() {
        return None;
    }
    // SAFETY: zeroed, or left unfinished by `finish`; nobody else knows it.
    if unsafe { finish(state) }.is_none() {
        // Memory is out: whoever asks next must not lose a state each time.
        UNFINISHED.store(state, Release);
        return None;
    }
    let _held = REGISTRY.hold();
    // SAFETY: as above.
    unsafe { (*state).next = ALL.load(Relaxed) };
    ALL.store(state, Release);
    Some(state)
}

/// # Safety
///
/// The state was zeroed, which is a value of every field (`None` of an option of `Aside` aside,
/// which is written here), and nobody else knows it yet.
unsafe fn finish(state: *mut Thread) -> Option<()> {
    // SAFETY: the caller's; the fields whose zero may be no value are written first.
    let thread = unsafe {
        (&raw mut (*state).asides).write([None; ASIDES]);
        (&raw mut (*state).index).write(counters::EMPTY);
        &mut *state
    };
    if thread.stack.is_null() {
        thread.stack = Stack::make();
    }
    if thread.stack.is_null() {
        return None;
    }
    let slot = &mut thread.slot;
    arena::append(&header()?.threads, |_, row| *slot = row.cast_const())?;
    Some(())
}

/// Calls `visit` with every state that was ever made.
pub fn for_each(mut visit: impl FnMut(&'static Thread)) {
    let mut at = ALL.load(Acquire);
    // SAFETY: states are never unmapped; `visit` touches only what is shared.
    while let Some(state) = unsafe { at.as_ref() } {
        visit(state);
        at = state.next;
    }
}

/// A thread's destructors run: asks for another round until the last one.
unsafe extern "C" fn ended(state: *mut c_void) {
    let state = state.cast::<Thread>();
    if local::get() != state as usize || !super::is_active() {
        return;
    }
    // SAFETY: this thread's state, which is not in use: we are called from the C library.
    let thread = unsafe { &mut *state };
    thread.rounds += 1;
    if thread.rounds < LAST_ROUND {
        return arm(state);
    }
    thread.busy = true;
    detach(thread);
    local::set(ENDED);
}

fn detach(thread: &mut Thread) {
    thread.settle();
    peak::settle(thread);
    thread.slot().tid.store(0, Release);
    owners::ended(thread.row, RowState::ThreadGone);
    counters::release(std::mem::replace(&mut thread.index, counters::EMPTY));
    if let Some(header) = header() {
        header.threads_alive.fetch_sub(1, Relaxed);
        peak::set_batch(header);
    }
    let _held = REGISTRY.hold();
    thread.next_free = FREE.load(Relaxed);
    FREE.store(thread, Relaxed);
}

/// After a thread's last destructor: the state that all such threads share, one at a time.
fn enter_late() -> Option<&'static mut Thread> {
    super::lock::acquire(&LATE_LOCK, 1);
    let mut state = LATE.load(Relaxed);
    if state.is_null() {
        local::set(ATTACHING);
        state = attach().unwrap_or(std::ptr::null_mut());
        arm(std::ptr::null_mut());
        local::set(ENDED);
        LATE.store(state, Relaxed);
    }
    // SAFETY: null, or a state that only the holder of the lock uses.
    let Some(thread) = (unsafe { state.as_mut() }) else {
        leave_late();
        lost(1);
        return None;
    };
    thread.busy = true;
    thread.rounds = LAST_ROUND + 1;
    thread.pointer = sys::pointer();
    thread.bounds = Bounds::new(sys::stack_top(false), &raw const state as u64);
    // SAFETY: made with the state.
    unsafe { (*thread.stack).forget() };
    Some(thread)
}

fn leave_late() {
    LATE_LOCK.store(0, Release);
}

/// The calling thread has named itself.
pub fn name_changed() {
    if !super::is_active() {
        return;
    }
    let Some(thread) = Thread::enter() else {
        return;
    };
    let name = folded(&sys::name());
    thread.kind = owners::type_of(OwnerKind::Thread, key_of(&name), &name);
    owners::rename(thread.row, thread.kind);
    thread.leave();
}
