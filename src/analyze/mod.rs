//! Analyses: one question per file, from a profile to plain structs. Nothing here prints.
//!
//! [`report`] asks them all. Its result, serialized as it stands, is `report --json`, whose names
//! and meanings tests and other tools rely on: fields may be added, never changed.

pub mod budget;
mod copies;
mod diff;
pub mod figures;
mod finding;
mod findings;
mod flames;
pub mod growth;
mod leaks;
mod memory;
mod moment;
mod order;
mod owners;
mod sampled;
mod shared;
mod sites;
mod stacks;
mod statics;
pub mod story;
mod tasks;
mod thread_locals;
mod threads;
mod workers;

pub use budget::{Judgement, Limit, Unusable, Verdict, judge};
pub use copies::CopiesRow;
pub use diff::{Change, Diff, diff};
pub use finding::{Finding, Kind};
pub use flames::{By, FlameOptions, Flames, Metric, NoFlames, flames, written};
pub use growth::GrowthRow;
pub use leaks::LeakRow;
pub use memory::MemoryRow;
pub use moment::{Moment, WalkRow};
pub use order::Order;
pub use owners::OtherRow;
pub use shared::SharedRow;
pub use sites::{SiteId, SiteRow, SiteTable};
pub use stacks::{Either, StackTotals, TaskStack, ThreadStack};
pub use tasks::{PerOwner, TaskRow};
pub use thread_locals::ThreadLocalRow;
pub use threads::ThreadRow;
pub use workers::{HeldRow, WorkerRow, summary as held_summary};

use crate::profile::{Origin, Profile, Totals};
use serde::Serialize;

/// All that is known, in the order of the JSON contract.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub schema: u32,
    pub program: ProgramRow,
    pub recording: RecordingRow,
    /// Of the whole run, at its end.
    pub totals: Totals,
    /// What `tasks` to `leaks` and `findings` speak of.
    pub moment: Moment,
    /// Of the last look before the end.
    pub memory: MemoryRow,
    pub memory_at_peak: MemoryRow,
    pub sites: Vec<SiteRow>,
    pub tasks: Vec<TaskRow>,
    pub threads: Vec<ThreadRow>,
    /// With `tasks` and `threads` these add up to the totals: scopes, what is shared, what is
    /// nobody's.
    pub others: Vec<OtherRow>,
    pub thread_locals: Vec<ThreadLocalRow>,
    pub shared: Vec<SharedRow>,
    pub copies: Vec<CopiesRow>,
    pub leaks: Vec<LeakRow>,
    /// Blocks to which something leads that may be a hidden pointer.
    pub possible_leaks: Vec<LeakRow>,
    pub stacks: StackTotals,
    /// Runtime workers, as seen from outside while the program ran.
    pub workers: Vec<WorkerRow>,
    /// From the timeline, as tasks or threads came and went; `sweep` knows more.
    pub growth: Vec<GrowthRow>,
    /// Why `growth` is empty; null where it is not.
    pub growth_note: Option<String>,
    /// Most bytes first.
    pub findings: Vec<Finding>,
    /// What the findings look for and from which size on, a sentence each. Empty without a walk.
    pub thresholds: Vec<String>,
    pub walks: Vec<WalkRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProgramRow {
    pub path: String,
    pub args: Vec<String>,
    pub pid: i32,
    pub started_unix_s: u64,
    pub duration_s: f64,
    pub exit: Exit,
    /// It became another program by `exec`.
    pub replaced: bool,
    pub allocators: Vec<String>,
    pub warnings: Vec<String>,
    pub recorder_version: String,
}

/// Both are null while the program runs.
#[derive(Clone, Debug, Serialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RecordingRow {
    /// `exact` or `sampled`.
    pub mode: &'static str,
    pub sample_bytes: u64,
    /// Of a sample: standard errors of the totals; of any other sum of bytes it is the root of
    /// bytes × `sample_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_error_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_error_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_error_bytes: Option<u64>,
    pub task_ids: String,
    pub truncated_stacks: u64,
    pub missing_stacks: u64,
    pub lost_events: u64,
    pub unknown_frees: u64,
    pub failed_allocations: u64,
    pub torn_events: u64,
    pub peak_bound_bytes: u64,
    pub debug_info: bool,
    pub shared_bytes: u64,
    pub private_bytes: u64,
    pub walks: usize,
    /// Is there a frame of tokio on any stack?
    pub runtime_seen: bool,
}

/// Asks every question of the profile.
pub fn report(profile: &Profile) -> Report {
    let sites = SiteTable::new(profile);
    let walk = moment::choose(profile);
    let owners = owners::sums(profile, walk);
    let tasks = tasks::rows(profile, walk, &owners, &sites);
    let threads = threads::rows(profile, walk, &owners);
    let (leaks, possible_leaks) = leaks::rows(profile, &sites);
    let (mut findings, thresholds) = findings::find(profile, walk, &sites);
    // They cost no bytes, so they stand last; and they need no walk.
    findings.extend(workers::findings(profile));
    let (growth, growth_note) = match growth::of_timeline(profile) {
        growth::Timed::Rows(rows) => (rows, None),
        growth::Timed::Nothing(why) => (Vec::new(), Some(why)),
    };
    let mut report = Report {
        schema: 1,
        program: program(profile),
        recording: recording(profile),
        totals: profile.totals.clone(),
        moment: moment::describe(profile, walk),
        memory: memory::row(profile.memory.as_ref()),
        memory_at_peak: memory::row(profile.memory_at_peak.as_ref()),
        sites: sites::rows(profile, &sites),
        stacks: stacks::totals(&tasks, &threads),
        others: owners::others(profile, &owners),
        thread_locals: thread_locals::rows(walk, &sites),
        shared: shared::rows(profile, walk, &sites),
        copies: copies::rows(profile, walk, &sites),
        workers: workers::rows(profile),
        leaks,
        possible_leaks,
        growth,
        growth_note,
        findings,
        thresholds,
        walks: moment::walks(profile),
        tasks,
        threads,
    };
    sampled::qualify(&mut report);
    report
}

fn program(profile: &Profile) -> ProgramRow {
    let program = &profile.program;
    ProgramRow {
        path: program.path.clone(),
        args: program.args.clone(),
        pid: program.pid,
        started_unix_s: program.started_unix_s,
        duration_s: program.duration_s,
        exit: Exit {
            code: program.exit_code,
            signal: program.exit_signal,
        },
        replaced: program.replaced,
        allocators: program.allocators.clone(),
        warnings: program.warnings.clone(),
        recorder_version: program.recorder_version.clone(),
    }
}

fn recording(profile: &Profile) -> RecordingRow {
    let recording = &profile.recording;
    RecordingRow {
        mode: if recording.sample_bytes == 0 {
            "exact"
        } else {
            "sampled"
        },
        sample_bytes: recording.sample_bytes,
        peak_error_bytes: None,
        allocated_error_bytes: None,
        live_error_bytes: None,
        task_ids: recording.task_ids.clone(),
        truncated_stacks: recording.truncated_stacks,
        missing_stacks: recording.missing_stacks,
        lost_events: recording.lost_events,
        unknown_frees: recording.unknown_frees,
        failed_allocations: recording.failed_allocations,
        torn_events: recording.torn_events,
        peak_bound_bytes: recording.peak_bound_bytes,
        debug_info: recording.debug_info,
        shared_bytes: recording.shared_bytes,
        private_bytes: recording.private_bytes,
        walks: profile.walks.len(),
        runtime_seen: profile.frames.origin.contains(&Origin::Runtime),
    }
}
