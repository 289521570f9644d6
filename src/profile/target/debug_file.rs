//! Where a distribution keeps the debug info that it stripped from a file.
//!
//! By build id under `/usr/lib/debug/.build-id`, by the name in `.gnu_debuglink` beside the file,
//! in its `.debug` folder, or under `/usr/lib/debug` at the file's own path. A name alone proves
//! nothing, since packages are upgraded one at a time: a candidate counts only if its build id is
//! the file's, or, where there is none, if its checksum is the one that the link states.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::Object;

use super::Image;

const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The separate debug file of an image, checked to be its own.
pub(super) fn find(image: &Arc<Image>) -> Option<Arc<Image>> {
    find_under(image, Path::new(DEBUG_ROOT))
}

/// Where the debug file of this build id would be.
pub(super) fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    by_build_id_under(id, Path::new(DEBUG_ROOT))
}

fn find_under(image: &Image, root: &Path) -> Option<Arc<Image>> {
    let link = image.elf().gnu_debuglink().ok().flatten();
    let by_id = by_build_id_under(image.build_id(), root).into_iter();
    let by_link = link
        .into_iter()
        .flat_map(|(name, _)| by_name(image.path(), name, root));
    let checksum = link.map(|(_, checksum)| checksum);
    by_id
        .chain(by_link)
        .filter(|path| path.is_file())
        .filter_map(|path| Image::open(&path).ok())
        .find(|found| is_of(found, image, checksum))
}

fn by_build_id_under(id: &[u8], root: &Path) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    if rest.is_empty() {
        return None;
    }
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(root.join(format!(".build-id/{first:02x}/{rest}.debug")))
}

fn by_name(path: &Path, name: &[u8], root: &Path) -> Vec<PathBuf> {
    let (Ok(name), Ok(path)) = (std::str::from_utf8(name), path.canonicalize()) else {
        return Vec::new();
    };
    // A link that leads somewhere else than into these folders is not a file name.
    if name.is_empty() || name.contains('/') {
        return Vec::new();
    }
    let Some(folder) = path.parent() else {
        return Vec::new();
    };
    let below_root = folder.strip_prefix("/").unwrap_or(folder);
    vec![
        folder.join(name),
        folder.join(".debug").join(name),
        root.join(below_root).join(name),
    ]
}

fn is_of(found: &Image, image: &Image, checksum: Option<u32>) -> bool {
    if !found.has_section(".debug_info") {
        return false;
    }
    if !image.build_id().is_empty() {
        return found.build_id() == image.build_id();
    }
    checksum == Some(crc32(found.bytes()))
}

/// The checksum of `.gnu_debuglink`: CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_has_its_place() {
        let path = by_build_id_under(&[0xab, 0x01, 0xff], Path::new("/d")).unwrap();
        assert_eq!(path, Path::new("/d/.build-id/ab/01ff.debug"));
        assert_eq!(by_build_id_under(&[0xab], Path::new("/d")), None);
    }

    #[test]
    fn a_link_is_a_file_name() {
        let exe = std::env::current_exe().unwrap();
        assert!(by_name(&exe, b"../../etc/passwd", Path::new("/d")).is_empty());
        assert_eq!(by_name(&exe, b"x.debug", Path::new("/d")).len(), 3);
    }

    #[test]
    fn the_checksum_is_that_of_the_link() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
