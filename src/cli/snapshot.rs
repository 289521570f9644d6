//! `taskheap snapshot`: a profile of a program that is being recorded and goes on.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::run::asked;
use super::{Error, Outcome};
use crate::profile::{self, Options, Output, Profile};
use crate::render::units;

/// Look at the heap of a program that `taskheap run` records, now, and write a profile.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taskheap run -- ./server               in one terminal
  taskheap snapshot $(pgrep server)      in another, whenever it is worth a look

The program stands still only while its heap is copied, and goes on. The
profile of the whole run is written at its end all the same.

Next: taskheap report FILE")]
pub struct Args {
    /// Process id of the program (not of taskheap)
    #[arg(value_name = "PID")]
    pid: i32,

    /// Where to write the profile [default: taskheap.PROGRAM.PID.N.taskheap]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,
}

pub fn run(args: &Args) -> Outcome {
    let options = Options { force: args.force };
    // Before the program is stopped for nothing.
    let reserved = match &args.output {
        Some(path) => Some(Output::create(path, options)?),
        None => None,
    };
    let bytes = ask(args.pid)?;
    let profile = profile::read_from(bytes.as_slice(), &PathBuf::from("the snapshot"))?;
    let output = match reserved {
        Some(output) => output,
        None => free_place(&profile, options)?,
    };
    let path = output.path().display().to_string();
    let size = output.finish_with(&bytes)?;
    anstream::eprintln!(
        "taskheap: wrote {path} ({})\n  next: taskheap report {path}",
        units::bytes(size)
    );
    Ok(ExitCode::SUCCESS)
}

/// The first name that is not taken.
fn free_place(profile: &Profile, options: Options) -> Result<Output, Error> {
    let path = PathBuf::from(&profile.program.path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut number = 1;
    loop {
        let path = format!("taskheap.{name}.{}.{number}.taskheap", profile.program.pid);
        match Output::create(path.as_ref(), options) {
            Err(profile::OutputError::Exists { .. }) => number += 1,
            other => return other.map_err(Error::from),
        }
    }
}

fn ask(pid: i32) -> Result<Vec<u8>, Error> {
    let refused = |what: String, hint: &str| Error::Refused {
        what,
        hint: hint.to_owned(),
    };
    let broken = |error: std::io::Error| {
        refused(
            format!("process {pid} can't be asked for: {error}"),
            "is `taskheap run` still there?",
        )
    };
    let mut stream = asked::ask(pid).map_err(broken)?.ok_or_else(|| {
        refused(
            format!("process {pid} is not being recorded"),
            "start the program with `taskheap run -- PROGRAM`, and give its process id, as the \
             same user and in the same container",
        )
    })?;
    let waiting = indicatif::ProgressBar::new_spinner()
        .with_message("taskheap: waiting for a look at the heap");
    waiting.enable_steady_tick(Duration::from_millis(200));
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    waiting.finish_and_clear();
    read.map_err(broken)?;
    match answer.split_first() {
        Some((&asked::PROFILE, profile)) => Ok(profile.to_vec()),
        Some((&asked::REASON, reason)) => Err(refused(
            String::from_utf8_lossy(reason).into_owned(),
            "the profile of the whole run is written at its end",
        )),
        _ => Err(refused(
            format!("process {pid} ended before it was looked at"),
            "its profile is written by `taskheap run`",
        )),
    }
}
