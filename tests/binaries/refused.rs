//! Files that can't be profiled are refused with their reason; damaged ones never stop the command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use taskheap::profile::symbolize::{Address, Symbolizer};
use taskheap::profile::target::{TargetError, inspect, inspect_object};

use super::fixture;

/// An ELF executable of nothing but a header and, if given, the path of its dynamic linker.
fn executable(machine: u16, class: u8, linker: Option<&str>) -> Vec<u8> {
    let headers = u16::from(linker.is_some());
    let mut bytes = b"\x7fELF".to_vec();
    bytes.extend([class, 1, 1]);
    bytes.resize(16, 0);
    bytes.extend(3u16.to_le_bytes());
    bytes.extend(machine.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    // Entry, program headers behind this header, no sections.
    for word in [0x1000u64, 64, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(0u32.to_le_bytes());
    for half in [64u16, 56, headers, 64, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    if let Some(linker) = linker {
        let size = linker.len() as u64 + 1;
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(4u32.to_le_bytes());
        for word in [120u64, 120, 120, size, size, 1] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(linker.as_bytes());
        bytes.push(0);
    }
    bytes
}

fn refusal(bytes: &[u8]) -> TargetError {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    fs::write(&path, bytes).unwrap();
    match inspect(&path) {
        Ok(_) => panic!("accepted"),
        Err(error) => {
            assert!(
                error.to_string().contains("program"),
                "{error} does not name the file"
            );
            error
        }
    }
}

#[test]
fn what_cannot_be_preloaded_is_refused() {
    assert!(matches!(
        refusal(&executable(62, 2, None)),
        TargetError::Static { .. }
    ));
    let musl = executable(62, 2, Some("/lib/ld-musl-x86_64.so.1"));
    assert!(matches!(refusal(&musl), TargetError::Musl { .. }));
    let arm = executable(183, 2, Some("/lib/ld-linux-aarch64.so.1"));
    assert!(matches!(
        refusal(&arm),
        TargetError::OtherArchitecture { machine: 183, .. }
    ));
    assert!(matches!(
        refusal(&executable(3, 1, None)),
        TargetError::OtherArchitecture { .. }
    ));
    assert!(matches!(
        refusal(b"#!/bin/sh\n"),
        TargetError::NotElf { .. }
    ));
    assert!(matches!(refusal(b""), TargetError::NotElf { .. }));
    assert!(matches!(
        refusal(b"\x7fELF\x02\x01"),
        TargetError::Malformed { .. }
    ));
    assert!(matches!(
        inspect(Path::new("/")),
        Err(TargetError::NotElf { .. })
    ));
    let missing = inspect(Path::new("/no/such/program"));
    assert!(matches!(missing, Err(TargetError::Unreadable { .. })));
    for error in [
        refusal(&musl),
        refusal(&arm),
        refusal(&executable(62, 2, None)),
    ] {
        assert!(error.remedy().is_some());
    }
}

#[test]
fn a_program_that_gains_privileges_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    fs::write(
        &path,
        executable(62, 2, Some("/lib64/ld-linux-x86-64.so.2")),
    )
    .unwrap();
    assert!(inspect(&path).is_ok());
    // Only root can give a file away; for others there is nothing to try.
    if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(matches!(inspect(&path), Err(TargetError::SetId { .. })));
    }
}

/// Asks everything that can be asked of a file.
fn ask(path: &Path, svmas: &[u64]) {
    let Ok(target) = inspect_object(path) else {
        return;
    };
    let mut symbolizer = Symbolizer::new();
    for svma in svmas {
        let address = Address {
            module: path,
            build_id: &target.build_id,
            svma: *svma,
        };
        symbolizer.resolve(address);
    }
    symbolizer.task_types(path);
    target.symbol("malloc");
}

#[test]
fn damaged_files_never_stop_us() {
    for (fixture, rounds) in [
        (fixture::build("plain", "1", &[]), 24),
        (
            fixture::build("debug", "1", &[("CARGO_PROFILE_RELEASE_DEBUG", "2")]),
            8,
        ),
    ] {
        let whole = fs::read(&fixture.exe).unwrap();
        let target = inspect_object(&fixture.exe).unwrap();
        let svmas: Vec<u64> = target
            .symbols()
            .functions()
            .step_by(97)
            .map(|f| f.svma + 5)
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged");
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below as u64) as usize
        };
        for round in 0..rounds {
            let mut bytes = whole.clone();
            match round % 4 {
                0 => bytes.truncate(next(whole.len())),
                // The header and the program headers.
                1 => (0..4).for_each(|_| bytes[next(1000)] = next(256) as u8),
                // The section headers, at the end.
                2 => (0..6).for_each(|_| bytes[whole.len() - 1 - next(3000)] = next(256) as u8),
                _ => (0..20_000).for_each(|_| bytes[next(whole.len())] = next(256) as u8),
            }
            fs::write(&path, &bytes).unwrap();
            ask(&path, &svmas);
        }
    }
}
