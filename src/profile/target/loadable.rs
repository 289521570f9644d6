//! Can the recorder be loaded into this program?
//!
//! Tempting: start it and see. But the dynamic linker says nothing when it ignores a preloaded
//! library, and a static program never asks: the user would get an empty profile. So everything
//! that makes preloading fail silently is looked for first, and refused with its remedy.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::ProgramHeader;

use super::{Image, TargetError};

/// Scripts may be interpreted by scripts; the kernel gives up at about this depth too.
const SCRIPT_DEPTH: usize = 5;

/// What in the end runs a script: the program named after `#!`, or the one that `env` finds.
/// None if the file is no script.
pub fn interpreter_of(path: &Path) -> Result<Option<PathBuf>, TargetError> {
    let mut current = path.to_owned();
    for depth in 0..SCRIPT_DEPTH {
        let Some(line) = shebang(&current)? else {
            return Ok((depth > 0).then_some(current));
        };
        current = resolve(&current, &line)?;
    }
    Err(TargetError::NoInterpreter {
        path: path.to_owned(),
        interpreter: current.display().to_string(),
    })
}

fn shebang(path: &Path) -> Result<Option<String>, TargetError> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(256).read_to_end(&mut start))
        .map_err(|source| TargetError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
    let Some(rest) = start.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(line).trim().to_owned()))
}

fn resolve(script: &Path, line: &str) -> Result<PathBuf, TargetError> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let missing = |interpreter: &str| TargetError::NoInterpreter {
        path: script.to_owned(),
        interpreter: interpreter.to_owned(),
    };
    if Path::new(program).file_name() == Some("env".as_ref()) {
        // Options of env and assignments come before the program it starts.
        let name = words
            .find(|word| !word.starts_with('-') && !word.contains('='))
            .ok_or_else(|| missing(line))?;
        return in_path(name).ok_or_else(|| missing(name));
    }
    let program = Path::new(program);
    if program.is_file() {
        Ok(program.to_owned())
    } else {
        Err(missing(line))
    }
}

/// A program as a shell would find it.
fn in_path(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| name.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| {
            let mode = candidate.metadata().map_or(0, |found| found.mode());
            candidate.is_file() && mode & 0o111 != 0
        })
}

/// The path in PT_INTERP.
pub(super) fn dynamic_linker(image: &Image) -> Option<String> {
    let endian = image.endian();
    let headers = image.elf().elf_program_headers();
    let header = headers
        .iter()
        .find(|h| h.p_type(endian) == elf::PT_INTERP)?;
    let bytes = header.data(endian, image.bytes()).ok()?;
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// Refuses what the recorder can't be preloaded into.
pub(super) fn check(image: &Image) -> Result<(), TargetError> {
    let path = image.path().to_owned();
    let Some(linker) = dynamic_linker(image) else {
        return Err(TargetError::Static { path });
    };
    if linker.contains("ld-musl") {
        return Err(TargetError::Musl { path, linker });
    }
    let file = path.metadata().map_err(|source| TargetError::Unreadable {
        path: path.clone(),
        source,
    })?;
    // SAFETY: these calls have no preconditions.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let mode = file.mode();
    // Becoming who one is already gains nothing, and is not treated as a gain by the kernel.
    let gains_user = mode & libc::S_ISUID != 0 && file.uid() != user;
    let gains_group = mode & libc::S_ISGID != 0 && mode & 0o010 != 0 && file.gid() != group;
    if gains_user || gains_group {
        return Err(TargetError::SetId { path });
    }
    if user != 0 && has_capabilities(&path) {
        return Err(TargetError::Capabilities { path });
    }
    Ok(())
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both strings are terminated, and with size 0 nothing is written.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    size > 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_script_is_run_by_its_interpreter() {
        let folder = std::env::temp_dir().join(format!("interpreter-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let direct = script(&folder, "direct", "#! /bin/sh -e\necho\n");
        let nested = script(&folder, "nested", &format!("#!{}\n", direct.display()));
        let by_env = script(&folder, "by-env", "#!/usr/bin/env -S sh -e\n");
        let lost = script(&folder, "lost", "#!/no/such/interpreter\n");
        let own = script(&folder, "own", "");
        fs::write(&own, format!("#!{}\n", own.display())).unwrap();
        assert_eq!(interpreter_of(&direct).unwrap(), Some("/bin/sh".into()));
        assert_eq!(interpreter_of(&nested).unwrap(), Some("/bin/sh".into()));
        let found = interpreter_of(&by_env).unwrap().unwrap();
        assert_eq!(found.file_name(), Some("sh".as_ref()));
        assert!(matches!(
            interpreter_of(&lost),
            Err(TargetError::NoInterpreter { .. })
        ));
        assert!(matches!(
            interpreter_of(&own),
            Err(TargetError::NoInterpreter { .. })
        ));
        assert_eq!(interpreter_of(Path::new("/bin/sh")).unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
