//! A search over files on several threads prints and exits as it does without us.

use std::path::Path;
use std::process::{Command, Output};

use crate::programs::{adds_up, number, program, recorded, row};

/// 120 files in 12 folders; every seventh line of every third file has the text.
fn make(folder: &Path) -> usize {
    let mut matches = 0;
    for file in 0..120 {
        let inner = folder.join(format!("part-{}/deep", file % 12));
        std::fs::create_dir_all(&inner).unwrap();
        let mut text = String::new();
        for line in 0..200 {
            let has = file % 3 == 0 && line % 7 == 0;
            matches += usize::from(has);
            let word = if has { "needle" } else { "straw" };
            text += &format!("line {line} of file {file}: {word}\n");
        }
        std::fs::write(inner.join(format!("{file}.txt")), text).unwrap();
    }
    matches
}

struct Both {
    bare: Output,
    ours: Output,
    report: serde_json::Value,
}

fn search(folder: &Path, text: &str, code: i32) -> Both {
    let files = folder.join("files").display().to_string();
    let profile = folder.join(format!("{text}.taskheap"));
    let (program, args) = (program("search"), [text, &files]);
    let bare = Command::new(&program).args(args).output().unwrap();
    let ours = recorded(&profile, &program, &args).output().unwrap();
    assert_eq!(bare.status.code(), Some(code));
    assert_eq!(ours.status.code(), Some(code));
    assert_eq!(bare.stdout, ours.stdout);
    let report = adds_up(&profile);
    assert_eq!(report["program"]["exit"]["code"], code);
    Both { bare, ours, report }
}

#[test]
fn a_search_finds_prints_and_exits_as_without_us() {
    let folder = tempfile::tempdir().unwrap();
    let matches = make(&folder.path().join("files"));
    let found = search(folder.path(), "needle", 0);
    assert_eq!(
        String::from_utf8_lossy(&found.ours.stdout).lines().count(),
        matches
    );
    let threads = row(&found.report, "threads", "/name", "search-*");
    assert_eq!(number(threads, "count"), 4);
    let lines = String::from_utf8(found.bare.stdout).unwrap();
    let texts = lines
        .lines()
        .map(|line| line.splitn(3, ':').nth(2).unwrap());
    let copied = row(&found.report, "sites", "/site/function", "search::copied");
    assert_eq!(number(copied, "allocations"), matches as u64);
    assert_eq!(
        number(copied, "allocated_bytes"),
        texts.map(|t| t.len() as u64).sum::<u64>()
    );
    assert_eq!(number(copied, "live_bytes"), 0);
    let none = search(folder.path(), "nowhere", 1);
    assert!(none.ours.stdout.is_empty());
}
