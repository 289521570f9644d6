//! Pieces of text: names that fit, wrapped sentences, styles.
//!
//! A profile's names come from a program's symbol table, which may hold anything: control
//! characters never reach the terminal. Styles are written always; the stream that prints them
//! takes them out where there is no terminal.

use anstyle::{AnsiColor, Style};

/// Columns of a screen that everyone has.
pub const WIDTH: usize = 80;

pub const HEADING: Style = Style::new().bold();
pub const ALARM: Style = AnsiColor::Yellow.on_default().bold();
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const FAINT: Style = Style::new().dimmed();
pub const COMMAND: Style = AnsiColor::Cyan.on_default();

pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Without control characters.
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// At most `limit` characters. Of a path in code whole parts are left out at the start, as long
/// as that keeps half of the room in use; of anything else the middle, nearer to the start: the
/// end of a name tells more.
pub fn shorten(text: &str, limit: usize) -> String {
    let count = width(text);
    if count <= limit {
        return text.to_owned();
    }
    if limit <= 1 {
        return "…".chars().take(limit).collect();
    }
    let mut ends = text.match_indices("::").map(|(at, _)| &text[at..]);
    if let Some(end) = ends.find(|end| width(end) < limit)
        && width(end) * 2 >= limit
        && !text.contains('<')
    {
        return format!("…{end}");
    }
    // The last part alone, without what shows that it is one.
    if let Some((_, last)) = text.rsplit_once("::")
        && width(last) < limit
        && width(last) * 2 >= limit
        && !text.contains('<')
    {
        return format!("…{last}");
    }
    let head = (limit - 1) / 3;
    let tail = limit - 1 - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

/// Lines of at most `limit` characters, all after the first indented. A word longer than a line
/// stays whole.
pub fn wrap(text: &str, limit: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = width(word);
        if used > 0 && used + 1 + length > limit {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

/// The end of a path, with the line: `rules.rs:42`, `net/tcp.rs:7`.
pub fn place(file: Option<&str>, line: Option<u32>) -> String {
    let Some(file) = file else {
        return String::new();
    };
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    // Folders that every program has say nothing.
    let short = match folder.rsplit('/').next().unwrap_or("") {
        "" | "src" | "bin" | "." | ".." => clean(name),
        folder => clean(&format!("{folder}/{name}")),
    };
    match line {
        Some(line) => format!("{short}:{line}"),
        None => short,
    }
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", clean(word).replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(shorten("server::handle_connection", 16), "serve…connection");
        assert_eq!(shorten("server::net::handler", 16), "…::net::handler");
        assert_eq!(shorten("server::handler", 9), "…handler");
        assert_eq!(shorten("short", 16), "short");
        assert_eq!(shorten("abc", 1), "…");
        assert_eq!(shorten("abc", 0), "");
        assert_eq!(width(&shorten("ääääääääää", 5)), 5);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
    }

    #[test]
    fn wrapped_lines_fit() {
        let text = wrap(&"word ".repeat(40), 30, 4);
        assert!(text.lines().all(|line| width(line) <= 30), "{text}");
    }
}
