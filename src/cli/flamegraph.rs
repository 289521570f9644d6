//! `taskheap flamegraph`: an SVG of who made what.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use super::target::Target;
use super::{Error, Outcome};
use crate::analyze::{self, FlameOptions, Flames, NoFlames};
use crate::profile::{self, Profile};
use crate::render::flamegraph::{self, Titles};

/// Draw a flamegraph (SVG)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taskheap flamegraph FILE                     the heap at its peak, by stack
  taskheap flamegraph FILE --by task           the type of task at the root
  taskheap flamegraph FILE --metric temporary  what is freed at once
  taskheap flamegraph NEW --diff BASE          what grew (red), shrank (blue)
  taskheap flamegraph NEW --diff BASE --widths base       and what is gone

Open the SVG in a browser: click to zoom, Ctrl-F to search.")]
pub struct Args {
    /// What `taskheap run` wrote
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,

    #[command(flatten)]
    metric: MetricArg,

    /// What stands at the root
    #[arg(long, value_enum, value_name = "BY", default_value_t = By::Stack)]
    by: By,

    /// Draw what changed since this profile
    #[arg(long, value_name = "BASE")]
    diff: Option<PathBuf>,

    /// Whose bytes make the width of a box: what is gone is seen in the base's
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = Widths::New, requires = "diff")]
    widths: Widths,

    /// Title of the picture [default: what is drawn, and how much]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// Line below the title [default: the program, its pid, the moment]
    #[arg(long, value_name = "TEXT")]
    subtitle: Option<String>,

    /// Keep the frames of tokio and std
    #[arg(long)]
    runtime_frames: bool,

    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct MetricArg {
    /// What is measured
    #[arg(long, value_enum, value_name = "METRIC", default_value_t = Metric::Peak)]
    pub metric: Metric,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// Bytes not freed at the end
    Live,
    /// Bytes live when the whole program's were most
    Peak,
    /// Bytes allocated in the whole run
    Allocated,
    /// Blocks allocated in the whole run
    Allocations,
    /// Blocks freed before the thread's next allocation
    Temporary,
    /// Bytes that nothing reaches (needs a walk)
    Leaked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// The outermost function
    Stack,
    /// The type of the task
    Task,
    /// The name of the thread
    Thread,
    /// The thread-local: only what initialisers of thread-locals made
    ThreadLocal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Widths {
    /// Of the profile: what grew and what is new
    New,
    /// Of the base: what shrank and what is gone
    Base,
}

impl From<Widths> for flamegraph::Widths {
    fn from(widths: Widths) -> flamegraph::Widths {
        match widths {
            Widths::New => flamegraph::Widths::New,
            Widths::Base => flamegraph::Widths::Base,
        }
    }
}

impl From<Metric> for analyze::Metric {
    fn from(metric: Metric) -> analyze::Metric {
        match metric {
            Metric::Live => analyze::Metric::Live,
            Metric::Peak => analyze::Metric::Peak,
            Metric::Allocated => analyze::Metric::Allocated,
            Metric::Allocations => analyze::Metric::Allocations,
            Metric::Temporary => analyze::Metric::Temporary,
            Metric::Leaked => analyze::Metric::Leaked,
        }
    }
}

impl From<By> for analyze::By {
    fn from(by: By) -> analyze::By {
        match by {
            By::Stack => analyze::By::Stack,
            By::Task => analyze::By::Task,
            By::Thread => analyze::By::Thread,
            By::ThreadLocal => analyze::By::ThreadLocal,
        }
    }
}

impl Metric {
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Args {
    pub fn options(&self) -> FlameOptions {
        FlameOptions {
            metric: self.metric.metric.into(),
            by: self.by.into(),
            runtime_frames: self.runtime_frames,
        }
    }

    /// What the person gave stands in the place of what we would say.
    fn titles(&self, ours: Titles) -> Titles {
        Titles {
            title: self.title.clone().unwrap_or(ours.title),
            subtitle: self.subtitle.clone().unwrap_or(ours.subtitle),
        }
    }
}

pub fn run(args: &Args) -> Outcome {
    let options = args.options();
    let profile = profile::read(&args.profile)?;
    let mut svg = Vec::new();
    let drawn = match &args.diff {
        Some(base) => {
            let base_profile = profile::read(base)?;
            let old = flames_or_none(&base_profile, base, &options)?;
            let new = flames_or_none(&profile, &args.profile, &options)?;
            let (drawn, hint) = match args.widths {
                Widths::New => (&new, "--widths base draws what is gone"),
                Widths::Base => (&old, "--widths new draws what is new"),
            };
            if old.total() + new.total() == 0 {
                return Err(nothing(&args.profile, &options, NoFlames::Zero));
            }
            if drawn.total() == 0 {
                return Err(Error::Nothing {
                    what: format!("{}: zero in one of the two", options.metric.words()),
                    hint: hint.to_owned(),
                });
            }
            let flames = new.over(&old);
            let widths = args.widths.into();
            let titles =
                flamegraph::diff_titles(&base_profile, &profile, &flames, &options, widths);
            let titles = args.titles(titles);
            flamegraph::draw_diff(&titles, &flames, options.metric, widths, &mut svg)
        }
        None => {
            let flames = flames(&profile, &args.profile, &options)?;
            let titles = args.titles(flamegraph::titles(&profile, &flames, &options));
            flamegraph::draw(&titles, &flames, options.metric, &mut svg)
        }
    };
    drawn.map_err(Error::Print)?;
    args.target.write(&args.profile, &ending(args), &svg)?;
    Ok(ExitCode::SUCCESS)
}

fn ending(args: &Args) -> String {
    let by = match args.by {
        By::Stack => "",
        By::Task => ".by-task",
        By::Thread => ".by-thread",
        By::ThreadLocal => ".by-thread-local",
    };
    let diff = if args.diff.is_some() { ".diff" } else { "" };
    format!("{}{by}{diff}.svg", args.metric.metric.name())
}

/// The stacks to draw, or why there are none.
pub fn flames(profile: &Profile, path: &Path, options: &FlameOptions) -> Result<Flames, Error> {
    analyze::flames(profile, options).map_err(|why| nothing(path, options, why))
}

/// For a comparison: a profile in which the figure is zero has no stacks.
fn flames_or_none(profile: &Profile, path: &Path, options: &FlameOptions) -> Result<Flames, Error> {
    match analyze::flames(profile, options) {
        Err(NoFlames::Zero) => Ok(Flames::default()),
        Err(why) => Err(nothing(path, options, why)),
        Ok(flames) => Ok(flames),
    }
}

fn nothing(path: &Path, options: &FlameOptions, why: NoFlames) -> Error {
    let path = path.display();
    let hint = match options.metric {
        analyze::Metric::Live => "most programs free everything at the end: try --metric peak",
        analyze::Metric::Leaked => {
            "that is good news; `taskheap report FILE --leaks` says the same"
        }
        _ => "`taskheap report FILE` shows what was recorded",
    };
    match why {
        NoFlames::NoWalk => Error::Nothing {
            what: format!("{path} has no walk, so nothing is known about leaks"),
            hint: "record it again; `taskheap report FILE` says why there was no walk".to_owned(),
        },
        NoFlames::Zero if options.by == analyze::By::ThreadLocal => Error::Nothing {
            what: format!("no initialiser of a thread-local made anything of this in {path}"),
            hint: "`taskheap report FILE --thread-locals` shows what thread-locals keep".to_owned(),
        },
        NoFlames::Zero => Error::Nothing {
            what: format!("{}: zero in {path}", options.metric.words()),
            hint: hint.to_owned(),
        },
    }
}
