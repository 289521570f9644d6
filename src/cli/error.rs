//! Everything that can go wrong by no fault of ours, with its exit code and its remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use super::budget::BudgetError;
use crate::profile::{OutputError, ReadError};
use crate::render::text::{ERROR, HEADING, styled};

/// Exit codes of every command but `run`, which passes on the program's.
pub mod exit_codes {
    /// Done; for `check`: within budget.
    pub const DONE: u8 = 0;
    /// `check`: over budget.
    pub const OVER_BUDGET: u8 = 1;
    /// It could not be done: wrong arguments, a file that can't be read or written, a budget
    /// that measures nothing.
    pub const UNUSABLE: u8 = 2;
}

#[derive(Debug)]
pub enum Error {
    Read(ReadError),
    Output(OutputError),
    ReadBudget {
        path: PathBuf,
        error: io::Error,
    },
    Budget {
        path: PathBuf,
        error: BudgetError,
    },
    /// To the standard output.
    Print(io::Error),
    /// It can't be done, for this reason.
    Refused {
        what: String,
        hint: String,
    },
    /// The profile has nothing of the kind that was asked for.
    Nothing {
        what: String,
        hint: String,
    },
}

impl Error {
    pub fn exit_code(&self) -> u8 {
        match self {
            // Whoever read us has seen enough (`taskheap report FILE | head`).
            Error::Print(error) if error.kind() == io::ErrorKind::BrokenPipe => exit_codes::DONE,
            _ => exit_codes::UNUSABLE,
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Read(error) => Some(error.hint()),
            Error::Output(error) => Some(error.hint().to_owned()),
            Error::ReadBudget { .. } => {
                Some("name a budget with --budget; `taskheap check --help` shows one".to_owned())
            }
            Error::Budget { error, .. } => Some(error.hint.clone()),
            Error::Print(_) => None,
            Error::Nothing { hint, .. } | Error::Refused { hint, .. } => Some(hint.clone()),
        }
    }

    /// Says it on the standard error, and what to do about it.
    pub fn tell(&self) -> ExitCode {
        let code = self.exit_code();
        if code != exit_codes::DONE {
            anstream::eprintln!("{} {self}", styled(ERROR, "error:"));
            if let Some(hint) = self.hint() {
                anstream::eprintln!(" {} {hint}", styled(HEADING, "hint:"));
            }
        }
        ExitCode::from(code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read(error) => error.fmt(f),
            Error::Output(error) => error.fmt(f),
            Error::ReadBudget { path, error } => {
                write!(f, "can't read {}: {error}", path.display())
            }
            Error::Budget { path, error } => write!(f, "{}: {error}", path.display()),
            Error::Print(error) => write!(f, "can't write to the standard output: {error}"),
            Error::Nothing { what, .. } | Error::Refused { what, .. } => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        Error::Read(error)
    }
}

impl From<OutputError> for Error {
    fn from(error: OutputError) -> Error {
        Error::Output(error)
    }
}
