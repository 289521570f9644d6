//! The figures of a story, as the terminal and the page both show them.

use crate::analyze::growth::fit::Shape;
use crate::analyze::story::{Story, Way};
use crate::analyze::{Finding, Kind, Report};
use crate::render::chart::{limit_name, number};
use crate::render::growth::r2;
use crate::render::units::{bytes, bytes_tight, counted};

/// Of one way, in the order of [`TITLES`].
pub struct Row {
    pub title: &'static str,
    pub at_most: String,
    pub each: String,
    pub constant: String,
    pub r2: String,
    pub full_at: String,
}

pub fn rows(story: &Story) -> Vec<Row> {
    story.ways.iter().map(row).collect()
}

fn row(way: &Way) -> Row {
    let law = &way.law.over_variable;
    let none = || "-".to_owned();
    let is_line = matches!(way.law.shape, Shape::Linear | Shape::Flat);
    let size = |bytes: f64| bytes_tight(bytes.max(0.0).round() as u64);
    Row {
        title: way.title,
        at_most: bytes_tight(way.peak_bytes()),
        each: if is_line {
            size(law.bytes_per_step)
        } else {
            none()
        },
        constant: match way.law.shape {
            Shape::Linear | Shape::Flat => size(law.constant_bytes),
            Shape::Sublinear => bytes_tight(way.law.bytes_at_most),
            Shape::Superlinear | Shape::Unclear => none(),
        },
        r2: if is_line { r2(law.r2) } else { none() },
        full_at: match (law.limit_value, way.law.shape) {
            (Some(value), _) => number(value.floor()),
            (None, Shape::Flat | Shape::Sublinear) => "never".to_owned(),
            _ => none(),
        },
    }
}

/// What `full at` means.
pub fn limit_note(story: &Story, variable: &str) -> String {
    let full = story.limit.as_ref().map_or(String::new(), |limit| {
        format!(
            "; full at: the {variable} at which this fills {}, if the line goes on",
            limit_name(limit)
        )
    });
    format!(
        "live bytes at the peak = constant + each × {variable}, fitted over {}{full}",
        counted(story.runs as u64, "run")
    )
}

/// `A waiting thread touches 16.0 KB of stack and reserves 2.0 MB. A waiting task has 384 B: 43
/// times less.`
pub fn waiting(story: &Story) -> Option<String> {
    let (touched, cells) = (story.touched.as_ref()?, story.cells.as_ref()?);
    let reserves = story.reserved.as_ref().map_or(String::new(), |reserved| {
        format!(" and reserves {}", bytes(reserved.each()))
    });
    let times = touched.each() as f64 / cells.each().max(1) as f64;
    Some(format!(
        "A waiting thread touches {} of stack{reserves}. A waiting task has {}: {times:.0} times \
         less.",
        bytes(touched.each()),
        bytes(cells.each())
    ))
}

/// The finding that the story is about: who has the copies, if anybody.
pub fn culprit(report: &Report) -> Option<&Finding> {
    let is_it = |finding: &&Finding| matches!(finding.kind, Kind::Copies | Kind::ThreadLocal);
    report.findings.iter().find(is_it)
}
