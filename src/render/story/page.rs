//! The story as a page: one file and its pictures, no script, nothing from elsewhere.
//!
//! Who opens it knows neither the program nor us. So it goes in the order in which things happen to
//! a person: what was run, what gets better with tasks, what gets worse, what taskheap says about it,
//! the fix, and what to type. Pictures are linked, not pasted in: a click opens one alone, where a
//! flamegraph can be searched and zoomed.

use super::Names;
use super::rows::{self, culprit, limit_note, waiting};
use super::style::STYLE;
use crate::analyze::story::{Forecast, Story, Way};
use crate::render::html::Html;
use crate::render::units::{UNITS_NOTE, bytes, bytes_tight, count, counted};

/// What the page is made of, besides the story.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    pub names: Names,
    /// What was run, in a few sentences.
    pub about: &'a str,
    /// The first screen of the wrong way and of the right one, as plain text.
    pub first_screen: &'a str,
    pub screen_after: &'a str,
    /// The line of code, before and after.
    pub before: &'a str,
    pub after: &'a str,
    /// File, what it shows, height for a width of 1200.
    pub pictures: &'a [Picture],
    /// Other files of the folder, and what each is.
    pub files: &'a [(String, String)],
    /// How the folder is named in commands.
    pub folder: &'a str,
}

#[derive(Clone, Debug)]
pub struct Picture {
    pub file: String,
    pub shows: String,
    pub place: Place,
}

/// Where in the story a picture stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Waiting,
    Kept,
    Found,
    Fixed,
}

pub fn render(story: &Story, parts: &Parts) -> String {
    let mut page =
        Html::fixed("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.line(Html::fixed(
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
    ));
    page.line(Html::fixed(
        "<title>taskheap demo: 4 MB for each task</title>",
    ));
    page.line(Html::element("style", Html::fixed(STYLE)));
    page.line(Html::fixed("</head>\n<body>\n<main>"));
    for section in [
        opening(story, parts),
        waits(story, parts),
        keeps(story, parts),
        says(story, parts),
        fix(story, parts),
        loads(story, parts),
        own(parts),
        files(parts),
    ] {
        page.line(section);
    }
    page.line(Html::fixed("</main>\n</body>\n</html>"));
    page.into_string()
}

fn paragraph(text: &str) -> Html {
    Html::element("p", Html::text(text))
}

fn section(title: &str) -> Html {
    Html::element("h2", Html::text(title))
}

fn code(text: &str) -> Html {
    Html::element("pre", Html::element("code", Html::text(text)))
}

fn opening(story: &Story, parts: &Parts) -> Html {
    let mut html = Html::fixed("<header>");
    html.line(Html::fixed(
        "<p class=\"name\">taskheap demo</p>\n<h1>Tasks made the stacks small and the heap large</h1>",
    ));
    html.line(paragraph(
        "taskheap says which tokio task, thread and thread-local owns every byte of a Rust program's \
         heap, on an unmodified release binary. This page is what it found in a small program that \
         comes with it, a minute ago, on this machine.",
    ));
    html.line(paragraph(parts.about));
    let (wrong, right) = (story.way(parts.names.wrong), story.way(parts.names.right));
    if let (Some(wrong), Some(right)) = (wrong, right) {
        let limit = wrong.law.over_variable.limit_value;
        let mut facts = Html::fixed("<ul class=\"facts\">\n");
        fact(
            &mut facts,
            &bytes(wrong.peak_bytes()),
            &format!(
                "{}: {} {} at once",
                wrong.title, story.most, parts.names.variable
            ),
        );
        if let (Some(value), Some(limit)) = (limit, &story.limit) {
            let text = format!(
                "{} at once, and {} is full",
                parts.names.variable,
                crate::render::chart::limit_name(limit)
            );
            fact(&mut facts, &count(value as u64), &text);
        }
        let text = format!("{}: the same {}", right.title, parts.names.variable);
        fact(&mut facts, &bytes(right.peak_bytes()), &text);
        facts.push(Html::fixed("</ul>"));
        html.line(facts);
    }
    html.push(Html::fixed("</header>"));
    html
}

fn fact(html: &mut Html, figure: &str, text: &str) {
    let mut inner = Html::element("strong", Html::text(figure));
    inner.push(Html::text(" "));
    inner.push(Html::text(text));
    html.line(Html::element("li", inner));
}

fn waits(story: &Story, parts: &Parts) -> Html {
    let mut html = section("1. What gets better: waiting");
    if let Some(text) = waiting(story) {
        html.line(paragraph(&text));
    }
    html.line(paragraph(
        "A thread needs a stack whether it works or waits; the kernel keeps another of 16 KB for it, \
         which is not counted here. A task needs its future: the variables that live across an \
         await. So a service that moves from threads to tasks can have thousands of requests wait \
         at once, and that is why people move.",
    ));
    html.line(pictures(parts, Place::Waiting));
    html
}

fn keeps(story: &Story, parts: &Parts) -> Html {
    let mut html = section("2. What gets worse: what each one keeps");
    html.line(paragraph(&format!(
        "On a pool of 200 threads, {} cached on each thread are 800 MB and stay so: the pool is the \
         limit. The same habit with tasks, a copy for each, has no limit any more but memory. A \
         thread-local is no way out either where threads are many; on a few workers it levels off.",
        parts.names.object
    )));
    html.line(table(story, parts.names.variable));
    html.line(note(&limit_note(story, parts.names.variable)));
    html.line(pictures(parts, Place::Kept));
    html
}

fn note(text: &str) -> Html {
    Html::with("p", &[("class", "note")], Html::text(text))
}

fn table(story: &Story, variable: &str) -> Html {
    let titles = [
        "kept".to_owned(),
        format!("at {} {variable}", story.most),
        "each more".to_owned(),
        "constant".to_owned(),
        "R²".to_owned(),
        format!("memory full at {variable}"),
    ];
    let rows = rows::rows(story).into_iter().map(|row| {
        vec![
            row.title.to_owned(),
            row.at_most,
            row.each,
            row.constant,
            row.r2,
            row.full_at,
        ]
    });
    cells(&titles, rows)
}

/// Names at the left, figures at the right.
fn cells(titles: &[String], rows: impl Iterator<Item = Vec<String>>) -> Html {
    let mut head = Html::default();
    for title in titles {
        head.push(Html::element("th", Html::text(title)));
    }
    let mut body = Html::fixed("\n");
    body.line(Html::element("tr", head));
    for row in rows {
        let mut line = Html::default();
        for cell in row {
            line.push(Html::element("td", Html::text(&cell)));
        }
        body.line(Html::element("tr", line));
    }
    let table = Html::element("table", body);
    Html::with("div", &[("class", "wide")], table)
}

fn says(story: &Story, parts: &Parts) -> Html {
    let mut html = section("3. What taskheap says about it");
    html.line(paragraph(
        "Profilers of the heap show the line that allocates. That line is right, and it is not the \
         answer: nobody sees that it is one copy for each task, and that all are the same. taskheap \
         knows which task was running at every allocation, stops the program for a moment, follows \
         the pointers of its heap and compares what it finds. So its first finding is:",
    ));
    let finding = (story.way(parts.names.wrong))
        .and_then(Way::fullest)
        .and_then(culprit);
    if let Some(finding) = finding {
        let mut inner = Html::element("strong", Html::text(&finding.title));
        inner.push(paragraph(&finding.advice));
        html.line(Html::element("blockquote", inner));
    }
    let command = format!(
        "$ taskheap report {}/{}.taskheap\n",
        parts.folder, parts.names.wrong
    );
    html.line(paragraph("The whole first screen:"));
    html.line(code(&format!("{command}{}", parts.first_screen)));
    html.line(paragraph(
        "The same heap as a picture: the wider a box, the more bytes; the type of task or thread \
         stands at the bottom, and on it the calls that made them.",
    ));
    html.line(pictures(parts, Place::Found));
    html
}

fn fix(story: &Story, parts: &Parts) -> Html {
    let mut html = section("4. The fix");
    html.line(paragraph(
        "Nobody changes the rules, so all tasks can have the same ones. A clone of an Arc copies a \
         pointer:",
    ));
    html.line(code(&format!("- {}\n+ {}", parts.before, parts.after)));
    if let (Some(wrong), Some(right)) = (story.way(parts.names.wrong), story.way(parts.names.right))
    {
        html.line(paragraph(&format!(
            "With {}: {} become {}. taskheap then says:",
            counted(story.most, parts.names.variable.trim_end_matches('s')),
            bytes(wrong.peak_bytes()),
            bytes(right.peak_bytes())
        )));
    }
    html.line(code(&beginning(parts)));
    html.line(pictures(parts, Place::Fixed));
    html
}

/// Of the screen after the fix: all that is looked for stands in its file.
fn beginning(parts: &Parts) -> String {
    let name = parts.names.right;
    let mut text = format!("$ taskheap report {}/{name}.taskheap\n", parts.folder);
    let lines = parts.screen_after.lines();
    for line in lines.take_while(|line| !line.starts_with("Looked for")) {
        text.push_str(line);
        text.push('\n');
    }
    text.push('…');
    text
}

fn loads(story: &Story, parts: &Parts) -> Html {
    let mut html = section("5. At your load");
    html.line(paragraph(
        "Both curves in one table. The first row was measured; the others are calculated from the \
         lines above, and so they are an estimate.",
    ));
    let mut titles = vec![
        format!("{} at once", parts.names.variable),
        "stacks of threads".to_owned(),
        "futures of tasks".to_owned(),
    ];
    titles.extend(story.ways.iter().map(|way| way.title.to_owned()));
    let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), bytes_tight);
    let row = |row: Forecast| {
        let mut cells = vec![count(row.count), size(row.touched), size(row.cells)];
        cells.extend(row.ways.into_iter().map(size));
        cells
    };
    html.line(cells(&titles, story.forecast().into_iter().map(row)));
    html.line(note(&format!(
        "stacks: what is touched of them; the other columns: the whole heap; {UNITS_NOTE}"
    )));
    html
}

fn own(parts: &Parts) -> Html {
    let mut html = section("6. Your own program");
    html.line(paragraph(
        "It needs no change and no other build: a release binary with its symbol table, which is \
         the default. Lines of code need debug info as well (debug = 1 in [profile.release]).",
    ));
    html.line(code(
        "$ taskheap run -- ./target/release/your-server --port 8080\n\
         $ taskheap report taskheap.your-server.PID.taskheap\n\
         $ taskheap flamegraph taskheap.your-server.PID.taskheap --by task",
    ));
    html.line(paragraph(
        "What grows with its load, before production shows it, and a budget that fails in CI:",
    ));
    html.line(code(&format!(
        "$ taskheap sweep --vary n=1,10,100 -- ./your-server --{} {{n}}\n\
         $ taskheap check taskheap.your-server.PID.taskheap --write taskheap.toml",
        parts.names.variable
    )));
    html
}

fn files(parts: &Parts) -> Html {
    let mut html = section("What is in this folder");
    let mut list = Html::fixed("\n");
    for (file, what) in parts.files {
        let mut item = Html::with("a", &[("href", file)], Html::text(file));
        item.push(Html::text(&format!(": {what}")));
        list.line(Html::element("li", item));
    }
    html.line(Html::element("ul", list));
    html
}

fn pictures(parts: &Parts, place: Place) -> Html {
    let mut html = Html::default();
    for picture in parts.pictures.iter().filter(|p| p.place == place) {
        let image = Html::empty("img", &[("src", &picture.file), ("alt", &picture.shows)]);
        let mut inner = Html::with("a", &[("href", &picture.file)], image);
        inner.push(Html::element("figcaption", Html::text(&picture.shows)));
        html.line(Html::element("figure", inner));
    }
    html
}
