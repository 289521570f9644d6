//! ptrace: stopping one thread of another process and looking at its registers.
//!
//! Every call here must come from the one OS thread that called [`seize`]: to the kernel a tracer
//! is a thread, and when that thread ends everything it traces goes on by itself.

use std::io;
use std::ptr::null_mut;

mod registers;

pub use registers::{CutCall, Registers};

const PTRACE_SETREGSET: libc::c_uint = 0x4205;
const PTRACE_EVENT_STOP: i32 = 128;
const NT_PRSTATUS: usize = 1;
const NT_PRFPREG: usize = 2;

/// A tracee stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Was about to be delivered (0 if none) and has to be handed back when it is let go.
    pub signal: i32,
}

/// Makes this thread the tracer of `tid`, which runs on.
pub fn seize(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, null_mut(), null_mut())
}

/// Asks a seized thread to stop as soon as it can. The stop is not a signal: it leaves group
/// stops and job control alone.
pub fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, null_mut(), null_mut())
}

/// Lets a stopped thread go on, untraced, with the signal that its stop held back.
pub fn detach(tid: i32, signal: i32) -> io::Result<()> {
    let data = signal as usize as *mut libc::c_void;
    request(libc::PTRACE_DETACH, tid, null_mut(), data)
}

/// The stop of a thread that the calling thread traces, if it has come.
///
/// Asks for stops only: the end of a child of this process is for whoever started it to collect.
/// Asks for one thread: the kernel finds it by its number, whereas a wait for any of ten thousand
/// goes through all of them each time.
pub fn stop_of(tid: i32) -> Option<Standing> {
    // SAFETY: all fields are integers or bytes, for which zero is a value.
    let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // Only what this thread traces: a `wait` of another thread for our children is not touched.
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: `about` is ours to write.
    let result = unsafe { libc::waitid(libc::P_PID, tid as libc::id_t, &mut about, flags) };
    // SAFETY: waitid fills in the fields of a child's event, or leaves zeros.
    let (found, status) = unsafe { (about.si_pid(), about.si_status()) };
    if result < 0 || found != tid {
        return None;
    }
    let is_signal = status >> 8 == 0;
    let signal = if is_signal { status & 0x7f } else { 0 };
    Some(Standing { signal })
}

/// Does the tracee stand still? For when its event was collected by a `wait` elsewhere in this
/// process.
pub fn standing(tid: i32) -> Option<Standing> {
    // SAFETY: all fields are integers or bytes, for which zero is a value.
    let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let into = (&raw mut about).cast();
    request(libc::PTRACE_GETSIGINFO, tid, null_mut(), into).ok()?;
    let is_event = about.si_code >> 8 == PTRACE_EVENT_STOP;
    let signal = if is_event { 0 } else { about.si_signo };
    Some(Standing { signal })
}

/// Registers of a stopped thread.
pub fn registers(tid: i32) -> io::Result<Registers> {
    let mut registers = Registers::default();
    let mut part = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: Registers::BYTES,
    };
    let into = (&raw mut part).cast();
    request(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS as *mut _, into)?;
    Ok(registers)
}

pub fn set_registers(tid: i32, registers: &mut Registers) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: Registers::BYTES,
    };
    let from = (&raw mut part).cast();
    request(PTRACE_SETREGSET, tid, NT_PRSTATUS as *mut _, from)
}

/// Words of the vector registers: values on their way through a copy.
pub fn vector_words(tid: i32) -> Vec<u64> {
    let mut words = [0u64; 128];
    let mut part = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    let into = (&raw mut part).cast();
    match request(libc::PTRACE_GETREGSET, tid, NT_PRFPREG as *mut _, into) {
        Ok(()) => words[..part.iov_len / 8].to_vec(),
        Err(_) => Vec::new(),
    }
}

fn request(
    what: libc::c_uint,
    tid: i32,
    address: *mut libc::c_void,
    data: *mut libc::c_void,
) -> io::Result<()> {
    // SAFETY: callers pass buffers of the size that the request fills, or none.
    let result = unsafe { libc::ptrace(what, tid, address, data) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
