//! The screen and the picture of a sweep, of runs made by hand.

use taskheap::analyze::growth::facts::Measure;
use taskheap::analyze::growth::{
    self, Facts, Limit, Run, Sample, Setting, Subject, Sweep, Variable, Whose,
};
use taskheap::profile::Site;
use taskheap::render::chart::Chart;
use taskheap::render::tables::Options;
use taskheap::render::{chart_svg, growth as screen};

use crate::{command, golden};

const MB: u64 = 1 << 20;
const VALUES: [u64; 5] = [4, 8, 16, 32, 64];

fn setting(n: u64) -> Setting {
    Setting {
        name: "n".to_owned(),
        value: n.to_string(),
        number: Some(n as f64),
    }
}

fn site(line: u32) -> Site {
    Site {
        function: "<server::Rules as core::clone::Clone>::clone".to_owned(),
        file: Some("src/rules.rs".to_owned()),
        line: Some(line),
        library: None,
    }
}

/// `handler` clones 4 MB for each task, a log grows with the square, a pool of 8 levels off.
fn sample(n: u64) -> Sample {
    let task = Whose::Task("server::handler".to_owned());
    let local = Whose::ThreadLocal("server::SCRATCH".to_owned());
    let threads = n.min(8);
    let measures = [
        (
            Subject::Process,
            5 * MB + n * 4 * MB + threads * MB + n * n * 2048,
            Whose::Nobody,
        ),
        (
            Subject::TaskType("server::handler".to_owned()),
            n * 4 * MB,
            task.clone(),
        ),
        (Subject::Site(site(17)), n * 3 * MB, task),
        (
            Subject::ThreadLocal("server::SCRATCH".to_owned()),
            threads * MB,
            local,
        ),
        (Subject::Site(site(40)), n * n * 2048, Whose::Nobody),
        (Subject::Site(site(50)), 5 * MB, Whose::Nobody),
    ];
    let measure = |(subject, bytes, whose)| {
        let place = None;
        (
            subject,
            Measure {
                bytes,
                whose,
                place,
            },
        )
    };
    Sample {
        settings: vec![setting(n)],
        facts: Facts {
            walked: true,
            tasks: Some(n),
            threads: Some(threads + 1),
            tasks_of: [("server::handler".to_owned(), n)].into(),
            threads_with: [("server::SCRATCH".to_owned(), threads)].into(),
            measures: measures.map(measure).into(),
            ..Facts::default()
        },
    }
}

fn run(n: u64) -> Run {
    Run {
        settings: vec![setting(n)],
        profile: Some(format!("n={n}.taskheap")),
        exit_code: 0,
        peak_live_bytes: Some(sample(n).facts.measures[&Subject::Process].bytes),
        tasks: Some(n),
        threads: Some(n.min(8) + 1),
        error: None,
    }
}

fn sweep() -> Sweep {
    let limit = Limit {
        bytes: 16 << 30,
        what: "given",
    };
    let samples = VALUES.map(sample);
    let rows = growth::rows(&samples, Some(limit.bytes));
    let mut runs = VALUES.map(run).to_vec();
    runs.push(Run {
        profile: None,
        exit_code: 137,
        peak_live_bytes: None,
        tasks: None,
        threads: None,
        error: Some("it was ended by signal 9".to_owned()),
        ..run(4096)
    });
    Sweep {
        schema: 1,
        command: ["./server", "--tasks", "{n}"].map(str::to_owned).to_vec(),
        variables: vec![Variable {
            name: "n".to_owned(),
            values: VALUES.iter().chain(&[4096]).map(u64::to_string).collect(),
        }],
        limit: Some(limit),
        runs,
        findings: growth::findings(&rows, Some(&limit)),
        growth: rows,
        threshold: growth::looked_for(),
    }
}

#[test]
fn the_screen() {
    let sweep = sweep();
    let options = Options {
        limit: Some(screen::ROWS),
        width: Some(80),
    };
    let chart = Chart::of(&sweep);
    let text = screen::screen(&sweep, chart.as_ref(), "swept/", &options);
    let plain: String = anstream::adapter::strip_str(&text).to_string();
    command::fits(&plain);
    golden::check("sweep.txt", &plain);
}

#[test]
fn nothing_fitted_is_not_praised() {
    let sweep = Sweep {
        growth: Vec::new(),
        findings: Vec::new(),
        ..sweep()
    };
    assert!(Chart::of(&sweep).is_none());
    let options = Options {
        limit: None,
        width: Some(80),
    };
    let text = screen::screen(&sweep, None, "swept/", &options);
    assert!(text.contains("Nothing is judged"), "{text}");
}

#[test]
fn the_picture() {
    let chart = Chart::of(&sweep()).unwrap();
    golden::check("sweep.svg", &chart_svg::draw(&chart).unwrap());
}

#[test]
fn the_json() {
    let text = serde_json::to_string_pretty(&sweep()).unwrap();
    golden::check("sweep.json", &format!("{text}\n"));
}
