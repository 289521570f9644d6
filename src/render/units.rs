//! Figures as people read them. 1 KB is 1,024 bytes everywhere, and every screen says so.

/// Said at the foot of every text report.
pub const UNITS_NOTE: &str = "1 KB = 1,024 bytes";

const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];

/// `4.0 MB`, for sentences.
pub fn bytes(value: u64) -> String {
    let (number, unit) = parts(value);
    format!("{number} {unit}")
}

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

fn parts(value: u64) -> (String, &'static str) {
    if value < 1024 {
        return (value.to_string(), UNITS[0]);
    }
    let mut scaled = value as f64;
    let mut unit = 0;
    // 999.5 would be shown as 1000, which is a digit too many for a column.
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(scaled < 99.95);
    (format!("{scaled:.decimals$}"), UNITS[unit])
}

/// `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
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

/// `1.20 s`, `340 ms`.
pub fn seconds(value: f64) -> String {
    match value {
        ..0.001 => format!("{:.0} µs", value * 1e6),
        ..0.9995 => format!("{:.0} ms", value * 1e3),
        ..99.995 => format!("{value:.2} s"),
        _ => format!("{value:.0} s"),
    }
}

/// `12%`, and `<1%` for what is there but little.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0%".to_owned();
    }
    let share = part as f64 * 100.0 / whole as f64;
    if share < 1.0 {
        return "<1%".to_owned();
    }
    format!("{share:.0}%")
}

/// `1 block`, `2 blocks`.
pub fn counted(value: u64, one: &str) -> String {
    let ending = if value == 1 { "" } else { "s" };
    format!("{} {one}{ending}", count(value))
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
    fn bytes_have_three_digits_at_most() {
        let shown = |value| bytes(value);
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1024), "1.0 KB");
        assert_eq!(shown(1023 * 1024), "1.0 MB");
        assert_eq!(shown(4 << 20), "4.0 MB");
        assert_eq!(shown(253 << 20), "253 MB");
        assert_eq!(shown(u64::MAX), "16384 PB");
    }

    #[test]
    fn counts_have_separators() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
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
