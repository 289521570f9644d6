//! `taskheap demo`: the main job on a program that comes with it, told as a story.
//!
//! The command records itself, running a small service at several loads: with a thread for each
//! request, and with a task for each, where a 4 MB rule object is cached for each task, for each
//! worker thread, and shared. What it writes is what a user would get of a server of their own, and
//! a page that explains it.

mod files;
mod words;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use super::sweep;
use super::{Error, Outcome, print};
use crate::analyze::growth::{Run, Sweep, Variable};
use crate::analyze::story::{Story, Way};
use crate::analyze::{self, Report};
use crate::profile;
use crate::render::story::text;
use words::{NAMES, THREADS, WAY, WAYS};
use workload::Cache;

/// Tell the story of a cache per task, per thread and shared, on one page
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Records a service that comes with taskheap, and writes into the folder:
index.html, which explains all of it; charts, flamegraphs, the reports and the
profiles. Takes about half a minute.

Next: taskheap run -- ./your-server")]
pub struct Args {
    /// Where to write
    #[arg(short, long, value_name = "FOLDER", default_value = "taskheap-demo")]
    output: PathBuf,

    /// Requests at once, at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,

    /// Say where this is reached (such as 2GB) [default: the memory of the machine]
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,

    /// Be the program that is recorded
    #[arg(long, hide = true, value_enum)]
    be: Option<Cache>,
}

pub fn run(args: &Args) -> Outcome {
    if let Some(cache) = args.be {
        workload::run(cache, args.tasks).map_err(|error| Error::Refused {
            what: format!("the demo's program can't start: {error}"),
            hint: "raise the limits of this shell (ulimit -a)".to_owned(),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let values = values(args.tasks)?;
    std::fs::create_dir_all(&args.output).map_err(|error| Error::Refused {
        what: format!("can't make {}: {error}", args.output.display()),
        hint: "give another folder with --output".to_owned(),
    })?;
    let measured = measure(args, &values)?;
    let story = tell(&measured, &values)?;
    let folder = args.output.display().to_string();
    files::write(&args.output, &folder, &measured, &story, &values)?;
    print(&text::render(&story, &NAMES, &folder))?;
    Ok(ExitCode::SUCCESS)
}

/// The loads, up to the largest; a line needs three.
fn values(most: u64) -> Result<Vec<u64>, Error> {
    let mut values = vec![1, most / 16, most / 4, most];
    values.retain(|value| *value > 0);
    values.dedup();
    match values.len() {
        3.. => Ok(values),
        _ => Err(Error::Refused {
            what: format!("with {most} requests at most no growth is seen"),
            hint: "give 8 or more with --tasks".to_owned(),
        }),
    }
}

fn measure(args: &Args, values: &[u64]) -> Result<sweep::Measured, Error> {
    let program = std::env::current_exe().map_err(|error| Error::Refused {
        what: format!("can't find the taskheap command itself: {error}"),
        hint: "is /proc mounted?".to_owned(),
    })?;
    let mut command = vec![program.into_os_string()];
    let count = format!("{{{}}}", NAMES.variable);
    let way = format!("{{{WAY}}}");
    command.extend(["demo", "--be", &way, "--tasks", &count].map(Into::into));
    let vary = vec![
        Variable {
            name: WAY.to_owned(),
            values: WAYS.iter().map(|(_, key, _)| (*key).to_owned()).collect(),
        },
        Variable {
            name: NAMES.variable.to_owned(),
            values: values.iter().map(u64::to_string).collect(),
        },
    ];
    let asked = sweep::Args::of(command, vary, args.output.join("sweep"));
    sweep::measure(&asked.with_limit(args.memory_limit.clone()))
}

fn tell(measured: &sweep::Measured, values: &[u64]) -> Result<Story, Error> {
    let mut ways = Vec::new();
    for (_, key, title) in WAYS {
        let runs: Result<Vec<(u64, Report)>, Error> = values
            .iter()
            .map(|count| {
                let run = find(&measured.sweep, key, *count)?;
                Ok((
                    *count,
                    analyze::report(&profile::read(&measured.folder.file(run))?),
                ))
            })
            .collect();
        let way = Way::of(&measured.sweep, WAY, (key, title), runs?);
        ways.push(way.ok_or_else(|| unmeasured(key, "too few of its runs count"))?);
    }
    Ok(Story::of(&measured.sweep, ways, THREADS, NAMES.wrong))
}

/// The profile of a run.
fn find<'a>(sweep: &'a Sweep, key: &str, count: u64) -> Result<&'a str, Error> {
    let is_it = |run: &&Run| {
        let has = |name: &str, value: &str| {
            run.settings
                .iter()
                .any(|s| s.name == name && s.value == value)
        };
        has(WAY, key) && has(NAMES.variable, &count.to_string())
    };
    let run = sweep.runs.iter().find(is_it);
    let why = run
        .and_then(|run| run.error.as_deref())
        .unwrap_or("it was not run");
    match run.and_then(|run| run.profile.as_deref()) {
        Some(profile) if run.is_some_and(|run| run.error.is_none()) => Ok(profile),
        _ => Err(unmeasured(&format!("{key} with {count} requests"), why)),
    }
}

fn unmeasured(what: &str, why: &str) -> Error {
    Error::Refused {
        what: format!("the demo could not measure {what}: {why}"),
        hint: "see the log of that run in the folder `sweep`".to_owned(),
    }
}
