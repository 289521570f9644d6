//! Findings, as the first thing on the first screen.

use std::fmt::Write;

use super::text::{ALARM, COMMAND, FAINT, GOOD, HEADING, WIDTH, clean, styled, wrap};
use crate::analyze::{Finding, Report};

/// More than this and nobody reads the first.
pub const MOST: usize = 7;

/// The block of findings. `profile` is how the person named the file.
pub fn render(report: &Report, profile: &str) -> String {
    let mut out = String::new();
    if report.walks.is_empty() {
        let text = "Nobody looked into the heap while it ran (no walk), so copies, leaks, idle \
                    and oversized memory are not judged here.";
        out.push_str(&styled(FAINT, &wrap(text, WIDTH, 0)));
        out.push('\n');
        if report.findings.is_empty() {
            return out;
        }
    }
    if report.findings.is_empty() {
        // Without thresholds nobody has judged, and silence is not praise.
        return match report.thresholds.is_empty() {
            true => out,
            false if report.moment.saw_most => out + &nothing(report),
            false => out + &not_judged(report),
        };
    }
    let about = format!("FINDINGS at {}", report.moment.text);
    let _ = writeln!(out, "{}", styled(HEADING, &about));
    let shown = shown(&report.findings);
    for (at, finding) in shown.iter().enumerate() {
        one(&mut out, at + 1, finding, profile);
    }
    let more = report.findings.len() - shown.len();
    if more > 0 {
        let text = format!("   and {more} smaller: taskheap report {profile} --json");
        let _ = writeln!(out, "{}", styled(FAINT, &text));
    }
    out
}

/// The first, and of those that cost no bytes and so stand last, one.
fn shown(findings: &[Finding]) -> Vec<&Finding> {
    let mut shown: Vec<&Finding> = findings.iter().take(MOST).collect();
    let first_free = findings.iter().find(|finding| finding.bytes == 0);
    if let (Some(free), Some(last)) = (first_free, shown.last_mut())
        && last.bytes > 0
    {
        *last = free;
    }
    shown
}

fn one(out: &mut String, number: usize, finding: &Finding, profile: &str) {
    let title = wrap(&clean(&finding.title), WIDTH - 3, 3);
    let _ = writeln!(out, "{number:>2} {}", styled(ALARM, &title));
    let _ = writeln!(out, "   {}", wrap(&clean(&finding.advice), WIDTH - 3, 3));
    let command = format!("taskheap report {profile} {}", finding.kind.evidence());
    let _ = writeln!(out, "   {}", styled(COMMAND, &command));
}

/// A look that came too early finds nothing, which says nothing.
fn not_judged(report: &Report) -> String {
    let seen = match report.moment.walk {
        Some(_) => format!("{} saw too little", report.moment.text),
        None => "no look came near the end".to_owned(),
    };
    let text = format!(
        "Not judged: {seen}. Let the program stay at its peak for longer, or have it looked at \
         when it crosses a size: taskheap run --memory-limit SIZE."
    );
    format!("{}\n", wrap(&text, WIDTH, 0))
}

fn nothing(report: &Report) -> String {
    let mut text = format!(
        "{} at {}.",
        styled(GOOD, "Nothing stands out"),
        report.moment.text
    );
    let judged = format!("Looked for: {}.", report.thresholds.join("; "));
    text.push('\n');
    text.push_str(&styled(FAINT, &wrap(&judged, WIDTH, 0)));
    text.push('\n');
    text
}
