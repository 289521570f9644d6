//! A chart of what grows, in plain characters: for a terminal, a log, a ticket.
//!
//! The loads of a sweep are spaced by factors, as a rule, so both axes are logarithmic where the
//! values allow it: a straight line stays one as long as its constant is small, and the smallest
//! load is told from the next. [`super::chart_svg`] draws the same chart with the limit in it.

use super::text::{clean, shorten, width};
use super::units::{bytes_tight, count_tight};
use crate::analyze::growth::fit::{Shape, medians};
use crate::analyze::growth::{Limit, Sweep};
use crate::analyze::{GrowthRow, figures, written};

/// More lines than this nobody tells apart.
const MOST: usize = 4;
/// What is less of the process than this part is no line of the chart.
const LEAST_PART: u64 = 200;
const ROWS: usize = 14;
const COLUMNS: usize = 66;
/// Before the plot: the label of a row.
const LABEL: usize = 8;
const MARKS: [char; MOST] = ['*', 'o', '+', 'x'];
/// Values this far apart are spaced by factors.
const FACTOR: f64 = 8.0;

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Chart {
    pub variable: String,
    /// `kb=4`, if other variables were held.
    pub fixed: String,
    pub lines: Vec<Line>,
    pub limit: Option<Limit>,
    /// Above the picture, instead of what the first line says.
    pub heading: Option<String>,
    /// What a line grows by: `each step of n`.
    pub step: String,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// Ascending; the median of repeats.
    pub points: Vec<(f64, f64)>,
    /// In words: `levels off`.
    pub shape: String,
    /// Constant and slope, where the shape is a line.
    pub fitted: Option<(f64, f64)>,
    /// Where the limit is reached.
    pub limit_value: Option<f64>,
}

impl Chart {
    /// Of the process and its largest growers, in the series that grows most. None if nothing
    /// was fitted.
    pub fn of(sweep: &Sweep) -> Option<Chart> {
        let rows = &sweep.growth;
        let process = rows.iter().filter(|row| row.of == "process");
        let process = process.max_by_key(|row| row.bytes_at_most)?;
        let same = |row: &&GrowthRow| {
            row.variable == process.variable && row.fixed == process.fixed && row.of != "process"
        };
        let grows = |row: &&GrowthRow| {
            row.shape != Shape::Flat && row.grown_bytes > process.bytes_at_most / LEAST_PART
        };
        let owners = |row: &&GrowthRow| row.of != "site";
        let growers = || rows.iter().filter(same).filter(grows);
        let mut shown: Vec<&GrowthRow> = vec![process];
        // Whose it is before where it is made, and nothing twice.
        for row in growers()
            .filter(owners)
            .chain(growers().filter(|r| !owners(r)))
        {
            let told = |other: &&GrowthRow| {
                let owner = row.of == "site" && other.owner_name == row.owner_name;
                let place = row.site == other.site && row.called_from == other.called_from;
                (owner && row.owner_name.is_some()) || (place && row.site.is_some())
            };
            if !shown.iter().any(told) {
                shown.push(row);
            }
        }
        shown.truncate(MOST);
        let fixed = process
            .fixed
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let variable = process.variable.clone()?;
        Some(Chart {
            step: format!("each step of {variable}"),
            variable,
            fixed: fixed.collect::<Vec<_>>().join(", "),
            lines: shown.into_iter().map(Line::of).collect(),
            limit: sweep.limit,
            heading: None,
        })
    }

    pub fn title(&self) -> String {
        match self.fixed.is_empty() {
            true => format!("LIVE BYTES at the peak, by {}", self.variable),
            false => format!(
                "LIVE BYTES at the peak, by {} ({})",
                self.variable, self.fixed
            ),
        }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.lines
            .iter()
            .flat_map(|line| line.points.iter().copied())
    }
}

impl Line {
    pub fn of(row: &GrowthRow) -> Line {
        let points: Vec<(f64, f64)> = (row.points.iter())
            .map(|point| (point.value, point.bytes as f64))
            .collect();
        let law = row.over_variable;
        let is_line = matches!(row.shape, Shape::Linear | Shape::Flat);
        Line {
            name: title(row),
            points: medians(&points),
            shape: shape(row),
            fitted: is_line.then_some((law.constant_bytes, law.bytes_per_step)),
            limit_value: law.limit_value,
        }
    }
}

/// `tasks of handler`, `RULES`, `the process`.
pub fn title(row: &GrowthRow) -> String {
    match row.of {
        "process" => "the process".to_owned(),
        "task-type" => format!("task {}", clean(&row.name)),
        "thread" => format!("thread {}", clean(&row.name)),
        _ => clean(&written(&row.name)),
    }
}

fn shape(row: &GrowthRow) -> String {
    match (row.shape, row.exponent) {
        (Shape::Superlinear, Some(exponent)) => format!("grows by the power {exponent:.1}"),
        (Shape::Superlinear, None) => "grows faster than a line".to_owned(),
        (Shape::Sublinear, _) => "levels off".to_owned(),
        (Shape::Flat, _) => "flat".to_owned(),
        (Shape::Linear, _) => "a line".to_owned(),
        (Shape::Unclear, _) => "no law is seen".to_owned(),
    }
}

/// From values to places between 0 and 1.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    least: f64,
    most: f64,
    pub logarithmic: bool,
}

impl Axis {
    /// Logarithmic if all values are positive and far enough apart.
    pub fn over(values: impl Iterator<Item = f64>) -> Axis {
        let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| {
            (a.min(value), b.max(value))
        });
        let logarithmic = least > 0.0 && most / least >= FACTOR;
        let least = if logarithmic { least } else { least.min(0.0) };
        Axis {
            least,
            most: most.max(least + 1.0),
            logarithmic,
        }
    }

    pub fn place(&self, value: f64) -> f64 {
        let at = |value: f64| if self.logarithmic { value.ln() } else { value };
        (at(value) - at(self.least)) / (at(self.most) - at(self.least))
    }

    pub fn value(&self, place: f64) -> f64 {
        match self.logarithmic {
            true => (self.least.ln() + place * (self.most / self.least).ln()).exp(),
            false => self.least + place * (self.most - self.least),
        }
    }
}

/// At most 80 columns, marks and their names below.
pub fn draw(chart: &Chart) -> String {
    let x = Axis::over(chart.points().map(|(x, _)| x));
    // A line that begins at nothing must not keep the others from their scale.
    let y = Axis::over(chart.points().map(|(_, y)| y).filter(|y| *y > 0.0));
    let mut plot = vec![vec![' '; COLUMNS]; ROWS];
    for (line, mark) in chart.lines.iter().zip(MARKS).rev() {
        for (value, bytes) in line.points.iter().filter(|(_, bytes)| *bytes > 0.0) {
            let column = (x.place(*value) * (COLUMNS - 1) as f64).round() as usize;
            let row = ((1.0 - y.place(*bytes)) * (ROWS - 1) as f64).round() as usize;
            plot[row.min(ROWS - 1)][column.min(COLUMNS - 1)] = mark;
        }
    }
    let mut out = String::new();
    for (at, row) in plot.iter().enumerate() {
        let label = match at % 3 == 0 || at == ROWS - 1 {
            true => bytes_tight(y.value(1.0 - at as f64 / (ROWS - 1) as f64) as u64),
            false => String::new(),
        };
        let row: String = row.iter().collect();
        out.push_str(&format!("  {label:>LABEL$} |{}", row.trim_end()));
        out.push('\n');
    }
    out.push_str(&format!("  {:>LABEL$} +{}\n", "", "-".repeat(COLUMNS)));
    out.push_str(&below(chart, x));
    for (line, mark) in chart.lines.iter().zip(MARKS) {
        out.push_str(&format!(
            "  {:>LABEL$}  {mark} {}\n",
            "",
            shorten(&line.name, 62)
        ));
    }
    out
}

/// The values of the variable under their places, as far as there is room.
fn below(chart: &Chart, x: Axis) -> String {
    let mut values: Vec<f64> = chart.points().map(|(x, _)| x).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let mut line = String::new();
    for value in values {
        let text = number(value);
        let place = (x.place(value) * (COLUMNS - 1) as f64).round() as usize;
        let room = COLUMNS.saturating_sub(width(&text));
        let at = place.saturating_sub(width(&text) / 2).min(room);
        let used = width(&line);
        if used == 0 || at > used {
            line.push_str(&" ".repeat(at - used.min(at)));
            line.push_str(&text);
        }
    }
    format!(
        "  {:>LABEL$}  {line}\n",
        clean(&shorten(&chart.variable, LABEL))
    )
}

/// A value of a variable.
pub fn number(value: f64) -> String {
    match value.fract() == 0.0 && (0.0..1e15).contains(&value) {
        true => count_tight(value as u64),
        false => format!("{value}"),
    }
}

/// `the machine's 23.4 GB`.
pub fn limit_name(limit: &Limit) -> String {
    let size = figures::bytes(limit.bytes);
    match limit.what {
        "given" => format!("the limit of {size}"),
        "cgroup" => format!("the control group's {size}"),
        _ => format!("the machine's {size}"),
    }
}
