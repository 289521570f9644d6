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
use std::time::{SystemTime, UNIX_EPOCH};

use super::{StartError, listener};
use crate::record::{self, About};
use crate::wire::DUMP_MAGIC;

/// A recording was begun, be it still on or not.
static BEGUN: AtomicBool = AtomicBool::new(false);

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
        Recorder::begin(output.as_ref(), 0)
    }

    /// As [`Recorder::start`], but records a sample: about one allocation in `bytes` allocated
    /// bytes (such as `512 << 10`), and tasks one by one. Every figure of the profile is an
    /// estimate and has its standard error. Less than 1,024 bytes record every block.
    pub fn start_sampled(output: impl AsRef<Path>, bytes: u64) -> Result<Recorder, StartError> {
        const LEAST: u64 = 1 << 10;
        Recorder::begin(output.as_ref(), if bytes < LEAST { 0 } else { bytes })
    }

    fn begin(output: &Path, sample_bytes: u64) -> Result<Recorder, StartError> {
        if is_preloaded() {
            return Ok(Recorder { output: None });
        }
        let path = output.to_owned();
        may_write(&path).map_err(|error| StartError::Output {
            path: path.clone(),
            error,
        })?;
        if BEGUN.swap(true, Relaxed) {
            return Err(StartError::Again);
        }
        #[cfg(feature = "tokio")]
        record::read_task_ids_by(super::tokio::current_id);
        record::start_local(sample_bytes).ok_or(StartError::Memory)?;
        listener::begin();
        Ok(Recorder { output: Some(path) })
    }

    /// Is it this recorder that records?
    pub fn is_recording(&self) -> bool {
        self.output.is_some()
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
    listener::end();
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
    let duration = listener::started().map_or_else(Default::default, |start| start.elapsed());
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
