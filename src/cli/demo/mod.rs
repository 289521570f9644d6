//! `taskheap demo`: the main job on a program that comes with it.
//!
//! The command records itself, running a small tokio service three times: with a 4 MB rule object
//! cached for each task, for each thread, and shared. What it writes is what a user would get of
//! a server of their own.

mod workload;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::run::{self, Plan};
use super::{Error, Outcome, print};
use crate::analyze::{self, By, FlameOptions, Metric};
use crate::profile::{self, Output, Profile};
use crate::render::tables::Options;
use crate::render::text::{HEADING, WIDTH, styled};
use crate::render::{first_screen, flamegraph, units};
use workload::Cache;

/// Record a built-in tokio program that caches 4 MB per task, per thread, and shared
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes into the folder: a profile, a report and two flamegraphs of each of the three.
Ends in about ten seconds.

Next: taskheap run -- ./your-server")]
pub struct Args {
    /// Where to write
    #[arg(short, long, value_name = "FOLDER", default_value = "taskheap-demo")]
    output: PathBuf,

    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 60)]
    tasks: u64,

    /// Be the program that is recorded
    #[arg(long, hide = true, value_enum)]
    be: Option<Cache>,
}

struct Story {
    cache: Cache,
    file: &'static str,
    title: &'static str,
}

const STORIES: [Story; 3] = [
    Story {
        cache: Cache::PerTask,
        file: "per-task",
        title: "a copy for each task",
    },
    Story {
        cache: Cache::PerThread,
        file: "per-thread",
        title: "a copy for each thread",
    },
    Story {
        cache: Cache::Shared,
        file: "shared",
        title: "one for all, behind an Arc",
    },
];

pub fn run(args: &Args) -> Outcome {
    if let Some(cache) = args.be {
        workload::run(cache, args.tasks).map_err(|error| Error::Refused {
            what: format!("the demo's program can't start a runtime: {error}"),
            hint: "raise the limits of this shell (ulimit -a)".to_owned(),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::create_dir_all(&args.output).map_err(|error| Error::Refused {
        what: format!("can't make {}: {error}", args.output.display()),
        hint: "give another folder with --output".to_owned(),
    })?;
    let mut first = None;
    let mut table = String::new();
    for story in &STORIES {
        anstream::eprintln!("taskheap: recording {} tasks, {}", args.tasks, story.title);
        let profile = record(args, story)?;
        let report = write_all(&args.output, story, &profile)?;
        let peak = units::bytes(profile.totals.peak_live_bytes);
        let _ = writeln!(
            table,
            "  {:28} {peak:>10}   {}.txt",
            story.title, story.file
        );
        first.get_or_insert(report);
    }
    print(&first.unwrap_or_default())?;
    print(&format!(
        "\n{}\n{table}\n  Reports, profiles and flamegraphs are in {}.\n  Next: taskheap run -- \
         ./your-server\n",
        styled(
            HEADING,
            &format!("PEAK OF {} TASKS WITH A RULE OBJECT OF 4 MB", args.tasks)
        ),
        args.output.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn record(args: &Args, story: &Story) -> Result<Profile, Error> {
    let program = std::env::current_exe().map_err(|error| Error::Refused {
        what: format!("can't find the taskheap command itself: {error}"),
        hint: "is /proc mounted?".to_owned(),
    })?;
    let be = clap::ValueEnum::to_possible_value(&story.cache);
    let be = be.map_or_else(String::new, |value| value.get_name().to_owned());
    let tasks = args.tasks.to_string();
    let path = args.output.join(format!("{}.taskheap", story.file));
    let plan = Plan {
        program,
        from_path: false,
        args: ["demo", "--be", &be, "--tasks", &tasks]
            .map(Into::into)
            .to_vec(),
        output: Some(path.clone()),
        force: true,
        follow: false,
        walks: true,
        memory_limit: None,
        surroundings: run::Surroundings::default(),
        held_after: None,
        sample_bytes: 0,
    };
    let recorded = run::record(&plan)?;
    match recorded.error {
        Some(error) => Err(error),
        None => Ok(profile::read(&path)?),
    }
}

/// Report and flamegraphs. Returns the report's first screen.
fn write_all(folder: &Path, story: &Story, profile: &Profile) -> Result<String, Error> {
    let report = analyze::report(profile);
    let options = Options {
        limit: Some(first_screen::ROWS),
        width: Some(WIDTH),
    };
    let name = folder.join(format!("{}.taskheap", story.file));
    let screen = first_screen::render(&report, &name.display().to_string(), &options);
    let plain = anstream::adapter::strip_str(&screen).to_string();
    write(
        &folder.join(format!("{}.txt", story.file)),
        plain.as_bytes(),
    )?;
    for (by, suffix) in [(By::Stack, ""), (By::Task, "-by-task")] {
        let options = FlameOptions {
            metric: Metric::Peak,
            by,
            runtime_frames: false,
        };
        let Ok(flames) = analyze::flames(profile, &options) else {
            continue;
        };
        let mut svg = Vec::new();
        let titles = flamegraph::titles(profile, &flames, &options);
        flamegraph::draw(&titles, &flames, options.metric, &mut svg).map_err(Error::Print)?;
        write(&folder.join(format!("{}{suffix}.svg", story.file)), &svg)?;
    }
    Ok(screen)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let output = Output::create(path, profile::Options { force: true })?;
    output.finish_with(bytes)?;
    Ok(())
}
