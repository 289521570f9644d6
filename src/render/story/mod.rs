//! A story of one kind of work done in several ways: for the terminal, and as a page that a person
//! opens who has read nothing.

pub mod charts;
pub mod page;
mod rows;
mod style;
pub mod text;

/// What the story calls things.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// What there are many of at once: `requests`.
    pub variable: &'static str,
    /// What is kept: `4 MB of rules`.
    pub object: &'static str,
    /// The way that people fall into, by its key, and the one that they should take.
    pub wrong: &'static str,
    pub right: &'static str,
}
