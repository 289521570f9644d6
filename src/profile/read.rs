//! Reads a profile, whatever the file holds.
//!
//! A file may be cut, changed, from another tool, from a later version, or made to harm. Each
//! gets an error that names the file and says what was expected, none a panic, and none more
//! memory than its size allows: see [`most_plain_bytes`] and [`most_memory`]. Indices and sums are checked once, by
//! [`Profile::validate`], so that everything behind this module may index and add.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::Profile;
use super::format::{
    Encoding, FileHeader, HEADER_BYTES, MAGIC, MAJOR, MINOR, Major, Minor, crc32, most_plain_bytes,
};
#[cfg(target_os = "linux")]
use super::recording;
use super::weigh::{most_memory, weigh};

/// Why a file is not a profile that can be read.
#[derive(Debug)]
pub enum ReadError {
    Open {
        path: PathBuf,
        error: io::Error,
    },
    Foreign {
        path: PathBuf,
        /// What it looks like.
        found: &'static str,
    },
    Version {
        path: PathBuf,
        major: Major,
        minor: Minor,
        /// The taskheap that wrote it.
        maker: String,
    },
    Cut {
        path: PathBuf,
        expected_bytes: u64,
        found_bytes: u64,
    },
    Damaged {
        path: PathBuf,
        what: String,
    },
}

/// Reads and checks a profile.
pub fn read(path: &Path) -> Result<Profile, ReadError> {
    let file = File::open(path).map_err(|error| open_error(path, error))?;
    let about = file.metadata().map_err(|error| open_error(path, error))?;
    if about.is_dir() {
        return Err(open_error(path, io::ErrorKind::IsADirectory.into()));
    }
    #[cfg(target_os = "linux")]
    if about.is_file() {
        let mut start = [0; 8];
        let whole = io::Read::read_exact(&mut &file, &mut start).is_ok();
        if whole && recording::is_recording(&start) {
            return recording::profile_of_file(path);
        }
        io::Seek::rewind(&mut &file).map_err(|error| open_error(path, error))?;
    }
    read_from(file, path)
}

/// Reads a profile from anything; `path` is what errors call it.
pub fn read_from(mut source: impl Read, path: &Path) -> Result<Profile, ReadError> {
    let header = read_header(&mut source, path)?;
    let body = read_body(source, &header, path)?;
    let plain = unpack(body, &header, path)?;
    // What can't be weighed can't be decoded either, and the decoder says why.
    if weigh(&plain).is_some_and(|weight| weight > most_memory(plain.len() as u64)) {
        let what = "its tables claim to take more memory than any profile of their size";
        return Err(ReadError::damaged(path, what));
    }
    let profile: Profile = rmp_serde::from_slice(&plain).map_err(|error| {
        ReadError::damaged(path, format!("its tables can't be decoded ({error})"))
    })?;
    match profile.validate() {
        Ok(()) => Ok(profile),
        Err(what) => Err(ReadError::damaged(path, what.to_string())),
    }
}

fn read_header(source: &mut impl Read, path: &Path) -> Result<FileHeader, ReadError> {
    let mut start = Vec::with_capacity(HEADER_BYTES);
    source
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut start)
        .map_err(|error| open_error(path, error))?;
    let shared = start.len().min(MAGIC.len());
    if start.is_empty() || start[..shared] != MAGIC[..shared] {
        return Err(ReadError::Foreign {
            path: path.to_owned(),
            found: looks_like(&start),
        });
    }
    match <&[u8; HEADER_BYTES]>::try_from(start.as_slice()) {
        Ok(bytes) => FileHeader::from_bytes(bytes, path),
        Err(_) => Err(ReadError::Cut {
            path: path.to_owned(),
            expected_bytes: HEADER_BYTES as u64,
            found_bytes: start.len() as u64,
        }),
    }
}

/// The body grows with what is really there, never by what the header promises.
fn read_body(source: impl Read, header: &FileHeader, path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut body = Vec::new();
    source
        .take(header.body_bytes.saturating_add(1))
        .read_to_end(&mut body)
        .map_err(|error| open_error(path, error))?;
    let found = body.len() as u64;
    if found < header.body_bytes {
        return Err(ReadError::Cut {
            path: path.to_owned(),
            expected_bytes: header.body_bytes.saturating_add(HEADER_BYTES as u64),
            found_bytes: found + HEADER_BYTES as u64,
        });
    }
    if found > header.body_bytes {
        return Err(ReadError::damaged(path, "something was added to its end"));
    }
    if crc32(&body) != header.body_crc {
        return Err(ReadError::damaged(
            path,
            "the checksum of its tables is wrong",
        ));
    }
    Ok(body)
}

fn unpack(body: Vec<u8>, header: &FileHeader, path: &Path) -> Result<Vec<u8>, ReadError> {
    if header.encoding == Encoding::Plain as u32 {
        return Ok(body);
    }
    if header.encoding != Encoding::Zstd as u32 {
        return Err(ReadError::damaged(
            path,
            format!("its encoding {} is unknown", header.encoding),
        ));
    }
    if header.plain_bytes > most_plain_bytes(header.body_bytes) {
        return Err(ReadError::damaged(
            path,
            format!("its tables claim to unpack to {} bytes", header.plain_bytes),
        ));
    }
    let failed = |error: io::Error| {
        ReadError::damaged(path, format!("its tables can't be unpacked ({error})"))
    };
    let mut plain = Vec::new();
    zstd::stream::read::Decoder::new(body.as_slice())
        .map_err(failed)?
        .take(header.plain_bytes.saturating_add(1))
        .read_to_end(&mut plain)
        .map_err(failed)?;
    if plain.len() as u64 != header.plain_bytes {
        return Err(ReadError::damaged(
            path,
            "its tables unpack to another size",
        ));
    }
    Ok(plain)
}

/// The files that people mix up with ours.
fn looks_like(start: &[u8]) -> &'static str {
    const KNOWN: [(&[u8], &str); 8] = [
        (b"\x7fELF", "a program or library"),
        (b"\x1f\x8b", "a gzip file, perhaps a pprof profile"),
        (b"\x28\xb5\x2f\xfd", "a zstd file, perhaps heaptrack's"),
        (b"<?xml", "an SVG or XML file, perhaps a flamegraph"),
        (b"<svg", "an SVG file, perhaps a flamegraph"),
        (b"{", "a JSON file, perhaps a report or DHAT's"),
        (b"memray", "memray's"),
        (b"#!", "a script"),
    ];
    match KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, name)) => name,
        None if start.is_empty() => "empty",
        None => "something else",
    }
}

fn open_error(path: &Path, error: io::Error) -> ReadError {
    ReadError::Open {
        path: path.to_owned(),
        error,
    }
}

impl ReadError {
    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> ReadError {
        ReadError::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    /// What the person can do about it.
    pub fn hint(&self) -> String {
        match self {
            ReadError::Open { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "`taskheap run -- PROGRAM` makes a profile and prints its name".to_owned()
            }
            ReadError::Open { .. } => "give a file that you may read".to_owned(),
            ReadError::Foreign { .. } => {
                "give a file that `taskheap run` wrote (NAME.taskheap)".to_owned()
            }
            ReadError::Version { maker, major, .. } if *major > MAJOR => {
                let name = if maker.is_empty() {
                    "a newer one"
                } else {
                    maker
                };
                format!("read it with the taskheap that wrote it ({name}), or update this one")
            }
            ReadError::Version { .. } => "record the program again with this taskheap".to_owned(),
            ReadError::Cut { .. } => {
                "copy it again; if the original is this short, record the program again".to_owned()
            }
            ReadError::Damaged { .. } => {
                "copy it again (in binary mode), or record the program again".to_owned()
            }
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Open { path, error } => write!(f, "can't read {}: {error}", path.display()),
            ReadError::Foreign { path, found } => write!(
                f,
                "{} is no taskheap profile: it should begin with the word taskheap, but is {found}",
                path.display()
            ),
            ReadError::Version {
                path, major, minor, ..
            } => write!(
                f,
                "{} has format version {}.{}, this taskheap reads {}.x (writes {}.{})",
                path.display(),
                major.0,
                minor.0,
                MAJOR.0,
                MAJOR.0,
                MINOR.0
            ),
            ReadError::Cut {
                path,
                expected_bytes,
                found_bytes,
            } => write!(
                f,
                "{} is cut: it should have {expected_bytes} bytes and has {found_bytes}",
                path.display()
            ),
            ReadError::Damaged { path, what } => {
                write!(f, "{} is damaged: {what}", path.display())
            }
        }
    }
}

impl std::error::Error for ReadError {}
