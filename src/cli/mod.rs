//! The command line: one file per command, each a clap struct and a function that reads, asks,
//! renders and prints. Everything that a person can get wrong ends as an [`Error`].

mod error;
mod report;

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

/// Says which tokio task, thread and thread-local owns every byte of a Rust program's heap.
#[derive(Debug, Parser)]
#[command(name = "taskheap", version, styles = STYLES, propagate_version = true)]
#[command(after_help = "\
Typical use:
  taskheap run -- ./server --port 8080     record an unmodified release build
  taskheap report FILE                     who owns the heap, on one screen
  taskheap flamegraph FILE --by task       draw it

Exit codes: 0 done; 1 over budget (check); 2 could not be done. `run` passes on the
exit code of the program.")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,

    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    Report(report::Args),
}

/// What the process ends with.
pub type Outcome = Result<ExitCode, Error>;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    choose_colours(cli.color);
    let outcome = match cli.command {
        Command::Report(args) => report::run(&args),
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
