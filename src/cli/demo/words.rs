//! What the demo calls its ways, and what it says of the program that it runs.

use super::workload::Cache;
use crate::render::story::Names;

pub const NAMES: Names = Names {
    variable: "requests",
    object: "4 MB of rules",
    wrong: "per-task",
    right: "shared",
};

/// The way without tasks.
pub const THREADS: &str = "threads";

/// The variable of the sweep that sets the ways apart.
pub const WAY: &str = "cache";

/// In the order in which they are told, by the name that the workload takes.
pub const WAYS: [(Cache, &str, &str); 4] = [
    (Cache::Threads, THREADS, "threads, a copy on each"),
    (Cache::PerTask, "per-task", "tasks, a copy for each"),
    (Cache::PerThread, "per-thread", "tasks, a copy per worker"),
    (Cache::Shared, "shared", "tasks, one for all (Arc)"),
];

/// The line of the workload that is wrong, and the one that is right.
pub const BEFORE: &str = "let rules = Rules::clone(SHARED.get_or_init(load));";
pub const AFTER: &str = "let rules = Arc::clone(SHARED.get_or_init(load));";

pub fn about(values: &[u64]) -> String {
    let runs = values.len() * WAYS.len();
    let counts: Vec<String> = values.iter().map(u64::to_string).collect();
    let (last, others) = counts.split_last().map_or(("", &[][..]), |(l, o)| (l, o));
    format!(
        "The program is a service in which every request looks up an object with 4 MB of rules and \
         then waits, as requests do. It ran {runs} times, with {} and {last} requests at once, in \
         {} ways: a thread for each request with a copy of the rules on each thread, as it was \
         before; a task for each request, with a copy for each task; tasks, with a copy for each of \
         the two worker threads; tasks, and one object for all.",
        others.join(", "),
        WAYS.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page shows these lines as the program's.
    #[test]
    fn the_lines_shown_are_those_that_run() {
        let program = include_str!("workload.rs");
        assert!(program.contains(BEFORE) && program.contains(AFTER));
    }
}
