//! A recording as a file: what the library leaves behind, to be made a profile by the command.
//!
//! Naming addresses takes a symbolizer, which has no place in the program that is measured. So
//! the library writes the recording's memory as it is, and the command reads it as it would read
//! the memory of a process. The header of the file says where each extent lies.

use super::EXTENTS;

/// `threcord` in ASCII.
pub const DUMP_MAGIC: u64 = u64::from_be_bytes(*b"threcord");

#[derive(Clone, Copy)]
#[repr(C)]
pub struct DumpHeader {
    pub magic: u64,
    /// [`super::VERSION`].
    pub version: u32,
    pub extents: u32,
    /// Milliseconds that the recording lasted.
    pub duration_ms: u64,
    /// Seconds since 1970 at its start.
    pub started_unix_s: u64,
    /// Resident bytes of the process at the end.
    pub rss_bytes: u64,
    pub parts: [DumpPart; EXTENTS],
}

/// Where an extent is in the file.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct DumpPart {
    pub offset: u64,
    pub bytes: u64,
}

const _: () = assert!(size_of::<DumpHeader>() == 40 + 16 * EXTENTS);
