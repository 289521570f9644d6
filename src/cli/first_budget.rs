//! `taskheap check --write`: a first budget, as a file that a person goes on with.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::check::{Source, report_of, source};
use super::{Error, Outcome, exit_codes, print};
use crate::analyze::budget::{Draft, Unit, draft, draft_of_sweep};
use crate::profile::{Options, Output};
use crate::render::units::counted;

pub fn write(profiles: &[PathBuf], file: &Path, force: bool) -> Outcome {
    let [profile] = profiles else {
        return Err(Error::Refused {
            what: "a first budget is made from one profile, or one sweep.json".to_owned(),
            hint: "name the profile with the highest load".to_owned(),
        });
    };
    let (drafts, text) = match source(profile)? {
        Source::Sweep(sweep) => {
            let drafts = draft_of_sweep(&sweep);
            let text = text(sweep.program(), "the runs of a sweep took", &drafts);
            (drafts, text)
        }
        Source::Profile => of_profile(profile)?,
    };
    if drafts.is_empty() {
        return Err(Error::Nothing {
            what: format!("{} has no growth that lies on a line", profile.display()),
            hint: "give `taskheap sweep` more values of its variable".to_owned(),
        });
    }
    Output::create(file, Options { force })?.finish_with(text.as_bytes())?;
    print(&format!(
        "{}: {}; next: taskheap check {} --budget {}\n",
        file.display(),
        counted(drafts.len() as u64, "limit"),
        profile.display(),
        file.display()
    ))?;
    Ok(ExitCode::from(exit_codes::DONE))
}

fn of_profile(profile: &Path) -> Result<(Vec<Draft>, String), Error> {
    let report = report_of(profile)?;
    if report.totals.allocations == 0 || report.recording.lost_events > 0 {
        return Err(Error::Refused {
            what: format!("{} can't be the measure of others", profile.display()),
            hint: "it has no allocations, or lost events; `taskheap report` tells".to_owned(),
        });
    }
    let drafts = draft(&report);
    let mut text = text(&report.program.path, "one run took", &drafts);
    text.push_str(
        "\n# For --baseline: what may come on top of what the earlier profile has.\n\
         [baseline]\ntolerance = \"10%\"\nslack = \"64 KB\"\n",
    );
    Ok((drafts, text))
}

/// `took`: whose figures these are.
fn text(program: &str, took: &str, drafts: &[Draft]) -> String {
    let path = Path::new(program);
    let program = path.file_name().unwrap_or(path.as_os_str());
    let mut out = format!(
        "# A memory budget for {}, made by `taskheap check --write`:\n\
         # what {took} and 20% more. Beside each limit stands what was measured. Take out\n\
         # what may change, tighten what must not; `taskheap check --help` lists every key.\n",
        program.display().to_string().escape_debug()
    );
    let mut before = None;
    for draft in drafts {
        let limit = &draft.limit;
        let table = (limit.key.table, limit.pattern.clone());
        if before.as_ref() != Some(&table) {
            let name = limit.key.table.name();
            let _ = match &limit.pattern {
                None => writeln!(out, "\n[{name}]"),
                Some(pattern) => writeln!(out, "\n[{name}.{}]", quoted(pattern)),
            };
            before = Some(table);
        }
        let unit = limit.key.unit;
        let value = match unit {
            Unit::Count => limit.at_most.to_string(),
            Unit::Permille => format!("\"{}%\"", limit.at_most as f64 / 10.0),
            Unit::Bytes => format!("\"{}\"", size(limit.at_most)),
        };
        let line = format!("{} = {value}", limit.key.name);
        let _ = writeln!(out, "{line:<28}# {}", unit.shown(draft.measured));
    }
    out
}

/// As TOML writes a key that may hold anything.
fn quoted(name: &str) -> String {
    toml::Value::String(name.to_owned()).to_string()
}

/// Exactly, in the largest unit in which it is a whole number.
fn size(bytes: u64) -> String {
    let mut left = bytes;
    let mut unit = 0;
    while left >= 1024 && left.is_multiple_of(1024) && unit < 3 {
        left /= 1024;
        unit += 1;
    }
    format!("{left} {}", ["B", "KB", "MB", "GB"][unit])
}
