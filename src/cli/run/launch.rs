//! Starting the program with the preload library.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::super::Error;
use super::{Plan, limits};
use crate::wire::SESSION_VARIABLE;

/// The program's file: as given if it has a slash, else from `PATH`.
pub fn find(program: &OsStr) -> Result<PathBuf, Error> {
    let not_there = |reason: String| Error::Refused {
        what: format!("can't run {}: {reason}", program.display()),
        hint: "give the path of a program, after `--`".to_owned(),
    };
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        let about = std::fs::metadata(&path).map_err(|error| not_there(error.to_string()))?;
        if !about.is_file() {
            return Err(not_there("it is not a file".to_owned()));
        }
        return is_executable(&path)
            .then_some(path)
            .ok_or_else(|| not_there("it is not executable (chmod +x)".to_owned()));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file() && is_executable(path))
        .ok_or_else(|| not_there("there is no such program in PATH".to_owned()))
}

fn is_executable(path: &Path) -> bool {
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a C string.
    unsafe { libc::access(name.as_ptr(), libc::X_OK) == 0 }
}

/// Starts the program. Our library stands first in `LD_PRELOAD`, before the user's.
pub fn start(
    plan: &Plan,
    library: &Path,
    session: &str,
    limits: limits::Raised,
) -> io::Result<Child> {
    let mut preload = OsString::from(library);
    if let Some(theirs) = std::env::var_os("LD_PRELOAD").filter(|list| !list.is_empty()) {
        preload.push(":");
        preload.push(theirs);
    }
    let mut command = Command::new(&plan.program);
    command
        .args(&plan.args)
        .env("LD_PRELOAD", preload)
        .env(SESSION_VARIABLE, session);
    if let Some(name) = plan.program.file_name().filter(|_| plan.from_path) {
        command.arg0(name);
    }
    let surroundings = &plan.surroundings;
    for (name, value) in &surroundings.variables {
        command.env(name, value);
    }
    if let Some(log) = &surroundings.log {
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?);
    }
    // SAFETY: what runs between fork and exec makes only async-signal-safe calls.
    unsafe {
        command.pre_exec(move || {
            limits.put_back();
            Ok(())
        })
    };
    command.spawn()
}
