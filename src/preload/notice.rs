//! Calls that the recorder has to know of: a thread names itself, a library is closed.

use std::ffi::{c_char, c_int, c_void};

use super::next::Next;
use crate::record;
use crate::sys::thread::keep_errno;

/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    type SetName = unsafe extern "C" fn(libc::pthread_t, *const c_char) -> c_int;
    static NEXT: Next = Next::new(c"pthread_setname_np");
    let Some(found) = NEXT.get() else {
        return libc::ENOSYS;
    };
    // SAFETY: the symbol has this signature.
    let next = unsafe { std::mem::transmute::<*mut c_void, SetName>(found) };
    // SAFETY: the caller's arguments, handed on.
    let result = unsafe { next(thread, name) };
    // SAFETY: takes no arguments.
    if result == 0 && thread == unsafe { libc::pthread_self() } {
        keep_errno(record::name_changed);
    }
    result
}

/// # Safety
///
/// As the C library's. Modules that may be unloaded are retired around it, so that no unwind
/// table is read that is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    static NEXT: Next = Next::new(c"dlclose");
    let Some(found) = NEXT.get() else { return -1 };
    // SAFETY: the symbol has this signature.
    let next = unsafe { std::mem::transmute::<*mut c_void, Close>(found) };
    record::modules_may_go();
    // SAFETY: the caller's argument, handed on.
    let result = unsafe { next(handle) };
    keep_errno(record::modules_may_go);
    result
}
