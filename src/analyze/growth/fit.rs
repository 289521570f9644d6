//! A line through points, a few of which may be wrong.
//!
//! The tempting least squares lets one bad run (a page cache that was cold, a run that was
//! killed early) move the slope as far as it likes. Siegel's repeated medians stand until half of
//! the points are wrong: for each point the median of its slopes to all others, then the median
//! of those. They are less exact than least squares where nothing is wrong, above all when
//! the values are spaced by factors, so the points that lie near the robust line are fitted
//! once more by least squares. R² is told of all points, the outliers included: a fit that leaves
//! out what does not suit it would always be good.

/// value = constant + slope × x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub slope: f64,
    pub constant: f64,
    /// Of all points, 0 to 1. A line through values that are all equal has 1.
    pub r2: f64,
}

/// What comes of values when x rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// It stays as it is, to within 2% or 4 KB.
    Flat,
    Linear,
    /// Twice the x is more than twice the growth.
    Superlinear,
    /// It levels off.
    Sublinear,
    /// It changes, and by no law that these points would show.
    Unclear,
}

/// Fewer distinct x than this show no line: two points always lie on one.
pub const LEAST_DISTINCT: usize = 3;

/// Growth that is no more than this part of the largest value, or than these bytes, is flat.
const FLAT_SHARE: f64 = 0.02;
const FLAT_BYTES: f64 = 4096.0;
/// Exponents of growth between these are a line's.
const LINEAR: std::ops::Range<f64> = 0.8..1.2;
/// A line that explains so much is one, whatever the exponent of its few points says.
const CERTAIN: f64 = 0.999;
/// The search ends at 4: what is best there is one high value at the end, not a law.
const STEEPEST: f64 = 3.9;
/// A law with an exponent leaves less than a line by this factor, or the exponent is noise.
const BENT: f64 = 4.0;
/// What levels off rises no more than by this part.
const LEVEL: f64 = 0.05;
/// A law that explains less than this is none.
const LEAST_R2: f64 = 0.8;
/// How far from the robust line a point may lie, in robust standard deviations.
const NEAR: f64 = 3.0;
/// A standard deviation, from the median distance of a normal distribution.
const DEVIATION: f64 = 1.4826;
/// Points are never nearer than this part of their range: that is what rounding does.
const ROUNDING: f64 = 1e-3;

impl Line {
    pub fn at(&self, x: f64) -> f64 {
        self.constant + self.slope * x
    }
}

/// None with fewer than three distinct x.
pub fn line(points: &[(f64, f64)]) -> Option<Line> {
    if distinct(points) < LEAST_DISTINCT {
        return None;
    }
    let robust = repeated_medians(points)?;
    let near = near(points, robust);
    let (slope, constant) = match distinct(&near) {
        LEAST_DISTINCT.. => least_squares(&near),
        _ => robust,
    };
    let r2 = explained(points, |x| constant + slope * x);
    Some(Line {
        slope,
        constant,
        r2,
    })
}

/// How many different x there are.
pub fn distinct(points: &[(f64, f64)]) -> usize {
    let mut xs: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs.len()
}

/// Slope and constant.
fn repeated_medians(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let of_point = |(x, y): &(f64, f64)| {
        let others = points.iter().filter(|(other, _)| other != x);
        median(others.map(|(ox, oy)| (oy - y) / (ox - x)).collect())
    };
    let slope = median(points.iter().filter_map(of_point).collect())?;
    let constant = median(points.iter().map(|(x, y)| y - slope * x).collect())?;
    Some((slope, constant))
}

fn near(points: &[(f64, f64)], (slope, constant): (f64, f64)) -> Vec<(f64, f64)> {
    let away = |(x, y): &(f64, f64)| (y - constant - slope * x).abs();
    let usual = median(points.iter().map(away).collect()).unwrap_or(0.0);
    let range = range(points.iter().map(|(_, y)| *y));
    let limit = (usual * DEVIATION * NEAR).max(range * ROUNDING);
    points
        .iter()
        .filter(|p| away(p) <= limit)
        .copied()
        .collect()
}

fn least_squares(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let both: f64 = points
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let square: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = both / square;
    (slope, mean_y - slope * mean_x)
}

/// R²: the part of the variance that the law explains; 0 for one that is worse than the mean.
fn explained(points: &[(f64, f64)], law: impl Fn(f64) -> f64) -> f64 {
    let mean = points.iter().map(|(_, y)| y).sum::<f64>() / points.len() as f64;
    let all: f64 = points.iter().map(|(_, y)| (y - mean).powi(2)).sum();
    let left: f64 = points.iter().map(|(x, y)| (y - law(*x)).powi(2)).sum();
    match all > 0.0 {
        true => (1.0 - left / all).max(0.0),
        false => 1.0,
    }
}

/// value = constant + factor × x^exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    pub constant: f64,
    pub factor: f64,
    pub exponent: f64,
    pub r2: f64,
}

/// The exponent that leaves the least: slopes between logarithms would take the constant, which
/// is there anyway, for growth. Each exponent is tried, and a line laid through the values
/// against x to that power; one point for each x, the median. Three points always lie on
/// some law, so it is for [`shape`] to say whether the exponent means anything. None with fewer
/// than three distinct x, or where x is negative.
pub fn power(points: &[(f64, f64)]) -> Option<Power> {
    let points = medians(points);
    if points.len() < LEAST_DISTINCT || points[0].0 < 0.0 {
        return None;
    }
    let coarse = best(&points, (1..=80).map(|step| f64::from(step) * 0.05))?;
    let fine = (-10..=10).map(|step| coarse.exponent + f64::from(step) * 0.004);
    best(&points, fine)
}

fn best(points: &[(f64, f64)], exponents: impl Iterator<Item = f64>) -> Option<Power> {
    let with = |exponent: f64| {
        let raised: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.powf(exponent), *y)).collect();
        let (factor, constant) = least_squares(&raised);
        let r2 = explained(&raised, |x| constant + factor * x);
        Power {
            constant,
            factor,
            exponent,
            r2,
        }
    };
    exponents.map(with).max_by(|a, b| a.r2.total_cmp(&b.r2))
}

pub fn shape(points: &[(f64, f64)], line: &Line, power: Option<&Power>) -> Shape {
    let most = points.iter().map(|(_, y)| y.abs()).fold(0.0, f64::max);
    let grown = range(medians(points).into_iter().map(|(_, y)| y));
    if grown <= (most * FLAT_SHARE).max(FLAT_BYTES) {
        return Shape::Flat;
    }
    let bent = power.filter(|power| {
        let left = |r2: f64| 1.0 - r2;
        line.r2 < CERTAIN && power.r2 >= LEAST_R2 && left(line.r2) > left(power.r2) * BENT
    });
    match bent.map(|power| power.exponent * power.factor.signum()) {
        Some(exponent) if exponent >= STEEPEST => Shape::Unclear,
        Some(exponent) if exponent >= LINEAR.end => Shape::Superlinear,
        Some(exponent) if (0.0..LINEAR.start).contains(&exponent) => Shape::Sublinear,
        _ if line.r2 >= LEAST_R2 => Shape::Linear,
        _ if levels_off(points) => Shape::Sublinear,
        _ => Shape::Unclear,
    }
}

/// It never falls, and over the last doubling of x it hardly rises: a pool that is full.
fn levels_off(points: &[(f64, f64)]) -> bool {
    let points = medians(points);
    let grown = range(points.iter().map(|(_, y)| *y));
    let little = grown * LEVEL;
    let rises = points
        .windows(2)
        .all(|pair| pair[1].1 >= pair[0].1 - little);
    let Some(last) = points.last().filter(|last| last.0 > 0.0 && rises) else {
        return false;
    };
    let before = points.iter().rfind(|(x, _)| *x <= last.0 / 2.0);
    before.is_some_and(|(_, y)| last.1 - y <= little)
}

/// One point for each x, ascending: the median of its values.
pub fn medians(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    sorted
        .chunk_by(|a, b| a.0 == b.0)
        .filter_map(|same| Some((same[0].0, median(same.iter().map(|p| p.1).collect())?)))
        .collect()
}

fn range(values: impl Iterator<Item = f64>) -> f64 {
    let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), y| {
        (a.min(y), b.max(y))
    });
    (most - least).max(0.0)
}

/// The middle value, or the mean of both that are in the middle; none of nothing.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[half]),
        _ => Some((values[half - 1] + values[half]) / 2.0),
    }
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
