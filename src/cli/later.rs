//! Commands that other profilers have and this one not yet: told so, with what does the job.

use std::ffi::OsString;

use super::{Error, Outcome};

/// Not made yet
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whatever other profilers take
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<OsString>,
}

fn refused(args: &Args, what: &str, hint: &str) -> Outcome {
    let file = match args.rest.first().and_then(|first| first.to_str()) {
        Some(file) if !file.starts_with('-') => file,
        _ => "FILE",
    };
    Err(Error::Refused {
        what: what.to_owned(),
        hint: hint.replace("FILE", file),
    })
}

pub fn html(args: &Args) -> Outcome {
    let hint = "`taskheap flamegraph FILE` draws an SVG that a browser opens";
    refused(args, "there is no report in HTML yet", hint)
}

pub fn top(args: &Args) -> Outcome {
    let hint = "`taskheap run -- PROGRAM` records it; the report has its peak and its end";
    refused(args, "there is no live view yet", hint)
}

pub fn attach(args: &Args) -> Outcome {
    let what = "a program that was not started by `taskheap run` can't be recorded: what it \
                allocated before would be unknown";
    refused(args, what, "start it with `taskheap run -- PROGRAM`")
}
