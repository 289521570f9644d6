//! Growth as a budget limits it: bytes for each more task, thread, or step of a variable.
//!
//! A profile has it from its own timeline, `sweep.json` from several runs. That file is read by
//! the fields that are needed here, so that a sweep of another version can be judged too.

use serde::Deserialize;

use super::keys::Figure;
use super::{Judgement, Limit, Row, Table, matches};
use crate::analyze::growth::GrowthRow;
use crate::analyze::written;
use crate::profile::Site;

/// What one more of something costs.
#[derive(Clone, Debug)]
pub(super) struct Slope {
    /// As the symbol table has it.
    name: String,
    /// As reports show it, and as a budget is written.
    pub shown: String,
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
    #[serde(default)]
    command: Vec<String>,
    growth: Vec<SweepRow>,
}

#[derive(Clone, Debug, Deserialize)]
struct SweepRow {
    #[serde(default)]
    of: String,
    name: String,
    owner_name: Option<String>,
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

    /// What was run, as it was typed.
    pub fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    pub(super) fn slopes(&self) -> Vec<Slope> {
        let both = |row: &SweepRow| row.by_unit().into_iter().chain(row.by_step());
        self.growth.iter().flat_map(both).collect()
    }

    /// Those that a budget begins with, the largest first: the process by the variable; owners by
    /// what they follow; of the lines of code those that belong to no owner.
    pub(super) fn telling(&self) -> Vec<Slope> {
        let told = |row: &&SweepRow| row.of != "site" || row.owner_name.is_none();
        let slope = |row: &SweepRow| match row.of.as_str() {
            "process" => row.by_step(),
            _ => row.by_unit().or_else(|| row.by_step()),
        };
        let rows = self.growth.iter().filter(told);
        rows.filter_map(slope)
            .filter(|slope| slope.bytes >= 0.5)
            .collect()
    }
}

impl SweepRow {
    fn by_unit(&self) -> Option<Slope> {
        let unit = counted(&self.unit)?;
        Some(self.slope(unit, self.bytes_per_unit, self.r2))
    }

    fn by_step(&self) -> Option<Slope> {
        let law = &self.over_variable;
        self.variable.as_ref()?;
        Some(self.slope("step", law.bytes_per_step, law.r2))
    }

    fn slope(&self, unit: &'static str, bytes: f64, r2: f64) -> Slope {
        Slope {
            name: self.name.clone(),
            shown: shown(&self.name),
            unit,
            variable: self.variable.clone(),
            site: self.site.clone(),
            bytes,
            r2,
        }
    }
}

/// The process has no name of its own.
fn shown(name: &str) -> String {
    match name {
        "" => "the process".to_owned(),
        name => written(name).into_owned(),
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
                shown: shown(&row.name),
                unit: counted(&row.unit)?,
                variable: None,
                site: row.site.clone(),
                bytes: row.bytes_per_unit,
                r2: row.r2,
            })
        };
        rows.iter().filter_map(slope).collect()
    }

    /// By its name, or by what a report shows.
    pub fn fits(&self, pattern: &str) -> bool {
        matches(pattern, &self.shown) || (!self.name.is_empty() && matches(pattern, &self.name))
    }

    pub fn names(slopes: &[Slope]) -> Vec<String> {
        let name = |slope: &Slope| format!("{} (per_{})", slope.shown, slope.unit);
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
                Some(variable) => format!("{}, {variable}", self.shown),
                None => self.shown.clone(),
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
