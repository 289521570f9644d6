//! `taskheap export`: the profile in the formats of other tools.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use super::flamegraph::{self, MetricArg};
use super::target::Target;
use super::{Error, Outcome};
use crate::analyze::{By, FlameOptions};
use crate::profile;
use crate::render::export::{collapsed, dhat, pprof};

/// Write the profile in the format of another tool
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taskheap export pprof FILE && go tool pprof -http :8000 FILE.pb.gz
  taskheap export dhat FILE                  for dh_view.html
  taskheap export collapsed FILE -o - | flamegraph.pl > out.svg

pprof has all figures at once (-sample_index=peak_space, inuse_space,
alloc_space, peak_objects, …) and the labels task and thread (-tagroot task).")]
pub struct Args {
    /// Format to write
    #[arg(value_enum, value_name = "FORMAT")]
    format: Format,

    /// What `taskheap run` wrote
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,

    #[command(flatten)]
    metric: MetricArg,

    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For `go tool pprof`, Pyroscope, Grafana: protocol buffer, gzipped
    Pprof,
    /// For DHAT's viewer: JSON, version 2
    Dhat,
    /// For flamegraph.pl, speedscope: a stack and a figure in each line (of --metric)
    Collapsed,
    /// Not made yet: it reads collapsed stacks and pprof
    #[value(hide = true)]
    Speedscope,
}

pub fn run(args: &Args) -> Outcome {
    let profile = profile::read(&args.profile)?;
    let (ending, content) = match args.format {
        Format::Pprof => (
            "pb.gz".to_owned(),
            pprof::file(&profile).map_err(Error::Print)?,
        ),
        Format::Dhat => {
            let file = dhat::file(&profile).map_err(|e| Error::Print(e.into()))?;
            ("dhat.json".to_owned(), file)
        }
        Format::Collapsed => {
            let options = FlameOptions {
                metric: args.metric.metric.into(),
                by: By::Stack,
                runtime_frames: true,
            };
            let flames = flamegraph::flames(&profile, &args.profile, &options)?;
            let ending = format!("{}.collapsed", args.metric.metric.name());
            (ending, collapsed::file(&flames))
        }
        Format::Speedscope => {
            return Err(Error::Refused {
                what: "there is no export in speedscope's own format yet".to_owned(),
                hint: "speedscope opens what `taskheap export collapsed` writes".to_owned(),
            });
        }
    };
    args.target.write(&args.profile, &ending, &content)?;
    Ok(ExitCode::SUCCESS)
}
