//! Stopping and looking must not be felt by the program: it is tried on programs that watch
//! themselves. This file is also those programs: a test starts its own binary again.
#![cfg(all(feature = "cli", target_os = "linux"))]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use taskheap::walk::{Noted, Options, WalkError, capture};

#[path = "walk_stop/programs.rs"]
mod programs;

/// A program under test, ended when the test ends.
struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Program {
    fn start(name: &str, argument: &str) -> Program {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "programs::program",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("WALK_PROGRAM", name)
            .env("WALK_ARGUMENT", argument)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Program { child, out }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The next line that starts with `word`, without it.
    fn line(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "no line {word}");
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn rest(&mut self) -> String {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn look(pid: i32) -> Result<Duration, WalkError> {
    let copied = capture(pid, &Options::default(), || {
        Ok(Noted::plain(Vec::new(), ()))
    })?;
    Ok(copied.image.pause)
}

fn states(pid: i32) -> Vec<char> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .filter_map(|stat| stat[stat.rfind(')')? + 2..].chars().next())
        .collect()
}

/// Ticks that the program itself has run.
fn user_time(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = &stat[stat.rfind(')').unwrap() + 2..];
    after_name
        .split_whitespace()
        .nth(11)
        .unwrap()
        .parse()
        .unwrap()
}

fn stands(pid: i32) -> bool {
    states(pid).iter().any(|state| matches!(state, 't' | 'T'))
}

#[test]
fn calls_end_on_time_and_without_eintr() {
    let mut program = Program::start("waits", "400");
    program.line("READY");
    let began = Instant::now();
    let (mut looks, mut stood) = (0, Duration::ZERO);
    while began.elapsed() < Duration::from_millis(390) {
        stood += look(program.pid()).unwrap();
        looks += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(looks > 5, "{looks}");
    let told = program.rest();
    let mut calls = 0;
    for line in told.lines().filter_map(|line| line.strip_prefix("CALL ")) {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        let error: i32 = words.next().unwrap().parse().unwrap();
        let took: u64 = words.next().unwrap().parse().unwrap();
        assert_ne!(error, libc::EINTR, "{line}");
        // Time that it stood may come on top. The timeout of a socket is out of reach.
        let late = stood.as_millis() as u64 + if name == "recv" { 500 } else { 60 };
        assert!(
            (399..400 + late).contains(&took),
            "{line}, stood {stood:?} in {looks} looks"
        );
        calls += 1;
    }
    assert_eq!(calls, programs::WAITS, "{told}");
}

#[test]
fn signals_arrive_all_and_interrupt_what_they_should() {
    let mut program = Program::start("signals", "");
    program.line("READY");
    for sent in 0..300 {
        let value = libc::sigval {
            sival_ptr: std::ptr::null_mut(),
        };
        // SAFETY: the process is our child, not yet waited for.
        let result = unsafe { libc::sigqueue(program.pid(), libc::SIGRTMIN(), value) };
        assert_eq!(result, 0);
        if sent % 3 == 0 {
            look(program.pid()).unwrap();
        }
    }
    assert_eq!(program.line("SIGNALS"), "300");
    assert_eq!(program.line("EPOLL"), libc::EINTR.to_string());
}

#[test]
fn a_stopped_process_stays_stopped() {
    let mut program = Program::start("count", "2");
    program.line("READY");
    let pid = program.pid();
    let signal = |number| {
        // SAFETY: the process is our child, not yet waited for.
        assert_eq!(unsafe { libc::kill(pid, number) }, 0);
    };
    signal(libc::SIGSTOP);
    let stops = |pid| {
        // A thread that is let go needs a moment, in the kernel, to stop again.
        let began = Instant::now();
        while !states(pid).iter().all(|state| *state == 'T') {
            assert!(
                began.elapsed() < Duration::from_secs(2),
                "{:?}",
                states(pid)
            );
            std::thread::yield_now();
        }
    };
    stops(pid);
    let before = user_time(pid);
    for _ in 0..50 {
        look(pid).unwrap();
        stops(pid);
    }
    // The kernel shares out what stopping itself took between user and system time: a tick of ten
    // milliseconds can come of it, where threads that ran in 50 looks would have many.
    assert!(user_time(pid) - before <= 2, "it ran");
    signal(libc::SIGCONT);
    assert_moves(&mut program);
}

/// The program counts on; nothing of it stands.
fn assert_moves(program: &mut Program) {
    program.line("TICK");
    let began = Instant::now();
    while stands(program.pid()) {
        assert!(began.elapsed() < Duration::from_secs(2), "a thread stands");
        std::thread::yield_now();
    }
    // What was printed before may still be on its way.
    for _ in 0..3 {
        program.line("TICK");
    }
}

#[test]
fn nothing_moves_during_a_look_while_threads_come_and_go() {
    let mut program = Program::start("breed", "");
    let address = u64::from_str_radix(&program.line("COUNTER"), 16).unwrap();
    let pid = program.pid();
    let read = || {
        let memory = taskheap::sys::mem::ProcessMemory::open(pid).unwrap();
        let mut word = [0; 8];
        assert_eq!(memory.read(address, &mut word), 8);
        u64::from_le_bytes(word)
    };
    let last = AtomicU64::new(0);
    for _ in 0..50 {
        let copied = capture(pid, &Options::default(), || {
            let first = read();
            std::thread::sleep(Duration::from_millis(3));
            assert_eq!(first, read());
            Ok(Noted::plain(Vec::new(), first))
        });
        let counted = copied.unwrap().tables;
        assert!(counted >= last.swap(counted, Relaxed));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(last.load(Relaxed) > 100);
}

#[test]
fn a_killed_walker_leaves_nothing_standing() {
    let mut program = Program::start("count", "8");
    program.line("READY");
    for round in 0..100u64 {
        let mut walker = Program::start("walker", &program.pid().to_string());
        walker.line("READY");
        std::thread::sleep(Duration::from_micros(100 * (round % 40)));
        walker.child.kill().unwrap();
        walker.child.wait().unwrap();
        if round % 10 == 0 {
            assert_moves(&mut program);
        }
        let began = Instant::now();
        while stands(program.pid()) {
            assert!(began.elapsed() < Duration::from_secs(2), "round {round}");
        }
    }
}

#[test]
fn a_program_killed_during_a_look_is_gone() {
    for round in 0..100u64 {
        let mut program = Program::start("count", "4");
        program.line("READY");
        let pid = program.pid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(50 * (round % 40)));
            // SAFETY: the child is waited for only after this thread has ended.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        });
        let began = Instant::now();
        while look(pid).is_ok() {
            assert!(began.elapsed() < Duration::from_secs(5), "round {round}");
        }
        killer.join().unwrap();
        let status = program.child.wait().unwrap();
        assert!(!status.success());
        assert!(states(pid).is_empty());
    }
}

#[test]
fn a_traced_process_is_told_as_such() {
    let mut program = Program::start("count", "1");
    program.line("READY");
    let mut tracer = Program::start("tracer", &program.pid().to_string());
    tracer.line("READY");
    match look(program.pid()) {
        Err(WalkError::AlreadyTraced { .. }) => {}
        other => panic!("{other:?}"),
    }
}
