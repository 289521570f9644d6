//! What a thread of another process waits for, and since when, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// Ids of the threads of a process.
pub fn threads(pid: i32) -> std::io::Result<Vec<i32>> {
    let mut tids = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        if let Some(tid) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) {
            tids.push(tid);
        }
    }
    Ok(tids)
}

/// The state letter of a thread: `R`, `S`, `D`, `T`, `t`, `Z`. `None` if it is gone.
pub fn state(pid: i32, tid: i32) -> Option<char> {
    fields_after_name(&fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?, 0)?
        .chars()
        .next()
}

/// Who traces the thread; 0 if nobody does.
pub fn tracer(pid: i32, tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("TracerPid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The system call that a thread sleeps in, with its arguments.
pub fn current_call(pid: i32, tid: i32) -> Option<(i64, [u64; 6])> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()?;
    }
    (number >= 0).then_some((number, args))
}

/// How long the thread has run, and how long it was ready to run and did not.
pub fn run_times(pid: i32, tid: i32) -> Option<(Duration, Duration)> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut words = text.split_whitespace().map(str::parse);
    let mut next = || words.next()?.ok().map(Duration::from_nanos);
    Some((next()?, next()?))
}

/// The stack pointer of a thread that sleeps in the kernel.
pub fn sleeping_stack_pointer(pid: i32, tid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let word = text.split_whitespace().rev().nth(1)?;
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// Puts the calling thread before others, where that is allowed: while it works, a program stands
/// still.
pub fn hurry() {
    const FIRST: i32 = -15;
    // SAFETY: takes no pointer; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, FIRST) };
}

/// Field `index` of `stat`, counted from the one after the name.
fn fields_after_name(stat: &[u8], index: usize) -> Option<String> {
    let text = String::from_utf8_lossy(stat);
    let after = text.rfind(')')?;
    let field = text[after + 1..].split_whitespace().nth(index)?;
    Some(field.to_owned())
}

/// The scheduler's clock, which runs apart on each processor, beside ours.
#[derive(Default)]
pub struct Clock {
    /// Our instant at which the clock of each processor was zero; `None` if it can't be read.
    zero: HashMap<usize, Option<Instant>>,
}

impl Clock {
    /// When the thread last went to sleep. `None` where the kernel does not tell.
    pub fn asleep_since(&mut self, pid: i32, tid: i32) -> Option<Instant> {
        let path = format!("/proc/{pid}/task/{tid}");
        let ran = exec_start(&format!("{path}/sched"))?;
        let stat = fs::read(format!("{path}/stat")).ok()?;
        let processor = fields_after_name(&stat, 36)?.parse().ok()?;
        let zero = *self
            .zero
            .entry(processor)
            .or_insert_with(|| zero_of(processor));
        zero?
            .checked_add(ran)
            .filter(|since| *since <= Instant::now())
    }
}

/// Runs on the processor for a moment and compares its clock with ours.
fn zero_of(processor: usize) -> Option<Instant> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut before: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let mut there = before;
    let size = size_of::<libc::cpu_set_t>();
    if processor >= size * 8 {
        return None;
    }
    // SAFETY: `processor` is within the set.
    unsafe { libc::CPU_SET(processor, &mut there) };
    // SAFETY: both sets are as large as said; 0 is the calling thread.
    let moved = unsafe {
        libc::sched_getaffinity(0, size, &mut before) == 0
            && libc::sched_setaffinity(0, size, &there) == 0
    };
    if !moved {
        return None;
    }
    // A sleep makes the scheduler write down when we ran last.
    std::thread::sleep(Duration::from_micros(20));
    let now = Instant::now();
    let ran = exec_start("/proc/thread-self/sched");
    // SAFETY: as above.
    unsafe { libc::sched_setaffinity(0, size, &before) };
    now.checked_sub(ran?)
}

/// `se.exec_start : 1506565.532972`, in milliseconds.
fn exec_start(path: &str) -> Option<Duration> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with("se.exec_start"))?;
    let value: f64 = line.split(':').nth(1)?.trim().parse().ok()?;
    Duration::try_from_secs_f64(value / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_thread_is_seen_asleep_since_it_slept() {
        let (told, tell) = std::sync::mpsc::channel();
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes no pointer.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
            told.send(tid).unwrap();
            std::thread::sleep(Duration::from_millis(200));
        });
        let tid = tell.recv().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let pid = std::process::id() as i32;
        assert_eq!(state(pid, tid), Some('S'));
        if let Some(since) = Clock::default().asleep_since(pid, tid) {
            let late = since.saturating_duration_since(began);
            assert!(late < Duration::from_millis(50), "{late:?}");
        }
        thread.join().unwrap();
        assert_eq!(state(pid, tid), None);
    }
}
