//! Collapsed stacks: `outer;inner figure`, a line each, as flamegraph.pl and speedscope read them.

use crate::analyze::Flames;

/// In alphabetical order of the lines' stacks.
pub fn lines(flames: &Flames) -> Vec<String> {
    let mut lines: Vec<(String, u64)> = flames
        .stacks
        .iter()
        .map(|(stack, value)| (joined(stack), *value))
        .collect();
    lines.sort();
    lines
        .iter()
        .map(|(stack, value)| format!("{stack} {value}"))
        .collect()
}

/// With two figures each, before and after.
pub fn diff_lines(base: &Flames, new: &Flames) -> Vec<String> {
    let mut lines = std::collections::BTreeMap::<String, [u64; 2]>::new();
    for (side, flames) in [base, new].into_iter().enumerate() {
        for (stack, value) in &flames.stacks {
            lines.entry(joined(stack)).or_default()[side] += value;
        }
    }
    lines
        .iter()
        .map(|(stack, [before, after])| format!("{stack} {before} {after}"))
        .collect()
}

/// The file.
pub fn file(flames: &Flames) -> Vec<u8> {
    let mut text = lines(flames).join("\n");
    text.push('\n');
    text.into_bytes()
}

/// A `;` in a name would end the frame, and a control character the line.
fn joined(stack: &[String]) -> String {
    let mut out = String::new();
    for (at, frame) in stack.iter().enumerate() {
        if at > 0 {
            out.push(';');
        }
        out.extend(frame.chars().map(|c| match c {
            ';' => ':',
            c if c.is_control() => '\u{fffd}',
            c => c,
        }));
    }
    out
}
