//! The calling thread: its number, name, thread pointer and stack. Architecture in one place.

use std::ffi::{c_char, c_void};

/// Kernel thread id.
pub fn id() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Name as the kernel has it, zero-padded.
pub fn name() -> [u8; 16] {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Base of the thread's static TLS, from which the ABI counts.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn pointer() -> u64 {
    let pointer: u64;
    // SAFETY: on x86-64 Linux `fs:0` holds the thread pointer itself (ABI, TLS variant II).
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags))
    };
    pointer
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads a register that user code may read.
    unsafe { std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem)) };
    pointer
}

unsafe extern "C" {
    /// glibc's: one past the end of the main thread's stack.
    static __libc_stack_end: *mut c_void;
}

/// One past the highest address of the calling thread's stack.
///
/// glibc puts a thread's descriptor, to which the thread pointer points, at the top of its stack,
/// also where the program brings the stack. `pthread_getattr_np` would allocate, and deadlock
/// when it is what called `malloc`; for the main thread it reads a file besides. How far the
/// stack reaches down is for the caller to find out, see [`is_readable`].
pub fn stack_top(is_main: bool) -> u64 {
    if is_main {
        // SAFETY: set by the dynamic linker before any code of ours runs, never changed. Above
        // it lie arguments and environment, which no frame uses.
        return unsafe { __libc_stack_end } as u64;
    }
    pointer()
}

/// Are all pages from `low` up to `high` readable? At most 1,024 pages are looked at in one go.
pub fn is_readable(low: u64, high: u64) -> bool {
    const PAGE: u64 = 4096;
    const PIECES: usize = 32;
    let mut page = low & !(PAGE - 1);
    if high.saturating_sub(page) > 1024 * PAGE {
        return false;
    }
    while page < high {
        let mut bytes = [0u8; PIECES];
        let mut remote = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; PIECES];
        let mut count = 0;
        while count < PIECES && page < high {
            remote[count] = libc::iovec {
                iov_base: page as *mut c_void,
                iov_len: 1,
            };
            count += 1;
            page += PAGE;
        }
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: count,
        };
        // SAFETY: `local` covers `bytes`; the kernel checks `remote`.
        let read = unsafe {
            libc::process_vm_readv(libc::getpid(), &local, 1, remote.as_ptr(), count as u64, 0)
        };
        if read != count as isize {
            return false;
        }
    }
    true
}

/// Copies memory that may not be mapped; returns how many bytes could be read.
pub fn read_own_memory(address: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: into.len(),
    };
    // SAFETY: `local` covers `into`; the kernel checks `remote` and reports what it can't read.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    read.max(0) as usize
}

/// An environment variable, without a lock: only before threads exist.
///
/// # Safety
///
/// No other thread changes the environment.
pub unsafe fn variable(name: &str) -> Option<&'static [u8]> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: `environ` is null or a null-terminated list of C strings; the caller's for threads.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let entry = std::ffi::CStr::from_ptr(*at).to_bytes();
            if let Some(rest) = entry.strip_prefix(name.as_bytes())
                && let Some(value) = rest.strip_prefix(b"=")
            {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// Has the C library set up the environment yet?
///
/// # Safety
///
/// As [`variable`].
pub unsafe fn has_environment() -> bool {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: read only; the caller's for threads.
    unsafe { !environ.is_null() }
}

/// Takes the session out of the environment: the variable goes, and the first entry of
/// `LD_PRELOAD`, which is ours, with it. Edits in place, since `setenv` allocates.
///
/// # Safety
///
/// As [`variable`].
pub unsafe fn leave_environment(name: &str) {
    unsafe extern "C" {
        static environ: *mut *mut c_char;
    }
    const PRELOAD: &[u8] = b"LD_PRELOAD=";
    // SAFETY: `environ` is null or a null-terminated list of writable C strings; moving entries
    // down and cutting a string short keeps it one.
    unsafe {
        let (mut from, mut to) = (environ, environ);
        while !from.is_null() && !(*from).is_null() {
            let entry = *from;
            let text = std::ffi::CStr::from_ptr(entry).to_bytes();
            let ours = text
                .strip_prefix(name.as_bytes())
                .is_some_and(|t| t.starts_with(b"="));
            let mut keep = !ours;
            if let Some(list) = text.strip_prefix(PRELOAD) {
                let rest = list.iter().position(|byte| *byte == b':').map(|at| at + 1);
                keep = rest.is_some();
                if let Some(rest) = rest {
                    let value = entry.add(PRELOAD.len());
                    std::ptr::copy(value.add(rest), value, list.len() - rest + 1);
                }
            }
            if keep {
                *to = entry;
                to = to.add(1);
            }
            from = from.add(1);
        }
        if !to.is_null() {
            *to = std::ptr::null_mut();
        }
    }
}

/// Runs something that may change the calling thread's error number, which the program must not
/// see.
#[inline(always)]
pub fn keep_errno<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the C library's place for the calling thread's error number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: valid for as long as the thread runs.
    let saved = unsafe { *place };
    let result = work();
    // SAFETY: as above.
    unsafe { *place = saved };
    result
}
