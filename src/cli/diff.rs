//! `taskheap diff`: what grew and shrank between two profiles.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{Error, Outcome, print, print_raw};
use crate::analyze;
use crate::profile;
use crate::render::comparison;
use crate::render::tables::Options;
use crate::render::text::WIDTH;

/// Show what grew and shrank between two profiles
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taskheap diff before.taskheap after.taskheap
  taskheap flamegraph after.taskheap --diff before.taskheap    the same, drawn

Sites are compared by function, since lines move between two builds.")]
pub struct Args {
    /// The profile to compare with
    #[arg(value_name = "BASE")]
    base: PathBuf,

    /// The profile that is newer
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Print it as JSON, all of it
    #[arg(long)]
    json: bool,

    /// Rows of each table
    #[arg(long, value_name = "ROWS", default_value_t = 8)]
    limit: usize,

    /// Don't shorten names to fit 80 columns
    #[arg(long)]
    wide: bool,
}

pub fn run(args: &Args) -> Outcome {
    let base = analyze::report(&profile::read(&args.base)?);
    let new = analyze::report(&profile::read(&args.new)?);
    let diff = analyze::diff(&base, &new);
    if args.json {
        let mut text = serde_json::to_vec_pretty(&diff).map_err(|e| Error::Print(e.into()))?;
        text.push(b'\n');
        print_raw(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        limit: Some(args.limit),
        width: (!args.wide).then_some(WIDTH),
    };
    let (base, new) = (
        args.base.display().to_string(),
        args.new.display().to_string(),
    );
    print(&comparison::diff(&diff, &base, &new, &options))?;
    Ok(ExitCode::SUCCESS)
}
