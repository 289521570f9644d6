//! How much memory a serialized profile will take, before it is decoded.
//!
//! Decoding amplifies: an empty map is one byte in the file and hundreds in memory, where a
//! struct with defaults stands for it. A file of two kilobytes that unpacks to 32 MB of empty
//! maps would fill the memory of a machine. Tokens of MessagePack follow each other flatly, so
//! one pass without a stack counts what they will take at most.

/// An owner or a walk with its strings and vectors.
const MAP_BYTES: u64 = 1024;
/// A vector or a string, with its smallest block.
const LIST_BYTES: u64 = 48;
const NUMBER_BYTES: u64 = 8;

/// The bytes; none if this is not MessagePack.
pub(super) fn weigh(plain: &[u8]) -> Option<u64> {
    let mut rest = plain;
    let mut sum = 0_u64;
    while let Some((marker, after)) = rest.split_first() {
        let (weight, header, payload) = token(*marker, after)?;
        sum = sum.checked_add(weight)?.checked_add(payload)?;
        let taken = usize::try_from(payload).ok()?.checked_add(header)?;
        rest = after.get(taken..)?;
    }
    Some(sum)
}

/// More than any profile that we write takes: its maps have all their fields, and its numbers
/// are at least a byte each.
pub(super) fn most_memory(plain_bytes: u64) -> u64 {
    const FREE: u64 = 64 << 20;
    FREE.saturating_add(plain_bytes.saturating_mul(16))
}

/// Weight of the token, bytes of its header after the marker, bytes of its payload.
fn token(marker: u8, after: &[u8]) -> Option<(u64, usize, u64)> {
    let length = |size: usize| -> Option<u64> {
        let bytes = after.get(..size)?;
        Some(
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        )
    };
    Some(match marker {
        0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => (NUMBER_BYTES, 0, 0),
        0x80..=0x8f => (MAP_BYTES, 0, 0),
        0x90..=0x9f => (LIST_BYTES, 0, 0),
        0xa0..=0xbf => (LIST_BYTES, 0, u64::from(marker & 0x1f)),
        0xc4 | 0xd9 => (LIST_BYTES, 1, length(1)?),
        0xc5 | 0xda => (LIST_BYTES, 2, length(2)?),
        0xc6 | 0xdb => (LIST_BYTES, 4, length(4)?),
        0xcc | 0xd0 => (NUMBER_BYTES, 1, 0),
        0xcd | 0xd1 => (NUMBER_BYTES, 2, 0),
        0xca | 0xce | 0xd2 => (NUMBER_BYTES, 4, 0),
        0xcb | 0xcf | 0xd3 => (NUMBER_BYTES, 8, 0),
        0xdc => (LIST_BYTES, 2, 0),
        0xdd => (LIST_BYTES, 4, 0),
        0xde => (MAP_BYTES, 2, 0),
        0xdf => (MAP_BYTES, 4, 0),
        // Extensions, which we don't write.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Owner, Profile, Walk};

    #[test]
    fn a_profile_weighs_no_more_than_is_allowed() {
        let mut profile = Profile {
            strings: (0..1000).map(|number| number.to_string()).collect(),
            owners: vec![Owner::default(); 1000],
            walks: vec![Walk::default(); 100],
            ..Profile::default()
        };
        profile.contexts.live_bytes = (0..100_000).collect();
        let plain = rmp_serde::to_vec_named(&profile).unwrap();
        let weight = weigh(&plain).unwrap();
        assert!(weight > 1_000 * size_of::<Owner>() as u64);
        assert!(
            weight < 16 * plain.len() as u64,
            "{weight} of {}",
            plain.len()
        );
    }

    #[test]
    fn a_map_weighs_what_the_largest_struct_takes() {
        for size in [size_of::<Owner>(), size_of::<Walk>()] {
            assert!(size as u64 <= MAP_BYTES, "{size}");
        }
        assert_eq!(weigh(&[0x80; 1000]), Some(1000 * MAP_BYTES));
    }

    #[test]
    fn what_is_cut_is_not_weighed() {
        assert_eq!(weigh(&[0xdb, 0, 0, 1]), None);
        assert_eq!(weigh(&[0xa5, b'a']), None);
        assert_eq!(weigh(&[0xc1]), None);
        assert_eq!(weigh(&[]), Some(0));
    }
}
