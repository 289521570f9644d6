//! Renderers: from plain structs to bytes. No questions are asked of a profile here.

pub mod chart;
pub mod chart_svg;
pub mod comparison;
pub mod export;
pub mod findings;
pub mod first_screen;
pub mod flamegraph;
pub mod growth;
mod html;
pub mod judgement;
pub mod stacks_svg;
pub mod story;
pub mod table;
pub mod tables;
pub mod text;
pub mod units;
pub mod workers;
