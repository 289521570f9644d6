//! Why a file can't be profiled, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub enum TargetError {
    Unreadable {
        path: PathBuf,
        source: io::Error,
    },
    NotElf {
        path: PathBuf,
    },
    Malformed {
        path: PathBuf,
        what: String,
    },
    OtherArchitecture {
        path: PathBuf,
        machine: u16,
    },
    /// No dynamic linker loads it, so nothing can be preloaded into it.
    Static {
        path: PathBuf,
    },
    Musl {
        path: PathBuf,
        linker: String,
    },
    /// The dynamic linker ignores preloading for programs that gain privileges.
    SetId {
        path: PathBuf,
    },
    Capabilities {
        path: PathBuf,
    },
    /// A script whose interpreter can't be found.
    NoInterpreter {
        path: PathBuf,
        interpreter: String,
    },
}

impl TargetError {
    pub fn path(&self) -> &PathBuf {
        match self {
            TargetError::Unreadable { path, .. }
            | TargetError::NotElf { path }
            | TargetError::Malformed { path, .. }
            | TargetError::OtherArchitecture { path, .. }
            | TargetError::Static { path }
            | TargetError::Musl { path, .. }
            | TargetError::SetId { path }
            | TargetError::Capabilities { path }
            | TargetError::NoInterpreter { path, .. } => path,
        }
    }

    /// What the user can do, as one sentence without a full stop; nothing where there is nothing.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            TargetError::Static { .. } => Some(
                "build it for a -gnu target without `-C target-feature=+crt-static`, \
                 or link taskheap::Alloc into it",
            ),
            TargetError::Musl { .. } => Some(
                "build it for the -gnu target of this machine, or link taskheap::Alloc into it",
            ),
            TargetError::SetId { .. } => Some(
                "run a copy without the set-user-id and set-group-id bits, as the user it \
                 would become",
            ),
            TargetError::Capabilities { .. } => Some(
                "run a copy, which has no file capabilities, as a user that may do what it needs",
            ),
            TargetError::OtherArchitecture { .. } => {
                Some("profile it on a machine of its own architecture, natively")
            }
            TargetError::NotElf { .. } => Some("name the executable itself"),
            TargetError::NoInterpreter { .. } => Some("name the interpreter itself"),
            TargetError::Unreadable { .. } | TargetError::Malformed { .. } => None,
        }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path().display();
        match self {
            TargetError::Unreadable { source, .. } => write!(f, "can't read {path}: {source}"),
            TargetError::NotElf { .. } => write!(f, "{path} is not an ELF executable"),
            TargetError::Malformed { what, .. } => {
                write!(f, "{path} is not a readable ELF file: {what}")
            }
            TargetError::OtherArchitecture { machine, .. } => write!(
                f,
                "{path} is for another architecture ({}) than this machine",
                machine_name(*machine)
            ),
            TargetError::Static { .. } => {
                write!(
                    f,
                    "{path} is statically linked, so nothing can be preloaded into it"
                )
            }
            TargetError::Musl { linker, .. } => write!(
                f,
                "{path} is linked against musl ({linker}), which the recorder does not work in"
            ),
            TargetError::SetId { .. } => {
                write!(
                    f,
                    "{path} is set-user-id or set-group-id, so preloading is ignored"
                )
            }
            TargetError::Capabilities { .. } => {
                write!(f, "{path} has file capabilities, so preloading is ignored")
            }
            TargetError::NoInterpreter { interpreter, .. } => {
                write!(
                    f,
                    "{path} is a script for {interpreter}, which was not found"
                )
            }
        }
    }
}

impl std::error::Error for TargetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TargetError::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "x86, 32-bit".to_owned(),
        40 => "arm, 32-bit".to_owned(),
        62 => "x86-64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => "riscv".to_owned(),
        21 => "ppc64".to_owned(),
        22 => "s390x".to_owned(),
        other => format!("ELF machine {other}"),
    }
}
