//! A recording that the library left in a file (`wire::DumpHeader`), made a profile.
//!
//! The file holds the memory of another process: every place in it is checked against the size
//! of what is there before it is followed, as for a process that was killed, and the profile that
//! comes out is validated like one that was read.

use std::fs::File;
use std::path::Path;

use memmap2::MmapOptions;

use super::{Ending, Facts, Namer, Recorded, collect};
use crate::profile::{Profile, ReadError};
use crate::wire::{DUMP_MAGIC, DumpHeader, EXTENTS, Header, MAGIC, VERSION};

/// Does a file that begins so hold a recording?
pub fn is_recording(start: &[u8]) -> bool {
    start.starts_with(&DUMP_MAGIC.to_ne_bytes())
}

/// Makes a profile of the recording in the file. The program must still be where it was, for the
/// names of its functions.
pub fn profile_of_file(path: &Path) -> Result<Profile, ReadError> {
    let damaged = |what: &str| ReadError::damaged(path, what);
    let unreadable = |error| ReadError::Open {
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(unreadable)?;
    // SAFETY: a private map; that nobody cuts the file meanwhile is the user's part.
    let map = unsafe { MmapOptions::new().map_copy(&file) }.map_err(unreadable)?;
    let head = head(&map).ok_or_else(|| damaged("its header is not whole"))?;
    if head.version != VERSION {
        return Err(damaged("the library that wrote it is of another version"));
    }
    let count = head.extents as usize;
    let parts = head.parts.get(..count).filter(|parts| !parts.is_empty());
    let parts = parts.ok_or_else(|| damaged("its extents can't be counted"))?;
    let mut extents = Vec::with_capacity(EXTENTS);
    for part in parts {
        let end = part.offset.checked_add(part.bytes);
        let inside = end.is_some_and(|end| end <= map.len() as u64);
        if !inside || !part.offset.is_multiple_of(4096) {
            return Err(damaged("it is cut off"));
        }
        extents.push((part.offset as usize, part.bytes as usize));
    }
    if extents[0].1 < size_of::<Header>() {
        return Err(damaged("its tables are not whole"));
    }
    let recorded = Recorded::from_map(map, &extents);
    if recorded.header().magic != MAGIC || recorded.header().version != VERSION {
        return Err(damaged("its tables are not taskheap's"));
    }
    let profile = collect(&recorded, facts(&head), &mut Namer::default(), &|_, _| {});
    match profile.validate() {
        Ok(()) => Ok(profile),
        Err(what) => Err(ReadError::damaged(path, what.to_string())),
    }
}

fn head(map: &[u8]) -> Option<DumpHeader> {
    let bytes = map.get(..size_of::<DumpHeader>())?;
    // SAFETY: as many bytes are there, and any are a header.
    Some(unsafe { bytes.as_ptr().cast::<DumpHeader>().read_unaligned() })
}

fn facts(head: &DumpHeader) -> Facts {
    Facts {
        started_unix_s: head.started_unix_s,
        duration_s: head.duration_ms as f64 / 1000.0,
        // It lived to write this.
        ending: Ending {
            code: Some(0),
            ..Ending::default()
        },
        task_ids: "api".to_owned(),
        ..Facts::default()
    }
}
