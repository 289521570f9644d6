//! Workflow commands of GitHub Actions: what is over its budget is marked at its line.

use std::fmt::Write;

use super::{Checked, sentence};

/// A line for each limit that does not hold, and for each that can't be judged.
pub fn annotations(all: &[Checked]) -> String {
    let mut out = String::new();
    for checked in all {
        let judgement = &checked.judgement;
        for verdict in judgement.verdicts.iter().filter(|v| !v.within) {
            let site = verdict.site.as_ref();
            let place = site.and_then(|site| site.file.as_ref().zip(site.line));
            let place = place.map_or_else(String::new, |(file, line)| {
                format!("file={},line={line},", property(file))
            });
            let message = format!("{} ({})", sentence(verdict), checked.profile);
            let _ = writeln!(
                out,
                "::error {place}title=over memory budget::{}",
                data(&message)
            );
        }
        for unusable in &judgement.unusable {
            let message = format!("{}: {} ({})", unusable.what, unusable.hint, checked.profile);
            let title = "title=memory budget not judged";
            let _ = writeln!(out, "::error {title}::{}", data(&message));
        }
        if judgement.unusable.is_empty() && judgement.over() == 0 {
            let limits = judgement.verdicts.len();
            let message = format!("{limits} limits within budget ({})", checked.profile);
            let _ = writeln!(out, "::notice title=memory budget::{}", data(&message));
        }
    }
    out
}

fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
