//! Counts how often a thread of another process writes a word, without stopping it.
//!
//! Looking at a word now and then can't tell "unchanged" from "changed and changed back". The
//! processor's debug registers can, and perf counts their hits. A hit costs the thread about a
//! microsecond, so this is for words that are suspected of not being written at all.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

const TYPE_BREAKPOINT: u32 = 5;
const WRITES: u32 = 2;
/// Leave out the kernel and a hypervisor; follow no child.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;
const ENABLE: libc::c_ulong = 0x2400;
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// `perf_event_attr` in its first published size.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    address: u64,
    length: u64,
}

const _: () = assert!(size_of::<Attributes>() == 72);

/// Hits since it was made.
#[derive(Debug)]
pub struct Watchpoint(File);

impl Watchpoint {
    /// Counts the thread's writes to the eight bytes at `address`, a multiple of eight. Errors
    /// where the kernel does not let us, or all debug registers are in use.
    pub fn on_writes(tid: i32, address: u64) -> io::Result<Watchpoint> {
        let attributes = Attributes {
            kind: TYPE_BREAKPOINT,
            size: size_of::<Attributes>() as u32,
            config: 0,
            sample_period: 0,
            sample_type: 0,
            read_format: 0,
            flags: USER_ONLY,
            wakeup: 0,
            breakpoint_type: WRITES,
            address,
            length: 8,
        };
        // SAFETY: the attributes have the size that they state; the kernel checks the rest.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                tid,
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        } as i32;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and is nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        // SAFETY: takes no pointer.
        unsafe { libc::ioctl(file.as_raw_fd(), ENABLE, 0) };
        Ok(Watchpoint(file))
    }

    /// `None` if it can't be told.
    pub fn hits(&self) -> Option<u64> {
        let mut count = [0; 8];
        (&self.0).read_exact(&mut count).ok()?;
        Some(u64::from_ne_bytes(count))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::sys::thread;

    #[test]
    fn writes_are_counted() {
        static WORD: AtomicU64 = AtomicU64::new(0);
        let Ok(watch) = Watchpoint::on_writes(thread::id(), WORD.as_ptr() as u64) else {
            eprintln!("this kernel has no watchpoints: nothing tried");
            return;
        };
        assert_eq!(watch.hits(), Some(0));
        for value in 0..3 {
            WORD.store(value, Relaxed);
        }
        assert_eq!(watch.hits(), Some(3));
    }
}
