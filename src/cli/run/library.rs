//! The preload library, on its way from the command into a file that can be mapped.
//!
//! It is embedded in the command. Temporary folders may forbid to map code (`noexec`), and the
//! loader takes spaces and colons for separators: so folders are tried in turn until one works.
//! The file is named by its contents and kept in a folder of this user only: a second run finds
//! it there, also where file sizes are limited.

use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::super::Error;

static LIBRARY: &[u8] = include_bytes!(env!("TASKHEAP_PRELOAD_LIBRARY"));

/// Path of the library in a file.
pub fn place() -> Result<PathBuf, Error> {
    let mut tried = Vec::new();
    for folder in folders() {
        match place_in(&folder) {
            Ok(path) => return Ok(path),
            Err(error) => tried.push(format!("{}: {error}", folder.display())),
        }
    }
    Err(Error::Refused {
        what: format!(
            "the preload library can't be put anywhere ({})",
            tried.join("; ")
        ),
        hint: "set TMPDIR to a folder where programs may be run, without spaces in its name"
            .to_owned(),
    })
}

fn folders() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let mut folders = Vec::new();
    if let Some(folder) = variable("XDG_CACHE_HOME") {
        folders.push(PathBuf::from(folder).join("taskheap"));
    } else if let Some(home) = variable("HOME") {
        folders.push(PathBuf::from(home).join(".cache/taskheap"));
    }
    // SAFETY: takes no arguments.
    let own = format!("taskheap-{}", unsafe { libc::geteuid() });
    let shared = [
        variable("TMPDIR"),
        Some("/tmp".into()),
        Some("/var/tmp".into()),
    ];
    let shared = shared
        .into_iter()
        .flatten()
        .chain([OsStr::new("/dev/shm").to_owned()]);
    folders.extend(shared.map(|folder| PathBuf::from(folder).join(&own)));
    folders
}

fn place_in(folder: &Path) -> io::Result<PathBuf> {
    if folder
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :;\t\n".contains(byte))
    {
        return Err(io::Error::other("its name has a separator of LD_PRELOAD"));
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let about = fs::symlink_metadata(folder)?;
    // SAFETY: takes no arguments.
    let user = unsafe { libc::geteuid() };
    if !about.is_dir() || about.uid() != user || about.mode() & 0o022 != 0 {
        return Err(io::Error::other("others may write there"));
    }
    let path = folder.join(format!("preload-{:016x}.so", digest(LIBRARY)));
    if fs::read(&path).is_ok_and(|bytes| bytes == LIBRARY) {
        return mappable(path);
    }
    let unfinished = folder.join(format!(".preload-{}", std::process::id()));
    let _ = fs::remove_file(&unfinished);
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&unfinished)?;
    io::Write::write_all(&mut file, LIBRARY)?;
    drop(file);
    fs::rename(&unfinished, &path)?;
    mappable(path)
}

/// Is code allowed to be mapped from there?
fn mappable(path: PathBuf) -> io::Result<PathBuf> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a C string; the descriptor is closed below, the mapping is given back.
    unsafe {
        let file = libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        let start = libc::mmap(
            std::ptr::null_mut(),
            4096,
            protection,
            libc::MAP_PRIVATE,
            file,
            0,
        );
        let error = io::Error::last_os_error();
        libc::close(file);
        if start == libc::MAP_FAILED {
            return Err(error);
        }
        libc::munmap(start, 4096);
    }
    Ok(path)
}

/// FNV-1a: names the file, protects nothing; what is there is compared as a whole.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_exports_the_family_and_is_found_again() {
        let path = place().unwrap();
        assert_eq!(fs::read(&path).unwrap(), LIBRARY);
        assert_eq!(place().unwrap(), path);
        for name in ["malloc", "posix_memalign", "reallocarray"] {
            let wanted = format!("\0{name}\0");
            assert!(
                LIBRARY
                    .windows(wanted.len())
                    .any(|w| w == wanted.as_bytes()),
                "{name}"
            );
        }
    }

    #[test]
    fn a_folder_that_others_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("taskheap-test-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(place_in(&folder).is_err());
        fs::remove_dir(&folder).unwrap();
    }
}
