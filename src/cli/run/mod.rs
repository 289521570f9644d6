//! `taskheap run`: records a program.
//!
//! The program's exit code is passed on, its input and output are left alone, and the profile is
//! written however it ends. All that we print goes to the standard error, in two lines at most.

mod allocators;
pub mod asked;
mod configure;
pub mod launch;
mod library;
mod limits;
mod moments;
mod outside;
pub mod signals;
mod snapshots;
mod walker;
mod watch;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::Sender;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;

use super::{Error, Outcome};
use crate::profile::{self, Output, Profile};

/// Record a program: an unmodified release build.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taskheap run -- ./target/release/server --port 8080
  taskheap run -o before.taskheap -- ./worker
  taskheap run --follow -- cargo test     record the programs that it starts, too

The program runs as without taskheap: same output, same exit code (128 + signal
when a signal ends it). Ctrl-C reaches it, and the profile is written all the
same. Names need a symbol table, lines need debug info (`debug = 1` in
[profile.release]).

Next: taskheap report FILE")]
pub struct Args {
    /// Where to write the profile [default: taskheap.PROGRAM.PID.taskheap].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file if it exists.
    #[arg(long)]
    force: bool,

    /// Record every program that the program starts, each into a profile of its own.
    #[arg(long)]
    follow: bool,

    /// Never stop the program to look at its heap: no thread-locals, copies, leaks.
    #[arg(long)]
    no_walk: bool,

    /// Record only a sample, about one allocation in so many bytes (such as 512KiB), for use in
    /// production: figures are estimates with their error, and the heap is not looked at.
    #[arg(long, value_name = "BYTES", value_parser = NonEmptyStringValueParser::new())]
    sample: Option<String>,

    /// Look at the heap when live bytes cross this (such as 2GB), besides the usual moments.
    #[arg(long, value_name = "SIZE", value_parser = NonEmptyStringValueParser::new())]
    memory_limit: Option<String>,

    /// Tell of tasks that stay on their worker for longer than this; `off` looks for none.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = NonEmptyStringValueParser::new())]
    held_after: String,

    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// How a program is to be recorded: the arguments, checked.
#[derive(Debug)]
pub struct Plan {
    pub program: PathBuf,
    /// Found in `PATH`: the program sees the name that was typed.
    pub from_path: bool,
    pub args: Vec<OsString>,
    pub output: Option<PathBuf>,
    pub force: bool,
    pub follow: bool,
    pub walks: bool,
    pub memory_limit: Option<u64>,
    /// Mean bytes between the blocks that are recorded; 0 for all.
    pub sample_bytes: u64,
    /// Tasks that stay on their worker for longer are told.
    pub held_after: Option<Duration>,
    pub surroundings: Surroundings,
}

/// What the program is given besides its arguments; by default, what the command has itself.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Set on top of what the command has.
    pub variables: Vec<(String, OsString)>,
    /// Takes both outputs, and there is no input.
    pub log: Option<File>,
    /// Told when the program has started.
    pub started: Option<Sender<Started>>,
}

/// The program, once it runs.
#[derive(Debug)]
pub struct Started {
    /// Readable when it has ended; none on kernels without it.
    pub process: Option<OwnedFd>,
}

/// Runs the program and writes its profile.
pub fn run(args: &Args) -> Outcome {
    let plan = plan(args)?;
    let recorded = record(&plan)?;
    for written in &recorded.written {
        tell_written(written);
    }
    if let Some(error) = recorded.error {
        error.tell();
    }
    Ok(ExitCode::from(recorded.exit_code))
}

/// What came of it.
pub struct Recorded {
    pub exit_code: u8,
    pub written: Vec<Written>,
    /// The program ran, but its profile is not there.
    pub error: Option<Error>,
}

pub struct Written {
    pub path: PathBuf,
    pub bytes: u64,
    pub warnings: Vec<String>,
}

/// Runs the program as planned, and writes the profile or profiles.
pub fn record(plan: &Plan) -> Result<Recorded, Error> {
    let reserved = match &plan.output {
        Some(path) => Some(reserve(path, plan.force)?),
        None => None,
    };
    let watched = watch::watch(plan)?;
    let exit_code = watched.exit_code;
    let mut recorded = Recorded {
        exit_code,
        written: Vec::new(),
        error: watched.error,
    };
    let mut reserved = reserved;
    for (at, (name, profile)) in watched.profiles.into_iter().enumerate() {
        let output = match reserved.take() {
            Some(output) => Ok(output),
            None => reserve(&default_path(plan, at, &name, &profile), plan.force),
        };
        match output.and_then(|output| write(output, &profile)) {
            Ok(written) => recorded.written.push(written),
            Err(error) => recorded.error = Some(error),
        }
    }
    Ok(recorded)
}

fn reserve(path: &std::path::Path, force: bool) -> Result<Output, Error> {
    let options = profile::Options { force };
    Output::create(path, options).map_err(Error::from)
}

fn write(output: Output, profile: &Profile) -> Result<Written, Error> {
    let path = output.path().to_owned();
    let bytes = profile::write_to(profile, output)?;
    Ok(Written {
        path,
        bytes,
        warnings: profile.program.warnings.clone(),
    })
}

/// `taskheap.PROGRAM.PID.taskheap` here, or beside the file that was asked for.
fn default_path(plan: &Plan, at: usize, name: &str, profile: &Profile) -> PathBuf {
    let file = format!("taskheap.{name}.{}.taskheap", profile.program.pid);
    match (&plan.output, at) {
        (Some(path), 1..) => path.with_file_name(file),
        _ => PathBuf::from(file),
    }
}

fn tell_written(written: &Written) {
    let path = written.path.display();
    for warning in &written.warnings {
        anstream::eprintln!("taskheap: warning: {warning}");
    }
    let size = crate::render::units::bytes(written.bytes);
    anstream::eprintln!("taskheap: wrote {path} ({size})\n  next: taskheap report {path}");
}

fn plan(args: &Args) -> Result<Plan, Error> {
    let (program, rest) = args.command.split_first().ok_or_else(|| Error::Refused {
        what: "no program is given".to_owned(),
        hint: "taskheap run -- ./program".to_owned(),
    })?;
    let memory_limit = match &args.memory_limit {
        Some(text) => Some(parse_size(text)?),
        None => None,
    };
    let sample_bytes = match &args.sample {
        Some(text) => sample_distance(text)?,
        None => 0,
    };
    Ok(Plan {
        program: launch::find(program)?,
        from_path: !program.as_encoded_bytes().contains(&b'/'),
        args: rest.to_vec(),
        output: args.output.clone(),
        force: args.force,
        follow: args.follow,
        walks: !args.no_walk && sample_bytes == 0,
        memory_limit,
        sample_bytes,
        held_after: parse_time(&args.held_after)?,
        surroundings: Surroundings::default(),
    })
}

fn sample_distance(text: &str) -> Result<u64, Error> {
    const LEAST: u64 = 1 << 10;
    let bytes = parse_size(text)?;
    if bytes < LEAST {
        return Err(Error::Refused {
            what: format!("a sample each {text} would be no less work than recording everything"),
            hint: "leave --sample out, or sample at 512KiB".to_owned(),
        });
    }
    Ok(bytes)
}

/// Looks come every few milliseconds, and a stay is certain only from its fourth on.
const LEAST_STAY: Duration = Duration::from_millis(25);

/// `100ms`, `2s`, `off`.
fn parse_time(text: &str) -> Result<Option<Duration>, Error> {
    let wrong = || Error::Refused {
        what: format!("{text:?} is no time"),
        hint: "times are numbers with a unit: 100ms, 1.5s; or off".to_owned(),
    };
    if text == "off" {
        return Ok(None);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let seconds = match &text[digits.len()..] {
        "ms" => number / 1000.0,
        "s" => number,
        _ => return Err(wrong()),
    };
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if time < LEAST_STAY {
        return Err(Error::Refused {
            what: format!("a stay of {text} is shorter than what can be told from outside"),
            hint: format!("give {} ms or more", LEAST_STAY.as_millis()),
        });
    }
    Ok(Some(time))
}

/// `512KiB`, `2GB`, `100000`.
pub fn parse_size(text: &str) -> Result<u64, Error> {
    let wrong = || Error::Refused {
        what: format!("{text:?} is no size"),
        hint: "sizes are numbers with a unit: 512KiB, 64MB, 2GiB, 100000".to_owned(),
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "kb" => 1e3,
        "m" | "mib" => 1024.0 * 1024.0,
        "mb" => 1e6,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "gb" => 1e9,
        _ => return Err(wrong()),
    };
    Ok((number * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("512KiB").unwrap(), 512 << 10);
        assert_eq!(parse_size("2GB").unwrap(), 2_000_000_000);
        assert_eq!(parse_size("1.5g").unwrap(), 3 << 29);
        assert_eq!(parse_size("77").unwrap(), 77);
        assert!(parse_size("many").is_err());
        assert!(parse_size("3 apples").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(
            parse_time("100ms").unwrap(),
            Some(Duration::from_millis(100))
        );
        assert_eq!(
            parse_time("1.5s").unwrap(),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(parse_time("off").unwrap(), None);
        for wrong in ["", "100", "ms", "-1s", "1h", "5ms"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
