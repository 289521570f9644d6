//! `taskheap check`: holds profiles to a budget, and to an earlier profile.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;

use super::{Error, Outcome, budget, exit_codes, first_budget, print, print_raw};
use crate::analyze::budget::{SweepFile, Table, judge_sweep};
use crate::analyze::{self, Judgement, Report, Unusable, Verdict};
use crate::profile;
use crate::render::judgement::{self, Checked};
use crate::render::tables::Options;

const DEFAULT_BUDGET: &str = "taskheap.toml";

/// Hold profiles to a budget: exit code 0 within, 1 over, 2 not judged
#[derive(Debug, clap::Args)]
#[command(after_help = "\
`taskheap check FILE --write taskheap.toml` makes a first budget from a profile,
or its [growth] from a sweep.json.
Every limit is optional; [NAME.\"PATTERN\"] is a whole name, the end of one after
::, or has * for anything:
  [program]
  peak = \"64 MB\"              live bytes when they were most
  live_at_end = \"1 MB\"
  allocated = \"10 GB\"         in the whole run
  allocations = 5_000_000     also temporary (freed at once)
  rss_peak = \"200 MB\"         what the system counts
  unexplained = \"5%\"          share of memory that nothing accounts for

  [task.\"handle_connection\"]
  mean = \"32 KB\"              live bytes that one task made; also p99 and max
  keeps = \"32 KB\"             what one task keeps alive, whoever made it
  future = \"4 KB\"             size of its cell
  live = 100                  also finished (but not freed) and spawned
  peak = \"16 MB\"              all tasks of the type; also live_bytes

  [thread.\"tokio-rt-worker\"]  count, peak, live_bytes, stack (resident, of each)
  [thread_local.\"CACHE\"]      bytes (together), threads, mean and max (of one)
  [site.\"parse\"]              a function, FILE or FILE:LINE: peak, live_at_end,
                              allocated, allocations, temporary
  [leaks]                     bytes, blocks
  [copies]                    waste: all but one of each
  [growth.\"handler\"]          per_task, per_thread: bytes for each more of them;
                              of a sweep also per_step (of its variable);
                              [growth.\"the process\"] is the whole

  [baseline]                  for --baseline
  tolerance = \"10%\"           may come on top of what it has,
  slack = \"64 KB\"             and this

Sizes are in bytes or have a unit (1 KB = 1,024 bytes). Exit code 2 means that
the budget could not be judged: a pattern matches nothing, what it limits was
not measured, or not exactly enough.")]
pub struct Args {
    /// What `taskheap run` wrote, or the sweep.json of `taskheap sweep` (for [growth])
    #[arg(value_name = "PROFILE", required = true)]
    profiles: Vec<PathBuf>,

    /// File with the limits [default: taskheap.toml]
    #[arg(long, value_name = "FILE")]
    budget: Option<PathBuf>,

    /// Also hold them to this earlier profile
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// How to say it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,

    /// Make a first budget of what the profile or the sweep has, and 20% more
    #[arg(long, value_name = "FILE", conflicts_with_all = ["budget", "baseline"])]
    write: Option<PathBuf>,

    /// Replace the file of --write
    #[arg(long, requires = "write")]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// For a program to read
    Json,
    /// JUnit's XML, for GitLab and Jenkins
    Junit,
    /// Marks at the lines, for GitHub Actions
    Github,
    /// A table for a pull request or $GITHUB_STEP_SUMMARY
    Markdown,
}

pub fn run(args: &Args) -> Outcome {
    if let Some(file) = &args.write {
        return first_budget::write(&args.profiles, file, args.force);
    }
    let budget = read_budget(args)?;
    let baseline = args.baseline.as_deref().map(report_of).transpose()?;
    let (sweeps, profiles) = sort_out(&args.profiles)?;
    let mut all = Vec::new();
    for (path, sweep) in &sweeps {
        let mut judgement = judge_sweep(sweep, &budget.limits);
        refuse_nothing(&mut judgement);
        all.push(Checked {
            profile: path.display().to_string(),
            judgement,
        });
    }
    let mut limits = budget.limits;
    if !sweeps.is_empty() {
        limits.retain(|limit| limit.key.table != Table::Growth);
    }
    for path in profiles {
        let report = report_of(path)?;
        let mut judgement = analyze::judge(&report, &limits);
        if let Some(baseline) = &baseline {
            analyze::budget::compare(baseline, &report, budget.tolerance, &mut judgement);
        }
        refuse_nothing(&mut judgement);
        all.push(Checked {
            profile: path.display().to_string(),
            judgement,
        });
    }
    tell(&all, args.format)?;
    Ok(ExitCode::from(code(&all)))
}

/// What sweeps wrote, and profiles.
type SortedOut<'a> = (Vec<(&'a Path, SweepFile)>, Vec<&'a Path>);

/// JSON is what a sweep writes.
fn sort_out(paths: &[PathBuf]) -> Result<SortedOut<'_>, Error> {
    let (mut sweeps, mut profiles): SortedOut = Default::default();
    for path in paths {
        match source(path)? {
            Source::Sweep(sweep) => sweeps.push((path.as_path(), sweep)),
            Source::Profile => profiles.push(path.as_path()),
        }
    }
    Ok((sweeps, profiles))
}

/// What a file is, by its name.
pub enum Source {
    Sweep(SweepFile),
    Profile,
}

pub fn source(path: &Path) -> Result<Source, Error> {
    if path.extension().is_none_or(|ending| ending != "json") {
        return Ok(Source::Profile);
    }
    let refused = |what| Error::Refused {
        what: format!("{} {what}", path.display()),
        hint: "name a profile, or the sweep.json of `taskheap sweep`".to_owned(),
    };
    let text = std::fs::read(path).map_err(|error| refused(format!("can't be read: {error}")))?;
    Ok(Source::Sweep(SweepFile::parse(&text).map_err(refused)?))
}

pub fn report_of(path: &Path) -> Result<Report, Error> {
    Ok(analyze::report(&profile::read(path)?))
}

/// Next to a baseline the budget may be missing.
fn read_budget(args: &Args) -> Result<budget::Budget, Error> {
    let path = args.budget.clone();
    let optional = path.is_none() && args.baseline.is_some();
    let path = path.unwrap_or_else(|| PathBuf::from(DEFAULT_BUDGET));
    let text = match std::fs::read_to_string(&path) {
        Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Error::ReadBudget { path, error }),
        Ok(text) => text,
    };
    budget::parse(&text).map_err(|error| Error::Budget { path, error })
}

/// A budget without a limit passes whatever happens.
fn refuse_nothing(judgement: &mut Judgement) {
    if judgement.verdicts.is_empty() && judgement.unusable.is_empty() {
        judgement.unusable.push(Unusable {
            what: "the budget has no limit".to_owned(),
            hint: "add one, such as peak = \"64 MB\"; --write makes a first budget".to_owned(),
        });
    }
}

fn tell(all: &[Checked], format: Format) -> Result<(), Error> {
    match format {
        Format::Text => print(&judgement::text(all, &Options::default())),
        Format::Json => print_raw(&json(all)?),
        Format::Junit => print_raw(&judgement::junit(all).map_err(Error::Print)?),
        Format::Github => print_raw(judgement::annotations(all).as_bytes()),
        Format::Markdown => print_raw(judgement::markdown(all).as_bytes()),
    }
}

/// Of one profile.
#[derive(Serialize)]
struct Of<'a, T> {
    profile: &'a str,
    #[serde(flatten)]
    what: &'a T,
}

#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    verdicts: Vec<Of<'a, Verdict>>,
    unusable: Vec<Of<'a, Unusable>>,
}

fn json(all: &[Checked]) -> Result<Vec<u8>, Error> {
    let mut json = Json {
        schema: 1,
        verdicts: Vec::new(),
        unusable: Vec::new(),
    };
    for checked in all {
        let profile = &checked.profile;
        let verdicts = checked.judgement.verdicts.iter();
        json.verdicts
            .extend(verdicts.map(|what| Of { profile, what }));
        let unusable = checked.judgement.unusable.iter();
        json.unusable
            .extend(unusable.map(|what| Of { profile, what }));
    }
    let mut text = serde_json::to_vec_pretty(&json).map_err(|e| Error::Print(e.into()))?;
    text.push(b'\n');
    Ok(text)
}

fn code(all: &[Checked]) -> u8 {
    if all.iter().any(|one| !one.judgement.unusable.is_empty()) {
        return exit_codes::UNUSABLE;
    }
    match all.iter().any(|one| one.judgement.over() > 0) {
        false => exit_codes::DONE,
        true => exit_codes::OVER_BUDGET,
    }
}
