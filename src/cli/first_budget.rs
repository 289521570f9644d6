//! `taskheap check --write`: a first budget, as a file that a person goes on with.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::check::report_of;
use super::{Error, Outcome, exit_codes, print};
use crate::analyze::Report;
use crate::analyze::budget::{Draft, Unit, draft};
use crate::profile::{Options, Output};

pub fn write(profiles: &[PathBuf], file: &Path, force: bool) -> Outcome {
    let [profile] = profiles else {
        return Err(Error::Refused {
            what: "a first budget is made from one profile".to_owned(),
            hint: "name the one with the highest load".to_owned(),
        });
    };
    let report = report_of(profile)?;
    if report.totals.allocations == 0 || report.recording.lost_events > 0 {
        return Err(Error::Refused {
            what: format!("{} can't be the measure of others", profile.display()),
            hint: "it has no allocations, or lost events; `taskheap report` tells".to_owned(),
        });
    }
    let drafts = draft(&report);
    let text = text(&report, &drafts);
    Output::create(file, Options { force })?.finish_with(text.as_bytes())?;
    print(&format!(
        "{}: {} limits; next: taskheap check {} --budget {}\n",
        file.display(),
        drafts.len(),
        profile.display(),
        file.display()
    ))?;
    Ok(ExitCode::from(exit_codes::DONE))
}

fn text(report: &Report, drafts: &[Draft]) -> String {
    let path = Path::new(&report.program.path);
    let program = path.file_name().unwrap_or(path.as_os_str());
    let mut out = format!(
        "# A memory budget for {}, made by `taskheap check --write`: what one run took and 20%\n\
         # more. Beside each limit stands what was measured. Take out what may change, tighten\n\
         # what must not; `taskheap check --help` lists every key.\n",
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
    out.push_str(
        "\n# For --baseline: what may come on top of what the earlier profile has.\n\
         [baseline]\ntolerance = \"10%\"\nslack = \"64 KB\"\n",
    );
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
