//! The command line: one file per command, each a clap struct and a function that reads, asks,
//! renders and prints. Everything that a person can get wrong ends as an [`Error`].

mod budget;
mod check;
mod demo;
mod diff;
mod error;
mod export;
mod first_budget;
mod flamegraph;
mod later;
mod report;
mod run;
mod snapshot;
mod sweep;
mod target;

pub use error::{Error, exit_codes};

use std::io::Write;
use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ColorChoice, Parser, Subcommand};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Says which tokio task, thread and thread-local owns every byte of a Rust heap
#[derive(Debug, Parser)]
#[command(name = "taskheap", version, styles = STYLES, propagate_version = true)]
#[command(term_width = 80)]
#[command(after_help = "\
Typical use:
  taskheap run -- ./server --port 8080     record an unmodified release build
  taskheap report FILE                     who owns the heap, on one screen
  taskheap flamegraph FILE --by task       draw it
  taskheap sweep --vary n=1,10,100 -- ./worker {n}    what grows, per task or thread

Exit codes: 0 done; 1 over budget (check); 2 could not be done. `run` passes on
the exit code of the program.")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,

    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Snapshot(snapshot::Args),
    Sweep(sweep::Args),
    Report(report::Args),
    Flamegraph(flamegraph::Args),
    Export(export::Args),
    Diff(diff::Args),
    Check(check::Args),
    Demo(demo::Args),
    #[command(hide = true)]
    Html(later::Args),
    #[command(hide = true)]
    Top(later::Args),
    #[command(hide = true)]
    Attach(later::Args),
}

/// What the process ends with.
pub type Outcome = Result<ExitCode, Error>;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    choose_colours(cli.color);
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Flamegraph(args) => flamegraph::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Html(args) => later::html(&args),
        Command::Top(args) => later::top(&args),
        Command::Attach(args) => later::attach(&args),
    };
    outcome.unwrap_or_else(|error| error.tell())
}

fn choose_colours(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Prints to the standard output; styles are taken out where it is no terminal.
fn print(text: &str) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Error::Print)
}

/// Prints bytes as they are.
fn print_raw(bytes: &[u8]) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(Error::Print)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;

    /// Every flag is there once, says what it does, and is reachable by a long name.
    #[test]
    fn flags_are_documented_and_unique() {
        let mut all = Cli::command();
        all.build();
        for command in std::iter::once(&all).chain(all.get_subcommands()) {
            let name = command.get_name();
            assert!(
                name == "help" || command.get_about().is_some(),
                "{name} says nothing"
            );
            let (mut longs, mut shorts) = (BTreeSet::new(), BTreeSet::new());
            for arg in command.get_arguments() {
                let id = arg.get_id();
                let help = arg
                    .get_help()
                    .map(|help| help.to_string())
                    .unwrap_or_default();
                assert!(!help.is_empty(), "{name} {id} says nothing");
                let long = arg.get_long();
                assert!(
                    arg.is_positional() || long.is_some(),
                    "{name} {id} has no long name"
                );
                assert!(
                    long.is_none_or(|long| longs.insert(long)),
                    "{name} --{long:?} twice"
                );
                let short = arg.get_short();
                assert!(
                    short.is_none_or(|short| shorts.insert(short)),
                    "{name} -{short:?} twice"
                );
            }
        }
        Cli::command().debug_assert();
    }

    /// What clap takes for an empty command line is what the analyses take for their default.
    #[test]
    fn defaults_are_those_of_the_analyses() {
        let metric: crate::analyze::Metric = flamegraph::Metric::Peak.into();
        assert_eq!(metric, crate::analyze::FlameOptions::default().metric);
        let cli = Cli::try_parse_from(["taskheap", "flamegraph", "x"]).unwrap();
        let Command::Flamegraph(args) = cli.command else {
            panic!("another command");
        };
        assert_eq!(args.options(), crate::analyze::FlameOptions::default());
    }
}
