//! The two curves: what waiting costs falls by tasks, and what is kept for each does not.

use crate::analyze::story::{Story, Waiting, Way};
use crate::render::chart::{Chart, Line, limit_name, number};
use crate::render::units::bytes;

/// What each way keeps, with the limit drawn in.
pub fn kept(story: &Story, variable: &str) -> Chart {
    let line = |way: &Way| Line {
        name: way.title.to_owned(),
        ..Line::of(&way.law)
    };
    Chart {
        variable: variable.to_owned(),
        fixed: String::new(),
        lines: story.ways.iter().map(line).collect(),
        limit: story.limit,
        heading: Some(kept_heading(story, variable)),
        step: step(variable),
    }
}

/// `Live bytes at the peak: the machine's 23.5 GB is full at 6,025 requests`.
fn kept_heading(story: &Story, variable: &str) -> String {
    let first_full = (story.ways.iter())
        .filter_map(|way| Some((way, way.law.over_variable.limit_value?)))
        .min_by(|(_, a), (_, b)| a.total_cmp(b));
    match (first_full, &story.limit) {
        (Some((_, at)), Some(limit)) => format!(
            "Live bytes at the peak: {} is full at {} {variable}",
            limit_name(limit),
            number(at.floor())
        ),
        _ => "Live bytes at the peak".to_owned(),
    }
}

/// What waiting takes; none if no run told.
pub fn waiting(story: &Story, variable: &str) -> Option<Chart> {
    let lines: Vec<Line> = [
        ("stacks of threads, reserved", &story.reserved),
        ("stacks of threads, touched", &story.touched),
        ("tasks: their futures", &story.cells),
    ]
    .into_iter()
    .filter_map(|(name, waiting)| Some(line(name, waiting.as_ref()?)))
    .collect();
    let heading = match (&story.touched, &story.cells) {
        (Some(touched), Some(cells)) => format!(
            "What it takes to wait: {} for a thread, {} for a task",
            bytes(touched.each()),
            bytes(cells.each())
        ),
        _ => "What it takes to wait".to_owned(),
    };
    (!lines.is_empty()).then(|| Chart {
        variable: variable.to_owned(),
        fixed: String::new(),
        lines,
        limit: None,
        heading: Some(heading),
        step: step(variable),
    })
}

/// `each request`.
fn step(variable: &str) -> String {
    format!("each {}", variable.trim_end_matches('s'))
}

fn line(name: &str, waiting: &Waiting) -> Line {
    Line {
        name: name.to_owned(),
        points: waiting.points.clone(),
        shape: "a line".to_owned(),
        fitted: Some((waiting.line.constant, waiting.line.slope)),
        limit_value: None,
    }
}
