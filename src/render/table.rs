//! Aligned columns that fit a width: numbers keep theirs, names share what is left.

use anstyle::Style;

use super::text::{HEADING, clean, shorten, styled, width};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Align {
    /// A name: may be shortened.
    Name,
    Number,
}

struct Column {
    title: String,
    align: Align,
    /// Left out if no row says anything in it.
    optional: bool,
}

/// A title, as [`Table::new`] takes it, and what is shown of a row.
pub type Shown<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

/// A table that is being filled.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<(Style, Vec<String>)>,
    indent: usize,
}

const GAP: usize = 2;
/// Names are not shortened below this, even if the line gets too long.
const LEAST: usize = 8;

impl Table {
    /// Titles of numbers begin with `>`; before that, `?` for a column that is left out where no
    /// row says anything in it.
    pub fn new(titles: &[&str]) -> Table {
        let column = |title: &&str| {
            let (optional, title) = match title.strip_prefix('?') {
                Some(title) => (true, title),
                None => (false, *title),
            };
            let (align, title) = match title.strip_prefix('>') {
                Some(title) => (Align::Number, title),
                None => (Align::Name, title),
            };
            Column {
                title: title.to_owned(),
                align,
                optional,
            }
        };
        Table {
            columns: titles.iter().map(column).collect(),
            rows: Vec::new(),
            indent: 2,
        }
    }

    /// A row for each of `rows`. A title stands beside what is shown below it, so that neither can
    /// be moved alone.
    pub fn of<T>(rows: &[T], columns: &[Shown<'_, T>]) -> Table {
        let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
        let mut table = Table::new(&titles);
        for row in rows {
            table.row(columns.iter().map(|(_, shown)| shown(row)).collect());
        }
        table
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.styled_row(Style::new(), cells);
    }

    pub fn styled_row(&mut self, style: Style, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows
            .push((style, cells.iter().map(|cell| clean(cell)).collect()));
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Lines of at most `limit` characters, the titles first; no limit if none is given.
    pub fn render(&self, limit: Option<usize>) -> String {
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|at| self.shows(*at))
            .collect();
        let widths = self.widths(&shown, limit);
        let mut out = String::new();
        let titles: Vec<&str> = self.columns.iter().map(|c| c.title.as_str()).collect();
        self.line(&mut out, HEADING, &titles, &shown, &widths);
        for (style, cells) in &self.rows {
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            self.line(&mut out, *style, &cells, &shown, &widths);
        }
        out
    }

    fn shows(&self, at: usize) -> bool {
        let mut cells = self.rows.iter().map(|(_, cells)| cells[at].as_str());
        !self.columns[at].optional || cells.any(|cell| !matches!(cell, "" | "-" | "0" | "0B"))
    }

    fn line(
        &self,
        out: &mut String,
        style: Style,
        cells: &[&str],
        shown: &[usize],
        widths: &[usize],
    ) {
        let mut line = " ".repeat(self.indent);
        for (number, (at, size)) in shown.iter().zip(widths).enumerate() {
            if number > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let cell = shorten(cells[*at], *size);
            let padding = " ".repeat(size - width(&cell));
            match self.columns[*at].align {
                Align::Name => line.extend([cell, padding]),
                Align::Number => line.extend([padding, cell]),
            }
        }
        out.push_str(&styled(style, line.trim_end()));
        out.push('\n');
    }

    /// Of the columns that are shown.
    fn widths(&self, shown: &[usize], limit: Option<usize>) -> Vec<usize> {
        let natural = |at: &usize| {
            let cells = self.rows.iter().map(|(_, cells)| width(&cells[*at]));
            cells
                .max()
                .unwrap_or(0)
                .max(width(&self.columns[*at].title))
        };
        let mut widths: Vec<usize> = shown.iter().map(natural).collect();
        let Some(limit) = limit else {
            return widths;
        };
        let gaps = self.indent + GAP * shown.len().saturating_sub(1);
        let is_name = |number: &usize| self.columns[shown[*number]].align == Align::Name;
        // The widest name gives way first, one character at a time, until the line fits.
        while gaps + widths.iter().sum::<usize>() > limit {
            let widest = (0..widths.len())
                .filter(is_name)
                .max_by_key(|at| widths[*at]);
            match widest {
                Some(at) if widths[at] > LEAST => widths[at] -= 1,
                _ => break,
            }
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_way_to_numbers() {
        let mut table = Table::new(&["task", ">bytes", "where"]);
        table.row(vec![
            "a::very::long::path::to::a::function".to_owned(),
            "4.0MB".to_owned(),
            "src/main.rs:1".to_owned(),
        ]);
        let text = anstream::adapter::strip_str(&table.render(Some(40))).to_string();
        assert!(text.lines().all(|line| width(line) <= 40), "{text}");
        assert!(text.contains("4.0MB"), "{text}");
        assert!(
            table
                .render(None)
                .contains("a::very::long::path::to::a::function")
        );
    }

    #[test]
    fn columns_that_say_nothing_go() {
        let mut table = Table::new(&["task", "?>finished", ">bytes"]);
        table.row(vec!["a".to_owned(), "0".to_owned(), "1B".to_owned()]);
        table.row(vec!["b".to_owned(), "-".to_owned(), "2B".to_owned()]);
        assert!(!table.render(None).contains("finished"));
        assert!(table.render(None).contains("2B"));
    }
}
