//! Writes the recording to a file, at the end of a recording in the process itself.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::atomic::Ordering::Relaxed;

use super::arena;
use super::start::header;
use crate::wire::{DUMP_MAGIC, DumpHeader, DumpPart, EXTENTS, ExtentMap, Place, VERSION};

/// What the file says besides the tables.
#[derive(Clone, Copy, Default, Debug)]
pub struct About {
    pub duration_ms: u64,
    pub started_unix_s: u64,
    pub rss_bytes: u64,
}

const PAGE: u64 = 4096;

/// Writes all extents as far as they are used. The recording must have been stopped: what other
/// threads change meanwhile is written as it is met.
pub fn dump(file: &mut File, about: About) -> io::Result<()> {
    let Some(header) = header() else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let end = Place(header.arena.load(Relaxed));
    let mut parts = [DumpPart::default(); EXTENTS];
    let mut offset = (size_of::<DumpHeader>() as u64).next_multiple_of(PAGE);
    let mut count = 0;
    for (index, part) in parts.iter_mut().enumerate().take(end.extent() + 1) {
        let (base, size) = arena::EXTENT.extent(index);
        if base.is_null() {
            break;
        }
        let used = if index == end.extent() {
            end.offset()
        } else {
            size
        };
        file.seek(SeekFrom::Start(offset))?;
        // SAFETY: the extent is mapped with this size and stays so; its bytes are plain data.
        file.write_all(unsafe { std::slice::from_raw_parts(base, used) })?;
        *part = DumpPart {
            offset,
            bytes: used as u64,
        };
        offset = (offset + used as u64).next_multiple_of(PAGE);
        count += 1;
    }
    let head = DumpHeader {
        magic: DUMP_MAGIC,
        version: VERSION,
        extents: count,
        duration_ms: about.duration_ms,
        started_unix_s: about.started_unix_s,
        rss_bytes: about.rss_bytes,
        parts,
    };
    file.seek(SeekFrom::Start(0))?;
    // SAFETY: a struct of integers without padding, as its size assertion shows.
    let bytes = unsafe {
        std::slice::from_raw_parts((&raw const head).cast::<u8>(), size_of::<DumpHeader>())
    };
    file.write_all(bytes)
}
