//! Figures as people read them. 1 KB is 1,024 bytes everywhere, and every screen says so.

pub use crate::analyze::figures::{bytes, count, counted, percent, seconds};

use crate::analyze::figures::parts;

/// Said at the foot of every text report.
pub const UNITS_NOTE: &str = "1 KB = 1,024 bytes";

/// `4.0MB`, for columns.
pub fn bytes_tight(value: u64) -> String {
    let (number, unit) = parts(value);
    format!("{number}{unit}")
}

/// With its sign: `+4.0 MB`.
pub fn bytes_signed(value: i128) -> String {
    let size = bytes_tight(u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX));
    match value {
        0 => size,
        ..0 => format!("-{size}"),
        _ => format!("+{size}"),
    }
}

/// `1,234`, `1.2M`: at most six characters.
pub fn count_tight(value: u64) -> String {
    match value {
        0..100_000 => count(value),
        100_000..1_000_000 => format!("{}k", value / 1000),
        1_000_000..1_000_000_000 => format!("{:.1}M", value as f64 / 1e6),
        _ => format!("{:.1}G", value as f64 / 1e9),
    }
}

/// Reads `64 MB`, `64MiB`, `4096`, `1.5 GB`: all of them in steps of 1,024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    let unit = text[end..].trim().to_ascii_uppercase();
    let unit = unit
        .strip_suffix("IB")
        .or(unit.strip_suffix('B'))
        .unwrap_or(&unit);
    let power = match unit {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    let value = number * 1024_f64.powi(power);
    (value.is_finite() && (0.0..9e18).contains(&value)).then_some(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_fit_into_six_characters() {
        assert_eq!(count_tight(12_345_678), "12.3M");
    }

    #[test]
    fn sizes_are_read_as_they_are_written() {
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("64 MB"), Some(64 << 20));
        assert_eq!(parse_bytes("64MiB"), Some(64 << 20));
        assert_eq!(parse_bytes("1.5k"), Some(1536));
        assert_eq!(parse_bytes("10_000 B"), Some(10_000));
        for wrong in ["", "MB", "-1", "1 XB", "1e400", "1 MB x", "nan"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
    }
}
