//! Writes a profile: a header that can be checked, then the tables, named and compressed.

use std::io;
use std::path::Path;

use super::Profile;
use super::format::{Encoding, FileHeader, MAJOR, MINOR, crc32, most_plain_bytes};
use super::output::{Options, Output, OutputError};

/// Writes the profile to a new file and says how many bytes it takes. To learn before a long run
/// whether the file can be made, use [`Output::create`] and [`write_to`].
pub fn write(profile: &Profile, path: &Path, options: Options) -> Result<u64, OutputError> {
    write_to(profile, Output::create(path, options)?)
}

/// Fills a file whose place was reserved.
pub fn write_to(profile: &Profile, output: Output) -> Result<u64, OutputError> {
    let bytes = encode(profile).map_err(|error| OutputError::Write {
        path: output.path().to_owned(),
        error,
    })?;
    output.finish_with(&bytes)
}

/// The bytes of the file.
pub fn encode(profile: &Profile) -> io::Result<Vec<u8>> {
    let plain = rmp_serde::to_vec_named(profile).map_err(io::Error::other)?;
    let packed = compress(&plain)?;
    let (encoding, body) = if plain.len() as u64 <= most_plain_bytes(packed.len() as u64) {
        (Encoding::Zstd, &packed)
    } else {
        (Encoding::Plain, &plain)
    };
    let header = FileHeader {
        major: MAJOR,
        minor: MINOR,
        maker: env!("CARGO_PKG_VERSION").to_owned(),
        encoding: encoding as u32,
        body_crc: crc32(body),
        body_bytes: body.len() as u64,
        plain_bytes: plain.len() as u64,
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(body);
    Ok(bytes)
}

/// Columns of numbers gain a fifth from a higher level and take ten times as long.
fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
    const LEVEL: i32 = 9;
    zstd::bulk::compress(plain, LEVEL)
}
