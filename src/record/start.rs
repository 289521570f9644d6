//! Starting and stopping, and what the whole process counts.
//!
//! A recording begins at the first call of a hook, not in a constructor: libraries that are
//! initialised before ours allocate too. Until the C library has set up the environment nothing
//! is known, and the hooks pass straight through.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use super::{arena, modules, owners, sample, thread};
use crate::sys::{private, segment};
use crate::wire::{Header, MAGIC, Place, ProcessState, Session, State, VERSION};

static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static HEADER: AtomicPtr<Header> = AtomicPtr::new(null_mut());

/// A word that reads 0 in a forked child: 1 while this process records.
static ACTIVE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// How a process takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setup {
    Recording,
    /// Another process of the session is the one to record, or the command is gone.
    Dormant,
}

/// Does this process record? A forked child does not: its parent's tables are not its own.
#[inline(always)]
pub fn is_active() -> bool {
    let word = ACTIVE.load(Ordering::Relaxed);
    // SAFETY: null, or a page that is never unmapped.
    !word.is_null() && unsafe { (*word).load(Ordering::Relaxed) } != 0
}

/// Has this process recorded, and does it no more? So it is in a forked child.
pub fn is_over() -> bool {
    !ACTIVE.load(Ordering::Relaxed).is_null() && !is_active()
}

/// The recording's header, once there is one.
#[inline(always)]
pub fn header() -> Option<&'static Header> {
    // SAFETY: null, or the start of extent 0, which stays attached.
    unsafe { HEADER.load(Ordering::Relaxed).as_ref() }
}

pub fn lost(events: u64) {
    if let Some(header) = header() {
        header.lost_events.fetch_add(events, Ordering::Relaxed);
    }
}

pub fn unknown_free() {
    if let Some(header) = header() {
        header.unknown_frees.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn failed() {
    if let Some(header) = header() {
        header.failed_allocations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes part in the session whose segment is `id`. Called once, before threads exist.
pub fn start_in_session(id: i32) -> Setup {
    start_recording(id).map_or(Setup::Dormant, |()| Setup::Recording)
}

fn start_recording(id: i32) -> Option<()> {
    let base = segment::attach(
        id,
        segment::size(id).filter(|n| *n >= size_of::<Session>())?,
    );
    // SAFETY: the segment has at least this size, and both sides use only atomics in it.
    let session = unsafe { base.cast::<Session>().as_ref() }?;
    if session.magic != MAGIC || session.version != VERSION {
        return None;
    }
    SESSION.store(base.cast(), Ordering::Relaxed);
    let index = session.next.fetch_add(1, Ordering::AcqRel) as usize;
    let follows = session.follow.load(Ordering::Relaxed) != 0;
    if index >= session.processes.len() || (index > 0 && !follows) {
        return None;
    }
    let process = &session.processes[index];
    // SAFETY: takes no arguments.
    process
        .pid
        .store(unsafe { libc::getpid() }, Ordering::Relaxed);
    process
        .state
        .store(ProcessState::Taken as u32, Ordering::Release);
    let mut recording = 0;
    wait_for(session, || {
        recording = process.recording.load(Ordering::Acquire);
        recording != 0
    })?;
    let bytes = segment::size(recording - 1)?;
    let base = segment::attach(recording - 1, bytes);
    // SAFETY: null, or an extent 0, at whose start the command has written a header.
    let header = unsafe { base.cast::<Header>().as_ref() }?;
    if header.magic != MAGIC || header.version != VERSION {
        return None;
    }
    arena::attached(0, base, bytes);
    HEADER.store(base.cast(), Ordering::Release);
    introduce(header);
    header
        .state
        .store(State::Attached as u32, Ordering::Release);
    wait_for(session, || {
        header.state.load(Ordering::Acquire) == State::Configured as u32
    })?;
    activate(header)
}

/// Records into memory of this process only: every block, or one in about so many bytes.
pub fn start_local(sample_bytes: u64) -> Option<&'static Header> {
    let bytes = arena::extent_bytes(0);
    let base = arena::pages(bytes);
    if base.is_null() {
        return None;
    }
    let fresh = base.cast::<Header>();
    // SAFETY: the mapping is larger than a header, zeroed, and nobody else knows it yet.
    unsafe {
        (*fresh).magic = MAGIC;
        (*fresh).version = VERSION;
        (*fresh).extents[0]
            .bytes
            .store(bytes as u64, Ordering::Relaxed);
        (*fresh).arena.store(first_free().0, Ordering::Relaxed);
    }
    arena::extents_are_local();
    arena::attached(0, base, bytes);
    HEADER.store(fresh, Ordering::Release);
    let header = header()?;
    header
        .config
        .sample_bytes
        .store(sample_bytes, Ordering::Relaxed);
    introduce(header);
    activate(header)?;
    Some(header)
}

/// The first place behind the header.
pub fn first_free() -> Place {
    Place::new(0, size_of::<Header>().next_multiple_of(4096) as u64)
}

/// Ends the recording; hooks pass through from here on.
pub fn stop() {
    let word = ACTIVE.load(Ordering::Relaxed);
    // SAFETY: null, or a page that is never unmapped.
    if let Some(word) = unsafe { word.as_ref() } {
        word.store(0, Ordering::Release);
    }
}

fn introduce(header: &Header) {
    arena::publish(header);
    // SAFETY: takes no arguments.
    header
        .pid
        .store(unsafe { libc::getpid() }, Ordering::Relaxed);
    header.generation.store(1, Ordering::Relaxed);
    let mut path = [0u8; 4096];
    // SAFETY: the link's text is at most as long as the buffer.
    let length = unsafe {
        libc::readlink(
            c"/proc/self/exe".as_ptr(),
            path.as_mut_ptr().cast(),
            path.len(),
        )
    };
    if length > 0 {
        let (place, length) = modules::store_text(&path[..length as usize]);
        header.exe_path.store(place.0, Ordering::Relaxed);
        header.exe_path_len.store(length, Ordering::Release);
    }
}

fn activate(header: &'static Header) -> Option<()> {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if !ONCE.swap(true, Ordering::Relaxed) {
        owners::prepare(header)?;
        thread::prepare();
        sample::prepare(header);
        modules::refresh();
    }
    let page = private::map_wiped_on_fork().cast::<AtomicU32>();
    if !page.is_null() {
        arena::note_private(page as u64, 4096);
    }
    // Without the advice a forked child would record into its parent's tables: rather not at all.
    // SAFETY: null, or one zeroed page that is never unmapped.
    let word = unsafe { page.as_ref() }?;
    word.store(1, Ordering::Relaxed);
    header
        .state
        .store(State::Recording as u32, Ordering::Release);
    ACTIVE.store(page, Ordering::Release);
    Some(())
}

/// Waits until the command has done something; gives up when it is dead or takes half a minute.
fn wait_for(session: &Session, mut done: impl FnMut() -> bool) -> Option<()> {
    const TICK: Duration = Duration::from_micros(500);
    const SILENT: u32 = 400;
    /// A dead command that nobody has collected still exists.
    const FOR_EVER: u32 = 20_000;
    let (mut beat, mut silent) = (session.heartbeat.load(Ordering::Relaxed), 0);
    for _ in 0..60_000 {
        if done() {
            return Some(());
        }
        // SAFETY: takes no pointer that is kept.
        unsafe { libc::usleep(TICK.as_micros() as u32) };
        let now = session.heartbeat.load(Ordering::Relaxed);
        silent = if now == beat { silent + 1 } else { 0 };
        beat = now;
        // Silence alone is none: on a busy machine it may not have had its turn.
        // SAFETY: signal 0 only asks whether the process exists.
        let is_dead = || unsafe { libc::kill(session.command_pid, 0) } != 0;
        if silent > FOR_EVER || silent > SILENT && is_dead() {
            return None;
        }
    }
    None
}

/// Lets the command look once more: waits until it lets this process go.
pub fn wait_at_the_end(header: &Header) {
    // SAFETY: null, or a segment that stays attached; set before the recording began.
    if let Some(session) = unsafe { SESSION.load(Ordering::Relaxed).as_ref() } {
        let exiting = State::Exiting as u32;
        wait_for(session, || header.state.load(Ordering::Acquire) != exiting);
    }
}
