//! `taskheap check`: holds a profile to a budget.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use super::{Error, Outcome, budget, exit_codes, print, print_raw};
use crate::analyze::{self, Judgement};
use crate::profile;
use crate::render::comparison;
use crate::render::tables::Options;

/// Hold a profile to a budget: exit code 0 within, 1 over, 2 not judged
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A budget (taskheap.toml), every limit optional:
  [program]
  peak = \"64 MB\"              live bytes when they were most
  live_at_end = \"1 MB\"
  allocated = \"10 GB\"         in the whole run
  allocations = 5_000_000

  [task.\"handle_connection\"]  a task type: whole name, end of one after ::, or with *
  mean = \"32 KB\"              live bytes of one task; also p99 and max
  future = \"4 KB\"             size of its cell
  live = 100                  also finished (but not freed) and spawned
  peak = \"16 MB\"              all tasks of the type, at the program's peak

Sizes are in bytes or have a unit (1 KB = 1,024 bytes). Exit code 2 means that the budget
could not be judged: a pattern matches nothing, or what it limits was not measured.")]
pub struct Args {
    /// What `taskheap run` wrote
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,

    /// File with the limits
    #[arg(long, value_name = "FILE", default_value = "taskheap.toml")]
    budget: PathBuf,

    /// How to say it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// For a program to read
    Json,
}

pub fn run(args: &Args) -> Outcome {
    let text = std::fs::read_to_string(&args.budget).map_err(|error| Error::ReadBudget {
        path: args.budget.clone(),
        error,
    })?;
    let limits = budget::parse(&text).map_err(|error| Error::Budget {
        path: args.budget.clone(),
        error,
    })?;
    let report = analyze::report(&profile::read(&args.profile)?);
    let judgement = analyze::judge(&report, &limits);
    match args.format {
        Format::Text => print(&comparison::judgement(&judgement, &Options::default()))?,
        Format::Json => {
            let mut text =
                serde_json::to_vec_pretty(&judgement).map_err(|e| Error::Print(e.into()))?;
            text.push(b'\n');
            print_raw(&text)?;
        }
    }
    Ok(ExitCode::from(code(&judgement)))
}

fn code(judgement: &Judgement) -> u8 {
    if !judgement.unusable.is_empty() {
        return exit_codes::UNUSABLE;
    }
    match judgement.over() {
        0 => exit_codes::DONE,
        _ => exit_codes::OVER_BUDGET,
    }
}
