//! Figures as sentences have them: findings are sentences, and so are the renderers' notes.
//!
//! 1 KB is 1,024 bytes everywhere, and every screen says so.

const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];

/// `4.0 MB`, for sentences.
pub fn bytes(value: u64) -> String {
    let (number, unit) = parts(value);
    format!("{number} {unit}")
}

/// Number and unit, for other ways to put them together.
pub fn parts(value: u64) -> (String, &'static str) {
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
    }
}
