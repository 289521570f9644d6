//! The table: budget, measured, margin.

use std::fmt::Write;

use super::{Checked, margin, measure, shown, word};
use crate::analyze::Judgement;
use crate::render::table::Table;
use crate::render::tables::Options;
use crate::render::text::{ERROR, GOOD, HEADING, clean, styled, wrap};
use crate::render::units::{count, counted};

/// A table for each profile; the name above it if there is more than one.
pub fn text(all: &[Checked], options: &Options) -> String {
    let mut out = String::new();
    for (at, checked) in all.iter().enumerate() {
        if all.len() > 1 {
            let gap = if at > 0 { "\n" } else { "" };
            let name = clean(&checked.profile);
            let _ = writeln!(out, "{gap}{}", styled(HEADING, &name));
        }
        one(&mut out, &checked.judgement, options);
    }
    out
}

fn one(out: &mut String, judgement: &Judgement, options: &Options) {
    let mut table = Table::new(&["of", "what", ">budget", ">measured", ">margin", ""]);
    for verdict in &judgement.verdicts {
        let style = if verdict.within { GOOD } else { ERROR };
        let cells = vec![
            verdict.subject.clone(),
            measure(verdict),
            shown(verdict, verdict.budget),
            shown(verdict, verdict.measured),
            margin(verdict),
            word(verdict).to_owned(),
        ];
        table.styled_row(style, cells);
    }
    if !table.is_empty() {
        out.push_str(&table.render(options.width));
    }
    if judgement.unchanged > 0 {
        let rows = count(judgement.unchanged as u64);
        let _ = writeln!(out, "  {rows} more within the baseline's tolerance");
    }
    for unusable in &judgement.unusable {
        let what = format!("not judged: {}", clean(&unusable.what));
        let told = wrapped(&what, 4, options);
        let told = told.replacen("not judged:", &styled(ERROR, "not judged:"), 1);
        let hint = format!("hint: {}", clean(&unusable.hint));
        let _ = writeln!(out, "{told}\n  {}", wrapped(&hint, 4, options));
    }
    let limits = counted(judgement.verdicts.len() as u64, "limit");
    let (style, text) = match (judgement.unusable.len(), judgement.over()) {
        (0, 0) => (GOOD, format!("within budget: {limits}")),
        (0, over) => (ERROR, format!("over budget: {over} of {limits}")),
        _ => (ERROR, "the budget can't be judged".to_owned()),
    };
    let _ = writeln!(out, "{}", styled(style, &text));
}

fn wrapped(text: &str, indent: usize, options: &Options) -> String {
    match options.width {
        Some(width) => wrap(text, width.saturating_sub(2), indent)
            .trim_end()
            .to_owned(),
        None => text.to_owned(),
    }
}
