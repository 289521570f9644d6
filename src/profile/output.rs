//! Creates a file that is either whole or not there.
//!
//! The tempting `File::create` truncates what was there, follows a symbolic link that somebody
//! else put into /tmp, leaves half a file when the disk is full, and says so only after the run.
//! Here the file is made beside its goal under a name of its own (new, 0600, never through a
//! link) before any work starts, filled, and put in place by one atomic step that refuses an
//! existing file unless told otherwise. What is replaced is the name, so a link at the goal is
//! replaced itself and what it points to stays as it is. A command that is killed meanwhile
//! leaves the unfinished file, whose name begins with a dot, and nothing else.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What to do about a file that is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Replace it.
    pub force: bool,
}

/// A file on its way. Dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
    options: Options,
    written: u64,
}

/// Why a file could not be made. Names the file, the system's reason and the remedy.
#[derive(Debug)]
pub enum OutputError {
    Exists {
        path: PathBuf,
    },
    /// A folder, a device, a socket: nothing to replace by a file.
    NotAFile {
        path: PathBuf,
        what: &'static str,
    },
    Create {
        path: PathBuf,
        folder: PathBuf,
        error: io::Error,
    },
    Write {
        path: PathBuf,
        error: io::Error,
    },
}

impl Output {
    /// Reserves the place: fails now if it would fail in the end.
    pub fn create(path: &Path, options: Options) -> Result<Output, OutputError> {
        refuse_what_is_there(path, options)?;
        let folder = folder_of(path);
        let (temporary, file) =
            create_beside(path, folder).map_err(|error| OutputError::Create {
                path: path.to_owned(),
                folder: folder.to_owned(),
                error,
            })?;
        Ok(Output {
            path: path.to_owned(),
            temporary,
            file: Some(BufWriter::with_capacity(1 << 18, file)),
            options,
            written: 0,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in place and says how large it is.
    pub fn finish(mut self) -> Result<u64, OutputError> {
        let failed = |error| OutputError::Write {
            path: self.path.clone(),
            error,
        };
        if let Some(writer) = self.file.take() {
            let file = writer.into_inner().map_err(|e| failed(e.into_error()))?;
            // A full disk shows itself here at the latest, on file systems that allocate late.
            file.sync_all().map_err(failed)?;
        }
        self.place()?;
        Ok(self.written)
    }

    /// Writes it all and puts it in place.
    pub fn finish_with(mut self, bytes: &[u8]) -> Result<u64, OutputError> {
        self.write_all(bytes).map_err(|error| OutputError::Write {
            path: self.path.clone(),
            error,
        })?;
        self.finish()
    }

    fn place(&self) -> Result<(), OutputError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => OutputError::Exists {
                path: self.path.clone(),
            },
            _ => OutputError::Write {
                path: self.path.clone(),
                error,
            },
        };
        if self.options.force {
            // Asked again: a device may have come to the place since.
            refuse_what_is_there(&self.path, self.options)?;
            return fs::rename(&self.temporary, &self.path).map_err(failed);
        }
        // A second name never replaces a first one; a rename would.
        match fs::hard_link(&self.temporary, &self.path) {
            Ok(()) => fs::remove_file(&self.temporary).map_err(failed),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(failed(error)),
            // A file system without second names: hold the place with an empty file.
            Err(_) => {
                new_file(&self.path).map_err(failed)?;
                fs::rename(&self.temporary, &self.path).map_err(failed)
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let count = file.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Gone already if the file is in place.
        let _ = fs::remove_file(&self.temporary);
    }
}

fn refuse_what_is_there(path: &Path, options: Options) -> Result<(), OutputError> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let kind = found.file_type();
    let what = match () {
        () if kind.is_file() || kind.is_symlink() => None,
        () if kind.is_dir() => Some("a folder"),
        () if kind.is_fifo() => Some("a pipe"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a device"),
    };
    match what {
        Some(what) => Err(OutputError::NotAFile {
            path: path.to_owned(),
            what,
        }),
        None if options.force => Ok(()),
        None => Err(OutputError::Exists {
            path: path.to_owned(),
        }),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn create_beside(path: &Path, folder: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if path.file_name().is_none() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".taskheap-{}-{number}.unfinished", std::process::id());
        let temporary = folder.join(name);
        match new_file(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 10_000 => {}
            Err(error) => return Err(error),
        }
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutputError::Exists { path } => write!(f, "{} exists already", path.display()),
            OutputError::NotAFile { path, what } => {
                write!(f, "{} is {what}, not a file", path.display())
            }
            OutputError::Create {
                path,
                folder,
                error,
            } => write!(
                f,
                "can't create {} in the folder {}: {error}",
                path.file_name().unwrap_or_default().display(),
                folder.display()
            ),
            OutputError::Write { path, error } => {
                write!(f, "can't write {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for OutputError {}

impl OutputError {
    /// What the person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            OutputError::Exists { .. } => "name another file, or replace it with --force",
            OutputError::NotAFile { .. } => "name a file with -o",
            OutputError::Create { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "make the folder first, or name another one with -o"
            }
            OutputError::Create { .. } => "name a file in a folder that you may write to with -o",
            OutputError::Write { error, .. } if error.kind() == io::ErrorKind::StorageFull => {
                "free some space, or name a file on another disk with -o"
            }
            OutputError::Write { .. } => "name a file on another disk with -o",
        }
    }
}
