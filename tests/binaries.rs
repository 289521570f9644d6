//! What is read from executables, held against what a program knows of itself while it runs.
//!
//! The fixture spawns every kind of task, and prints its vtables, thread-locals and initialisers
//! by name. It is built here in the two ways that matter most; the ignored test builds it with
//! other versions of tokio and other settings of the compiler (`cargo test -- --ignored`).

#![cfg(all(feature = "cli", target_os = "linux", target_arch = "x86_64"))]

#[path = "binaries/fixture.rs"]
mod fixture;
#[path = "binaries/refused.rs"]
mod refused;

use std::path::Path;

use fixture::{Fixture, Said};
use taskheap::profile::Origin;
use taskheap::profile::symbolize::{Address, Symbolizer, TaskName};
use taskheap::profile::target::{self, Target, TaskIdMethod};
use taskheap::wire::InitKind;

#[test]
fn a_release_build_is_understood() {
    let fixture = fixture::build("plain", "1", &[]);
    let target = check(&fixture, TaskIdMethod::Code);
    assert!(!target.has_debug_info && target.has_symtab);
    let (right, all) = check_tasks(&fixture);
    assert!(
        right * 3 > all * 2,
        "only {right} of {all} tasks have exactly their name"
    );
}

#[test]
fn a_build_with_debug_info_is_understood() {
    let fixture = fixture::build("debug", "1", &[("CARGO_PROFILE_RELEASE_DEBUG", "2")]);
    let target = check(&fixture, TaskIdMethod::Dwarf);
    assert!(target.has_debug_info);
    let (right, all) = check_tasks(&fixture);
    assert_eq!(
        right, all,
        "with debug info every task has exactly its name"
    );
    check_lines(&fixture);
}

#[test]
#[ignore = "minutes of builds: CI runs it"]
fn other_versions_and_settings_are_understood() {
    let v0 = ("RUSTFLAGS", "-Csymbol-mangling-version=v0");
    let fat = ("CARGO_PROFILE_RELEASE_LTO", "fat");
    let one = ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    let size = ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s");
    let abort = ("CARGO_PROFILE_RELEASE_PANIC", "abort");
    let lines = ("CARGO_PROFILE_RELEASE_DEBUG", "1");
    #[allow(clippy::type_complexity)] // a table: name, version of tokio, settings
    let settings: [(&str, &str, &[(&str, &str)]); 11] = [
        ("1.38", "=1.38", &[]),
        ("1.43", "=1.43", &[]),
        ("1.47", "=1.47", &[]),
        ("1.38-lines", "=1.38", &[lines]),
        ("lines", "1", &[lines]),
        ("v0", "1", &[v0]),
        ("fat", "1", &[fat, one]),
        ("fat-lines", "1", &[fat, one, lines]),
        ("small", "1", &[size, abort, one]),
        ("thin", "1", &[("CARGO_PROFILE_RELEASE_LTO", "thin")]),
        ("1.43-v0-fat", "=1.43", &[v0, fat]),
    ];
    for (name, tokio, environment) in settings {
        let fixture = fixture::build(name, tokio, environment);
        check(&fixture, TaskIdMethod::Code);
        check_tasks(&fixture);
    }
}

/// Everything but the tasks' names.
fn check(fixture: &Fixture, method: TaskIdMethod) -> Target {
    let target = target::inspect(&fixture.exe).unwrap();
    let tls = target.tls.unwrap();
    for said in &fixture.said {
        match said {
            Said::TaskId(place) => {
                let [found] = &target.task_ids[..] else {
                    panic!("one tokio, but {:?}", target.task_ids);
                };
                assert_eq!(
                    (found.task_id, found.method),
                    (Some(*place), method),
                    "{}",
                    fixture.name
                );
            }
            Said::Local(name, place) => {
                let name = format!("tasks::values::{name}");
                let local = target
                    .thread_locals
                    .iter()
                    .find(|local| local.name == name)
                    .unwrap();
                let start = tls.offset_in_executable + local.offset_in_block as i64;
                let end = start + local.size as i64;
                assert!(
                    (start..end).contains(place),
                    "{name} at {place}, not {start}..{end}"
                );
            }
            Said::Static(name, place) => {
                let name = format!("tasks::values::{name}");
                let found = target
                    .statics
                    .iter()
                    .find(|found| found.name == name)
                    .unwrap();
                assert_eq!(found.svma, *place, "{name}");
            }
            Said::Init(name, addresses) => check_init(fixture, &target, name, addresses),
            Said::Task(..) => {}
        }
    }
    target
}

/// The stack of an initialiser is in a range of its kind, and in none of another.
fn check_init(fixture: &Fixture, target: &Target, name: &str, addresses: &[u64]) {
    let kind = if name.ends_with("LOCAL") {
        InitKind::ThreadLocal
    } else {
        InitKind::Shared
    };
    let of = |address: &u64| {
        let around = target
            .init_ranges
            .iter()
            .filter(move |r| r.start < *address && *address <= r.end);
        around.map(|range| range.kind).collect::<Vec<u32>>()
    };
    let kinds: Vec<u32> = addresses.iter().flat_map(of).collect();
    assert!(
        !kinds.is_empty(),
        "{}: no initialiser on the stack of {name}",
        fixture.name
    );
    assert!(
        kinds.iter().all(|found| *found == kind as u32),
        "{}: {name} {kinds:?}",
        fixture.name
    );
}

/// How many tasks have exactly their name, of how many. None may have another's.
fn check_tasks(fixture: &Fixture) -> (usize, usize) {
    let mut symbolizer = Symbolizer::new();
    let (mut right, mut all) = (0, 0);
    for said in &fixture.said {
        let Said::Task(name, vtable) = said else {
            continue;
        };
        let found = symbolizer.name_task(&fixture.exe, *vtable);
        all += 1;
        if is_exactly(&found, name) {
            right += 1;
            continue;
        }
        let listed = found
            .name
            .split(" or ")
            .any(|one| one == *name || one == "another");
        let told = found.uncertain && listed || found.name.is_empty();
        assert!(told, "{}: {name} is called {found:?}", fixture.name);
    }
    assert!(all > 15, "{}: {all} tasks", fixture.name);
    (right, all)
}

fn is_exactly(found: &TaskName, name: &str) -> bool {
    found.name == name || name == "dyn" && found.is_dyn
}

/// With debug info, frames have files and lines and task types a place.
fn check_lines(fixture: &Fixture) {
    let mut symbolizer = Symbolizer::new();
    let build_id = target::inspect(&fixture.exe).unwrap().build_id;
    let mut frames = Vec::new();
    for said in &fixture.said {
        match said {
            Said::Init("LAZY_LOCK", addresses) => {
                for svma in addresses.iter().filter(|at| **at < 1 << 40).rev() {
                    let address = Address {
                        module: &fixture.exe,
                        build_id: &build_id,
                        svma: *svma,
                    };
                    frames.extend(symbolizer.resolve(address).iter().cloned());
                }
            }
            Said::Task("tasks::kinds::Server::serve", vtable) => {
                let name = symbolizer.name_task(&fixture.exe, *vtable);
                assert_eq!(name.file, "src/kinds.rs");
                let line = fixture::line_of("kinds.rs", "async fn serve");
                assert_eq!(name.line, line);
            }
            _ => {}
        }
    }
    let made = frames
        .iter()
        .find(|frame| &*frame.function == "tasks::values::made")
        .unwrap();
    assert_eq!((made.origin, &*made.file), (Origin::Own, "src/values.rs"));
    assert!(made.line >= fixture::line_of("values.rs", "fn made"));
    let once = frames
        .iter()
        .find(|frame| frame.function.ends_with("futex::Once::call"))
        .unwrap();
    assert_eq!((once.origin, &*once.library), (Origin::Std, "std"));
    let main = frames
        .iter()
        .position(|frame| &*frame.function == "tasks::main")
        .unwrap();
    let made = frames
        .iter()
        .position(|frame| &*frame.function == "tasks::values::made")
        .unwrap();
    assert!(main < made, "outermost first");
}

#[test]
fn a_file_that_changed_gives_no_names() {
    let exe = std::env::current_exe().unwrap();
    let target = target::inspect(&exe).unwrap();
    let svma = target
        .symbols()
        .functions()
        .find(|f| f.size > 16)
        .unwrap()
        .svma
        + 8;
    let mut symbolizer = Symbolizer::new();
    let other = vec![0; target.build_id.len().max(1)];
    let frames = symbolizer.resolve(Address {
        module: &exe,
        build_id: &other,
        svma,
    });
    assert_eq!(frames[0].origin, Origin::Unknown);
    assert_eq!(symbolizer.missing().changed, 1);
    let gone = Path::new("/no/such/file");
    symbolizer.resolve(Address {
        module: gone,
        build_id: &[],
        svma,
    });
    assert_eq!(symbolizer.missing().unreadable, 1);
}
