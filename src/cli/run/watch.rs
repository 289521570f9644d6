//! The time from the program's start to its end.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::Error;
use super::asked::Answer;
use super::configure::{self, Known};
use super::outside::{finished_tasks, resident};
use super::snapshots::{self, Snapshots};
use super::walker::{Exiting, Knowledge, Seen, Walker};
use super::{Plan, Started, launch, library, limits, signals};
use crate::profile::recording::{Ending, Facts, Host, Recorded, collect};
use crate::profile::{Profile, Timeline, Walk, WalkReason, target};
use crate::sys::sched;
use crate::walk::Workers;
use crate::wire::State;

/// How often the recordings are looked after.
const TICK: Duration = Duration::from_millis(5);
/// Points of the timeline; when there are more, every other one goes.
const POINTS: usize = 2000;

pub struct Watched {
    pub exit_code: u8,
    /// Name of the program, and its profile.
    pub profiles: Vec<(String, Profile)>,
    pub error: Option<Error>,
}

pub fn watch(plan: &Plan) -> Result<Watched, Error> {
    let mut known = Known::new(plan.walks, plan.sample_bytes);
    let notes = look_at(plan, &mut known)?;
    let library = library::place()?;
    let mut host = Host::new(plan.follow).map_err(|error| Error::Refused {
        what: format!("can't make the recording: {error}"),
        hint: "free some shared memory (ipcs -m), or raise the limits".to_owned(),
    })?;
    let limits = limits::Raised::new();
    signals::catch();
    let started = Instant::now();
    let child = launch::start(plan, &library, &host.variable(), limits).map_err(|error| {
        Error::Refused {
            what: format!("can't run {}: {error}", plan.program.display()),
            hint: "does it run without taskheap?".to_owned(),
        }
    })?;
    signals::hand_on_to(child.id() as i32);
    if let Some(tell) = &plan.surroundings.started {
        let process = pidfd(child.id() as i32);
        // Nobody waits for it any more: nobody has to know.
        let _ = tell.send(Started { process });
    }
    let mut watch = Watch {
        plan,
        known,
        library,
        timeline: Timeline::default(),
        finished: None,
        knowledge: Arc::default(),
        processes: HashMap::new(),
    };
    let status = watch
        .until_it_ends(&mut host, child)
        .map_err(|error| Error::Refused {
            what: format!("can't wait for the program: {error}"),
            hint: "this should not happen; the program may still be running".to_owned(),
        })?;
    signals::stop();
    let duration = started.elapsed();
    Ok(watch.finish(&host, status, duration, notes))
}

/// Looks at the program before it is started: can the library be preloaded into it?
fn look_at(plan: &Plan, known: &mut Known) -> Result<Vec<String>, Error> {
    let refused = |error: target::TargetError| Error::Refused {
        hint: error
            .remedy()
            .unwrap_or("choose another program")
            .to_owned(),
        what: error.to_string(),
    };
    let mut notes = Vec::new();
    let program = std::fs::canonicalize(&plan.program).unwrap_or(plan.program.clone());
    let exe = match target::interpreter_of(&program).map_err(refused)? {
        Some(interpreter) => {
            if !plan.follow {
                notes.push(format!(
                    "{} is a script: what is recorded is its interpreter. Add --follow to \
                     record the programs that it starts",
                    plan.program.display()
                ));
            }
            std::fs::canonicalize(&interpreter).unwrap_or(interpreter)
        }
        None => program,
    };
    let found = target::inspect(&exe).map_err(refused)?;
    if !plan.follow && exe.file_name().is_some_and(|name| name == "cargo") {
        notes.push(
            "cargo starts the program as a child: add --follow to record it, or give the built \
             program itself"
                .to_owned(),
        );
    }
    known.add(&exe, found);
    Ok(notes)
}

struct Watch<'a> {
    plan: &'a Plan,
    known: Known,
    library: PathBuf,
    timeline: Timeline,
    /// Finds rows of finished tasks of the program, as of its last moment. Not on this thread:
    /// the program takes a command that stops ticking for one that is gone.
    finished: Option<JoinHandle<Option<Vec<u32>>>>,
    knowledge: Arc<Mutex<Knowledge>>,
    /// By pid.
    processes: HashMap<i32, Process>,
}

/// A process that records.
struct Process {
    walker: Walker,
    workers: Workers,
    snapshots: Snapshots,
    exiting: Option<Exiting>,
}

/// Readable when the process has ended. `None` on kernels without it: then a tick is waited for.
fn pidfd(pid: i32) -> Option<OwnedFd> {
    // SAFETY: takes no pointer; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    // SAFETY: a descriptor that was just opened and is nobody else's.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until the process ends, for a tick at most. True if it has ended.
///
/// Never by `waitpid` alone: while a walk traces the process, a wait of any thread of ours would
/// take the stops that are meant for the tracer, for the end, and away from it.
fn ends_within_a_tick(pid: i32, end: Option<&OwnedFd>) -> bool {
    match end {
        Some(fd) => {
            let mut poll = libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry, valid during the call.
            unsafe { libc::poll(&mut poll, 1, TICK.as_millis() as i32) == 1 }
        }
        None => {
            std::thread::sleep(TICK);
            matches!(sched::state(pid, pid), Some('Z' | 'X') | None)
        }
    }
}

/// The status of our own child, which has ended.
fn status_of(pid: i32) -> io::Result<i32> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a place for the answer.
        match unsafe { libc::waitpid(pid, &mut status, libc::__WNOTHREAD) } {
            found if found == pid && !libc::WIFSTOPPED(status) => return Ok(status),
            found if found == pid => {}
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

impl Watch<'_> {
    fn until_it_ends(&mut self, host: &mut Host, child: Child) -> io::Result<i32> {
        let pid = child.id() as i32;
        let end = pidfd(pid);
        let mut next_point = 0;
        let mut step = 50;
        loop {
            let known = &mut self.known;
            host.tick(|exe| known.about(exe).configuration.clone())?;
            self.look_after(host, pid);
            if host.elapsed_ms() >= next_point {
                self.add_point(host, pid, &mut step);
                next_point = host.elapsed_ms() + step;
            }
            if ends_within_a_tick(pid, end.as_ref()) {
                return status_of(pid);
            }
        }
    }

    /// Walks where it is time, and lets go who waits at its end.
    fn look_after(&mut self, host: &Host, pid: i32) {
        let now = host.elapsed_ms();
        for recorded in host.taken() {
            if recorded.state_is(State::Recording) {
                let walks = self.plan.walks;
                let process = self.process(recorded);
                if walks {
                    process.walker.tick(now);
                }
                let asked = process.snapshots.look(&mut process.walker);
                if let Some((answers, seen)) = asked {
                    self.answer(host, recorded, answers, seen, pid);
                }
                let process = self.process(recorded);
                // Both stop threads, and a thread can have one tracer only.
                match process.walker.is_copying() {
                    true => process.workers.skip(),
                    false => process.workers.look(recorded),
                }
            }
            if recorded.state_is(State::Exiting) {
                let has_looked = recorded.pid() != pid || self.look_for_finished_tasks(recorded);
                let walks = self.plan.walks;
                let process = self.process(recorded);
                let has_walked = !walks || process.walker.is_done_with(now, &mut process.exiting);
                if has_looked && has_walked {
                    recorded.release();
                }
            }
        }
    }

    /// True once they are found.
    fn look_for_finished_tasks(&mut self, recorded: &Arc<Recorded>) -> bool {
        let look = self.finished.get_or_insert_with(|| {
            let recorded = recorded.clone();
            std::thread::spawn(move || finished_tasks(&recorded))
        });
        look.is_finished()
    }

    fn process(&mut self, recorded: &Arc<Recorded>) -> &mut Process {
        let pid = recorded.pid();
        if !self.processes.contains_key(&pid) {
            let about = self.known.about(&recorded.exe());
            let places = match self.plan.held_after {
                Some(_) => about.configuration.task_ids.clone(),
                None => Vec::new(),
            };
            let limit = self.plan.memory_limit;
            let process = Process {
                walker: Walker::new(
                    recorded.clone(),
                    &self.library,
                    limit,
                    self.knowledge.clone(),
                ),
                workers: Workers::new(
                    places,
                    self.plan.held_after.unwrap_or_default(),
                    &self.library,
                ),
                snapshots: Snapshots::of(pid, self.plan.walks),
                exiting: None,
            };
            self.processes.insert(pid, process);
        }
        self.processes.get_mut(&pid).expect("inserted above")
    }

    /// Has a profile made for those who wait for one. The timeline is that of the first process.
    fn answer(
        &mut self,
        host: &Host,
        recorded: &Arc<Recorded>,
        answers: Vec<Answer>,
        seen: Receiver<Seen>,
        first: i32,
    ) {
        let so_far = Duration::from_millis(u64::from(host.elapsed_ms()));
        let mut facts = self.facts(recorded, so_far);
        if recorded.pid() == first {
            facts.timeline = self.timeline.clone();
        }
        facts.workers = self.process(recorded).workers.so_far();
        snapshots::answer(
            answers,
            seen,
            recorded.clone(),
            facts,
            self.knowledge.clone(),
        );
    }

    fn add_point(&mut self, host: &Host, pid: i32, step: &mut u32) {
        let Some(recorded) = host.taken().find(|r| r.pid() == pid) else {
            return;
        };
        let header = recorded.header();
        self.timeline.at_ms.push(host.elapsed_ms());
        self.timeline
            .live_bytes
            .push(header.sums.live_bytes.load(Relaxed).max(0) as u64);
        self.timeline.rss_bytes.push(resident(pid));
        self.timeline
            .threads_alive
            .push(header.threads_alive.load(Relaxed));
        self.timeline.tasks_alive.push(recorded.tasks_alive());
        if self.timeline.at_ms.len() > POINTS {
            *step *= 2;
            thin(&mut self.timeline);
        }
    }

    fn finish(
        mut self,
        host: &Host,
        status: i32,
        duration: Duration,
        notes: Vec<String>,
    ) -> Watched {
        let ending = ending(status);
        let exit_code = match (ending.code, ending.signal) {
            (Some(code), _) => code as u8,
            (_, Some(signal)) => (128 + signal) as u8,
            _ => 0,
        };
        let mut watched = Watched {
            exit_code,
            profiles: Vec::new(),
            error: None,
        };
        for (at, recorded) in host.taken().enumerate() {
            let mut facts = self.facts(recorded, duration);
            if at == 0 {
                facts.ending = ending;
                facts.warnings.splice(0..0, notes.clone());
                facts.finished = self
                    .finished
                    .take()
                    .and_then(|look| look.join().ok().flatten());
                facts.timeline = std::mem::take(&mut self.timeline);
            }
            facts.ending.replaced = recorded.state_is(State::Replaced);
            if let Some(process) = self.processes.remove(&recorded.pid()) {
                let (walks, error) = process.walker.finish();
                add_walks(&mut facts, walks);
                facts
                    .warnings
                    .extend(error.map(|error| format!("the heap could not be looked at: {error}")));
                facts.workers = process.workers.finish(recorded.pid());
            }
            let knowledge = self.knowledge.clone();
            let mut knowledge = knowledge.lock().unwrap_or_else(PoisonError::into_inner);
            let namer = &mut knowledge.namer;
            let profile = with_progress(|progress| collect(recorded, facts, namer, progress));
            drop(knowledge);
            watched.profiles.push((program_name(&profile), profile));
        }
        if watched.profiles.is_empty() {
            watched.error = Some(never_attached(self.plan));
        }
        watched
    }

    fn facts(&mut self, recorded: &Recorded, duration: Duration) -> Facts {
        let about = self.known.about(&recorded.exe());
        let header = recorded.header();
        let (made, error) = (
            header.patched.load(Relaxed),
            header.patch_error.load(Relaxed),
        );
        let mut warnings = about.warnings.clone();
        warnings.extend(configure::patch_warning(&about.configuration, made, error));
        let started = SystemTime::now().checked_sub(duration);
        let started = started.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Facts {
            args: self
                .plan
                .args
                .iter()
                .map(|arg| arg.to_string_lossy().into_owned())
                .collect(),
            started_unix_s: started.map_or(0, |time| time.as_secs()),
            duration_s: duration.as_secs_f64(),
            task_ids: about.task_ids.to_owned(),
            warnings,
            ..Facts::default()
        }
    }
}

/// Walks, and what they say of memory.
pub fn add_walks(facts: &mut Facts, mut walks: Vec<Walk>) {
    for (at, walk) in walks.iter_mut().enumerate() {
        walk.memory.moment = format!("walk {} at {:.1} s", at + 1, walk.at_s);
    }
    facts.memory = last_at_work(&walks).map(|walk| walk.memory.clone());
    let fullest = walks.iter().max_by_key(|walk| walk.live_bytes);
    facts.memory_at_peak = fullest.map(|walk| walk.memory.clone());
    facts.walks = walks;
}

/// The last look at the program before it took itself apart: a look at its exit tells nothing
/// about its memory if most of what it held was freed just before.
fn last_at_work(walks: &[Walk]) -> Option<&Walk> {
    let (last, before) = walks.split_last()?;
    let torn_down = |before: &&Walk| {
        let (heap, all) = (before.live_bytes / 2, before.memory.rss_bytes / 2);
        let less = last.live_bytes < heap || last.memory.rss_bytes < all;
        last.reason == WalkReason::Exit && less
    };
    before.last().filter(torn_down).or(Some(last))
}

/// Shows how far naming has come, if that takes long enough to wonder.
fn with_progress(work: impl FnOnce(&dyn Fn(usize, usize)) -> Profile) -> Profile {
    let bar = indicatif::ProgressBar::new(0);
    let style =
        indicatif::ProgressStyle::with_template("taskheap: naming addresses {bar:30} {pos}/{len}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    let started = Instant::now();
    let profile = work(&|done, all| {
        if started.elapsed() > Duration::from_millis(400) {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        }
    });
    bar.finish_and_clear();
    profile
}

fn program_name(profile: &Profile) -> String {
    let path = Path::new(&profile.program.path);
    path.file_name().map_or_else(
        || "program".to_owned(),
        |n| n.to_string_lossy().into_owned(),
    )
}

fn never_attached(plan: &Plan) -> Error {
    Error::Refused {
        what: format!(
            "{} ended without loading the recorder",
            plan.program.display()
        ),
        hint: "a program that clears its environment, or asks for an older C library than the \
               recorder (see above for a message of ld.so), can't be recorded"
            .to_owned(),
    }
}

fn ending(status: i32) -> Ending {
    let mut ending = Ending::default();
    if libc::WIFSIGNALED(status) {
        ending.signal = Some(libc::WTERMSIG(status));
    } else {
        ending.code = Some(libc::WEXITSTATUS(status));
    }
    ending
}

fn thin(timeline: &mut Timeline) {
    fn every_other<T: Copy>(values: &mut Vec<T>) {
        let mut keep = false;
        values.retain(|_| {
            keep = !keep;
            keep
        });
    }
    every_other(&mut timeline.at_ms);
    every_other(&mut timeline.live_bytes);
    every_other(&mut timeline.rss_bytes);
    every_other(&mut timeline.tasks_alive);
    every_other(&mut timeline.threads_alive);
}
