//! Growth that deserves a person's attention.
//!
//! That a program needs more memory for more work is no fault: a connection has a buffer, a task
//! has a future. What is told is what costs more than that for each task or thread, and what
//! grows faster than the work does. One culprit, one finding: what a thread-local keeps was made
//! by threads and on lines, what a task type made was made on lines. So they are heard in the
//! order in which one says whose it is and the next only where, and nobody is heard of whom an
//! earlier one spoke.

use super::fit::Shape;
use super::{GrowthRow, Limit};
use crate::analyze::figures::{bytes, count};
use crate::analyze::findings::places;
use crate::analyze::{Finding, Kind};
use crate::profile::Site;

/// More than a task, a connection or a thread needs. Of growth by a line.
const LEAST_EACH: f64 = 64.0 * 1024.0;
/// In all, over the sweep, and as a part of what the process grew by.
const LEAST_GROWN: u64 = 1 << 20;
const LEAST_SHARE: u64 = 5;
/// A worse line is not told.
const LEAST_R2: f64 = 0.9;

/// What the findings look for.
pub fn looked_for() -> String {
    format!(
        "growth of {} or more for each task, thread or step of the variable, or faster than by \
         a line, and {} and {LEAST_SHARE}% of the process's growth in all",
        bytes(LEAST_EACH as u64),
        bytes(LEAST_GROWN)
    )
}

/// Of the rows of a sweep, most bytes first.
pub fn findings(rows: &[GrowthRow], limit: Option<&Limit>) -> Vec<Finding> {
    let of_process = rows.iter().filter(|row| row.of == "process");
    let process = of_process.max_by_key(|row| row.grown_bytes);
    let whole = process.map_or(0, |row| row.grown_bytes);
    let mut told: Vec<&GrowthRow> = Vec::new();
    // Threads whose bytes have a line say more than each line of it; the others say less.
    let placed = |row: &GrowthRow| row.site.is_some();
    let order: [fn(&str, bool) -> bool; 5] = [
        |of, _| of == "thread-local",
        |of, _| of == "task-type",
        |of, placed| of == "thread" && placed,
        |of, _| of == "site",
        |of, _| of == "thread",
    ];
    for is_next in order {
        for row in rows.iter().filter(|row| is_next(row.of, placed(row))) {
            if deserves_it(row, whole) && !is_told(row, &told) {
                told.push(row);
            }
        }
    }
    // Nobody in particular, but all of them together.
    if told.is_empty() {
        told.extend(process.filter(|row| deserves_it(row, whole)));
    }
    let mut found: Vec<Finding> = told.iter().map(|row| describe(row, limit)).collect();
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.title.cmp(&b.title)));
    found
}

fn deserves_it(row: &GrowthRow, whole: u64) -> bool {
    let enough = row.grown_bytes >= LEAST_GROWN.max(whole / 100 * LEAST_SHARE);
    let law = match row.shape {
        Shape::Superlinear => true,
        Shape::Linear => row.r2 >= LEAST_R2 && row.bytes_per_unit >= LEAST_EACH,
        // Levels off with the variable, but each thread or task of those has its own.
        Shape::Sublinear => {
            Some(&row.unit) != row.variable.as_ref()
                && row.r2 >= LEAST_R2
                && row.bytes_per_unit >= LEAST_EACH
        }
        Shape::Flat | Shape::Unclear => false,
    };
    enough && law
}

/// The same culprit: the same thing with other fixed values, or bytes of an owner that was told,
/// or mostly explained by what was told.
fn is_told(row: &GrowthRow, told: &[&GrowthRow]) -> bool {
    let same = |t: &&GrowthRow| t.of == row.of && t.name == row.name && t.site == row.site;
    let of_its_owner = |t: &&GrowthRow| match row.of {
        "site" => row.owner_name.is_some() && t.owner_name == row.owner_name && t.of != "site",
        _ => false,
    };
    let place = (&row.site, &row.called_from);
    let at_its_place = |t: &&GrowthRow| {
        row.site.is_some() && ((&t.site, &t.called_from) == place || calls(t, row))
    };
    if told
        .iter()
        .any(|t| same(t) || of_its_owner(t) || at_its_place(t))
    {
        return true;
    }
    let explained: u64 = match row.of {
        "thread" => told
            .iter()
            .filter(|t| t.fixed == row.fixed)
            .map(|t| t.grown_bytes)
            .sum(),
        _ => 0,
    };
    explained * 2 > row.grown_bytes
}

/// Is the row made below the line of what was told?
fn calls(told: &GrowthRow, row: &GrowthRow) -> bool {
    let Some(above) = &told.site else {
        return false;
    };
    let same = |site: &Site| (&site.function, site.line) == (&above.function, above.line);
    row.called_from.iter().any(same)
}

fn describe(row: &GrowthRow, limit: Option<&Limit>) -> Finding {
    let each = bytes(row.bytes_per_unit.max(0.0) as u64);
    let owner = row.owner_name.as_deref().unwrap_or("");
    let what = match (row.unit.as_str(), row.owner_kind) {
        ("task", Some("task")) => format!("{each} more for each task of {owner}"),
        ("thread", Some("thread")) => format!("{each} more for each thread of {owner}"),
        ("thread", Some("thread-local")) => {
            format!("{each} more for each thread that has {owner}")
        }
        (unit @ ("task" | "thread"), _) if row.of == "process" => {
            format!("the process takes {each} more for each {unit}")
        }
        (unit @ ("task" | "thread"), _) => format!("{each} more for each {unit}"),
        (unit, _) if row.of == "process" => {
            format!("the process takes {each} more for each step of {unit}")
        }
        (unit, _) => format!("{} takes {each} more for each step of {unit}", row.name),
    };
    let faster = match (row.shape, row.exponent) {
        (Shape::Superlinear, Some(exponent)) => {
            let variable = row.variable.as_deref().unwrap_or(&row.unit);
            format!(", growing as {variable} to the power of {exponent:.1}")
        }
        _ => String::new(),
    };
    let reached = match (limit, row.limit_units) {
        (Some(limit), Some(units)) => format!(
            "; it alone reaches {} at {} of them",
            bytes(limit.bytes),
            count(units as u64)
        ),
        _ => String::new(),
    };
    Finding {
        kind: Kind::Growth,
        title: format!(
            "{what}{faster}: {} at {}{}{}{reached}",
            bytes(row.bytes_at_most),
            at_most(row),
            places::made_in(row.site.as_ref()),
            called_from(row),
        ),
        bytes: row.grown_bytes,
        site: row.site.clone(),
        owner_name: row.owner_name.clone(),
        count: row.units_at_most as u64,
        advice: advice(row).to_owned(),
    }
}

/// `n = 64`.
fn at_most(row: &GrowthRow) -> String {
    let most = row.points.iter().map(|p| p.value).fold(0.0, f64::max);
    let variable = row.variable.as_deref().unwrap_or("its most");
    format!("{variable} = {}", count(most as u64))
}

fn called_from(row: &GrowthRow) -> String {
    let made = row.site.as_ref().map(|site| &site.function);
    let caller = row
        .called_from
        .iter()
        .find(|site| Some(&site.function) != made);
    let Some(caller) = caller else {
        return String::new();
    };
    let name = places::plain(&caller.function);
    match (&caller.file, caller.line) {
        (Some(file), Some(line)) => {
            format!(", called by {name} ({}:{line})", places::short(file))
        }
        _ => format!(", called by {name}"),
    }
}

fn advice(row: &GrowthRow) -> &'static str {
    match (row.shape, row.unit.as_str()) {
        (Shape::Superlinear, _) => {
            "each costs more than the one before it: look for what every one keeps of all others, \
             such as a list that is copied or a queue that is never drained"
        }
        (_, "task") => {
            "share one by an Arc or a static LazyLock, free it before the task waits, or bound \
             how many tasks run at once by a Semaphore"
        }
        (_, "thread") => {
            "share one by a static LazyLock, or bound the threads (max_blocking_threads, a \
             smaller pool)"
        }
        _ => "share it, free it earlier, or bound the variable",
    }
}
