//! The story for a terminal: one screen.

use std::fmt::Write;

use super::Names;
use super::rows::{self, culprit, limit_note, waiting};
use crate::analyze::story::{Story, Way};
use crate::render::table::Table;
use crate::render::text::{
    ALARM, COMMAND, FAINT, GOOD, HEADING, WIDTH, clean, quoted, styled, wrap,
};
use crate::render::units::{UNITS_NOTE, bytes};

/// `folder` is how the person named it.
pub fn render(story: &Story, names: &Names, folder: &str) -> String {
    let mut out = String::new();
    if let Some(text) = waiting(story) {
        heading(&mut out, "WAITING IS CHEAP AS A TASK");
        let _ = writeln!(out, "  {}", wrap(&text, WIDTH - 2, 2));
    }
    let title = format!("WHAT EACH KEEPS IS NOT: {}", names.object.to_uppercase());
    heading(&mut out, &title);
    out.push_str(&table(story));
    let note = wrap(&limit_note(story, names.variable), WIDTH - 2, 2);
    let _ = writeln!(out, "{}", styled(FAINT, &format!("  {note}")));
    if let Some(way) = story.way(names.wrong) {
        found(&mut out, way, folder);
    }
    if let (Some(wrong), Some(right)) = (story.way(names.wrong), story.way(names.right)) {
        fixed(&mut out, wrong, right);
    }
    next(&mut out, folder);
    out
}

fn heading(out: &mut String, text: &str) {
    let blank = if out.is_empty() { "" } else { "\n" };
    let _ = writeln!(out, "{blank}{}", styled(HEADING, text));
}

fn table(story: &Story) -> String {
    let at_most = format!(">at {}", story.most);
    let mut table = Table::new(&["kept", &at_most, ">each", ">constant", ">R²", ">full at"]);
    for row in rows::rows(story) {
        table.row(vec![
            row.title.to_owned(),
            row.at_most,
            row.each,
            row.constant,
            row.r2,
            row.full_at,
        ]);
    }
    table.render(Some(WIDTH))
}

fn found(out: &mut String, way: &Way, folder: &str) {
    let Some(finding) = way.fullest().and_then(culprit) else {
        return;
    };
    heading(
        out,
        &format!("WHAT TASKHEAP SAYS OF {}", way.title.to_uppercase()),
    );
    let title = wrap(&clean(&finding.title), WIDTH - 2, 2);
    let _ = writeln!(out, "  {}", styled(ALARM, &title));
    let _ = writeln!(out, "  {}", wrap(&clean(&finding.advice), WIDTH - 2, 2));
    let file = quoted(&format!("{folder}/{}.taskheap", way.key));
    let command = format!("taskheap report {file}");
    let _ = writeln!(out, "  {}", styled(COMMAND, &command));
}

fn fixed(out: &mut String, wrong: &Way, right: &Way) {
    heading(out, "AFTER THE FIX");
    let text = format!(
        "The peak falls from {} to {} ({}).",
        bytes(wrong.peak_bytes()),
        bytes(right.peak_bytes()),
        right.title
    );
    let _ = writeln!(out, "  {}", wrap(&text, WIDTH - 2, 2));
    let findings = right.fullest().map_or(0, |report| report.findings.len());
    if findings == 0 {
        let text = "taskheap: nothing stands out";
        let _ = writeln!(out, "  {}", styled(GOOD, text));
    }
}

fn next(out: &mut String, folder: &str) {
    heading(out, "NEXT");
    let commands = [
        (
            format!("xdg-open {}", quoted(&format!("{folder}/index.html"))),
            "the story with its pictures",
        ),
        (
            "taskheap run -- ./your-server".to_owned(),
            "the same of your own program",
        ),
        (
            "taskheap sweep --vary n=1,10,100 -- ./your-server {n}".to_owned(),
            "what grows with its load",
        ),
    ];
    for (command, what) in commands {
        let _ = writeln!(out, "  {what}:\n    {}", styled(COMMAND, &command));
    }
    let _ = writeln!(out, "{}", styled(FAINT, &format!("  {UNITS_NOTE}")));
}
