//! The same work done in several ways at several loads, told as one story: what waiting costs, what
//! each way keeps, and how that goes on beyond what was measured.
//!
//! A sweep says what grows; a report says what is wrong with one run. A person who has to choose
//! between ways asks a third thing: what each of them takes at *my* load. That is calculated from
//! the fitted laws and says so; what was measured is never mixed with it.

use super::growth::fit::{self, Line, Shape};
use super::growth::{Limit, Sweep};
use super::{GrowthRow, Report, StackTotals};

/// Loads that people ask about, besides the largest that was measured.
const ASKED: [u64; 4] = [200, 1_000, 10_000, 60_000];

/// One way to do the work.
#[derive(Clone, Debug)]
pub struct Way {
    /// Its value in the sweep.
    pub key: &'static str,
    /// `a copy for each task`.
    pub title: &'static str,
    /// Of the whole process.
    pub law: GrowthRow,
    /// Of each run: how many at once, and what was seen.
    pub runs: Vec<(u64, Report)>,
}

impl Way {
    /// The law of the process, if all runs with this value of `variable` were measured.
    pub fn of(
        sweep: &Sweep,
        variable: &str,
        (key, title): (&'static str, &'static str),
        runs: Vec<(u64, Report)>,
    ) -> Option<Way> {
        let is_it = |row: &&GrowthRow| {
            row.of == "process" && row.fixed.get(variable).is_some_and(|value| value == key)
        };
        let law = sweep.growth.iter().find(is_it)?.clone();
        Some(Way {
            key,
            title,
            law,
            runs,
        })
    }

    /// The run with most at once.
    pub fn fullest(&self) -> Option<&Report> {
        let most = self.runs.iter().max_by_key(|(count, _)| *count);
        most.map(|(_, report)| report)
    }

    pub fn peak_bytes(&self) -> u64 {
        self.fullest().map_or(0, |r| r.totals.peak_live_bytes)
    }

    /// Does it end somewhere? What levels off stays where it is.
    pub fn bytes_at(&self, count: u64) -> Option<u64> {
        let law = &self.law.over_variable;
        match self.law.shape {
            Shape::Linear | Shape::Flat => {
                Some((law.constant_bytes + law.bytes_per_step * count as f64).max(0.0) as u64)
            }
            Shape::Sublinear => Some(self.law.bytes_at_most),
            Shape::Superlinear | Shape::Unclear => None,
        }
    }
}

/// What waiting takes, whatever the waiting ones keep: points (how many, bytes in all), and the line
/// through them.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub points: Vec<(f64, f64)>,
    pub line: Line,
}

impl Waiting {
    /// None if a run doesn't tell, or if too few were measured.
    pub fn of(
        runs: &[(u64, Report)],
        bytes: impl Fn(&StackTotals) -> Option<u64>,
    ) -> Option<Waiting> {
        let point =
            |(count, report): &(u64, Report)| Some((*count as f64, bytes(&report.stacks)? as f64));
        let points: Vec<(f64, f64)> = runs.iter().map(point).collect::<Option<_>>()?;
        let line = fit::line(&points)?;
        Some(Waiting { points, line })
    }

    pub fn each(&self) -> u64 {
        self.line.slope.max(0.0).round() as u64
    }
}

#[derive(Clone, Debug)]
pub struct Story {
    /// Most at once that was measured.
    pub most: u64,
    pub runs: usize,
    pub limit: Option<Limit>,
    /// In the order in which they are told.
    pub ways: Vec<Way>,
    pub cells: Option<Waiting>,
    pub touched: Option<Waiting>,
    pub reserved: Option<Waiting>,
}

impl Story {
    /// `threads` is the way without tasks, `tasks` any of those with them.
    pub fn of(sweep: &Sweep, ways: Vec<Way>, threads: &str, tasks: &str) -> Story {
        let runs = |key: &str| {
            let way = ways.iter().find(|way| way.key == key);
            way.map_or(&[][..], |way| way.runs.as_slice())
        };
        let all = ways.iter().flat_map(|way| &way.runs);
        Story {
            most: all.clone().map(|(count, _)| *count).max().unwrap_or(0),
            runs: all.count(),
            limit: sweep.limit,
            cells: Waiting::of(runs(tasks), |s| Some(s.task_bytes())),
            touched: Waiting::of(runs(threads), StackTotals::resident_bytes),
            reserved: Waiting::of(runs(threads), StackTotals::reserved_bytes),
            ways,
        }
    }

    pub fn way(&self, key: &str) -> Option<&Way> {
        self.ways.iter().find(|way| way.key == key)
    }

    /// Tasks of one run beside the threads of another.
    pub fn stacks(&self, tasks: &str, threads: &str) -> Option<StackTotals> {
        let of = |key| Some(&self.way(key)?.fullest()?.stacks);
        Some(of(tasks)?.beside(of(threads)?))
    }

    /// At the largest load measured, and at loads that people ask about.
    pub fn forecast(&self) -> Vec<Forecast> {
        let asked = ASKED.into_iter().filter(|count| *count > self.most);
        std::iter::once(self.most)
            .chain(asked)
            .map(|count| self.at(count))
            .collect()
    }

    fn at(&self, count: u64) -> Forecast {
        let measured = count == self.most;
        let waiting = |waiting: &Option<Waiting>| {
            let waiting = waiting.as_ref()?;
            let seen = waiting
                .points
                .iter()
                .find(|(at, _)| measured && *at == count as f64);
            let bytes = seen.map_or(waiting.line.at(count as f64), |(_, bytes)| *bytes);
            Some(bytes.max(0.0) as u64)
        };
        let kept = |way: &Way| match measured {
            true => Some(way.peak_bytes()),
            false => way.bytes_at(count),
        };
        Forecast {
            count,
            measured,
            cells: waiting(&self.cells),
            touched: waiting(&self.touched),
            reserved: waiting(&self.reserved),
            ways: self.ways.iter().map(kept).collect(),
        }
    }
}

/// What so many at once take.
#[derive(Clone, Debug)]
pub struct Forecast {
    pub count: u64,
    /// Else calculated.
    pub measured: bool,
    pub cells: Option<u64>,
    pub touched: Option<u64>,
    pub reserved: Option<u64>,
    /// Of each way; none where no law is seen.
    pub ways: Vec<Option<u64>>,
}
