//! Making the shared memory of a session and keeping it ahead of the profiled processes.
//!
//! Called every few milliseconds: raises the heartbeat and the clock, makes the extent after the
//! next, answers a process that waits for its configuration, and, where children are followed,
//! keeps two unused recordings ready.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::sys::segment;
use crate::wire::{
    EXTENTS, ExtentMap, Header, InitRange, MAGIC, PROCESSES, Patch, Place, Redirect, Session,
    State, VERSION,
};

/// A session and its recordings.
pub struct Host {
    session: &'static Session,
    id: i32,
    started: Instant,
    recordings: Vec<Arc<Recorded>>,
}

/// One recording, as attached in this process.
pub struct Recorded {
    /// Filled in order; never taken back.
    extents: [OnceLock<Attached>; EXTENTS],
    started: Instant,
    /// What the extents are in, if they are not segments.
    _map: Option<memmap2::MmapMut>,
}

#[derive(Clone, Copy)]
struct Attached {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the extents stay attached; what is in them is read and written as atomics only.
unsafe impl Send for Attached {}
// SAFETY: as above.
unsafe impl Sync for Attached {}

/// What a process is told before its own code runs.
#[derive(Clone, Default)]
pub struct Configuration {
    /// Offset of the id, and of the word that is 0 while there is none, if it has one.
    pub task_ids: Vec<(i64, Option<i64>)>,
    /// Offsets from the thread pointer and words of tokio contexts of unknown layout.
    pub contexts: Vec<(i64, u32)>,
    pub init_ranges: Vec<InitRange>,
    pub patches: Vec<Patch>,
    pub redirects: Vec<Redirect>,
    /// Address of jemalloc's `mallctl`, or 0.
    pub mallctl: u64,
    /// `taskheap::Alloc` in the program is asked to tell.
    pub wrapper: bool,
    pub sample_bytes: u64,
    pub walks: bool,
}

impl ExtentMap for Recorded {
    fn extent(&self, index: usize) -> (*mut u8, usize) {
        match self.extents.get(index).and_then(OnceLock::get) {
            Some(attached) => (attached.base, attached.bytes),
            None => (std::ptr::null_mut(), 0),
        }
    }
}

fn out_of_memory() -> io::Error {
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        "the system gives no shared memory (see /proc/sys/kernel/shmmax, shmall, and ulimit -v)",
    )
}

/// A segment that goes when both processes have let go of it.
fn make_segment(bytes: usize) -> io::Result<(i32, *mut u8)> {
    let id = segment::create(bytes).ok_or_else(out_of_memory)?;
    let base = segment::attach(id, bytes);
    segment::remove_when_unused(id);
    if base.is_null() {
        return Err(out_of_memory());
    }
    Ok((id, base))
}

impl Host {
    pub fn new(follow: bool) -> io::Result<Host> {
        let (id, base) = make_segment(size_of::<Session>())?;
        let session = base.cast::<Session>();
        // SAFETY: a fresh, zeroed segment of this size that nobody else knows yet.
        let session = unsafe {
            (*session).magic = MAGIC;
            (*session).version = VERSION;
            (*session).command_pid = std::process::id() as i32;
            &*session
        };
        session.follow.store(u32::from(follow), Relaxed);
        let mut host = Host {
            session,
            id,
            started: Instant::now(),
            recordings: Vec::new(),
        };
        host.keep_ahead()?;
        Ok(host)
    }

    /// What [`crate::wire::SESSION_VARIABLE`] has to say.
    pub fn variable(&self) -> String {
        self.id.to_string()
    }

    pub fn elapsed_ms(&self) -> u32 {
        self.started.elapsed().as_millis() as u32
    }

    /// To be called every few milliseconds. `configure` answers for an executable.
    pub fn tick(&mut self, mut configure: impl FnMut(&PathBuf) -> Configuration) -> io::Result<()> {
        self.session.heartbeat.fetch_add(1, Release);
        let now = self.elapsed_ms();
        let follow = self.session.follow.load(Relaxed);
        for recorded in &self.recordings {
            recorded.header().now_ms.store(now, Relaxed);
            recorded.extend()?;
            if recorded.state_is(State::Attached) {
                let exe = recorded.exe();
                recorded.configure(&configure(&exe), follow);
            }
        }
        self.keep_ahead()
    }

    /// Recordings that a process has taken.
    pub fn taken(&self) -> impl Iterator<Item = &Arc<Recorded>> {
        self.recordings
            .iter()
            .filter(|r| r.header().pid.load(Relaxed) != 0)
    }

    fn keep_ahead(&mut self) -> io::Result<()> {
        let follow = self.session.follow.load(Relaxed) != 0;
        let taken = self.session.next.load(Acquire) as usize;
        let wanted = if follow {
            (taken + 2).min(PROCESSES)
        } else {
            1
        };
        while self.recordings.len() < wanted {
            let (recorded, id) = Recorded::new(self.started)?;
            let slot = &self.session.processes[self.recordings.len()];
            self.recordings.push(Arc::new(recorded));
            slot.recording.store(id + 1, Release);
        }
        Ok(())
    }
}

/// Size of extent `index`: 4 MiB doubling up to 16 GiB.
fn extent_bytes(index: usize) -> usize {
    (4 << 20) << index.min(12)
}

impl Recorded {
    fn new(started: Instant) -> io::Result<(Recorded, i32)> {
        let (id, base) = make_segment(extent_bytes(0))?;
        let header = base.cast::<Header>();
        let first = size_of::<Header>().next_multiple_of(4096) as u64;
        // SAFETY: a fresh, zeroed segment, larger than a header, that nobody else knows yet.
        unsafe {
            (*header).magic = MAGIC;
            (*header).version = VERSION;
            (*header).extents[0]
                .bytes
                .store(extent_bytes(0) as u64, Relaxed);
            (*header).extents[0].segment.store(id + 1, Release);
            (*header).extents_used.store(1, Relaxed);
            (*header).arena.store(Place::new(0, first).0, Relaxed);
        }
        let extents = [const { OnceLock::new() }; EXTENTS];
        let first = Attached {
            base,
            bytes: extent_bytes(0),
        };
        let _ = extents[0].set(first);
        let recorded = Recorded {
            extents,
            started,
            _map: None,
        };
        recorded.extend()?;
        Ok((recorded, id))
    }

    /// A recording in a file: offset and size of its extents, which lie within the map, the first
    /// with room for a header.
    pub(super) fn from_map(mut map: memmap2::MmapMut, parts: &[(usize, usize)]) -> Recorded {
        let extents = [const { OnceLock::new() }; EXTENTS];
        for (extent, &(offset, bytes)) in extents.iter().zip(parts) {
            let base = map[offset..offset + bytes].as_mut_ptr();
            let _ = extent.set(Attached { base, bytes });
        }
        Recorded {
            extents,
            started: Instant::now(),
            _map: Some(map),
        }
    }

    pub fn header(&self) -> &Header {
        // SAFETY: extent 0 starts with a header, and stays attached.
        unsafe { &*self.extent(0).0.cast::<Header>() }
    }

    pub fn elapsed_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub fn pid(&self) -> i32 {
        self.header().pid.load(Relaxed)
    }

    pub fn state_is(&self, state: State) -> bool {
        self.header().state.load(Acquire) == state as u32
    }

    /// Lets a process that waits at its end go.
    pub fn release(&self) {
        let (from, to) = (State::Exiting as u32, State::Released as u32);
        let _ = self
            .header()
            .state
            .compare_exchange(from, to, Release, Relaxed);
    }

    /// Makes the extent after the next.
    fn extend(&self) -> io::Result<()> {
        let used = self.header().extents_used.load(Acquire) as usize;
        for index in 0..(used + 2).min(EXTENTS) {
            if self.extents[index].get().is_some() {
                continue;
            }
            let bytes = extent_bytes(index);
            let Ok((id, base)) = make_segment(bytes) else {
                // The first is needed at all; without a further one the tables end up full, and
                // what is lost is counted.
                return if index < 2 {
                    Err(out_of_memory())
                } else {
                    Ok(())
                };
            };
            let _ = self.extents[index].set(Attached { base, bytes });
            let extent = &self.header().extents[index];
            extent.bytes.store(bytes as u64, Relaxed);
            extent.segment.store(id + 1, Release);
        }
        Ok(())
    }

    /// Path of the executable; empty while unknown.
    pub fn exe(&self) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        let header = self.header();
        let length = header.exe_path_len.load(Acquire) as usize;
        let bytes = self.bytes(Place(header.exe_path.load(Relaxed)), length);
        PathBuf::from(std::ffi::OsString::from_vec(bytes))
    }

    /// A copy of bytes of the recording; empty if they are not there.
    pub fn bytes(&self, place: Place, length: usize) -> Vec<u8> {
        let start = self.address(place, length);
        if start.is_null() {
            return Vec::new();
        }
        // SAFETY: `address` has checked the range; written before its length was published.
        unsafe { std::slice::from_raw_parts(start, length) }.to_vec()
    }

    /// The process waits meanwhile, so the arena is ours.
    fn configure(&self, configuration: &Configuration, follow: u32) {
        let header = self.header();
        let config = &header.config;
        config.follow.store(follow, Relaxed);
        config.mallctl.store(configuration.mallctl, Relaxed);
        config
            .wrapper
            .store(u32::from(configuration.wrapper), Relaxed);
        config
            .sample_bytes
            .store(configuration.sample_bytes, Relaxed);
        header.walks.store(u32::from(configuration.walks), Relaxed);
        for (slot, (offset, present)) in config.task_ids.iter().zip(&configuration.task_ids) {
            slot.present.store(present.unwrap_or(0), Relaxed);
            slot.offset.store(*offset, Relaxed);
        }
        for (slot, (offset, words)) in config.contexts.iter().zip(&configuration.contexts) {
            slot.words.store(*words, Relaxed);
            slot.offset.store(*offset, Relaxed);
        }
        if let Some(place) = self.store(&configuration.init_ranges) {
            config.init_ranges.store(place.0, Relaxed);
            config
                .init_range_count
                .store(configuration.init_ranges.len() as u32, Relaxed);
        }
        if let Some(place) = self.store(&configuration.patches) {
            config.patches.store(place.0, Relaxed);
            config
                .patch_count
                .store(configuration.patches.len() as u32, Relaxed);
        }
        if let Some(place) = self.store(&configuration.redirects) {
            config.redirects.store(place.0, Relaxed);
            config
                .redirect_count
                .store(configuration.redirects.len() as u32, Relaxed);
        }
        header.state.store(State::Configured as u32, Release);
    }

    /// Copies rows into extent 0.
    fn store<T: Copy>(&self, rows: &[T]) -> Option<Place> {
        if rows.is_empty() {
            return None;
        }
        let header = self.header();
        let bytes = size_of_val(rows).next_multiple_of(64);
        let next = Place(header.arena.load(Relaxed));
        let aligned = Place::new(next.extent(), next.offset().next_multiple_of(64) as u64);
        let address = self.address(aligned, bytes);
        if address.is_null() {
            return None;
        }
        // SAFETY: the range is ours, large enough, and aligned beyond any row's alignment.
        unsafe {
            address
                .cast::<T>()
                .copy_from_nonoverlapping(rows.as_ptr(), rows.len())
        };
        let end = Place::new(aligned.extent(), (aligned.offset() + bytes) as u64);
        header.arena.store(end.0, Relaxed);
        Some(aligned)
    }
}
