//! Analyses on hand-built profiles, against slow obvious models.

use std::collections::BTreeMap;

use proptest::prelude::*;
use taskheap::analyze::{By, FlameOptions, Metric, Report, SiteTable, flames, report};
use taskheap::profile::*;

use crate::sample::{self, Builder, MB};

/// Runs every analysis and renderer.
pub fn everything(profile: &Profile) {
    let report = report(profile);
    serde_json::to_string(&report).unwrap();
    let options = taskheap::render::tables::Options::default();
    taskheap::render::first_screen::render(&report, "x", &options);
    let diff = taskheap::analyze::diff(&report, &report);
    taskheap::render::comparison::diff(&diff, "x", "x", &options);
    taskheap::render::export::pprof::file(profile).unwrap();
    taskheap::render::export::dhat::file(profile).unwrap();
    for metric in METRICS {
        for by in [By::Stack, By::Task, By::Thread, By::ThreadLocal] {
            let flame_options = FlameOptions {
                metric,
                by,
                runtime_frames: by == By::Thread,
            };
            if let Ok(flames) = flames(profile, &flame_options) {
                taskheap::render::export::collapsed::file(&flames);
            }
        }
    }
}

pub const METRICS: [Metric; 6] = [
    Metric::Live,
    Metric::Peak,
    Metric::Allocated,
    Metric::Allocations,
    Metric::Temporary,
    Metric::Leaked,
];

#[test]
fn every_node_has_the_site_that_its_stack_says() {
    let profile = sample::walked();
    let table = SiteTable::new(&profile);
    for at in 0..profile.nodes.parent.len() {
        let node = NodeId(at as u32);
        assert_eq!(
            *table.get(table.of_node(node)),
            profile.site(node),
            "node {at}"
        );
    }
}

#[test]
fn tasks_of_one_name_are_one_row() {
    let report = report(&sample::server());
    let names: Vec<&str> = report.tasks.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["server::handler", "server::ticker"]);
    let handler = &report.tasks[0];
    assert_eq!((handler.spawned, handler.live), (60, 60));
    assert_eq!(handler.live_bytes, 60 * 4 * MB + 60 * 512);
    assert_eq!(handler.per_task.p50, Some(4 * MB + 512));
    assert_eq!(handler.site.as_ref().unwrap().function, "server::main");
    let ticker = &report.tasks[1];
    assert_eq!((ticker.live, ticker.finished_allocated), (2_900, Some(100)));
    assert_eq!(ticker.idle_s.p50, Some(1.5));
}

#[test]
fn loops_of_workers_are_their_threads() {
    let report = report(&sample::server());
    let worker = report
        .threads
        .iter()
        .find(|t| t.name == "tokio-rt-worker")
        .unwrap();
    assert_eq!((worker.count, worker.alive), (2, 2));
    assert_eq!(worker.live_bytes, 4 * MB + 2 * 300);
    assert_eq!(worker.stack.reserved_each, None, "nobody looked");
}

#[test]
fn the_first_toucher_is_not_charged() {
    let report = report(&sample::server());
    assert_eq!(report.shared.len(), 1);
    let shared = &report.shared[0];
    assert_eq!(
        (shared.name.as_str(), shared.bytes),
        ("server::RULES", 5 * MB)
    );
    assert_eq!(shared.first_touched_by.as_deref(), Some("server::handler"));
    assert!(report.tasks.iter().all(|t| t.live_bytes % (5 * MB) != 0));
}

#[test]
fn without_a_walk_nothing_is_guessed() {
    let report = report(&sample::server());
    assert!(report.copies.is_empty() && report.leaks.is_empty());
    assert!(report.thread_locals.is_empty() && report.findings.is_empty());
    assert_eq!(report.memory.rss_bytes, None);
    assert_eq!(report.tasks[0].retained_bytes, None);
    assert_eq!(report.moment.walk, None);
}

#[test]
fn a_program_that_freed_everything_is_shown_at_its_fullest_walk() {
    let report = report(&sample::walked());
    assert_eq!(report.moment.walk, Some(2));
    assert_eq!(report.totals.live_bytes, 0);
    let handler = &report.tasks[0];
    assert_eq!(
        (handler.live, handler.live_bytes),
        (60, 60 * (4 * MB + 512) + 40 * 100)
    );
    let ticker = &report.tasks[1];
    assert_eq!((ticker.live, ticker.finished_allocated), (2_900, Some(100)));
    assert_eq!(ticker.outlived_bytes, 163_840);
    assert_eq!(report.leaks.len(), 2);
    assert_eq!(report.possible_leaks.len(), 1);
    assert_eq!(report.stacks.per_thread_reserved_bytes, Some(2 * MB));
}

fn sums(report: &Report) -> [u64; 3] {
    let tasks = report
        .tasks
        .iter()
        .map(|r| [r.allocated_bytes, r.live_bytes, r.peak_live_bytes]);
    let threads = report
        .threads
        .iter()
        .map(|r| [r.allocated_bytes, r.live_bytes, r.peak_live_bytes]);
    let others = report
        .others
        .iter()
        .map(|r| [r.allocated_bytes, r.live_bytes, r.peak_live_bytes]);
    tasks.chain(threads).chain(others).fold([0; 3], |sum, row| {
        std::array::from_fn(|at| sum[at] + row[at])
    })
}

/// A profile of random blocks.
pub fn random() -> impl Strategy<Value = Profile> {
    let frames = [
        sample::MAIN,
        sample::RUN,
        sample::POLL,
        sample::HANDLER,
        sample::TICKER,
        sample::TO_VEC,
        sample::PARSE,
        sample::LIBC,
        sample::RULES,
        sample::ONCE,
        sample::CACHE,
    ];
    let stack = prop::collection::vec(0..frames.len(), 0..9);
    let block = (
        stack,
        0_u32..6,
        0_u64..10_000,
        [0_u64..50, 0..50, 0..50],
        0_u32..8,
    );
    prop::collection::vec(block, 0..60).prop_map(move |blocks| {
        let mut b = Builder::new();
        b.owner(OwnerKind::Thread, "main");
        b.owner(OwnerKind::Task, "a::b");
        b.owner(OwnerKind::Task, "a::b");
        b.owner(OwnerKind::Scope, "scope");
        b.owner(OwnerKind::Task, "main");
        b.profile.owners[5].runtime_own = true;
        for (stack, owner, size, [made, peak, live], flags) in blocks {
            let stack: Vec<_> = stack.iter().map(|at| frames[*at]).collect();
            let node = b.stack(&stack, flags);
            let made = made.max(peak).max(live);
            b.blocks(node, OwnerId(owner), size, [made, peak, live]);
        }
        b.finish()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn owners_and_sites_add_up_to_the_totals(profile in random()) {
        prop_assert_eq!(profile.validate(), Ok(()));
        let report = report(&profile);
        let totals = &report.totals;
        let whole = [totals.allocated_bytes, totals.live_bytes, totals.peak_live_bytes];
        prop_assert_eq!(sums(&report), whole);
        let mut sites = [0; 3];
        for row in &report.sites {
            sites[0] += row.allocated_bytes;
            sites[1] += row.live_bytes;
            sites[2] += row.peak_live_bytes;
        }
        prop_assert_eq!(sites, whole);
    }

    #[test]
    fn sites_are_those_of_a_slow_model(profile in random()) {
        let mut model: BTreeMap<Site, u64> = BTreeMap::new();
        for context in profile.context_ids() {
            let site = profile.site(profile.contexts.node[context.index()]);
            *model.entry(site).or_default() += profile.contexts.allocated_bytes[context.index()];
        }
        let found: BTreeMap<Site, u64> =
            report(&profile).sites.into_iter().map(|r| (r.site, r.allocated_bytes)).collect();
        prop_assert_eq!(found, model);
    }

    /// However the frames are folded, every byte stands on some stack.
    #[test]
    fn flamegraphs_add_up_to_the_totals(profile in random(), whole in any::<bool>()) {
        let totals = &profile.totals;
        for (metric, total) in METRICS.into_iter().zip([
            totals.live_bytes, totals.peak_live_bytes, totals.allocated_bytes,
            totals.allocations, totals.temporary_blocks,
        ]) {
            for by in [By::Stack, By::Task, By::Thread] {
                let options = FlameOptions { metric, by, runtime_frames: whole };
                match flames(&profile, &options) {
                    Ok(flames) => {
                        prop_assert_eq!(flames.total(), total);
                        for least in [0, total / 3, total + 1] {
                            // A figure without a frame would not be drawn.
                            let mut sum = 0;
                            flames.each(least, |stack, [_, value]| {
                                sum += if stack.is_empty() { 0 } else { value };
                            });
                            prop_assert_eq!(sum, total);
                        }
                    }
                    Err(_) => prop_assert_eq!(total, 0),
                }
            }
        }
    }

    /// Against a model that folds each stack for itself.
    #[test]
    fn folded_stacks_are_those_of_a_slow_model(profile in random()) {
        let options = FlameOptions { metric: Metric::Allocations, ..FlameOptions::default() };
        let mut model: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for context in profile.context_ids() {
            let value = profile.contexts.allocations[context.index()];
            if value > 0 {
                *model.entry(fold(&profile, context)).or_default() += value;
            }
        }
        let mut found = BTreeMap::new();
        if let Ok(flames) = flames(&profile, &options) {
            flames.each(0, |stack, [_, value]| {
                found.insert(stack.iter().map(|name| (*name).to_owned()).collect(), value);
            });
        }
        prop_assert_eq!(found, model);
    }
}

fn fold(profile: &Profile, context: ContextId) -> Vec<String> {
    let mut frames: Vec<FrameId> = profile
        .frames_outwards(profile.contexts.node[context.index()])
        .collect();
    frames.reverse();
    let origin = |frame: FrameId| profile.frames.origin[frame.index()];
    let own = |frame: FrameId| {
        matches!(
            origin(frame),
            Origin::Own | Origin::Library | Origin::Unknown
        )
    };
    let start = frames.iter().position(|frame| own(*frame));
    let stays = |at: usize| match origin(frames[at]) {
        Origin::Foreign => start.is_some_and(|start| at > start),
        _ => own(frames[at]),
    };
    let last = (0..frames.len()).rev().find(|at| stays(*at));
    let mut names: Vec<String> = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let called = last.map_or(0, |last| last + 1) == at;
        if stays(at) || called {
            let name = profile.function(*frame);
            names.push(taskheap::analyze::written(name).into_owned());
        }
    }
    names.dedup();
    if names.is_empty() {
        names.push("[no stack]".to_owned());
    }
    names
}

/// Closures of one function on one line look the same: they are one row, with all of their bytes.
#[test]
fn sites_that_look_the_same_are_one_row() {
    let closure = |name| sample::Fr(name, "src/main.rs", 20, "", Origin::Own);
    let mut builder = Builder::new();
    let owner = builder.owner(OwnerKind::Thread, "main");
    for (name, size) in [
        ("server::load::{closure#0}", 10),
        ("server::load::{closure#1}::{closure#0}", 200),
        ("server::load", 3_000),
    ] {
        let node = builder.stack(&[sample::MAIN, closure(name)], 0);
        builder.blocks(node, owner, size, [1, 1, 1]);
    }
    let other = sample::Fr("server::load", "src/main.rs", 21, "", Origin::Own);
    let node = builder.stack(&[sample::MAIN, other], 0);
    builder.blocks(node, owner, 40_000, [1, 1, 1]);
    let rows = report(&builder.finish()).sites;
    let found: Vec<_> = (rows.iter())
        .map(|row| (row.site.line, row.peak_live_bytes, row.allocations))
        .collect();
    assert_eq!(found, [(Some(21), 40_000, 1), (Some(20), 3_210, 3)]);
}

/// A difference names tasks as a report does, and sites as they are written.
#[test]
fn a_difference_has_the_names_of_a_report() {
    let made = |count: u64| {
        let mut builder = Builder::new();
        let owner = builder.owner(OwnerKind::Task, "server::launch::{closure}");
        let node = builder.stack(&[sample::POLL, sample::HANDLER], 0);
        builder.blocks(node, owner, 1000, [count, count, count]);
        report(&builder.finish())
    };
    let diff = taskheap::analyze::diff(&made(1), &made(5));
    let options = taskheap::render::tables::Options::default();
    let text = taskheap::render::comparison::diff(&diff, "a", "b", &options);
    assert!(text.contains("server::launch::{closure}"), "{text}");
    assert!(!text.contains("server::handler::{"), "{text}");
}
