//! Golden files: what a person sees, kept beside the tests.
//!
//! `TASKHEAP_BLESS=1 cargo test --test cli` writes them anew. A missing one fails: a test that
//! writes what it finds and passes would hold nothing.

use std::path::PathBuf;

pub fn check(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cli/golden")
        .join(name);
    if std::env::var_os("TASKHEAP_BLESS").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; TASKHEAP_BLESS=1 makes it", path.display()));
    if wanted != found {
        let differing = wanted.lines().zip(found.lines()).find(|(a, b)| a != b);
        panic!("{name} differs, first in {differing:?}; TASKHEAP_BLESS=1 takes this:\n{found}");
    }
}
