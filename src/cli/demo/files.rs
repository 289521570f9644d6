//! What the demo leaves in its folder.

use std::path::Path;

use super::words::{AFTER, BEFORE, NAMES, THREADS, WAY, about};
use super::{Error, find};
use crate::analyze::story::{Story, Way};
use crate::analyze::{self, By, FlameOptions, Metric, Report};
use crate::cli::sweep;
use crate::profile::{self, Output, Profile};
use crate::render::chart::Chart;
use crate::render::flamegraph::{self, Titles};
use crate::render::story::charts;
use crate::render::story::page::{self, Parts, Picture, Place};
use crate::render::tables::{self, Options};
use crate::render::text::WIDTH;
use crate::render::units::bytes;
use crate::render::{chart_svg, first_screen, stacks_svg};

/// Everything but the sweep's own folder, which is there already.
pub fn write(
    path: &Path,
    folder: &str,
    measured: &sweep::Measured,
    story: &Story,
    values: &[u64],
) -> Result<(), Error> {
    let written = Folder { path, folder };
    let mut pictures = written.charts(story)?;
    for way in &story.ways {
        let file = find(&measured.sweep, way.key, story.most)?;
        let content = std::fs::read(measured.folder.file(file)).map_err(Error::Print)?;
        written.put(&format!("{}.taskheap", way.key), &content)?;
        let profile = profile::read(&measured.folder.file(file))?;
        pictures.extend(written.flamegraphs(story, way, &profile)?);
    }
    let mut screens = Vec::new();
    for way in &story.ways {
        screens.push((way.key, written.screen(way)?));
    }
    let screen = |key: &str| {
        let known = screens.iter().find(|(way, _)| *way == key);
        known.map_or("", |(_, screen)| screen.as_str())
    };
    let parts = Parts {
        names: NAMES,
        about: &about(values),
        first_screen: screen(NAMES.wrong),
        screen_after: screen(NAMES.right),
        before: BEFORE,
        after: AFTER,
        pictures: &pictures,
        files: &listed(story),
        folder,
    };
    written.put("index.html", page::render(story, &parts).as_bytes())
}

struct Folder<'a> {
    path: &'a Path,
    /// As the person named it.
    folder: &'a str,
}

impl Folder<'_> {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let options = profile::Options { force: true };
        Output::create(&self.path.join(name), options)?.finish_with(bytes)?;
        Ok(())
    }

    /// The curves, and the stacks of tasks beside those of threads.
    fn charts(&self, story: &Story) -> Result<Vec<Picture>, Error> {
        let mut pictures = Vec::new();
        if let Some(waiting) = charts::waiting(story, NAMES.variable) {
            self.put("waiting.svg", drawn(&waiting)?.as_bytes())?;
            let shows = "What waiting takes, by requests at once. Both axes go by factors.";
            pictures.push(picture("waiting.svg", shows, Place::Waiting));
        }
        if let Some(stacks) = story.stacks(NAMES.wrong, THREADS) {
            let options = Options {
                limit: None,
                width: Some(WIDTH),
            };
            let text = tables::stacks(&stacks, &options);
            let plain = anstream::adapter::strip_str(&text).to_string();
            self.put("stacks.txt", plain.as_bytes())?;
            if let Some(svg) = stacks_svg::draw(&stacks).map_err(undrawn)? {
                self.put("stacks.svg", svg.as_bytes())?;
                let shows = "One of each beside the other: taskheap report FILE --stacks --svg OUT \
                             draws this of your program.";
                pictures.push(picture("stacks.svg", shows, Place::Waiting));
            }
        }
        let kept = charts::kept(story, NAMES.variable);
        self.put("growth.svg", drawn(&kept)?.as_bytes())?;
        let shows = "What each way keeps, by requests at once: points were measured, lines are the \
                     fitted laws, and circles are where memory ends. Both axes go by factors.";
        pictures.push(picture("growth.svg", shows, Place::Kept));
        Ok(pictures)
    }

    fn flamegraphs(
        &self,
        story: &Story,
        way: &Way,
        profile: &Profile,
    ) -> Result<Vec<Picture>, Error> {
        let mut pictures = Vec::new();
        let owner = match way.key {
            THREADS => (By::Thread, "-by-thread", "by thread"),
            _ => (By::Task, "-by-task", "by task type"),
        };
        for (by, suffix, what) in [(By::Stack, "", "by call stack"), owner] {
            // The program ends at its peak. What is live then is known to the byte, the peak only to
            // within what the threads have not told yet.
            let options = FlameOptions {
                metric: Metric::Live,
                by,
                runtime_frames: false,
            };
            let Ok(flames) = analyze::flames(profile, &options) else {
                continue;
            };
            // Neither the process's number nor the moment: the same again is the same picture.
            let titles = Titles {
                title: format!("{}: {}", way.title, bytes(flames.total())),
                subtitle: format!(
                    "the heap with {} {} at once, {what}",
                    story.most, NAMES.variable
                ),
            };
            let mut svg = Vec::new();
            flamegraph::draw(&titles, &flames, options.metric, &mut svg).map_err(Error::Print)?;
            let name = format!("{}{suffix}.svg", way.key);
            self.put(&name, &svg)?;
            let place = match (way.key == NAMES.wrong, way.key == NAMES.right, by) {
                (true, _, By::Task) => Place::Found,
                (_, true, By::Task) => Place::Fixed,
                _ => continue,
            };
            let shows = format!("The heap: {}.", way.title);
            pictures.push(picture(&name, &shows, place));
        }
        Ok(pictures)
    }

    /// The first screen, as plain text.
    fn screen(&self, way: &Way) -> Result<String, Error> {
        let options = Options {
            limit: Some(first_screen::ROWS),
            width: Some(WIDTH),
        };
        let name = format!("{}/{}.taskheap", self.folder, way.key);
        let screen = |report: &Report| first_screen::render(report, &name, &options);
        let screen = way.fullest().map_or(String::new(), screen);
        let plain = anstream::adapter::strip_str(&screen).to_string();
        self.put(&format!("{}.txt", way.key), plain.as_bytes())?;
        Ok(plain)
    }
}

fn picture(file: &str, shows: &str, place: Place) -> Picture {
    Picture {
        file: file.to_owned(),
        shows: shows.to_owned(),
        place,
    }
}

fn drawn(chart: &Chart) -> Result<String, Error> {
    chart_svg::draw(chart).map_err(undrawn)
}

fn undrawn(what: String) -> Error {
    Error::Refused {
        what: format!("a chart can't be drawn: {what}"),
        hint: "the folder `sweep` has the figures".to_owned(),
    }
}

/// What the page lists.
fn listed(story: &Story) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for way in &story.ways {
        let key = way.key;
        let owner = if key == THREADS { "thread" } else { "task" };
        files.push((
            format!("{key}.txt"),
            format!("the first screen: {}", way.title),
        ));
        files.push((format!("{key}.svg"), "its heap by call stack".to_owned()));
        files.push((
            format!("{key}-by-{owner}.svg"),
            format!("its heap by {owner}"),
        ));
    }
    let most = story.most;
    for (file, what) in [
        (
            "stacks.txt".to_owned(),
            "tasks beside threads, as text".to_owned(),
        ),
        (
            "sweep/sweep.json".to_owned(),
            format!("all runs and fits ({WAY}, {} 1 to {most})", NAMES.variable),
        ),
    ] {
        files.push((file, what));
    }
    files
}
