//! What each task leaves when it ends is told, and what a cache or a batch job keeps is not.

use super::super::super::Kind;
use super::sketch::{KB, MB, Sketch};
use crate::profile::{HeldBy, WalkStatic};

/// 10,000 requests that are done, of which so many entries of 4 KB are there.
fn server(entries: u64, by: impl Fn(&mut Sketch) -> HeldBy) -> Sketch {
    let mut sketch = Sketch::new();
    let request = sketch.tasks("server::request", [2, 0], 256, 0);
    sketch.profile.owners[request.index()].spawned = 10_002;
    sketch.profile.owners[request.index()].alive = 2;
    let node = sketch.stack(&["server::request", "server::Session::new"]);
    let by = by(&mut sketch);
    sketch.block(node, request, by, entries, 4 * KB);
    sketch
}

fn sessions(sketch: &mut Sketch) -> HeldBy {
    sketch.walk.statics.push(WalkStatic {
        name: "server::SESSIONS".to_owned(),
        ..WalkStatic::default()
    });
    HeldBy::Static(0)
}

#[test]
fn an_entry_that_each_task_leaves_is_told_with_its_map() {
    let found = server(10_000, sessions).finding();
    assert_eq!(found.kind, Kind::Growth);
    assert_eq!((found.count, found.bytes), (10_000, 10_000 * 4 * KB));
    assert_eq!(found.owner_name.as_deref(), Some("server::request"));
    let title = "each task of server::request leaves 4.0 KB behind in server::SESSIONS: 39.1 MB";
    assert!(found.title.starts_with(title), "{}", found.title);
    assert!(
        found.advice.contains("server::SESSIONS"),
        "{}",
        found.advice
    );
    assert_eq!(found.site.unwrap().function, "server::Session::new");
}

#[test]
fn what_several_parts_of_the_program_keep_is_told_too() {
    let found = server(10_000, |_| HeldBy::Several).finding();
    assert_eq!(found.kind, Kind::Growth);
    assert!(
        found.title.contains("leaves 4.0 KB behind: "),
        "{}",
        found.title
    );
}

#[test]
fn a_cache_that_evicts_or_is_asked_again_is_none() {
    assert!(server(5_000, sessions).is_silent());
}

#[test]
fn results_on_their_way_are_none_unless_the_program_has_no_end() {
    let main = |sketch: &mut Sketch| HeldBy::Stack(sketch.thread("main", 1));
    let mut sketch = server(10_000, main);
    sketch.profile.program.exit_code = None;
    sketch.profile.program.exit_signal = Some(15);
    sketch.profile.totals.live_bytes = sketch.walk.live_bytes;
    sketch.profile.totals.peak_live_bytes = sketch.walk.live_bytes;
    assert_eq!(sketch.finding().kind, Kind::Growth);
    assert!(server(10_000, main).is_silent());
}

#[test]
fn little_is_no_finding() {
    let mut sketch = server(1_000, sessions);
    sketch.profile.owners[1].spawned = 1_002;
    assert!(sketch.walk.live_bytes < 4 * MB + MB / 2);
    assert!(sketch.is_silent());
}
