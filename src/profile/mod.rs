//! The finished profile: its model, its file, the names in it, and shared ways to look at it.

mod model;
pub mod target;
mod view;

pub use model::*;
pub use view::{Site, percentile};
