//! Tasks that hold their worker, seen from outside.
//!
//! A worker that stays on one task lets every other task wait: the thread sleeps, waits for a lock
//! or computes where it should have come back at the next `.await`. What the JDK tells of pinned
//! threads needs the runtime's help. Here the command looks at every worker's current task id each
//! few milliseconds (two loads in another process, no stop). Equal ids in two looks don't mean that
//! the task was not left meanwhile, so a suspicion is settled by a watchpoint on the id: as long as
//! nobody writes it, it is one poll. Where the kernel refuses watchpoints, a thread that has not run
//! since the suspicion has not left its task either, and what computes is told as uncertain. Only a
//! stay beyond the threshold stops the thread, for as long as it takes to copy its stack.
//!
//! What the looks cost is bounded: threads beyond the first hundred are looked at in turns, and the
//! search for a task's type among all rows has a share of the time that it may not exceed.

mod stack;
mod stay;

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::profile::recording::{Doing, Recorded, SeenStay, SeenWorker, ThreadCopy};
use crate::sys::mem::ProcessMemory;
use crate::sys::sched;
use crate::sys::watchpoint::Watchpoint;
use stack::UnwindTables;
use stay::{Event, Stay};

/// Threads that are looked at each time; more take turns.
const AT_A_TIME: usize = 128;
/// Stays that are kept of one worker, and stacks that are taken in one run.
const STAYS: usize = 64;
const STACKS: usize = 500;
/// Innermost frames among which the recorder shows itself, should it be what waits.
const RECORDER_FRAMES: usize = 6;
/// Share of the time that may be spent on finding out which type a task has.
const SEARCH_SHARE: u32 = 500;

/// Where a task id stands: offset from the thread pointer, and of the word that is 0 while no task
/// runs, if there is one.
pub type Place = (i64, Option<i64>);

/// Looks at the workers of one process.
pub struct Workers {
    held_after: Duration,
    places: Vec<Place>,
    memory: Option<ProcessMemory>,
    threads: HashMap<i32, Thread>,
    turn: usize,
    began: Instant,
    searched: Duration,
    stacks: usize,
    tables: UnwindTables,
    /// Where the preload library is, as the process has it mapped.
    own_library: Vec<u8>,
}

#[derive(Default)]
struct Thread {
    seen: SeenWorker,
    last_look: Option<Instant>,
    stay: Stay,
    watch: Option<Watchpoint>,
    /// How long it had run and been ready when the stay was first suspected.
    ran: Option<(Duration, Duration)>,
    /// Of the stay that goes on, once it is beyond the threshold.
    told: Option<SeenStay>,
}

impl Workers {
    /// `places`: where task ids are. Without one there is nothing to look at.
    pub fn new(places: Vec<Place>, held_after: Duration, own_library: &Path) -> Workers {
        Workers {
            own_library: own_library.as_os_str().as_bytes().to_vec(),
            held_after,
            places,
            memory: None,
            threads: HashMap::new(),
            turn: 0,
            began: Instant::now(),
            searched: Duration::ZERO,
            stacks: 0,
            tables: UnwindTables::default(),
        }
    }

    /// To be called every few milliseconds, never while a walk stops the process.
    pub fn look(&mut self, recorded: &Recorded) {
        let now = Instant::now();
        if self.places.is_empty() {
            return;
        }
        let mut running = recorded.running_threads();
        let turns = running.len().div_ceil(AT_A_TIME) as u32;
        if running.len() > AT_A_TIME {
            self.turn = (self.turn + AT_A_TIME) % running.len();
            running.rotate_left(self.turn);
            running.truncate(AT_A_TIME);
        }
        let Some(ids) = self.ids(recorded.pid(), &running) else {
            return;
        };
        for (thread, (id, address)) in running.iter().zip(ids) {
            self.seen(recorded, thread, id, address, (now, turns));
        }
    }

    /// A walk stopped the process since the last look: that time doesn't count.
    pub fn skip(&mut self) {
        for thread in self.threads.values_mut() {
            thread.last_look = None;
        }
    }

    /// Task id of each thread, 0 if it has none, and the address of the word that says so.
    fn ids(&mut self, pid: i32, threads: &[ThreadCopy]) -> Option<Vec<(u64, u64)>> {
        if self.memory.is_none() {
            self.memory = ProcessMemory::open(pid).ok();
        }
        let memory = self.memory.as_ref()?;
        let mut ids = vec![(0, 0); threads.len()];
        for (offset, present) in &self.places {
            let at = |thread: &ThreadCopy, offset: i64| {
                (thread.thread_pointer.wrapping_add_signed(offset), 8)
            };
            let mut wanted: Vec<(u64, usize)> = threads.iter().map(|t| at(t, *offset)).collect();
            wanted.extend(threads.iter().map(|t| at(t, present.unwrap_or(*offset))));
            let words = read_words(memory, &wanted);
            for (n, found) in ids.iter_mut().enumerate() {
                let (id, present) = (words[n], words[threads.len() + n]);
                if found.0 == 0 && id != 0 && present != 0 {
                    *found = (id, wanted[n].0);
                }
            }
        }
        Some(ids)
    }

    fn seen(
        &mut self,
        recorded: &Recorded,
        copy: &ThreadCopy,
        id: u64,
        address: u64,
        (now, turns): (Instant, u32),
    ) {
        if id == 0 && !self.threads.contains_key(&copy.tid) {
            return;
        }
        let thread = self.threads.entry(copy.tid).or_default();
        thread.seen.tid = copy.tid;
        let last = thread.last_look.replace(now);
        let since = last.map_or(Duration::ZERO, |last| now - last);
        let since = since.min(stay::MOST_OF_A_LOOK * turns);
        let hits = thread.watch.as_ref().map_or(Some(0), Watchpoint::hits);
        let event = thread.stay.look(
            id,
            since,
            hits.is_some_and(|hits| hits == 0),
            self.held_after,
        );
        match event {
            Event::None => {}
            Event::Ended { counted } => thread.end(recorded.pid(), counted),
            Event::Suspected => {
                thread.watch = Watchpoint::on_writes(copy.tid, address).ok();
                thread.ran = sched::run_times(recorded.pid(), copy.tid);
            }
            Event::Beyond => self.tell(recorded, copy, id),
        }
        self.count(recorded, copy, id);
    }

    /// Which types of task run on the thread, by looks that are chosen before they are made.
    fn count(&mut self, recorded: &Recorded, copy: &ThreadCopy, id: u64) {
        let may_search = self.searched * SEARCH_SHARE <= self.began.elapsed();
        let Some(thread) = self.threads.get_mut(&copy.tid).filter(|_| may_search) else {
            return;
        };
        thread.seen.thread = recorded.owner_of_row(copy.row);
        thread.seen.looks += 1;
        if id == 0 {
            return;
        }
        let began = Instant::now();
        let owner = recorded.owner_of_task(id);
        self.searched += began.elapsed();
        match thread.seen.busy.iter_mut().find(|(of, _)| *of == owner) {
            Some((_, looks)) => *looks += 1,
            None => thread.seen.busy.push((owner, 1)),
        }
    }

    /// The stay is beyond the threshold: what is the thread doing, and where?
    fn tell(&mut self, recorded: &Recorded, copy: &ThreadCopy, id: u64) {
        let pid = recorded.pid();
        let Some(thread) = self.threads.get_mut(&copy.tid) else {
            return;
        };
        let counted = thread.stay.counted();
        let delay = thread.delay(pid, copy.tid);
        if thread.seen.stays.len() >= STAYS || self.stacks >= STACKS {
            return;
        }
        // A thread that is ready and gets no processor is no fault of its task.
        let held = counted.saturating_sub(delay) >= self.held_after;
        let doing = doing(pid, copy.tid, thread.ran, self.held_after).filter(|_| held);
        let Some(doing) = doing else {
            return thread.stay.ask_again();
        };
        // Between the look and the stop the task may have come back: then nothing is told.
        let is_still = |thread: &Thread| {
            let hits = thread.watch.as_ref().map_or(Some(0), Watchpoint::hits);
            hits.is_some_and(|hits| hits == 0)
        };
        self.stacks += 1;
        let copied = stack::copy(pid, copy.tid, copy.stack_high);
        if !is_still(thread) {
            return;
        }
        let modules = recorded.modules();
        let addresses = copied.map(|copied| {
            self.tables.add(&modules, &recorded.exe());
            self.tables.unwind(&copied)
        });
        let addresses = addresses.unwrap_or_default();
        // The recorder itself: its own waits are no fault of the program's.
        let own = modules
            .iter()
            .find(|module| module.path == self.own_library);
        let is_own = |at: &u64| own.is_some_and(|own| own.low <= *at && *at < own.high);
        if addresses.iter().take(RECORDER_FRAMES).any(is_own) {
            return;
        }
        thread.told = Some(SeenStay {
            owner: recorded.owner_of_task(id),
            at_s: (recorded.elapsed_s() - counted.as_secs_f64()).max(0.0),
            seconds: counted.as_secs_f64(),
            doing: Some(doing),
            addresses,
            uncertain: thread.watch.is_none() && !thread.has_not_run(pid),
        });
    }

    /// What was seen so far.
    pub fn so_far(&self) -> Vec<SeenWorker> {
        let threads = self.threads.values();
        threads.map(|thread| thread.seen.clone()).collect()
    }

    /// What was seen, by thread. The stays that go on end now.
    pub fn finish(self, pid: i32) -> Vec<SeenWorker> {
        let threads = self.threads.into_values();
        let mut seen: Vec<SeenWorker> = threads
            .map(|mut thread| {
                let counted = thread.stay.counted();
                thread.end(pid, counted);
                thread.seen
            })
            .collect();
        seen.sort_by_key(|worker| worker.tid);
        seen
    }
}

impl Thread {
    /// Has it slept all the time since the stay was suspected?
    fn has_not_run(&self, pid: i32) -> bool {
        let ran = sched::run_times(pid, self.seen.tid).map(|(ran, _)| ran);
        ran.is_some() && ran == self.ran.map(|(ran, _)| ran)
    }

    /// How long the thread was ready and not running since the stay was suspected.
    fn delay(&self, pid: i32, tid: i32) -> Duration {
        let now = sched::run_times(pid, tid);
        match (self.ran, now) {
            (Some((_, before)), Some((_, delay))) => delay.saturating_sub(before),
            _ => Duration::ZERO,
        }
    }

    /// The stay is over, after so long.
    fn end(&mut self, pid: i32, counted: Duration) {
        self.watch = None;
        if let Some(mut told) = self.told.take() {
            let delay = self.delay(pid, self.seen.tid);
            told.seconds = counted.saturating_sub(delay).as_secs_f64();
            self.seen.stays.push(told);
        }
    }
}

/// Words at many addresses; those that can't be read are 0.
fn read_words(memory: &ProcessMemory, wanted: &[(u64, usize)]) -> Vec<u64> {
    const BATCH: usize = 512;
    let mut words = Vec::with_capacity(wanted.len());
    for batch in wanted.chunks(BATCH) {
        let mut bytes = vec![0; batch.len() * 8];
        if memory.read_ranges(batch, &mut bytes) != bytes.len() {
            // One thread has gone: each by itself.
            for (into, (address, _)) in bytes.chunks_exact_mut(8).zip(batch) {
                if memory.read(*address, into) != 8 {
                    into.fill(0);
                }
            }
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or([0; 8]));
        words.extend(bytes.chunks_exact(8).map(word));
    }
    words
}

/// What a thread does that has been on one task beyond the threshold. `None` while that is no fault
/// of the task: the thread is stopped, or was ready to run and got no processor most of the time.
fn doing(
    pid: i32,
    tid: i32,
    before: Option<(Duration, Duration)>,
    held_after: Duration,
) -> Option<Doing> {
    match sched::state(pid, tid)? {
        'S' | 'D' => Some(match sched::current_call(pid, tid)?.0 {
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Doing::Sleeping,
            libc::SYS_futex => Doing::Waiting,
            _ => Doing::InSystemCall,
        }),
        'R' => {
            let (ran, _) = sched::run_times(pid, tid)?;
            let (ran_before, _) = before?;
            (ran.saturating_sub(ran_before) * 2 >= held_after).then_some(Doing::Computing)
        }
        _ => None,
    }
}
