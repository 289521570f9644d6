//! The profile file: written safely, read whatever it holds.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;
use taskheap::profile::{self, Options, OutputError, ReadError};

use crate::sample;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

const FORCE: Options = Options { force: true };

#[test]
fn what_is_written_is_read_back() {
    let folder = folder();
    let path = folder.path().join("a.taskheap");
    let written = profile::write(&sample::walked(), &path, Options::default()).unwrap();
    let about = fs::metadata(&path).unwrap();
    assert_eq!(about.len(), written);
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    let read = profile::read(&path).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", sample::walked()));
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing else is left"
    );
}

#[test]
fn a_file_is_replaced_only_by_force() {
    let folder = folder();
    let path = folder.path().join("a.taskheap");
    fs::write(&path, "mine").unwrap();
    let error = profile::write(&sample::server(), &path, Options::default()).unwrap_err();
    assert!(matches!(error, OutputError::Exists { .. }), "{error}");
    assert!(error.hint().contains("--force"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    profile::write(&sample::server(), &path, FORCE).unwrap();
    profile::read(&path).unwrap();
}

#[test]
fn a_file_that_comes_meanwhile_stays() {
    let folder = folder();
    let path = folder.path().join("a.taskheap");
    let output = profile::Output::create(&path, Options::default()).unwrap();
    fs::write(&path, "theirs").unwrap();
    let error = profile::write_to(&sample::server(), output).unwrap_err();
    assert!(matches!(error, OutputError::Exists { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing else is left"
    );
}

#[test]
fn a_link_is_never_followed() {
    let folder = folder();
    let (target, link) = (folder.path().join("target"), folder.path().join("link"));
    fs::write(&target, "precious").unwrap();
    symlink(&target, &link).unwrap();
    assert!(profile::write(&sample::server(), &link, Options::default()).is_err());
    profile::write(&sample::server(), &link, FORCE).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert!(
        fs::symlink_metadata(&link).unwrap().is_file(),
        "the name is replaced"
    );

    let dangling = folder.path().join("dangling");
    symlink(folder.path().join("nowhere"), &dangling).unwrap();
    assert!(profile::write(&sample::server(), &dangling, Options::default()).is_err());
    assert!(!folder.path().join("nowhere").exists());
}

#[test]
fn devices_and_folders_are_not_replaced() {
    let device = fs::metadata("/dev/null").unwrap().rdev();
    for path in ["/dev/null", "/"] {
        let error = profile::write(&sample::server(), Path::new(path), FORCE).unwrap_err();
        assert!(matches!(error, OutputError::NotAFile { .. }), "{error}");
    }
    assert_eq!(fs::metadata("/dev/null").unwrap().rdev(), device);
}

#[test]
fn a_folder_that_cannot_be_written_is_told_before_any_work() {
    let path = Path::new("/proc/self/a.taskheap");
    let error = profile::Output::create(path, Options::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("/proc/self") && text.contains("a.taskheap"),
        "{text}"
    );
    let missing = folder().path().join("no/such/a.taskheap");
    let error = profile::Output::create(&missing, Options::default()).unwrap_err();
    assert!(error.hint().contains("make the folder"), "{}", error.hint());
}

#[test]
fn a_full_disk_is_told_with_its_remedy() {
    let error = OutputError::Write {
        path: "a.taskheap".into(),
        error: io::Error::from_raw_os_error(28),
    };
    assert!(error.to_string().contains("No space left"), "{error}");
    assert!(error.hint().contains("free some space"), "{}", error.hint());
}

fn read(bytes: &[u8]) -> Result<profile::Profile, ReadError> {
    profile::read_from(bytes, Path::new("x.taskheap"))
}

#[test]
fn foreign_files_are_named() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "empty"),
        (b"\x7fELF\x02\x01", "program"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"{\"schema\":1}", "JSON"),
        (b"hello", "something else"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
    ];
    for (bytes, expected) in cases {
        let error = read(bytes).unwrap_err();
        assert!(matches!(error, ReadError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_cut_file_says_how_much_is_missing() {
    let bytes = profile::encode(&sample::server()).unwrap();
    for length in [1, 12, 40, 64, bytes.len() / 2, bytes.len() - 1] {
        let error = read(&bytes[..length]).unwrap_err();
        assert!(matches!(error, ReadError::Cut { .. }), "{length}: {error}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(
        read(&longer).unwrap_err(),
        ReadError::Damaged { .. }
    ));
}

#[test]
fn a_newer_file_names_what_can_read_it() {
    let mut bytes = profile::encode(&sample::server()).unwrap();
    bytes[12] = 9;
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, ReadError::Version { .. }), "{error}");
    assert!(
        error.hint().contains(env!("CARGO_PKG_VERSION")),
        "{}",
        error.hint()
    );
}

/// A file whose checksums are right and whose tables are what they are.
fn wrapped(plain: &[u8]) -> Vec<u8> {
    let crc = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum()
    };
    let mut bytes = profile::encode(&sample::server()).unwrap()[..64].to_vec();
    bytes[32..36].copy_from_slice(&0_u32.to_le_bytes());
    bytes[36..40].copy_from_slice(&crc(plain).to_le_bytes());
    bytes[40..48].copy_from_slice(&(plain.len() as u64).to_le_bytes());
    bytes[48..56].copy_from_slice(&(plain.len() as u64).to_le_bytes());
    let header = crc(&bytes[..60]);
    bytes[60..64].copy_from_slice(&header.to_le_bytes());
    bytes.extend_from_slice(plain);
    bytes
}

#[test]
fn a_small_file_does_not_unpack_to_fill_the_memory() {
    let packed = zstd::bulk::compress(&vec![0_u8; 1 << 30], 3).unwrap();
    let mut bytes = wrapped(&packed);
    bytes[32..36].copy_from_slice(&1_u32.to_le_bytes());
    bytes[48..56].copy_from_slice(&(1_u64 << 30).to_le_bytes());
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[..60]);
    let header = crc.sum();
    bytes[60..64].copy_from_slice(&header.to_le_bytes());
    let error = read(&bytes).unwrap_err();
    assert!(error.to_string().contains("claim to unpack"), "{error}");
}

/// The tables of a profile with a million owners of one byte each.
#[test]
fn a_small_file_does_not_decode_to_fill_the_memory() {
    let mut plain = vec![0x81, 0xa6];
    plain.extend_from_slice(b"owners");
    plain.extend_from_slice(&[0xdd, 0, 0x10, 0, 0]);
    plain.extend(std::iter::repeat_n(0x80, 0x10_0000));
    let error = read(&wrapped(&plain)).unwrap_err();
    assert!(error.to_string().contains("more memory"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any change to any byte is noticed.
    #[test]
    fn a_changed_byte_is_noticed(at in any::<prop::sample::Index>(), change in 1_u8..) {
        let mut bytes = profile::encode(&sample::walked()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        // The minor version may differ: that is what it is for.
        prop_assert!(read(&bytes).is_err() || (14..16).contains(&at));
    }

    /// Tables that were made to harm, with checksums that are right: an error or a profile that
    /// every analysis and renderer can take, never a panic.
    #[test]
    fn harmful_tables_do_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut plain = rmp_serde::to_vec_named(&sample::walked()).unwrap();
        for (at, value) in changes {
            let at = at.index(plain.len());
            plain[at] = value;
        }
        if let Ok(profile) = read(&wrapped(&plain)) {
            crate::analyses::everything(&profile);
        }
    }
}
