//! How far the figures of a sample may be off.
//!
//! Every byte is met by the same Poisson process, so a sum of booked bytes has a variance of at
//! most itself times the mean distance of samples (less where blocks are larger than that), and
//! its standard error is at most the root of it. How bytes are spread over single tasks a sample
//! can't tell: most of them have no block in it.

use super::Report;
use super::tasks::PerOwner;

/// Standard error of a sum of bytes; none if every block was recorded.
pub fn standard_error(bytes: u64, sample_bytes: u64) -> Option<u64> {
    (sample_bytes > 0).then(|| (bytes as f64 * sample_bytes as f64).sqrt() as u64)
}

/// Says how certain each figure is, and takes away what a sample can't tell.
pub fn qualify(report: &mut Report) {
    let distance = report.recording.sample_bytes;
    if distance == 0 {
        return;
    }
    let error = |bytes: u64| standard_error(bytes, distance);
    report.recording.peak_error_bytes = error(report.totals.peak_live_bytes);
    report.recording.allocated_error_bytes = error(report.totals.allocated_bytes);
    report.recording.live_error_bytes = error(report.totals.live_bytes);
    for row in &mut report.tasks {
        row.peak_error_bytes = error(row.peak_live_bytes);
        let mean = row.per_task.mean;
        row.per_task = PerOwner {
            mean,
            ..PerOwner::default()
        };
    }
    for row in &mut report.threads {
        row.peak_error_bytes = error(row.peak_live_bytes);
    }
    for row in &mut report.sites {
        row.peak_error_bytes = error(row.peak_live_bytes);
    }
    for row in &mut report.others {
        row.peak_error_bytes = error(row.peak_live_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_grows_with_the_root() {
        assert_eq!(standard_error(1 << 30, 0), None);
        assert_eq!(standard_error(1 << 30, 1 << 20), Some(1 << 25));
        assert_eq!(standard_error(4 << 30, 1 << 20), Some(1 << 26));
    }
}
