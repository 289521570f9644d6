//! Runs made by hand: what each should be said to grow with.

use super::*;
use crate::analyze::Kind;

const MB: u64 = 1 << 20;

fn site(line: u32) -> Site {
    Site {
        function: "server::load".to_owned(),
        file: Some("src/load.rs".to_owned()),
        line: Some(line),
        library: None,
    }
}

/// Subjects with their bytes and whose they are; tasks of `handler`, and threads of `worker-*`.
fn sample(n: u64, tasks: u64, threads: u64, measured: &[(Subject, u64, Whose)]) -> Sample {
    let mut facts = Facts {
        walked: true,
        tasks: Some(tasks),
        threads: Some(threads + 1),
        tasks_of: [("handler".to_owned(), tasks)].into(),
        threads_of: [("worker-*".to_owned(), threads)].into(),
        ..Facts::default()
    };
    for (subject, bytes, whose) in measured {
        if let Subject::ThreadLocal(name) = subject {
            facts.threads_with.insert(name.clone(), threads);
        }
        let measure = facts::Measure {
            bytes: *bytes,
            whose: whose.clone(),
            place: None,
        };
        facts.measures.insert(subject.clone(), measure);
    }
    Sample {
        settings: vec![setting("n", n)],
        facts,
    }
}

fn setting(name: &str, n: u64) -> Setting {
    Setting {
        name: name.to_owned(),
        value: n.to_string(),
        number: Some(n as f64),
    }
}

fn handler() -> (Subject, Whose) {
    let name = "handler".to_owned();
    (Subject::TaskType(name.clone()), Whose::Task(name))
}

fn rules() -> (Subject, Whose) {
    let name = "server::RULES".to_owned();
    (Subject::ThreadLocal(name.clone()), Whose::ThreadLocal(name))
}

#[test]
fn a_copy_per_task_has_the_unit_task() {
    let (subject, whose) = handler();
    // Twice as many tasks as n, and always two threads.
    let samples: Vec<Sample> = [4, 8, 16, 32, 64]
        .map(|n| {
            let mine = (subject.clone(), 2 * n * 4 * MB, whose.clone());
            let line = (Subject::Site(site(7)), 2 * n * 3 * MB, whose.clone());
            let process = (Subject::Process, 2 * n * 4 * MB + 5 * MB, Whose::Nobody);
            sample(n, 2 * n, 2, &[mine, line, process])
        })
        .to_vec();
    let rows = rows(&samples, Some(1 << 30));
    assert_eq!(rows.len(), 3);
    let row = &rows[1];
    assert_eq!(
        (rows[0].of, row.of, row.name.as_str()),
        ("process", "task-type", "handler")
    );
    assert!(
        rows.iter()
            .all(|row| row.unit == "task" && row.shape == Shape::Linear)
    );
    assert!(
        (row.bytes_per_unit - (4 * MB) as f64).abs() < 1.0,
        "{row:?}"
    );
    assert!((row.limit_units.unwrap() - 256.0).abs() < 0.01, "{row:?}");
    assert!((rows[0].constant_bytes - (5 * MB) as f64).abs() < 1.0);
    assert_eq!(row.units_at_most, 128.0);
    let found = findings(&rows, None);
    assert_eq!(found.len(), 1, "one culprit, one finding: {found:#?}");
    assert_eq!((found[0].kind, found[0].count), (Kind::Growth, 128));
}

#[test]
fn a_copy_per_thread_has_the_unit_thread_though_tasks_rise_too() {
    let (subject, whose) = rules();
    let samples: Vec<Sample> = [10, 100, 1000, 10_000]
        .map(|n: u64| {
            // The pool ends at 512 threads.
            let threads = n.min(512);
            let mine = (subject.clone(), threads * 4 * MB, whose.clone());
            let pool = Whose::Thread("worker-*".to_owned());
            let made = (
                Subject::Threads("worker-*".to_owned()),
                threads * 4 * MB + 9,
                pool,
            );
            let line = (Subject::Site(site(9)), threads * 4 * MB, whose.clone());
            sample(n, n, threads, &[mine, made, line])
        })
        .to_vec();
    let rows = rows(&samples, Some(1 << 40));
    assert!(rows.iter().all(|row| row.unit == "thread"), "{rows:#?}");
    assert!(
        rows.iter()
            .all(|row| (row.bytes_per_unit / (4 * MB) as f64 - 1.0).abs() < 0.001)
    );
    assert!(
        rows.iter().all(|row| row.shape == Shape::Sublinear),
        "{rows:#?}"
    );
    let found = findings(&rows, None);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0]
            .title
            .contains("each thread that has server::RULES")
    );
}

#[test]
fn what_is_shared_is_flat_and_accuses_nobody() {
    let (subject, whose) = handler();
    let samples: Vec<Sample> = [4, 8, 16, 32, 64]
        .map(|n| {
            let cells = (subject.clone(), n * 384, whose.clone());
            let process = (Subject::Process, n * 384 + 4 * MB, Whose::Nobody);
            sample(n, n, 2, &[cells, process])
        })
        .to_vec();
    let rows = rows(&samples, Some(16 << 30));
    let process = rows.iter().find(|row| row.of == "process").unwrap();
    assert_eq!(process.shape, Shape::Flat);
    assert_eq!(process.limit_units, None);
    assert!(findings(&rows, None).is_empty());
    let cells = rows.iter().find(|row| row.of == "task-type").unwrap();
    assert_eq!(
        (cells.shape, cells.bytes_per_unit.round()),
        (Shape::Linear, 384.0)
    );
}

#[test]
fn neither_tasks_nor_threads_is_the_variable() {
    let samples: Vec<Sample> = [100, 200, 400, 800]
        .map(|n| {
            let line = (Subject::Site(site(3)), n * n * 100, Whose::Nobody);
            sample(n, 1, 2, &[line])
        })
        .to_vec();
    let rows = rows(&samples, Some(1 << 30));
    assert_eq!(
        (rows[0].unit.as_str(), rows[0].shape),
        ("n", Shape::Superlinear)
    );
    let at_limit = rows[0].limit_units.unwrap();
    // 100 n² = 2^30 at 3,277.
    assert!((at_limit / 3277.0 - 1.0).abs() < 0.01, "{at_limit}");
    let found = findings(&rows, None);
    assert!(found[0].title.contains("to the power of"), "{found:#?}");
    assert_eq!(found[0].site, Some(site(3)));
}

#[test]
fn series_hold_the_other_variables_fixed() {
    let (subject, whose) = handler();
    let mut samples = Vec::new();
    for kb in [1, 2] {
        for n in [4, 8, 16] {
            let mine = (subject.clone(), n * kb * 100_000, whose.clone());
            let mut sample = sample(n, n, 2, &[mine]);
            sample.settings.push(setting("kb", kb));
            samples.push(sample);
        }
    }
    let rows = rows(&samples, None);
    assert_eq!(most_distinct(&samples), 3);
    let slopes: Vec<(f64, &str)> = rows
        .iter()
        .map(|row| (row.bytes_per_unit.round(), row.fixed["kb"].as_str()))
        .collect();
    assert_eq!(slopes, [(200_000.0, "2"), (100_000.0, "1")]);
}

#[test]
fn two_values_are_no_growth() {
    let (subject, whose) = handler();
    let samples: Vec<Sample> = [4, 8, 8]
        .map(|n| sample(n, n, 2, &[(subject.clone(), n * MB, whose.clone())]))
        .to_vec();
    assert!(rows(&samples, None).is_empty());
    assert_eq!(most_distinct(&samples), 2);
}

mod one_profile {
    use super::super::fit::Shape;
    use super::super::{Timed, of_timeline};
    use crate::profile::{Profile, Timeline};

    fn profile(tasks: &[u64], threads: &[u32], live: impl Fn(u64, u32) -> u64) -> Profile {
        let live_bytes: Vec<u64> = (tasks.iter().zip(threads))
            .map(|(a, b)| live(*a, *b))
            .collect();
        Profile {
            timeline: Timeline {
                at_ms: (0..tasks.len() as u32).map(|at| at * 50).collect(),
                rss_bytes: live_bytes.clone(),
                live_bytes,
                tasks_alive: tasks.to_vec(),
                threads_alive: threads.to_vec(),
            },
            ..Profile::default()
        }
    }

    #[test]
    fn bytes_that_follow_tasks_are_a_row() {
        let tasks = [0, 10, 20, 20, 30, 40, 50, 50, 25, 5];
        let found = of_timeline(&profile(&tasks, &[3; 10], |n, _| 5_000_000 + 40_000 * n));
        let Timed::Rows(rows) = found else {
            panic!("no rows");
        };
        assert_eq!((rows[0].of, rows[0].unit.as_str()), ("process", "task"));
        assert_eq!(rows[0].shape, Shape::Linear);
        assert!((rows[0].bytes_per_unit - 40_000.0).abs() < 1.0);
        assert!((rows[0].constant_bytes - 5e6).abs() < 1.0);
        assert_eq!(rows[0].site, None, "nobody knows whose they are");
    }

    #[test]
    fn threads_count_where_tasks_stay() {
        let threads = [1, 2, 4, 6, 8, 10, 12];
        let found = of_timeline(&profile(&[2; 7], &threads, |_, n| u64::from(n) << 20));
        assert!(matches!(found, Timed::Rows(rows) if rows[0].unit == "thread"));
    }

    #[test]
    fn what_did_not_vary_says_so() {
        let found = of_timeline(&profile(&[7; 9], &[3; 9], |_, _| 5_000_000));
        let Timed::Nothing(why) = found else {
            panic!("rows");
        };
        assert!(why.contains("7 tasks and 3 threads"), "{why}");
        let found = of_timeline(&Profile::default());
        assert!(matches!(found, Timed::Nothing(why) if why.contains("no samples")));
    }
}
