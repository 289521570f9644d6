//! Stopping every thread of a process, and letting all of them go again.
//!
//! `SIGSTOP` is the tempting way: it is seen by the parent, by job control and by the program's
//! own children, and a walker that is killed leaves the program stopped. ptrace's seize and
//! interrupt are invisible to the program, and the kernel lets every thread go when the tracing
//! thread ends, however it ends. So each stop has an OS thread of its own, and that thread's end
//! is the last resort of the release.
//!
//! A thread that starts another while we list threads is met by listing again until nothing new
//! turns up. A thread that sleeps uninterruptibly (a parent in `vfork`, a dead network disk) can't
//! be stopped, but cannot come back to the program either while the request to stop is pending:
//! it counts as standing, with no registers. At the limit of time the stop is given up.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use super::restart::Waits;
use super::{Options, WalkError};
use crate::sys::mem::ProcessMemory;
use crate::sys::ptrace;
use crate::sys::sched;

/// A thread that stands still.
#[derive(Clone, Debug, Default)]
pub struct StoppedThread {
    pub tid: i32,
    /// 0 if it sleeps uninterruptibly and its registers can't be read.
    pub stack_pointer: u64,
    pub instruction_pointer: u64,
    /// 0 where registers don't tell.
    pub thread_pointer: u64,
    pub frame_pointer: u64,
    /// The return address, where a register may hold it.
    pub link: u64,
    /// Registers, vector registers included.
    pub words: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Asked to stop.
    Asked,
    /// Stands; the signal is handed back when it goes on.
    Standing(i32),
    /// Sleeps uninterruptibly.
    Away,
}

/// A process that stands still for as long as this lives.
pub(super) struct Stop {
    pub(super) threads: Vec<StoppedThread>,
    phases: HashMap<i32, Phase>,
    pub(super) since: Instant,
}

impl Stop {
    /// Stops all threads. The calling thread becomes their tracer.
    pub(super) fn all(
        pid: i32,
        memory: &ProcessMemory,
        options: &Options,
    ) -> Result<Stop, WalkError> {
        let listed = sched::threads(pid).map_err(|_| WalkError::Gone)?;
        let waits = Waits::look(pid, &listed);
        let mut stop = Stop {
            threads: Vec::with_capacity(listed.len()),
            phases: HashMap::with_capacity(listed.len()),
            since: Instant::now(),
        };
        let deadline = stop.since + options.stop_within;
        loop {
            let mut fresh = false;
            for tid in sched::threads(pid).map_err(|_| WalkError::Gone)? {
                fresh |= stop.ask(pid, tid)?;
            }
            if !fresh {
                break;
            }
            stop.wait_until_standing(pid, deadline)?;
        }
        stop.look_at_registers(pid, &waits, memory);
        if stop.threads.is_empty() {
            return Err(WalkError::Gone);
        }
        Ok(stop)
    }

    /// Stops one thread only.
    pub(super) fn one(
        pid: i32,
        tid: i32,
        memory: &ProcessMemory,
        options: &Options,
    ) -> Result<Stop, WalkError> {
        let waits = Waits::look(pid, &[tid]);
        let mut stop = Stop {
            threads: Vec::new(),
            phases: HashMap::new(),
            since: Instant::now(),
        };
        stop.ask(pid, tid)?;
        stop.wait_until_standing(pid, stop.since + options.stop_within)?;
        stop.look_at_registers(pid, &waits, memory);
        Ok(stop)
    }

    /// True if the thread was not known.
    fn ask(&mut self, pid: i32, tid: i32) -> Result<bool, WalkError> {
        if self.phases.contains_key(&tid) {
            return Ok(false);
        }
        if let Err(error) = ptrace::seize(tid) {
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(false),
                _ if matches!(sched::state(pid, tid), None | Some('Z' | 'X')) => Ok(false),
                _ => Err(refused(pid, tid, error)),
            };
        }
        self.phases.insert(tid, Phase::Asked);
        // A thread that has ended meanwhile tells so when we wait for it.
        let _ = ptrace::interrupt(tid);
        Ok(true)
    }

    fn wait_until_standing(&mut self, pid: i32, deadline: Instant) -> Result<(), WalkError> {
        let began = Instant::now();
        let mut pause = Duration::from_micros(20);
        loop {
            for (&tid, phase) in &mut self.phases {
                if *phase == Phase::Asked
                    && let Some(standing) = ptrace::stop_of(tid)
                {
                    *phase = Phase::Standing(standing.signal);
                }
            }
            if began.elapsed() > Duration::from_millis(1) {
                self.look_again(pid);
            }
            if self.asked().next().is_none() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let tid = self.asked().next().unwrap_or(pid);
                let state = sched::state(pid, tid).unwrap_or('?');
                return Err(WalkError::DoesNotStop { tid, state });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    fn asked(&self) -> impl Iterator<Item = i32> + '_ {
        let asked = |(&tid, phase): (&i32, &Phase)| (*phase == Phase::Asked).then_some(tid);
        self.phases.iter().filter_map(asked)
    }

    /// For events that were collected elsewhere, threads that are gone, and those that can't stop.
    fn look_again(&mut self, pid: i32) {
        for tid in self.asked().collect::<Vec<_>>() {
            let found = match ptrace::standing(tid) {
                Some(standing) => Some(Phase::Standing(standing.signal)),
                None => match sched::state(pid, tid) {
                    None | Some('Z' | 'X') => None,
                    Some('D') => Some(Phase::Away),
                    Some(_) => Some(Phase::Asked),
                },
            };
            match found {
                Some(phase) => self.phases.insert(tid, phase),
                None => self.phases.remove(&tid),
            };
        }
    }

    fn look_at_registers(&mut self, pid: i32, waits: &Waits, memory: &ProcessMemory) {
        for (&tid, phase) in &self.phases {
            let mut thread = StoppedThread {
                tid,
                ..StoppedThread::default()
            };
            if let (Phase::Standing(_), Ok(mut registers)) = (phase, ptrace::registers(tid)) {
                thread.stack_pointer = registers.stack_pointer();
                thread.instruction_pointer = registers.instruction_pointer();
                thread.thread_pointer = registers.thread_pointer();
                thread.frame_pointer = registers.frame_pointer();
                thread.link = registers.link();
                thread.words = registers.words();
                thread.words.extend(ptrace::vector_words(tid));
                // At once: if we are killed now, the thread goes on with the call issued again.
                if waits.repair(tid, &mut registers, memory) {
                    let _ = ptrace::set_registers(tid, &mut registers);
                }
            } else {
                thread.stack_pointer = sched::sleeping_stack_pointer(pid, tid).unwrap_or(0);
            }
            self.threads.push(thread);
        }
        self.threads.sort_unstable_by_key(|thread| thread.tid);
    }

    /// Is the process still there? `SIGKILL` ends a stopped one, too.
    pub(super) fn is_alive(pid: i32) -> bool {
        !matches!(sched::state(pid, pid), None | Some('Z' | 'X'))
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        for (&tid, &phase) in &self.phases {
            let signal = match phase {
                Phase::Standing(signal) => signal,
                Phase::Asked | Phase::Away => 0,
            };
            // What can't be detached now is let go when this thread ends.
            let _ = ptrace::detach(tid, signal);
        }
    }
}

fn refused(pid: i32, tid: i32, error: io::Error) -> WalkError {
    match sched::tracer(pid, tid) {
        Some(tracer) if tracer != 0 => WalkError::AlreadyTraced { tracer },
        _ => WalkError::of_access(error),
    }
}
