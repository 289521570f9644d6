//! Flamegraphs, drawn by inferno: the same profile gives the same picture, byte for byte.

use std::io::{self, Write};

use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{self, Options};

use super::export::collapsed;
use super::units::{bytes, count, seconds};
use crate::analyze::{By, FlameOptions, Flames, Metric};
use crate::profile::Profile;

/// What the picture says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Titles {
    pub title: String,
    pub subtitle: String,
}

/// Whose widths the picture of a change has. What one profile has not is nothing wide in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Widths {
    /// The later one's: what grew and what is new is seen, what is gone is not.
    #[default]
    New,
    /// The earlier one's: what shrank and what is gone is seen, what is new is not.
    Base,
}

/// `Heap at its peak, by task type: 297 MB` and whose, when, and what is left out.
pub fn titles(profile: &Profile, flames: &Flames, options: &FlameOptions) -> Titles {
    let metric = options.metric;
    let by = match options.by {
        By::Stack => "by call stack",
        By::Task => "by task type",
        By::Thread => "by thread",
        By::ThreadLocal => "made for thread-locals",
    };
    let moment = match metric {
        Metric::Peak => format!(", {} after the start", seconds(profile.totals.peak_at_s)),
        _ => String::new(),
    };
    let folded = folded(options);
    Titles {
        title: format!(
            "{}, {by}: {}",
            metric.words(),
            figure(metric, flames.total())
        ),
        subtitle: format!(
            "{} (pid {}){moment}; {folded}",
            program(profile),
            profile.program.pid
        ),
    }
}

/// `Growth of the heap at its peak, by task type: 10 MB to 297 MB`.
pub fn diff_titles(
    base: &Profile,
    new: &Profile,
    flames: &Flames,
    options: &FlameOptions,
    widths: Widths,
) -> Titles {
    let drawn = match widths {
        Widths::New => "as wide as in the new one, so what is gone has no box",
        Widths::Base => "as wide as in the old one, so what is new has no box",
    };
    let plain = titles(new, flames, options);
    let figure = |value| figure(options.metric, value);
    let (what, _) = plain.title.split_once(": ").unwrap_or((&plain.title, ""));
    Titles {
        title: format!(
            "{what}: from {} to {}",
            figure(flames.base_total()),
            figure(flames.total())
        ),
        subtitle: format!(
            "{} (pid {}) against {} (pid {}): red grew, blue shrank; {drawn}; {}",
            program(new),
            new.program.pid,
            program(base),
            base.program.pid,
            folded(options),
        ),
    }
}

fn folded(options: &FlameOptions) -> &'static str {
    match options.runtime_frames {
        true => "every frame shown",
        false => "frames of tokio and std folded",
    }
}

fn program(profile: &Profile) -> &str {
    let path = &profile.program.path;
    path.rsplit('/').next().unwrap_or(path)
}

fn figure(metric: Metric, value: u64) -> String {
    match metric.is_bytes() {
        true => bytes(value),
        false => count(value),
    }
}

fn options<'a>(titles: &Titles, metric: Metric) -> Options<'a> {
    let mut options = Options::default();
    options.title.clone_from(&titles.title);
    options.subtitle = Some(titles.subtitle.clone());
    options.count_name = if metric.is_bytes() { "bytes" } else { "blocks" }.to_owned();
    options.colors = Palette::Multi(MultiPalette::Rust);
    options.bgcolors = "#ffffff".parse().ok();
    options.deterministic = true;
    options.no_sort = true;
    options.image_width = Some(1200);
    options
}

/// A twentieth of a pixel of 1,180 is not drawn: it counts for its caller.
fn least(flames: &Flames) -> u64 {
    flames.total().max(flames.base_total()) / 20_000
}

/// The picture of one profile.
pub fn draw(titles: &Titles, flames: &Flames, metric: Metric, out: impl Write) -> io::Result<()> {
    let lines = collapsed::lines(flames, least(flames));
    let lines = lines.iter().map(String::as_str);
    flamegraph::from_lines(&mut options(titles, metric), lines, out)
}

/// The picture of what changed.
pub fn draw_diff(
    titles: &Titles,
    flames: &Flames,
    metric: Metric,
    widths: Widths,
    out: impl Write,
) -> io::Result<()> {
    let base_last = widths == Widths::Base;
    let lines = collapsed::diff_lines(flames, least(flames), base_last);
    let lines = lines.iter().map(String::as_str);
    let mut options = options(titles, metric);
    // The figures of each line are swapped, and red still is what grew.
    options.negate_differentials = base_last;
    flamegraph::from_lines(&mut options, lines, out)
}
