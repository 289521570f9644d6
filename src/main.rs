//! The exit code.

fn main() {}
