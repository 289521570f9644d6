//! Recording in the process itself: the guard, and what the wrapped allocator tells.
//!
//! The recording's memory is private to the process. When the guard goes it is written to a file
//! as it is (see `wire::DumpHeader`), and the command makes a profile of it: a symbolizer has no
//! place in the program that is measured.
//!
//! Under `taskheap run` the preload library records already, so the guard does nothing then: a
//! block that counts twice is worse than a file that is not there. One recording for each process:
//! tables that were stopped and started again would hold blocks whose end nobody saw.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::record::{self, About, Caller, Taken};
use crate::wire::{Allocator, DUMP_MAGIC};

/// Set while this process records itself.
static ON: AtomicBool = AtomicBool::new(false);
/// A recording was begun, be it still on or not.
static BEGUN: AtomicBool = AtomicBool::new(false);

#[inline(always)]
pub(super) fn is_on() -> bool {
    ON.load(Relaxed)
}

#[inline(always)]
pub(super) fn allocated(block: *mut u8, size: usize, align: usize) {
    // SAFETY: takes any values.
    unsafe { machine::allocated(block, size, align) };
}

#[inline(always)]
pub(super) fn reallocated(taken: Taken, block: *mut u8, size: usize) {
    // SAFETY: the reference is good for the call, which does not keep it.
    unsafe { machine::reallocated(&taken, block, size) };
}

pub(super) fn freed(block: *mut u8) {
    record::on_free(block);
}

pub(super) fn take(block: *mut u8) -> Taken {
    record::take(block)
}

unsafe extern "C" fn on_allocated(block: *mut u8, size: usize, align: usize, sp: u64, bp: u64) {
    // SAFETY: from the machine code, whose stack it is.
    let caller = unsafe { caller(sp, bp) };
    tick(block);
    if block.is_null() {
        return record::on_failure();
    }
    record::on_alloc(block, size, align, Allocator::Wrapper, &caller);
}

unsafe extern "C" fn on_reallocated(taken: &Taken, block: *mut u8, size: usize, sp: u64, bp: u64) {
    // SAFETY: as above.
    let caller = unsafe { caller(sp, bp) };
    if block.is_null() {
        record::restore(*taken);
        return record::on_failure();
    }
    record::on_realloc(*taken, block, size, Allocator::Wrapper, &caller);
}

/// # Safety
///
/// `sp` is the stack pointer at the entry of a function, or 0 where it is not known.
unsafe fn caller(sp: u64, bp: u64) -> Caller {
    if sp == 0 {
        return Caller {
            pc: 0,
            sp: 0,
            bp: 0,
        };
    }
    // SAFETY: the return address is on top of the stack there.
    let pc = unsafe { *(sp as *const u64) };
    Caller { pc, sp: sp + 8, bp }
}

/// Keeps the recording's clock, now and then.
#[inline(always)]
fn tick(block: *mut u8) {
    if (block as usize >> 4).is_multiple_of(64) {
        set_clock();
    }
}

#[cold]
fn set_clock() {
    let (Some(header), Some(start)) = (record::header(), START.get()) else {
        return;
    };
    let now = start.elapsed().as_millis() as u32;
    header.now_ms.fetch_max(now, Relaxed);
}

static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

/// Noting the caller's registers, so that unwinding starts in the program.
#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::naked_asm;

    use super::{Taken, on_allocated, on_reallocated};

    /// # Safety
    ///
    /// Takes any values.
    #[unsafe(naked)]
    pub unsafe extern "C" fn allocated(block: *mut u8, size: usize, align: usize) {
        naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {hook}", hook = sym on_allocated)
    }

    /// # Safety
    ///
    /// As [`super::on_reallocated`].
    #[unsafe(naked)]
    pub unsafe extern "C" fn reallocated(taken: &Taken, block: *mut u8, size: usize) {
        naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {hook}", hook = sym on_reallocated)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use super::{Taken, on_allocated, on_reallocated};

    /// # Safety
    ///
    /// Takes any values.
    pub unsafe extern "C" fn allocated(block: *mut u8, size: usize, align: usize) {
        // SAFETY: 0 says that the stack is not known.
        unsafe { on_allocated(block, size, align, 0, 0) }
    }

    /// # Safety
    ///
    /// As [`super::on_reallocated`].
    pub unsafe extern "C" fn reallocated(taken: &Taken, block: *mut u8, size: usize) {
        // SAFETY: as above.
        unsafe { on_reallocated(taken, block, size, 0, 0) }
    }
}

/// Why a recording can't begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// This process has been recorded already.
    Again,
    /// There is no memory for the tables.
    Memory,
    /// There is a file of another kind, or it can't be looked at.
    Output { path: PathBuf, error: io::Error },
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            StartError::Again => f.write_str("this process has been recorded already"),
            StartError::Memory => f.write_str("there is no memory for the recording"),
            StartError::Output { path, error } => {
                write!(f, "{} can't be written: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for StartError {}

/// Records what [`Alloc`](crate::Alloc) hands out, from [`Recorder::start`] until it is dropped,
/// and then writes a recording that `taskheap report` reads.
///
/// Does nothing under `taskheap run`, which records the program from outside.
#[derive(Debug)]
#[must_use = "the recording ends when this is dropped"]
pub struct Recorder {
    /// `None` if somebody else records, or once it is written.
    output: Option<PathBuf>,
}

impl Recorder {
    /// Begins to record. The file is written at the end; one that is there and is no recording
    /// of taskheap is not replaced.
    pub fn start(output: impl AsRef<Path>) -> Result<Recorder, StartError> {
        if is_preloaded() {
            return Ok(Recorder { output: None });
        }
        let path = output.as_ref().to_owned();
        may_write(&path).map_err(|error| StartError::Output {
            path: path.clone(),
            error,
        })?;
        if BEGUN.swap(true, Relaxed) {
            return Err(StartError::Again);
        }
        let _ = START.set(Instant::now());
        #[cfg(feature = "tokio")]
        record::read_task_ids_by(super::tokio::current_id);
        record::start_local().ok_or(StartError::Memory)?;
        ON.store(true, Relaxed);
        Ok(Recorder { output: Some(path) })
    }

    /// Is it this recorder that records?
    pub fn is_recording(&self) -> bool {
        self.output.is_some() && is_on()
    }

    /// Ends the recording and writes it. `None` if somebody else records.
    pub fn finish(mut self) -> io::Result<Option<PathBuf>> {
        match self.output.take() {
            Some(path) => end(&path).map(|()| Some(path)),
            None => Ok(None),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(path) = self.output.take()
            && let Err(error) = end(&path)
        {
            eprintln!("taskheap: {} can't be written: {error}", path.display());
        }
    }
}

fn end(path: &Path) -> io::Result<()> {
    set_clock();
    ON.store(false, Relaxed);
    record::stop();
    write(path)
}

/// Has `taskheap run` put its library into this process?
fn is_preloaded() -> bool {
    // SAFETY: looks a name up, and the answer is only compared.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"taskheap_is_preloaded".as_ptr()) };
    !found.is_null()
}

/// Only what taskheap wrote is replaced.
fn may_write(path: &Path) -> io::Result<()> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut start = [0; 8];
    let got = file.read(&mut start)?;
    let ours = got == 0 || start == DUMP_MAGIC.to_ne_bytes();
    ours.then_some(()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file there is no recording of taskheap",
        )
    })
}

/// Writes beside the file and puts it in its place: nothing is left half written, and no link in
/// a shared folder is followed.
fn write(path: &Path) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    let written = record::dump(&mut file, about()).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn about() -> About {
    let duration = START.get().map_or_else(Default::default, Instant::elapsed);
    let started = SystemTime::now().checked_sub(duration);
    let started = started.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse::<u64>().ok());
    About {
        duration_ms: duration.as_millis() as u64,
        started_unix_s: started.map_or(0, |time| time.as_secs()),
        rss_bytes: pages.unwrap_or(0) * 4096,
    }
}
