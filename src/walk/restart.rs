//! System calls that a stop cuts short.
//!
//! Most calls know how to go on after a stop: the kernel issues them again with what is left of
//! their time. A few return `EINTR` instead, and a program that installed no signal handler never
//! expects that. Leaving it to the program breaks those that treat it as an error; issuing the
//! call again with its arguments as they were starts its timeout anew, so that a timer of a
//! runtime that is walked twice a second never fires. So the call is issued again with what is
//! left of its timeout: when the thread went to sleep is told by the scheduler (`/proc/…/sched`),
//! read before the stop. A timeout in memory is given to the kernel from below the stack's red
//! zone, where the program keeps nothing.
//!
//! At the limit: a kernel that does not tell when a thread went to sleep makes such a call wait
//! its whole time again. A receive timeout set on a socket (`SO_RCVTIMEO`) always does.

use std::collections::HashMap;
use std::time::Instant;

use crate::sys::mem::ProcessMemory;
use crate::sys::ptrace::{CutCall, Registers};
use crate::sys::sched;

/// Where a call has its relative timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timeout {
    None,
    /// Milliseconds in the argument of this index, negative for ever.
    Milliseconds(usize),
    /// Pointer to a `timespec`, null for ever.
    Timespec(usize),
}

/// Calls that return `EINTR` after a stop, and mean nothing by it.
const CUT: &[(i64, Timeout)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, Timeout::Milliseconds(3)),
    (libc::SYS_epoll_pwait, Timeout::Milliseconds(3)),
    (libc::SYS_epoll_pwait2, Timeout::Timespec(3)),
    (libc::SYS_semop, Timeout::None),
    (libc::SYS_semtimedop, Timeout::Timespec(3)),
    (libc::SYS_rt_sigtimedwait, Timeout::Timespec(2)),
    (libc::SYS_io_getevents, Timeout::Timespec(4)),
    (SYS_IO_PGETEVENTS, Timeout::Timespec(4)),
    (libc::SYS_io_uring_enter, Timeout::None),
    // Sockets with a receive or send timeout.
    (libc::SYS_read, Timeout::None),
    (libc::SYS_readv, Timeout::None),
    (libc::SYS_recvfrom, Timeout::None),
    (libc::SYS_recvmsg, Timeout::None),
    (libc::SYS_recvmmsg, Timeout::None),
    (libc::SYS_write, Timeout::None),
    (libc::SYS_writev, Timeout::None),
    (libc::SYS_sendto, Timeout::None),
    (libc::SYS_sendmsg, Timeout::None),
    (libc::SYS_sendmmsg, Timeout::None),
    (libc::SYS_accept, Timeout::None),
    (libc::SYS_accept4, Timeout::None),
    (libc::SYS_connect, Timeout::None),
];

#[cfg(target_arch = "x86_64")]
const SYS_IO_PGETEVENTS: i64 = 333;
#[cfg(not(target_arch = "x86_64"))]
const SYS_IO_PGETEVENTS: i64 = 292;

fn timeout_of(number: i64) -> Option<Timeout> {
    CUT.iter()
        .find(|(call, _)| *call == number)
        .map(|(_, timeout)| *timeout)
}

/// Since when threads wait in a call with a timeout, as seen before the stop.
#[derive(Default)]
pub(super) struct Waits {
    since: HashMap<i32, Instant>,
}

impl Waits {
    /// Looks at every thread that is inside a call of [`CUT`] with a timeout.
    pub(super) fn look(pid: i32, threads: &[i32]) -> Waits {
        let mut clock = sched::Clock::default();
        let mut waits = Waits::default();
        for &tid in threads {
            let Some((number, args)) = sched::current_call(pid, tid) else {
                continue;
            };
            let timed = match timeout_of(number) {
                Some(Timeout::Milliseconds(at)) => args[at] as i32 > 0,
                Some(Timeout::Timespec(at)) => args[at] != 0,
                _ => false,
            };
            if timed && let Some(since) = clock.asleep_since(pid, tid) {
                waits.since.insert(tid, since);
            }
        }
        waits
    }

    /// Has the kernel issue the cut call again, if it is one that would return `EINTR`. True if
    /// `registers` were changed.
    pub(super) fn repair(
        &self,
        tid: i32,
        registers: &mut Registers,
        memory: &ProcessMemory,
    ) -> bool {
        let Some(call) = registers.cut_call() else {
            return false;
        };
        let Some(timeout) = timeout_of(call.number) else {
            return false;
        };
        if let Some(since) = self.since.get(&tid) {
            let waited = since.elapsed().as_nanos() as i128;
            shorten(timeout, call, waited, registers, memory);
        }
        registers.reissue();
        true
    }
}

fn shorten(
    timeout: Timeout,
    call: CutCall,
    waited_ns: i128,
    registers: &mut Registers,
    memory: &ProcessMemory,
) {
    match timeout {
        Timeout::None => {}
        Timeout::Milliseconds(at) => {
            let whole = call.args[at] as i32;
            if whole > 0 {
                let left = i128::from(whole) - waited_ns / 1_000_000;
                registers.set_argument(at, left.max(0) as u64);
            }
        }
        Timeout::Timespec(at) => {
            let mut words = [0u8; 16];
            if call.args[at] == 0 || memory.read(call.args[at], &mut words) != 16 {
                return;
            }
            let word = |n: usize| i64::from_ne_bytes(words[n..n + 8].try_into().unwrap_or([0; 8]));
            let whole = i128::from(word(0)) * 1_000_000_000 + i128::from(word(8));
            let left = (whole - waited_ns).max(0);
            // Below the red zone of 128 bytes, and of 288 on other systems.
            let scratch = (registers.stack_pointer() - 512) & !15;
            let mut copy = [0u8; 16];
            copy[..8].copy_from_slice(&((left / 1_000_000_000) as i64).to_ne_bytes());
            copy[8..].copy_from_slice(&((left % 1_000_000_000) as i64).to_ne_bytes());
            if memory.write_below_stack(scratch, &copy) {
                registers.set_argument(at, scratch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_listed_once() {
        for (at, (number, _)) in CUT.iter().enumerate() {
            assert!(CUT[at + 1..].iter().all(|(other, _)| other != number));
        }
    }
}
