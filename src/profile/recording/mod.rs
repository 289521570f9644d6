//! The command's side of a recording: it makes the shared memory, answers the profiled process,
//! reads the tables, and makes a profile of them when the run has ended.

mod collect;
mod file;
mod frames;
mod host;
mod rows;
mod tables;
mod workers;

pub use collect::{Ending, Facts, Frozen, collect, collect_from, path_of};
pub use file::{is_recording, profile_of_file};
pub use frames::{Namer, Names};
pub use host::{Configuration, Host, Recorded};
pub use tables::{CounterSums, LiveTable, ModuleCopy, OwnerCopy, RowCopy, Tables, ThreadCopy};
pub use workers::{Doing, SeenStay, SeenWorker};
