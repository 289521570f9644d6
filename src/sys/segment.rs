//! System V shared memory: the extents of a recording.

use std::ptr::null_mut;

/// Makes a segment that only this user can attach. `None` where the kernel has none to give.
pub fn create(bytes: usize) -> Option<i32> {
    const SHM_NORESERVE: i32 = 0o10000;
    // SAFETY: takes no pointer.
    let id = unsafe {
        libc::shmget(
            libc::IPC_PRIVATE,
            bytes,
            0o600 | libc::IPC_CREAT | SHM_NORESERVE,
        )
    };
    (id >= 0).then_some(id)
}

/// Attaches a segment; null if it does not exist or the address space is full. Left out of core
/// dumps.
pub fn attach(id: i32, bytes: usize) -> *mut u8 {
    // SAFETY: the kernel chooses the address.
    let start = unsafe { libc::shmat(id, null_mut(), 0) };
    if start as isize == -1 {
        return null_mut();
    }
    // SAFETY: the range was just attached; the advice is a hint.
    unsafe { libc::madvise(start, bytes, libc::MADV_DONTDUMP) };
    start.cast()
}

/// Detaches what [`attach`] returned.
///
/// # Safety
///
/// Nobody uses the memory any more.
pub unsafe fn detach(start: *mut u8) {
    // SAFETY: the caller's.
    unsafe { libc::shmdt(start.cast()) };
}

/// Size of a segment in bytes, if it exists.
pub fn size(id: i32) -> Option<usize> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut about: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: `about` is as large as the kernel expects.
    let done = unsafe { libc::shmctl(id, libc::IPC_STAT, &mut about) };
    (done == 0).then_some(about.shm_segsz)
}

/// Marks a segment for removal: it goes when the last process detaches. Linux lets others attach
/// it by number until then.
pub fn remove_when_unused(id: i32) {
    // SAFETY: IPC_RMID reads no buffer.
    unsafe { libc::shmctl(id, libc::IPC_RMID, null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_segment_can_be_attached_again() {
        let id = create(1 << 20).unwrap();
        assert_eq!(size(id), Some(1 << 20));
        let first = attach(id, 1 << 20);
        assert!(!first.is_null());
        remove_when_unused(id);
        let second = attach(id, 1 << 20);
        assert!(!second.is_null() && second != first);
        // SAFETY: both are mapped, and no one else uses them.
        unsafe {
            first.write(7);
            assert_eq!(second.read(), 7);
            detach(first);
            detach(second);
        }
        assert!(attach(id, 1 << 20).is_null());
    }
}
