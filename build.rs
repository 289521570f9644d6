//! Builds the preload library and leaves it where the command embeds it.
//!
//! `cargo install` installs binaries only, so the library has to travel inside the command; and
//! exported `malloc` symbols in an ordinary library build would interpose the command itself, so
//! they exist only under `--cfg taskheap_preload`. Cargo has no way to build one crate twice in
//! one build. So the build script of the command runs cargo once more, on the library alone.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Set for the inner cargo: its build script, this same file, must not start another.
const INNER: &str = "TASKHEAP_BUILDING_PRELOAD";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.toml");
    for folder in ["lib.rs", "sys", "wire", "record", "hook", "preload"] {
        println!("cargo::rerun-if-changed=src/{folder}");
    }
    println!("cargo::rerun-if-env-changed={INNER}");
    let for_command = env::var_os("CARGO_FEATURE_CLI").is_some();
    let linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if for_command && linux && env::var_os(INNER).is_none() {
        let library = build();
        println!(
            "cargo::rustc-env=TASKHEAP_PRELOAD_LIBRARY={}",
            library.display()
        );
    }
}

fn build() -> PathBuf {
    let out = PathBuf::from(variable("OUT_DIR")).join("preload");
    let target = variable("TARGET");
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["rustc", "--lib", "--release", "--no-default-features"])
        .args(["--crate-type", "cdylib", "--target", &target])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&out)
        // Stable in what it builds whatever the outer build's profile is.
        .args(["--config", "profile.release.panic=\"abort\""])
        .args(["--config", "profile.release.lto=\"fat\""])
        .args(["--config", "profile.release.codegen-units=1"])
        .args(["--config", "profile.release.debug=0"])
        .args(["--", "--cfg", "taskheap_preload"]);
    // The outer build's settings are not this build's: flags of a sanitizer or of coverage would
    // end up in every profiled program.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let outer = text.starts_with("CARGO_FEATURE_")
            || text.starts_with("CARGO_PROFILE_")
            || text.starts_with("CARGO_CFG_")
            || matches!(
                &*text,
                "RUSTFLAGS" | "CARGO_ENCODED_RUSTFLAGS" | "CARGO_BUILD_TARGET"
            )
            || matches!(
                &*text,
                "RUSTC_WRAPPER" | "RUSTC_WORKSPACE_WRAPPER" | "CARGO_TARGET_DIR"
            );
        if outer {
            cargo.env_remove(&name);
        }
    }
    cargo.env(INNER, "1");
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the preload library failed: {status}"),
        Err(error) => panic!("can't run cargo to build the preload library: {error}"),
    }
    out.join(target).join("release").join("libtaskheap.so")
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
