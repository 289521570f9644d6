//! The table of runtime workers, and below it where each was held.

use std::fmt::Write;

use super::table::Table;
use super::tables::{Options, short_site};
use super::text::{FAINT, WIDTH, clean, styled, wrap};
use super::units::{count, seconds};
use crate::analyze::{HeldRow, WorkerRow, held_summary};

/// Stays that are shown with their stack.
const SHOWN: usize = 5;
/// Frames of each.
const FRAMES: usize = 12;

pub fn render(rows: &[WorkerRow], options: &Options) -> String {
    let mut table = Table::new(&["worker", ">busy", ">looks", ">longest stay", ">held", "on"]);
    for row in options.of(rows) {
        table.row(vec![
            format!("{} ({})", row.name, row.tid),
            format!("{:.0}%", row.busy_share * 100.0),
            count(row.looks),
            row.longest_stay_s.map_or("< 20 ms".to_owned(), seconds),
            count(row.held.len() as u64),
            row.longest_on.clone().unwrap_or_default(),
        ]);
    }
    let mut out = table.render(options.width);
    if let Some(summary) = held_summary(rows) {
        let _ = writeln!(out, "\n  held: {summary}");
    }
    let mut held: Vec<&HeldRow> = rows.iter().flat_map(|row| &row.held).collect();
    held.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for stay in held.into_iter().take(SHOWN) {
        one(&mut out, stay);
    }
    out
}

fn one(out: &mut String, stay: &HeldRow) {
    let text = format!(
        "{} at {}: {} by {}, {}{}",
        seconds(stay.seconds),
        seconds(stay.at_s),
        stay.state,
        stay.task.as_deref().unwrap_or("an unknown task"),
        short_site(&stay.site),
        if stay.uncertain {
            " (perhaps in several polls)"
        } else {
            ""
        },
    );
    let _ = writeln!(out, "\n  {}", wrap(&clean(&text), WIDTH - 2, 2));
    for function in stay.stack.iter().take(FRAMES) {
        let line = format!("    {}", clean(function));
        let _ = writeln!(out, "{}", styled(FAINT, &line));
    }
}
