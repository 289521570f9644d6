//! Programs that watch themselves while they are looked at.

use std::io::Write;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Calls that [`waits`] makes.
pub const WAITS: usize = 15;

fn tell(line: String) {
    let mut out = std::io::stdout().lock();
    // A test that has ended no longer listens.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Does nothing unless a test has started this binary again.
#[test]
fn program() {
    let Ok(name) = std::env::var("WALK_PROGRAM") else {
        return;
    };
    let argument = std::env::var("WALK_ARGUMENT").unwrap_or_default();
    tell(String::new());
    match name.as_str() {
        "waits" => waits(argument.parse().unwrap()),
        "signals" => signals(),
        "count" => count(argument.parse().unwrap()),
        "breed" => breed(),
        "walker" => walker(argument.parse().unwrap()),
        "tracer" => tracer(argument.parse().unwrap()),
        other => panic!("no program {other}"),
    }
}

fn walker(pid: i32) {
    tell("READY".to_owned());
    loop {
        super::look(pid).unwrap();
    }
}

fn tracer(pid: i32) {
    taskheap::sys::ptrace::seize(pid).unwrap();
    tell("READY".to_owned());
    std::thread::sleep(Duration::from_secs(60));
}

fn count(threads: usize) {
    for _ in 0..threads {
        std::thread::spawn(|| {
            loop {
                std::hint::black_box(vec![1u8; 100]);
            }
        });
    }
    tell("READY".to_owned());
    for tick in 0.. {
        tell(format!("TICK {tick}"));
        std::thread::sleep(Duration::from_millis(5));
    }
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

fn breed() {
    tell(format!("COUNTER {:x}", COUNTER.as_ptr() as u64));
    loop {
        let child = std::thread::spawn(|| {
            COUNTER.fetch_add(1, SeqCst);
            std::thread::spawn(|| COUNTER.fetch_add(1, SeqCst))
        });
        COUNTER.fetch_add(1, SeqCst);
        child.join().unwrap();
    }
}

static SIGNALS: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(_: i32) {
    SIGNALS.fetch_add(1, SeqCst);
}

fn signals() {
    // SAFETY: zero is a value of every field.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    // SAFETY: the handler only adds to an atomic.
    unsafe { libc::sigaction(libc::SIGRTMIN(), &action, null_mut()) };
    let thread = std::thread::spawn(|| {
        let mut error = 0;
        while SIGNALS.load(SeqCst) < 300 {
            let (result, code) = epoll(1000);
            if result < 0 {
                error = code;
            }
        }
        error
    });
    // The signals are for the thread that waits in epoll.
    // SAFETY: the set is ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGRTMIN());
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, null_mut());
    }
    tell("READY".to_owned());
    let error = thread.join().unwrap();
    tell(format!("SIGNALS {}", SIGNALS.load(SeqCst)));
    tell(format!("EPOLL {error}"));
    std::thread::sleep(Duration::from_secs(1));
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn epoll(milliseconds: i32) -> (i64, i32) {
    // SAFETY: the event is ours to be written.
    unsafe {
        let fd = libc::epoll_create1(0);
        let mut event = std::mem::zeroed();
        let result = libc::epoll_wait(fd, &mut event, 1, milliseconds);
        let code = errno();
        libc::close(fd);
        (i64::from(result), code)
    }
}

fn spec(milliseconds: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    }
}

type Wait = fn(i64) -> i64;

/// Each waits once for so many milliseconds, in a thread of its own, and tells how that ended.
fn waits(milliseconds: i64) {
    let calls: [(&str, Wait); WAITS] = [
        ("epoll_wait", |t| epoll(t as i32).0),
        ("epoll_pwait", |t| epoll_pwait(t as i32)),
        ("epoll_pwait2", epoll_pwait2),
        ("semtimedop", semtimedop),
        ("sigtimedwait", sigtimedwait),
        ("io_getevents", io_getevents),
        ("recv", recv),
        ("poll", |t| poll(t as i32)),
        ("ppoll", ppoll),
        ("select", select),
        ("nanosleep", nanosleep),
        ("clock_nanosleep", clock_nanosleep),
        ("futex", futex),
        ("mq_or_condvar", condvar),
        ("park", park),
    ];
    let (started, all) = (std::sync::Arc::new(AtomicI32::new(0)), WAITS as i32);
    let threads: Vec<_> = calls
        .into_iter()
        .map(|(name, call)| {
            let started = started.clone();
            std::thread::spawn(move || {
                started.fetch_add(1, SeqCst);
                while started.load(SeqCst) < all {
                    std::thread::yield_now();
                }
                let began = Instant::now();
                let result = call(milliseconds);
                let error = if result < 0 { errno() } else { 0 };
                (name, error, began.elapsed().as_millis())
            })
        })
        .collect();
    while started.load(SeqCst) < all {
        std::thread::yield_now();
    }
    tell("READY".to_owned());
    for thread in threads {
        let (name, error, took) = thread.join().unwrap();
        tell(format!("CALL {name} {error} {took}"));
    }
}

fn epoll_pwait(milliseconds: i32) -> i64 {
    // SAFETY: the event and the set are ours.
    unsafe {
        let fd = libc::epoll_create1(0);
        let mut event = std::mem::zeroed();
        let set = std::mem::zeroed();
        i64::from(libc::epoll_pwait(fd, &mut event, 1, milliseconds, &set))
    }
}

fn epoll_pwait2(milliseconds: i64) -> i64 {
    // SAFETY: the event and the time are ours.
    unsafe {
        let fd = libc::epoll_create1(0);
        let mut event: libc::epoll_event = std::mem::zeroed();
        let time = spec(milliseconds);
        libc::syscall(
            libc::SYS_epoll_pwait2,
            fd,
            &raw mut event,
            1,
            &raw const time,
            0,
            8,
        )
    }
}

fn semtimedop(milliseconds: i64) -> i64 {
    // SAFETY: all structures are ours.
    unsafe {
        let set = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
        let mut take = libc::sembuf {
            sem_num: 0,
            sem_op: -1,
            sem_flg: 0,
        };
        let time = spec(milliseconds);
        let result = libc::syscall(libc::SYS_semtimedop, set, &raw mut take, 1, &raw const time);
        let code = errno();
        libc::semctl(set, 0, libc::IPC_RMID);
        *libc::__errno_location() = code;
        result
    }
}

fn sigtimedwait(milliseconds: i64) -> i64 {
    // SAFETY: all structures are ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, null_mut());
        // glibc hides EINTR of this call.
        let time = spec(milliseconds);
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            &raw const set,
            0,
            &raw const time,
            8,
        )
    }
}

fn io_getevents(milliseconds: i64) -> i64 {
    // SAFETY: all structures are ours.
    unsafe {
        let mut context = 0u64;
        let made = libc::syscall(libc::SYS_io_setup, 1, &raw mut context);
        if made < 0 {
            return made;
        }
        let mut event = [0u64; 4];
        let time = spec(milliseconds);
        let into = event.as_mut_ptr();
        libc::syscall(libc::SYS_io_getevents, context, 1, 1, into, &raw const time)
    }
}

fn recv(milliseconds: i64) -> i64 {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let time = Duration::from_millis(milliseconds as u64);
    socket.set_read_timeout(Some(time)).unwrap();
    match socket.recv(&mut [0]) {
        Ok(_) => 0,
        Err(_) => -1,
    }
}

fn poll(milliseconds: i32) -> i64 {
    // SAFETY: no descriptors are given.
    i64::from(unsafe { libc::poll(null_mut(), 0, milliseconds) })
}

fn ppoll(milliseconds: i64) -> i64 {
    // SAFETY: no descriptors are given.
    i64::from(unsafe { libc::ppoll(null_mut(), 0, &spec(milliseconds), null()) })
}

fn select(milliseconds: i64) -> i64 {
    let mut time = libc::timeval {
        tv_sec: milliseconds / 1000,
        tv_usec: milliseconds % 1000 * 1000,
    };
    // SAFETY: no descriptors are given; the time is ours.
    i64::from(unsafe { libc::select(0, null_mut(), null_mut(), null_mut(), &mut time) })
}

fn nanosleep(milliseconds: i64) -> i64 {
    // SAFETY: the time is ours.
    i64::from(unsafe { libc::nanosleep(&spec(milliseconds), null_mut()) })
}

fn clock_nanosleep(milliseconds: i64) -> i64 {
    let clock = libc::CLOCK_MONOTONIC;
    // SAFETY: the times are ours.
    unsafe {
        let mut until = std::mem::zeroed();
        libc::clock_gettime(clock, &mut until);
        until.tv_nsec += milliseconds * 1_000_000;
        until.tv_sec += until.tv_nsec / 1_000_000_000;
        until.tv_nsec %= 1_000_000_000;
        let error = libc::clock_nanosleep(clock, libc::TIMER_ABSTIME, &until, null_mut());
        *libc::__errno_location() = error;
        -i64::from(error)
    }
}

fn futex(milliseconds: i64) -> i64 {
    let word = 7u32;
    let time = spec(milliseconds);
    // SAFETY: the word and the time are ours.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const word,
            0,
            7,
            &raw const time,
            0,
            0,
        )
    }
}

fn condvar(milliseconds: i64) -> i64 {
    let (lock, wake) = (std::sync::Mutex::new(()), std::sync::Condvar::new());
    let time = Duration::from_millis(milliseconds as u64);
    let _ = wake.wait_timeout(lock.lock().unwrap(), time).unwrap();
    0
}

fn park(milliseconds: i64) -> i64 {
    std::thread::park_timeout(Duration::from_millis(milliseconds as u64));
    0
}
