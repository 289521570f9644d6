//! Growth as a budget limits it: bytes for each more task, thread, or step of a variable.
//!
//! A profile has it from its own timeline, `sweep.json` from several runs. That file is read by
//! the fields that are needed here, so that a sweep of another version can be judged too.

use serde::Deserialize;

use super::keys::Figure;
use super::{Judgement, Limit, Row, Table};
use crate::analyze::growth::GrowthRow;
use crate::profile::Site;

/// What one more of something costs.
#[derive(Clone, Debug)]
pub(super) struct Slope {
    pub name: String,
    /// `task`, `thread`, `step`.
    pub unit: &'static str,
    /// The variable of a sweep.
    variable: Option<String>,
    site: Option<Site>,
    bytes: f64,
    r2: f64,
}

/// `sweep.json`, as far as a budget asks.
#[derive(Clone, Debug, Deserialize)]
pub struct SweepFile {
    schema: u32,
    growth: Vec<SweepRow>,
}

#[derive(Clone, Debug, Deserialize)]
struct SweepRow {
    name: String,
    site: Option<Site>,
    unit: String,
    bytes_per_unit: f64,
    r2: f64,
    variable: Option<String>,
    over_variable: SweepLaw,
}

#[derive(Clone, Debug, Deserialize)]
struct SweepLaw {
    bytes_per_step: f64,
    r2: f64,
}

/// The version of `sweep.json` that is understood.
const SCHEMA: u32 = 1;

impl SweepFile {
    /// Or what is wrong with the text.
    pub fn parse(text: &[u8]) -> Result<SweepFile, String> {
        let sweep: SweepFile =
            serde_json::from_slice(text).map_err(|error| format!("is no sweep.json ({error})"))?;
        match sweep.schema {
            SCHEMA => Ok(sweep),
            other => Err(format!("has schema {other}, {SCHEMA} is understood")),
        }
    }

    fn slopes(&self) -> Vec<Slope> {
        let rows = self.growth.iter();
        rows.flat_map(|row| {
            let slope = |unit, bytes, r2| Slope {
                name: row.name.clone(),
                unit,
                variable: row.variable.clone(),
                site: row.site.clone(),
                bytes,
                r2,
            };
            let by_unit = counted(&row.unit).map(|unit| slope(unit, row.bytes_per_unit, row.r2));
            let law = &row.over_variable;
            let by_step = row.variable.as_ref();
            let by_step = by_step.map(|_| slope("step", law.bytes_per_step, law.r2));
            by_unit.into_iter().chain(by_step)
        })
        .collect()
    }
}

/// `task` and `thread`; anything else is the name of a variable.
fn counted(unit: &str) -> Option<&'static str> {
    ["task", "thread"].into_iter().find(|known| *known == unit)
}

impl Slope {
    /// Of a profile.
    pub fn of(rows: &[GrowthRow]) -> Vec<Slope> {
        let slope = |row: &GrowthRow| {
            Some(Slope {
                name: row.name.clone(),
                unit: counted(&row.unit)?,
                variable: None,
                site: row.site.clone(),
                bytes: row.bytes_per_unit,
                r2: row.r2,
            })
        };
        rows.iter().filter_map(slope).collect()
    }

    pub fn names(slopes: &[Slope]) -> Vec<String> {
        let name = |slope: &Slope| format!("{} (per_{})", slope.name, slope.unit);
        slopes.iter().map(name).collect()
    }

    pub fn row(&self) -> Row {
        /// Below this a line through the points says little about what one more costs.
        const LEAST_R2: f64 = 0.9;
        let reading = match self.r2 {
            r2 if r2 >= LEAST_R2 => Ok(Figure {
                value: self.bytes.max(0.0).round() as u64,
                error: 0,
            }),
            r2 => Err(format!(
                "the points lie on no line (r² is {r2:.2}, {LEAST_R2} is asked for)"
            )),
        };
        let of = self.variable.as_ref().filter(|_| self.unit == "step");
        Row {
            subject: match of {
                Some(variable) => format!("{}, {variable}", self.name),
                None => self.name.clone(),
            },
            site: self.site.clone(),
            reading,
        }
    }
}

/// Holds a sweep to the limits of growth; the others are for profiles.
pub fn judge_sweep(sweep: &SweepFile, limits: &[Limit]) -> Judgement {
    let mut judgement = Judgement::default();
    let slopes = sweep.slopes();
    for limit in limits.iter().filter(|l| l.key.table == Table::Growth) {
        let rows = limit.key.slopes(&slopes, limit.pattern.as_deref());
        if rows.is_empty() {
            let pattern = limit.pattern.as_deref().unwrap_or("*");
            let names = Slope::names(&slopes);
            let shown: Vec<&str> = names.iter().take(5).map(String::as_str).collect();
            let hint = match shown.is_empty() {
                true => "the sweep found no growth: it needs three values of a variable".to_owned(),
                false => format!("the sweep has {}", shown.join(", ")),
            };
            let what = format!("no growth {} matches {pattern:?}", limit.key.name);
            judgement.refuse(&what, &hint);
        }
        for row in &rows {
            judgement.add(row, limit);
        }
    }
    judgement
}
