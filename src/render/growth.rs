//! The screen of a sweep: findings, what grows, the chart, what was run.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::chart::{self, Chart, limit_name, number, title};
use super::table::Table;
use super::tables::Options;
use super::text::{ALARM, COMMAND, FAINT, HEADING, WIDTH, clean, place, quoted, styled, wrap};
use super::units::{UNITS_NOTE, bytes, bytes_tight, count, count_tight, counted};
use crate::analyze::growth::fit::Shape;
use crate::analyze::growth::{Run, Sweep};
use crate::analyze::{GrowthRow, written};

/// Rows of the table, unless the person says otherwise.
pub const ROWS: usize = 10;

/// `folder` is how the person named it, with a slash.
pub fn screen(sweep: &Sweep, chart: Option<&Chart>, folder: &str, options: &Options) -> String {
    let mut out = findings(sweep);
    let (grow, flat): (Vec<&GrowthRow>, Vec<&GrowthRow>) = sweep
        .growth
        .iter()
        .partition(|row| row.of == "process" || (row.shape != Shape::Flat && row.grown_bytes > 0));
    if !grow.is_empty() {
        let _ = writeln!(
            out,
            "\n{}{}",
            styled(HEADING, "GROWTH"),
            options.part(&grow)
        );
        out.push_str(&growth(sweep, &grow, options));
        out.push_str(&note(sweep, flat.len()));
    }
    if let Some(chart) = chart {
        let _ = writeln!(out, "\n{}", styled(HEADING, &clean(&chart.title())));
        out.push_str(&chart::draw(chart));
    }
    let _ = writeln!(out, "\n{}", styled(HEADING, "RUNS"));
    out.push_str(&runs(sweep, options));
    out.push_str(&next(sweep, chart.is_some(), folder));
    out
}

fn findings(sweep: &Sweep) -> String {
    let mut out = String::new();
    if sweep.findings.is_empty() {
        let text = match sweep.growth.is_empty() {
            true => {
                "Nothing is judged: no variable has three values that were measured.".to_owned()
            }
            false => format!(
                "Nothing grows more than it should. Looked for {}.",
                sweep.threshold
            ),
        };
        let _ = writeln!(out, "{}", wrap(&text, WIDTH, 0));
        return out;
    }
    let _ = writeln!(out, "{}", styled(HEADING, "FINDINGS"));
    for (at, finding) in sweep.findings.iter().enumerate() {
        let text = wrap(&clean(&finding.title), WIDTH - 3, 3);
        let _ = writeln!(out, "{:>2} {}", at + 1, styled(ALARM, &text));
        let _ = writeln!(out, "   {}", wrap(&clean(&finding.advice), WIDTH - 3, 3));
    }
    out
}

fn growth(sweep: &Sweep, rows: &[&GrowthRow], options: &Options) -> String {
    let mut table = Table::new(&[
        "what",
        "where",
        "?with",
        "per",
        ">each",
        ">constant",
        ">R²",
        "shape",
        ">limit at",
    ]);
    for row in options.of(rows) {
        let site = row.site.as_ref();
        let at = site.map_or(String::new(), |s| place(s.file.as_deref(), s.line));
        table.row(vec![
            title(row),
            at,
            fixed(sweep, row),
            row.unit.clone(),
            signed(row.bytes_per_unit),
            signed(row.constant_bytes),
            r2(row.r2),
            shape(row),
            limit(row),
        ]);
    }
    table.render(options.width)
}

/// Of one run, from its own timeline; why there is nothing, where there is nothing.
pub fn of_one_run(rows: &[GrowthRow], why_none: Option<&str>, options: &Options) -> String {
    if rows.is_empty() {
        let why = why_none.unwrap_or("no growth was looked for");
        return format!("  not seen: {}\n", wrap(&clean(why), WIDTH - 12, 2));
    }
    let most = |row: &GrowthRow| count_tight(row.units_at_most as u64);
    let least = |row: &GrowthRow| {
        let values = row.points.iter().map(|point| point.value);
        count_tight(values.fold(f64::INFINITY, f64::min).max(0.0) as u64)
    };
    let at = |row: &GrowthRow| {
        let site = row.site.as_ref();
        site.map_or(String::new(), |s| place(s.file.as_deref(), s.line))
    };
    let whose = |row: &GrowthRow| match row.name.is_empty() {
        true => title(row),
        false => written(&row.name).into_owned(),
    };
    let table = Table::of(
        options.of(rows),
        &[
            ("grows by", &whose),
            ("?where", &at),
            ("per", &|row: &GrowthRow| row.unit.clone()),
            (">each", &|row: &GrowthRow| signed(row.bytes_per_unit)),
            (">constant", &|row: &GrowthRow| signed(row.constant_bytes)),
            (">R²", &|row: &GrowthRow| r2(row.r2)),
            (">from", &least),
            (">to", &most),
        ],
    );
    table.render(options.width)
}

/// `4.0 MB for each task while 1 to 64 of them were alive (R² 0.999)`.
pub fn sentence(row: &GrowthRow) -> String {
    let values = row.points.iter().map(|point| point.value);
    format!(
        "{} for each {} while {} to {} of them were alive (R² {})",
        bytes(row.bytes_per_unit.max(0.0).round() as u64),
        row.unit,
        count(values.fold(f64::INFINITY, f64::min).max(0.0) as u64),
        count(row.units_at_most as u64),
        r2(row.r2)
    )
}

/// What that table means.
pub const OF_ONE_RUN_NOTE: &str = "live bytes of the whole process = constant + each × tasks (or \
     threads) alive, while this one run went on; from, to: how many were alive; where: of the task \
     type that holds so much each; taskheap sweep fits every line of code, over several runs";

/// The other variables, and which one rises if there are several.
fn fixed(sweep: &Sweep, row: &GrowthRow) -> String {
    if sweep.variables.len() < 2 {
        return String::new();
    }
    let fixed = row
        .fixed
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    fixed.collect::<Vec<_>>().join(",")
}

fn signed(bytes: f64) -> String {
    let size = bytes_tight(bytes.abs().round() as u64);
    match bytes <= -0.5 {
        true => format!("-{size}"),
        false => size,
    }
}

/// Three digits, and 1.000 only for what is that.
pub fn r2(value: f64) -> String {
    format!("{:.3}", (value * 1000.0).floor() / 1000.0)
}

fn shape(row: &GrowthRow) -> String {
    match (row.shape, row.exponent) {
        (Shape::Flat, _) => "flat".to_owned(),
        (Shape::Linear, _) => "linear".to_owned(),
        (Shape::Superlinear, Some(exponent)) => format!("power {exponent:.1}"),
        (Shape::Superlinear, None) => "worse".to_owned(),
        (Shape::Sublinear, _) => "levels".to_owned(),
        (Shape::Unclear, _) => "unclear".to_owned(),
    }
}

/// By the variable; what levels off with it may still have a limit by its unit.
fn limit(row: &GrowthRow) -> String {
    match (row.over_variable.limit_value, row.limit_units) {
        (Some(value), _) => count_tight(value as u64),
        (None, Some(units))
            if Some(&row.unit) != row.variable.as_ref() && row.shape != Shape::Flat =>
        {
            format!("{} {}s", count_tight(units as u64), row.unit)
        }
        _ => "-".to_owned(),
    }
}

fn note(sweep: &Sweep, flat: usize) -> String {
    let mut text = "bytes = constant + each × per; per: the count that the bytes follow; shape: \
                    with the variable"
        .to_owned();
    if let Some(limit) = &sweep.limit {
        let names: BTreeSet<&str> = sweep.variables.iter().map(|v| v.name.as_str()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(" or ");
        text.push_str(&format!(
            "; limit at: the {names} at which this alone fills {}, if the line goes on beyond \
             what was measured",
            limit_name(limit)
        ));
    }
    if flat > 0 {
        text.push_str(&format!(
            "; not shown since they don't grow: {}",
            count(flat as u64)
        ));
    }
    format!(
        "{}\n",
        styled(FAINT, &format!("  {}", wrap(&clean(&text), WIDTH - 2, 2)))
    )
}

fn runs(sweep: &Sweep, options: &Options) -> String {
    let mut titles: Vec<String> = (sweep.variables.iter())
        .map(|variable| format!(">{}", clean(&variable.name)))
        .collect();
    titles.extend([">peak", ">tasks", ">threads", "profile", "?not counted"].map(str::to_owned));
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut table = Table::new(&titles);
    for run in &sweep.runs {
        let counted = |value: Option<u64>| value.map_or("-".to_owned(), count);
        let mut cells: Vec<String> = run.settings.iter().map(shown).collect();
        cells.extend([
            run.peak_live_bytes.map_or("-".to_owned(), bytes_tight),
            counted(run.tasks),
            counted(run.threads),
            run.profile.clone().unwrap_or_default(),
            run.error.clone().unwrap_or_default(),
        ]);
        match run.error.is_some() {
            true => table.styled_row(ALARM, cells),
            false => table.row(cells),
        }
    }
    table.render(options.width)
}

fn shown(setting: &crate::analyze::growth::Setting) -> String {
    setting.number.map_or(setting.value.clone(), number)
}

fn next(sweep: &Sweep, drawn: bool, folder: &str) -> String {
    let mut out = String::new();
    let failed = sweep.runs.iter().filter(|run| run.error.is_some()).count();
    if failed > 0 {
        let text = format!("{} not counted", counted(failed as u64, "run"));
        let _ = writeln!(out, "  {}", styled(ALARM, &text));
    }
    let _ = writeln!(out, "\n{}", styled(HEADING, "NEXT"));
    let has_profile = |run: &&Run| run.profile.is_some();
    let last = sweep.runs.iter().rfind(has_profile);
    if let Some(profile) = last.and_then(|run| run.profile.as_ref()) {
        let command = format!("taskheap report {}", quoted(&format!("{folder}{profile}")));
        let _ = writeln!(out, "  {}", styled(COMMAND, &command));
    }
    let folder = clean(folder);
    let picture = if drawn { " and growth.svg" } else { "" };
    let _ = writeln!(out, "  {folder} has sweep.json{picture}");
    let _ = writeln!(out, "{}", styled(FAINT, &format!("  {UNITS_NOTE}")));
    out
}
