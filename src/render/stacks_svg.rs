//! What waiting costs, as a picture: a task's cell beside a thread's stack.
//!
//! A cell has hundreds of bytes and a stack millions, so the bars are on a logarithmic scale, and
//! every bar says its bytes: nobody has to read a length.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::text::{clean, shorten};
use super::units::{bytes, bytes_tight, count};
use crate::analyze::StackTotals;

const WIDTH: i32 = 900;
const LEFT: i32 = 250;
const RIGHT: i32 = 210;
const TOP: i32 = 70;
const BAR: i32 = 22;
const GAP: i32 = 8;
/// More kinds nobody compares.
const MOST: usize = 12;
/// Where the bars begin: less than any cell.
const LEAST: f64 = 64.0;
const TASK: RGBColor = RGBColor(46, 125, 50);
const RESIDENT: RGBColor = RGBColor(208, 96, 20);
const RESERVED: RGBColor = RGBColor(222, 200, 180);
const FAINT: RGBColor = RGBColor(225, 225, 225);
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

struct Bar {
    name: String,
    bytes: u64,
    /// What it adds up to.
    count: u64,
    colour: RGBColor,
}

/// An SVG; none if there is nothing to compare.
pub fn draw(stacks: &StackTotals) -> Result<Option<String>, String> {
    let bars = bars(stacks);
    if bars.is_empty() {
        return Ok(None);
    }
    let height = TOP + bars.len() as i32 * (BAR + GAP) + 60;
    let mut svg = String::new();
    {
        let size = (WIDTH as u32, height as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        fill(&area, stacks, &bars, height).map_err(|error| error.to_string())?;
    }
    Ok(Some(svg))
}

/// Most bytes in all first, the tasks before the threads.
fn bars(stacks: &StackTotals) -> Vec<Bar> {
    let mut tasks: Vec<&_> = stacks.tasks.iter().filter(|t| t.live > 0).collect();
    tasks.sort_by_key(|t| std::cmp::Reverse(t.bytes_each * t.live));
    let mut bars: Vec<Bar> = (tasks.iter().take(MOST))
        .map(|task| Bar {
            name: format!("task {}", task.name),
            bytes: task.bytes_each,
            count: task.live,
            colour: TASK,
        })
        .collect();
    for thread in stacks.threads.iter().filter(|t| t.count > 0).take(MOST) {
        let kinds = [
            ("touched", thread.resident_each, RESIDENT),
            ("reserved", thread.reserved_each, RESERVED),
        ];
        for (what, each, colour) in kinds {
            bars.extend(each.map(|bytes| Bar {
                name: format!("thread {}, {what}", thread.name),
                bytes,
                count: thread.count,
                colour,
            }));
        }
    }
    bars
}

fn fill(area: &Area, stacks: &StackTotals, bars: &[Bar], height: i32) -> Drawn {
    area.fill(&WHITE)?;
    write(area, &title(stacks), (16, 14), 18, HPos::Left)?;
    let note = "bytes of one, logarithmic; at the right in all";
    write(area, note, (16, 40), 13, HPos::Left)?;
    let most = bars.iter().map(|bar| bar.bytes).max().unwrap_or(1) as f64;
    let ends = (LEAST, most.max(LEAST * 2.0));
    let bottom = height - 52;
    for power in (6..64).step_by(4).map(|power| 2f64.powi(power)) {
        if power <= ends.1 {
            let x = place(power, ends);
            area.draw(&PathElement::new(vec![(x, TOP - 4), (x, bottom)], FAINT))?;
            write(
                area,
                &bytes_tight(power as u64),
                (x, bottom + 6),
                13,
                HPos::Center,
            )?;
        }
    }
    for (at, bar) in bars.iter().enumerate() {
        let y = TOP + at as i32 * (BAR + GAP);
        let end = place(bar.bytes as f64, ends).max(LEFT + 2);
        area.draw(&Rectangle::new(
            [(LEFT, y), (end, y + BAR)],
            bar.colour.filled(),
        ))?;
        let name = shorten(&clean(&bar.name), 34);
        write(area, &name, (LEFT - 8, y + 4), 13, HPos::Right)?;
        let all = bytes_tight(bar.bytes.saturating_mul(bar.count));
        let text = format!("{} × {} = {all}", bytes_tight(bar.bytes), count(bar.count));
        write(area, &text, (end + 8, y + 4), 13, HPos::Left)?;
    }
    area.present()
}

/// `A thread's touched stack is 62 times a task's cell: 23.8 KB beside 384 B`.
fn title(stacks: &StackTotals) -> String {
    match (stacks.per_task_bytes, stacks.per_thread_resident_bytes) {
        (Some(task), Some(thread)) if task > 0 => format!(
            "A thread's touched stack is {:.1} times a task's cell: {} beside {}",
            thread as f64 / task as f64,
            bytes(thread),
            bytes(task)
        ),
        (None, _) => "The stacks of the threads; there are no tasks".to_owned(),
        _ => "The cells of the tasks; the stacks of the threads are not known".to_owned(),
    }
}

fn place(value: f64, (least, most): (f64, f64)) -> i32 {
    let part = (value.max(least) / least).ln() / (most / least).ln();
    LEFT + (part * f64::from(WIDTH - LEFT - RIGHT)).round() as i32
}

fn write(area: &Area, text: &str, at: (i32, i32), size: i32, side: HPos) -> Drawn {
    let style = (FONT, size).into_font().color(&BLACK);
    let style = style.pos(Pos::new(side, VPos::Top));
    area.draw(&Text::new(text.to_owned(), at, style))
}
