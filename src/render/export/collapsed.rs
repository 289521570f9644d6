//! Collapsed stacks: `outer;inner figure`, a line each, as flamegraph.pl and speedscope read them.

use std::fmt::Write;

use crate::analyze::Flames;

/// Of one profile. What is smaller than `least` counts for its caller.
pub fn lines(flames: &Flames, least: u64) -> Vec<String> {
    let mut lines = Vec::new();
    flames.each(least, |stack, [_, value]| {
        let mut line = joined(stack);
        let _ = write!(line, " {value}");
        lines.push(line);
    });
    lines
}

/// Of two laid over each other: the last figure of a line is how wide it is drawn.
pub fn diff_lines(flames: &Flames, least: u64, base_last: bool) -> Vec<String> {
    let mut lines = Vec::new();
    flames.each(least, |stack, [before, after]| {
        let mut line = joined(stack);
        let _ = match base_last {
            true => write!(line, " {after} {before}"),
            false => write!(line, " {before} {after}"),
        };
        lines.push(line);
    });
    lines
}

/// The file: every stack.
pub fn file(flames: &Flames) -> Vec<u8> {
    let mut text = lines(flames, 0).join("\n");
    text.push('\n');
    text.into_bytes()
}

/// A `;` in a name would end the frame, and a control character the line.
fn joined(stack: &[&str]) -> String {
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
