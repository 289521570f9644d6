//! The exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskheap::cli::main()
}
