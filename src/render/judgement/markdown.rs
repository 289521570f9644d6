//! Tables in Markdown: for a pull request's comment or `$GITHUB_STEP_SUMMARY`.

use std::fmt::Write;

use super::{Checked, margin, measure, shown};

/// A table for each profile, under its name.
pub fn markdown(all: &[Checked]) -> String {
    let mut out = String::new();
    for checked in all {
        let judgement = &checked.judgement;
        let outcome = match (judgement.unusable.len(), judgement.over()) {
            (0, 0) => "within budget".to_owned(),
            (0, over) => format!("{over} over budget"),
            _ => "not judged".to_owned(),
        };
        let _ = writeln!(out, "### {}: {outcome}\n", code(&checked.profile));
        if !judgement.verdicts.is_empty() {
            out.push_str("| of | what | budget | measured | margin | |\n");
            out.push_str("|---|---|--:|--:|--:|---|\n");
        }
        for verdict in &judgement.verdicts {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} |",
                code(&verdict.subject),
                measure(verdict),
                shown(verdict, verdict.budget),
                shown(verdict, verdict.measured),
                margin(verdict),
                if verdict.within { "ok" } else { "**over**" },
            );
        }
        for unusable in &judgement.unusable {
            let _ = writeln!(out, "\n**Not judged:** {}.", escaped(&unusable.what));
            let _ = writeln!(out, "{}", escaped(&unusable.hint));
        }
        out.push('\n');
    }
    out
}

/// Names hold `<`, `*` and `|`.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('`', "'").replace('|', "\\|"))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '\\' | '`' | '*' | '_' | '<' | '|' | '[') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}
