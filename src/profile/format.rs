//! What the reader and the writer of a profile agree on: the first bytes of the file.
//!
//! The tempting format is the bare serialization: then a file that was cut, comes from another
//! tool or from a later version shows as "invalid type at byte 3". So a fixed header comes first
//! that says whose file this is, which version, how long the rest has to be and what it adds up
//! to, and every way of being wrong has a sentence of its own. The tables behind it are named
//! columns: a field that a reader doesn't know is skipped, one that a file lacks has its default.
//! Only what changes the meaning of a field or adds a value to an enum raises the major version.

use super::read::ReadError;
use std::path::Path;

/// A byte that no text starts with, our name, and line ends that a text-mode copy would change.
pub(super) const MAGIC: [u8; 12] = *b"\x89taskheap\r\n\n";

/// Raised when older readers would misunderstand a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Major(pub u16);

/// Raised when fields are added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Minor(pub u16);

pub const MAJOR: Major = Major(1);
pub const MINOR: Minor = Minor(0);

/// How the tables are stored behind the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Encoding {
    Plain = 0,
    Zstd = 1,
}

pub(super) const HEADER_BYTES: usize = 64;
const MAKER_BYTES: usize = 16;

/// All numbers little-endian: magic 12, major 2, minor 2, maker 16, encoding 4, CRC-32 of the
/// body 4, body length 8, plain length 8, zeros 4, CRC-32 of the header 4.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileHeader {
    pub major: Major,
    pub minor: Minor,
    /// The taskheap version that wrote the file, for the message to whoever can't read it.
    pub maker: String,
    pub encoding: u32,
    pub body_crc: u32,
    pub body_bytes: u64,
    pub plain_bytes: u64,
}

impl FileHeader {
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..12].copy_from_slice(&MAGIC);
        bytes[12..14].copy_from_slice(&self.major.0.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.minor.0.to_le_bytes());
        let maker = self.maker.as_bytes();
        let length = maker.len().min(MAKER_BYTES);
        bytes[16..16 + length].copy_from_slice(&maker[..length]);
        bytes[32..36].copy_from_slice(&self.encoding.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.plain_bytes.to_le_bytes());
        let crc = crc32(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The version stands outside the header's checksum on purpose of the reader's order: magic
    /// first, then version, then the checksum, so that a later header layout is "newer", not
    /// "damaged".
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES], path: &Path) -> Result<FileHeader, ReadError> {
        let header = FileHeader {
            major: Major(u16::from_le_bytes(part(bytes, 12))),
            minor: Minor(u16::from_le_bytes(part(bytes, 14))),
            maker: maker_of(&part::<MAKER_BYTES>(bytes, 16)),
            encoding: u32::from_le_bytes(part(bytes, 32)),
            body_crc: u32::from_le_bytes(part(bytes, 36)),
            body_bytes: u64::from_le_bytes(part(bytes, 40)),
            plain_bytes: u64::from_le_bytes(part(bytes, 48)),
        };
        if !readable(header.major, header.minor) {
            return Err(ReadError::Version {
                path: path.to_owned(),
                major: header.major,
                minor: header.minor,
                maker: header.maker,
            });
        }
        if crc32(&bytes[..60]) != u32::from_le_bytes(part(bytes, 60)) {
            return Err(ReadError::damaged(
                path,
                "the checksum of its header is wrong",
            ));
        }
        Ok(header)
    }
}

/// Any minor version of this major one: fields that are new are skipped.
pub fn readable(major: Major, _minor: Minor) -> bool {
    major == MAJOR
}

/// Plain bytes that a body of this size may stand for. The writer keeps to it (it stores what
/// compresses better than this uncompressed), so a reader can refuse a small file that would
/// unpack to fill the memory.
pub(super) fn most_plain_bytes(body_bytes: u64) -> u64 {
    const FREE: u64 = 32 << 20;
    FREE.saturating_add(body_bytes.saturating_mul(64))
}

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

fn maker_of(bytes: &[u8]) -> String {
    let shown = |byte: &&u8| byte.is_ascii_graphic();
    bytes
        .iter()
        .take_while(shown)
        .map(|byte| *byte as char)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FileHeader {
        FileHeader {
            major: MAJOR,
            minor: Minor(7),
            maker: "12.34.56-alpha.1".to_owned(),
            encoding: Encoding::Zstd as u32,
            body_crc: 0x1234_5678,
            body_bytes: 1 << 40,
            plain_bytes: 1 << 41,
        }
    }

    #[test]
    fn a_header_keeps_its_parts_and_a_later_minor_version_is_readable() {
        let bytes = header().to_bytes();
        let read = FileHeader::from_bytes(&bytes, Path::new("x")).unwrap();
        assert_eq!(read, header());
    }

    #[test]
    fn another_major_version_is_told_before_the_checksum() {
        let mut bytes = header().to_bytes();
        bytes[12] = 2;
        let error = FileHeader::from_bytes(&bytes, Path::new("x")).unwrap_err();
        assert!(matches!(error, ReadError::Version { .. }), "{error}");
        bytes[12] = 1;
        bytes[41] ^= 1;
        let error = FileHeader::from_bytes(&bytes, Path::new("x")).unwrap_err();
        assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
    }
}
