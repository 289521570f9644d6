//! Two profiles side by side.

use std::fmt::Write;

use super::table::Table;
use super::tables::Options;
use super::text::{ALARM, FAINT, HEADING, clean, styled};
use super::units::{UNITS_NOTE, bytes_signed, bytes_tight, count};
use crate::analyze::{Change, Diff, written};

/// What grew and shrank.
pub fn diff(diff: &Diff, base: &str, new: &str, options: &Options) -> String {
    let mut out = format!(
        "{} {} to {}\n",
        styled(HEADING, "FROM"),
        clean(base),
        clean(new)
    );
    out.push_str(&changes("program", &diff.totals, options));
    let sections = [
        ("FINDINGS", "finding", diff.findings.as_ref()),
        ("TASK TYPES, at the peak", "task", Some(&diff.tasks)),
        ("ONE TASK, on average", "task", Some(&diff.per_task)),
        ("THREADS, at the peak", "thread", Some(&diff.threads)),
        ("THREAD-LOCALS", "thread-local", diff.thread_locals.as_ref()),
        ("SITES, at the peak", "site", Some(&diff.sites)),
    ];
    let (mut same, mut unknown) = (Vec::new(), Vec::new());
    for (title, what, rows) in sections {
        let name = || title.split(',').next().unwrap_or(title).to_lowercase();
        match rows {
            None => unknown.push(name()),
            Some(rows) if rows.is_empty() => same.push(name()),
            Some(rows) => {
                let _ = writeln!(out, "\n{}{}", styled(HEADING, title), options.part(rows));
                out.push_str(&changes(what, rows, options));
            }
        }
    }
    if !same.is_empty() {
        let _ = writeln!(out, "\nno change: {}", same.join(", "));
    }
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        let _ = writeln!(
            out,
            "not compared, since one of the two has no walk: {names}"
        );
    }
    let _ = writeln!(out, "{}", styled(FAINT, &format!("  {UNITS_NOTE}")));
    out
}

fn changes(what: &str, rows: &[Change], options: &Options) -> String {
    let mut table = Table::new(&[what, ">base", ">new", ">change", ">"]);
    for row in options.of(rows) {
        let blocks = row.name == "allocations";
        let shown = |value| {
            if blocks {
                count(value)
            } else {
                bytes_tight(value)
            }
        };
        let change = match blocks {
            true => format!("{:+}", row.change),
            false => bytes_signed(i128::from(row.change)),
        };
        let ratio = match (row.base, row.new) {
            (0, _) => "new".to_owned(),
            (_, 0) => "gone".to_owned(),
            (base, new) => format!("×{:.2}", new as f64 / base as f64),
        };
        // Tasks, threads and findings are named as in a report.
        let name = match what {
            "site" => written(&row.name).into_owned(),
            _ => row.name.clone(),
        };
        let cells = vec![name, shown(row.base), shown(row.new), change, ratio];
        match row.change {
            1.. => table.styled_row(ALARM, cells),
            _ => table.row(cells),
        }
    }
    table.render(options.width)
}
