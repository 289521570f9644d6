//! `taskheap sweep` on a program that grows as it is told.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use serde_json::Value;

use super::{build, taskheap};

/// Runs `taskheap sweep ARGS -o FOLDER/x -- COMMAND`.
fn sweep(folder: &Path, args: &[&str], command: &[&str]) -> Output {
    taskheap()
        .current_dir(folder)
        .arg("sweep")
        .args(args)
        .args(["-o", "x", "--json", "--"])
        .args(command)
        .output()
        .unwrap()
}

/// What it found; it has to succeed, and to leave the same in the folder.
fn swept(folder: &Path, args: &[&str], command: &[&str]) -> Value {
    let output = sweep(folder, args, command);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    let kept = std::fs::read(folder.join("x/sweep.json")).unwrap();
    assert_eq!(kept, output.stdout);
    let chart = std::fs::read_to_string(folder.join("x/growth.svg")).unwrap();
    assert!(chart.starts_with("<svg"), "{chart}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn row<'a>(found: &'a Value, of: &str, name: &str) -> &'a Value {
    let rows = found["growth"].as_array().unwrap();
    let is_it = |row: &&Value| row["of"] == of && row["name"].as_str().unwrap().contains(name);
    rows.iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("no {of} {name} in {rows:#?}"))
}

/// Built once: tests run side by side.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("grow", &[]))
}

/// Free now, and given to nobody else for a while.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The line of the fixture that has such a remark.
fn line_of(remark: &str) -> u64 {
    let source = include_str!("programs/grow.rs");
    let at = source.lines().position(|line| line.contains(remark));
    at.unwrap() as u64 + 1
}

#[test]
fn a_cache_per_thread_grows_with_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    let program = program();
    let command = [program.to_str().unwrap(), "local", "{n}"];
    let limit = ["--vary", "n=2,4,8", "--memory-limit", "64MiB"];
    let found = swept(folder.path(), &limit, &command);
    let cache = row(&found, "thread-local", "CACHE");
    let each = cache["bytes_per_unit"].as_f64().unwrap();
    assert_eq!(
        (&cache["unit"], &cache["shape"]),
        (&"thread".into(), &"linear".into())
    );
    assert!((each / 1_048_576.0 - 1.0).abs() < 0.02, "{cache:#}");
    assert!(cache["r2"].as_f64().unwrap() > 0.99, "{cache:#}");
    assert!(
        (cache["limit_units"].as_f64().unwrap() - 64.0).abs() < 1.5,
        "{cache:#}"
    );
    assert_eq!(
        found["findings"].as_array().unwrap().len(),
        1,
        "{}",
        found["findings"]
    );
    let finding = &found["findings"][0];
    assert_eq!(finding["kind"], "growth");
    assert_eq!(
        finding["site"]["line"],
        line_of("a cache for each thread"),
        "{finding:#}"
    );
    let names: Vec<&Value> = found["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["profile"])
        .collect();
    assert_eq!(names, ["n=2.taskheap", "n=4.taskheap", "n=8.taskheap"]);
    assert!(folder.path().join("x/n=8.taskheap").exists());
    // The results of a sweep are not replaced by accident.
    let again = sweep(folder.path(), &limit, &command);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
}

#[test]
fn what_is_shared_is_flat_and_values_come_by_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let program = program();
    let command = [program.to_str().unwrap(), "shared"];
    let found = swept(folder.path(), &["--vary", "n=2,4,8"], &command);
    assert_eq!(row(&found, "process", "")["shape"], "flat");
    assert_eq!(found["findings"].as_array().unwrap().len(), 0);
    assert!(found["runs"][2]["threads"].as_u64() >= Some(8));
}

#[test]
fn runs_that_fail_count_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = program();
    let command = [program.to_str().unwrap(), "fail", "{n}"];
    let output = sweep(folder.path(), &["--vary", "n=1,2,4"], &command);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("exit code 3") && told.contains("2 values"),
        "{told}"
    );
    let kept = std::fs::read(folder.path().join("x/sweep.json")).unwrap();
    let kept: Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(kept["runs"].as_array().unwrap().len(), 3);
    assert_eq!(kept["growth"].as_array().unwrap().len(), 0);
}

#[test]
fn a_server_gets_its_load_and_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let program = program();
    let program = program.to_str().unwrap();
    let port = free_port().to_string();
    let ready = format!("127.0.0.1:{port}");
    let load = format!("{program} ask {port} {{n}}");
    let args = [
        "--vary",
        "n=10,20,40",
        "--server",
        "--ready",
        &ready,
        "--load",
        &load,
    ];
    let found = swept(folder.path(), &args, &[program, "serve", &port]);
    let kept = row(&found, "site", "serve");
    let each = kept["bytes_per_unit"].as_f64().unwrap();
    assert!((each / 200_000.0 - 1.0).abs() < 0.02, "{kept:#}");
    assert_eq!(
        (&kept["unit"], &kept["site"]["line"]),
        (&"n".into(), &line_of("kept for ever").into())
    );
    assert_eq!(found["runs"][0]["exit_code"], 143);
    assert_eq!(found["runs"][0]["error"], Value::Null);
}
