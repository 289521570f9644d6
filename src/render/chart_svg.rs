//! The chart of what grows as a picture, with the limit in it and where each line meets it.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{Axis, Chart, Line, limit_name, number};
use super::text::{clean, shorten};
use super::units::{bytes, bytes_tight};

const SIZE: (i32, i32) = (900, 560);
const LEFT: i32 = 84;
const RIGHT: i32 = 24;
const TOP: i32 = 48;
/// Below the plot: ticks, the variable, a line for each name.
const BOTTOM: i32 = 148;
const COLOURS: [RGBColor; 4] = [
    RGBColor(31, 78, 140),
    RGBColor(208, 96, 20),
    RGBColor(46, 125, 50),
    RGBColor(123, 31, 162),
];
const ALARM: RGBColor = RGBColor(190, 30, 30);
const FAINT: RGBColor = RGBColor(225, 225, 225);
/// A law is drawn so many times further than it was measured, and no more.
const FURTHEST: f64 = 1e4;
/// Points of a fitted line: on logarithmic axes it is a curve.
const STEPS: u32 = 100;
const TICKS: f64 = 7.0;
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// An SVG.
pub fn draw(chart: &Chart) -> Result<String, String> {
    let mut svg = String::new();
    {
        let size = (SIZE.0 as u32, SIZE.1 as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        Plot::of(chart)
            .draw(chart, &area)
            .map_err(|e| e.to_string())?;
    }
    Ok(svg)
}

struct Plot {
    x: Axis,
    y: Axis,
    /// Where the limit is, if it is in the picture.
    limit: Option<f64>,
}

impl Plot {
    fn of(chart: &Chart) -> Plot {
        let points = || chart.lines.iter().flat_map(|line| line.points.iter());
        let measured = Axis::over(points().map(|(x, _)| *x));
        let most = points().map(|(x, _)| *x).fold(0.0, f64::max);
        let room = if measured.logarithmic { FURTHEST } else { 2.0 };
        let crossings = chart.lines.iter().filter_map(|line| line.limit_value);
        let crossing = crossings
            .filter(|value| *value <= most * room)
            .fold(most, f64::max);
        let ends = [measured.value(0.0), crossing];
        let x = match crossing > most {
            true => Axis::over(
                ends.into_iter()
                    .map(|x| if x == crossing { x * 1.3 } else { x }),
            ),
            false => measured,
        };
        let positive = || points().map(|(_, y)| *y).filter(|y| *y > 0.0);
        let heap = Axis::over(positive());
        // On even steps a limit far above would press everything to the ground.
        let highest = positive().fold(0.0, f64::max);
        let limit = chart.limit.map(|limit| limit.bytes as f64);
        let limit = limit.filter(|l| crossing > most || heap.logarithmic || *l <= highest * 3.0);
        let y = Axis::over(positive().chain(limit.map(|limit| limit * 2.0)));
        Plot { x, y, limit }
    }

    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let width = f64::from(SIZE.0 - LEFT - RIGHT);
        let height = f64::from(SIZE.1 - TOP - BOTTOM);
        let right = self.x.place(x) * width;
        let up = self.y.place(y) * height;
        (
            LEFT + right.round() as i32,
            SIZE.1 - BOTTOM - up.round() as i32,
        )
    }

    fn draw(&self, chart: &Chart, area: &Area) -> Drawn {
        area.fill(&WHITE)?;
        write(area, &sentence(chart), (LEFT, 14), 18, &BLACK, HPos::Left)?;
        self.grid(chart, area)?;
        if let Some(limit) = self.limit {
            let (from, to) = (
                self.at(self.x.value(0.0), limit),
                self.at(self.x.value(1.0), limit),
            );
            area.draw(&PathElement::new(vec![from, to], ALARM.stroke_width(2)))?;
            let name = chart.limit.as_ref().map_or(String::new(), limit_name);
            write(
                area,
                &name,
                (from.0 + 6, from.1 - 16),
                13,
                &ALARM,
                HPos::Left,
            )?;
        }
        for (line, colour) in chart.lines.iter().zip(COLOURS).rev() {
            self.line(area, line, colour)?;
        }
        names(chart, area)?;
        area.present()
    }

    fn grid(&self, chart: &Chart, area: &Area) -> Drawn {
        let (left, bottom) = (LEFT, SIZE.1 - BOTTOM);
        for tick in ticks(&self.y, 2.0) {
            let (_, y) = self.at(self.x.value(0.0), tick);
            let line = vec![(left, y), (SIZE.0 - RIGHT, y)];
            area.draw(&PathElement::new(line, FAINT))?;
            let text = bytes_tight(tick.max(0.0) as u64);
            write(area, &text, (left - 8, y - 7), 13, &BLACK, HPos::Right)?;
        }
        for tick in ticks(&self.x, 10.0) {
            let (x, _) = self.at(tick, self.y.value(0.0));
            area.draw(&PathElement::new(vec![(x, TOP), (x, bottom)], FAINT))?;
            write(
                area,
                &number(tick),
                (x, bottom + 6),
                13,
                &BLACK,
                HPos::Center,
            )?;
        }
        let middle = (LEFT + SIZE.0 - RIGHT) / 2;
        let name = clean(&chart.variable);
        write(area, &name, (middle, bottom + 24), 14, &BLACK, HPos::Center)?;
        let frame = [(left, TOP), (SIZE.0 - RIGHT, bottom)];
        area.draw(&Rectangle::new(frame, BLACK))
    }

    /// What was measured as points, what was fitted as a line through them and beyond.
    fn line(&self, area: &Area, line: &Line, colour: RGBColor) -> Drawn {
        let (least, most) = (self.y.value(0.0), self.y.value(1.0));
        if let Some((constant, slope)) = line.fitted {
            let inside = |x: f64| {
                let y = constant + slope * x;
                (least..=most).contains(&y).then(|| self.at(x, y))
            };
            let steps = (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS));
            let path: Vec<(i32, i32)> = steps.filter_map(|at| inside(self.x.value(at))).collect();
            area.draw(&PathElement::new(path, colour.mix(0.55).stroke_width(2)))?;
        } else {
            let path: Vec<(i32, i32)> = (line.points.iter())
                .filter(|(_, y)| *y > 0.0)
                .map(|(x, y)| self.at(*x, *y))
                .collect();
            area.draw(&PathElement::new(path, colour.mix(0.55).stroke_width(1)))?;
        }
        for (x, y) in line.points.iter().filter(|(_, y)| *y > 0.0) {
            area.draw(&Circle::new(self.at(*x, *y), 4, colour.filled()))?;
        }
        let (Some(limit), Some(value), Some(_)) = (self.limit, line.limit_value, line.fitted)
        else {
            return Ok(());
        };
        if value > self.x.value(1.0) {
            return Ok(());
        }
        area.draw(&Circle::new(
            self.at(value, limit),
            5,
            ALARM.stroke_width(2),
        ))
    }
}

fn sentence(chart: &Chart) -> String {
    if let Some(heading) = &chart.heading {
        return clean(heading);
    }
    let process = &chart.lines[0];
    let what = match process.limit_value {
        Some(value) => {
            let limit = chart.limit.as_ref().map_or(String::new(), limit_name);
            let value = number(value.floor());
            format!(": {limit} is full at {} = {value}", chart.variable)
        }
        None => String::new(),
    };
    let fixed = match chart.fixed.is_empty() {
        true => String::new(),
        false => format!(" ({})", chart.fixed),
    };
    clean(&format!(
        "Live bytes at the peak, by {}{fixed}{what}",
        chart.variable
    ))
}

/// A line of text for each line of the plot: its name, and its law.
fn names(chart: &Chart, area: &Area) -> Drawn {
    for (at, (line, colour)) in chart.lines.iter().zip(COLOURS).enumerate() {
        let y = SIZE.1 - BOTTOM + 54 + at as i32 * 22;
        area.draw(&Circle::new((LEFT + 6, y + 7), 4, colour.filled()))?;
        let law = match line.fitted {
            Some((_, slope)) => {
                let sign = if slope < 0.0 { "-" } else { "" };
                let each = bytes(slope.abs().round() as u64);
                format!(": {sign}{each} for {}", chart.step)
            }
            None => format!(": {}", line.shape),
        };
        let text = clean(&format!("{}{law}", shorten(&line.name, 70)));
        write(area, &text, (LEFT + 18, y), 14, &BLACK, HPos::Left)?;
    }
    Ok(())
}

/// Round values on the axis: powers of the base, or even steps.
fn ticks(axis: &Axis, base: f64) -> Vec<f64> {
    let (least, most) = (axis.value(0.0), axis.value(1.0));
    let near = |value: &f64| *value >= least * (1.0 - 1e-9) && *value <= most * (1.0 + 1e-9);
    if !axis.logarithmic {
        let rough = (most - least) / TICKS;
        let power = base.powf(rough.log(base).floor());
        let step = if rough / power > 5.0 {
            power * 5.0
        } else {
            power * 2.0
        };
        let first = (least / step).ceil() as i64;
        let last = (most / step).floor() as i64;
        return (first..=last).map(|n| n as f64 * step).collect();
    }
    let (first, last) = (least.log(base).floor() as i32, most.log(base).ceil() as i32);
    let every = (f64::from(last - first) / TICKS).ceil().max(1.0) as usize;
    let all: Vec<f64> = (first..=last)
        .step_by(every)
        .map(|n| base.powi(n))
        .filter(near)
        .collect();
    match all.len() {
        // Hardly a power of ten: the ends say more than one tick.
        0 | 1 => vec![least, most],
        _ => all,
    }
}

fn write(
    area: &Area,
    text: &str,
    at: (i32, i32),
    size: i32,
    colour: &RGBColor,
    side: HPos,
) -> Drawn {
    let style = (FONT, size).into_font().color(colour);
    let style = style.pos(Pos::new(side, VPos::Top));
    area.draw(&Text::new(text.to_owned(), at, style))
}
