//! HTML in which no name of a program is ever taken for markup.
//!
//! Names come from symbol tables and command lines, which may hold anything. So text and markup are
//! told apart by type: what is a `&str` is text and gets escaped, and markup is made of these pieces.

use super::text::clean;

/// A piece of a page.
#[derive(Clone, Debug, Default)]
pub struct Html(String);

impl Html {
    /// Markup that stands in our own code.
    pub fn fixed(markup: &'static str) -> Html {
        Html(markup.to_owned())
    }

    pub fn text(text: &str) -> Html {
        Html(escaped(text))
    }

    /// `<name>inner</name>`.
    pub fn element(name: &'static str, inner: Html) -> Html {
        Html(format!("<{name}>{}</{name}>", inner.0))
    }

    /// With attributes, whose values are text.
    pub fn with(name: &'static str, attributes: &[(&'static str, &str)], inner: Html) -> Html {
        let attributes = attributes_of(attributes);
        Html(format!("<{name}{attributes}>{}</{name}>", inner.0))
    }

    /// One that has nothing in it, such as `<img>`.
    pub fn empty(name: &'static str, attributes: &[(&'static str, &str)]) -> Html {
        Html(format!("<{name}{}>", attributes_of(attributes)))
    }

    pub fn push(&mut self, piece: Html) -> &mut Html {
        self.0.push_str(&piece.0);
        self
    }

    /// A line of the file, for who reads the source.
    pub fn line(&mut self, piece: Html) -> &mut Html {
        self.push(piece);
        self.0.push('\n');
        self
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

fn attributes_of(attributes: &[(&'static str, &str)]) -> String {
    attributes
        .iter()
        .map(|(name, value)| format!(" {name}=\"{}\"", escaped(value)))
        .collect()
}

/// Lines stay; other control characters become visible.
fn escaped(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(clean).collect();
    let mut out = String::with_capacity(text.len());
    for c in lines.join("\n").chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        let name = "<T as \"x\">::y & 'z'\u{1b}[0m";
        let page = Html::with("a", &[("href", name)], Html::text(name)).into_string();
        let shown = "&lt;T as &quot;x&quot;&gt;::y &amp; &#39;z&#39;\u{fffd}[0m";
        assert_eq!(page, format!("<a href=\"{shown}\">{shown}</a>"));
    }
}
