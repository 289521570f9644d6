//! Builds the fixture program and reads what it prints.

use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Fixture {
    pub name: &'static str,
    pub exe: PathBuf,
    pub said: Vec<Said>,
}

/// A line that the program prints of itself. Addresses are as linked, places of thread-locals
/// are from the thread pointer.
pub enum Said {
    Task(&'static str, u64),
    TaskId(i64),
    Local(&'static str, i64),
    Static(&'static str, u64),
    /// Return addresses below an initialiser, innermost first.
    Init(&'static str, Vec<u64>),
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tasks")
}

pub fn build(name: &'static str, tokio: &str, environment: &[(&str, &str)]) -> Fixture {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tasks-{name}"));
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = std::fs::read_to_string(source().join("Cargo.toml.template")).unwrap();
    write(
        &folder.join("Cargo.toml"),
        &manifest.replace("TOKIO", tokio),
    );
    for file in ["main.rs", "kinds.rs", "values.rs"] {
        let text = std::fs::read_to_string(source().join("src").join(file)).unwrap();
        write(&folder.join("src").join(file), &text);
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--quiet"])
        .current_dir(&folder);
    cargo
        .env_remove("RUSTFLAGS")
        .env("CARGO_TARGET_DIR", folder.join("target"));
    cargo.envs(environment.iter().copied());
    assert!(
        cargo.status().unwrap().success(),
        "the fixture {name} does not build"
    );
    let exe = folder.join("target/release/tasks");
    let output = Command::new(&exe).output().unwrap();
    assert!(output.status.success(), "the fixture {name} fails");
    let text = String::from_utf8(output.stdout).unwrap();
    let text: &'static str = text.leak();
    let said = text.lines().filter_map(read).collect();
    Fixture { name, exe, said }
}

/// Writes only what is new, so that cargo does not build again.
fn write(path: &Path, text: &str) {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    std::fs::write(path, text).unwrap();
}

fn read(line: &'static str) -> Option<Said> {
    let (kind, rest) = line.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    Some(match kind {
        // Names may hold spaces, addresses don't.
        "TASK" => {
            let (name, vtable) = rest.rsplit_once(' ')?;
            Said::Task(name, number(vtable)?)
        }
        "TASK_ID" => Said::TaskId(rest.trim_matches(['[', ']']).parse().ok()?),
        "LOCAL" => {
            let (name, place) = rest.split_once(' ')?;
            Said::Local(name, place.parse().ok()?)
        }
        "STATIC" => {
            let (name, place) = rest.split_once(' ')?;
            Said::Static(name, number(place)?)
        }
        "INIT" => {
            let (name, addresses) = rest.split_once(' ')?;
            Said::Init(name, addresses.split(' ').filter_map(number).collect())
        }
        _ => return None,
    })
}

/// The line of a file of the fixture that holds a text.
pub fn line_of(file: &str, text: &str) -> u32 {
    let source = std::fs::read_to_string(source().join("src").join(file)).unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() as u32 + 1
}
