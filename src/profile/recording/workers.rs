//! What was seen of runtime workers from outside, and how it gets into the profile.
//!
//! While the program runs there are no names, so what was seen has owner types by number and
//! stacks as addresses. Two kinds of stay are no fault and go when they can be told: tasks that
//! were given to the blocking pool are there to block, and `block_in_place` says that it will.

use super::super::{FrameId, Held, OwnerId, Profile, Worker};

/// A thread on which tasks were seen to run.
#[derive(Clone, Debug, Default)]
pub struct SeenWorker {
    pub tid: i32,
    /// Owner type of the thread itself.
    pub thread: Option<u32>,
    /// How often it was looked at to know what runs on it, and how often it was what, by owner
    /// type.
    pub looks: u64,
    pub busy: Vec<(Option<u32>, u64)>,
    pub stays: Vec<SeenStay>,
}

/// One task stayed on a worker, for longer than a look can miss.
#[derive(Clone, Debug, Default)]
pub struct SeenStay {
    pub owner: Option<u32>,
    pub at_s: f64,
    pub seconds: f64,
    /// What it was seen doing; none if it was not stopped, because it was short.
    pub doing: Option<Doing>,
    /// Return addresses, innermost first.
    pub addresses: Vec<u64>,
    /// Nothing tells that the task was not left and entered again meanwhile.
    pub uncertain: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    Computing,
    Sleeping,
    /// A lock, a condition, a parked thread.
    Waiting,
    InSystemCall,
}

/// A frame of a stack that says that blocking is meant.
const MEANT: &str = "block_in_place";

/// Frames among which the C library's call stands.
const INNERMOST: usize = 4;
/// Frames that wait for another thread's initialiser.
const INITIALISERS: [&str; 5] = [
    "once::Once::call",
    "once::futex::Once",
    "OnceLock<",
    "LazyLock<",
    "once_cell::",
];

impl Doing {
    fn text(self, profile: &Profile, held: &Held) -> &'static str {
        let passes = |names: &[&str]| {
            let mut frames = held.stack.iter().map(|frame| profile.function(*frame));
            frames.any(|function| names.iter().any(|name| function.contains(name)))
        };
        let sleeps = || {
            let mut frames = held.stack.iter().take(INNERMOST);
            frames.any(|frame| profile.function(*frame).contains("nanosleep"))
        };
        match self {
            Doing::Computing => "computing",
            Doing::Sleeping => "sleeping",
            Doing::Waiting if passes(&["park", "Condvar", "cond_wait"]) => "waiting to be woken",
            Doing::Waiting if passes(&INITIALISERS) => "waiting for an initialiser",
            Doing::Waiting => "waiting for a lock",
            // A call that a stop cut short is issued again under another number.
            Doing::InSystemCall if sleeps() => "sleeping",
            Doing::InSystemCall => "in a system call",
        }
    }
}

/// Workers with names. `stacks` are the frames of each stay, in order.
pub(super) fn name(
    profile: &Profile,
    seen: &[SeenWorker],
    mut stacks: impl Iterator<Item = Vec<FrameId>>,
) -> Vec<Worker> {
    let mut workers = Vec::new();
    for one in seen {
        let mut worker = Worker {
            thread_name: thread_name(profile, one),
            tid: one.tid,
            looks: one.looks,
            ..Worker::default()
        };
        let counts = |owner: &Option<u32>| owner.is_none_or(|owner| is_async(profile, owner));
        let busy = one.busy.iter().filter(|(owner, _)| counts(owner));
        let busy: u64 = busy.map(|(_, looks)| looks).sum();
        worker.busy_share = busy as f64 / one.looks.max(1) as f64;
        for stay in &one.stays {
            let stack = stacks.next().unwrap_or_default();
            let mut held = Held {
                owner: stay.owner.map(OwnerId),
                at_s: stay.at_s,
                seconds: stay.seconds,
                uncertain: stay.uncertain,
                stack,
                ..Held::default()
            };
            if !counts(&stay.owner) || is_meant(profile, &held) {
                continue;
            }
            if stay.seconds > worker.longest_stay_s {
                worker.longest_stay_s = stay.seconds;
                worker.longest_on = held.owner;
            }
            if let Some(doing) = stay.doing {
                held.state = doing.text(profile, &held).to_owned();
                worker.held.push(held);
            }
        }
        if busy > 0 {
            workers.push(worker);
        }
    }
    workers
}

fn thread_name(profile: &Profile, seen: &SeenWorker) -> String {
    let owner = seen.thread.and_then(|at| profile.owners.get(at as usize));
    owner.map_or_else(String::new, |owner| owner.name.clone())
}

/// Not of the blocking pool.
fn is_async(profile: &Profile, owner: u32) -> bool {
    let owner = profile.owners.get(owner as usize);
    owner.is_none_or(|owner| !owner.blocking && !owner.runtime_own)
}

fn is_meant(profile: &Profile, held: &Held) -> bool {
    let mut frames = held.stack.iter().map(|frame| profile.function(*frame));
    frames.any(|function| function.contains(MEANT))
}
