//! Where the executable of this process is.

use std::ffi::c_void;

/// The difference between the executable's run-time and link-time addresses; `None` where its
/// program headers don't tell.
pub fn bias() -> Option<u64> {
    // SAFETY: the kernel's auxiliary vector; asking changes nothing.
    let (headers, count, size) = unsafe {
        (
            libc::getauxval(libc::AT_PHDR),
            libc::getauxval(libc::AT_PHNUM),
            libc::getauxval(libc::AT_PHENT),
        )
    };
    if headers == 0 || size != size_of::<libc::Elf64_Phdr>() as u64 {
        return None;
    }
    let table = headers as *const c_void as *const libc::Elf64_Phdr;
    for index in 0..count as usize {
        // SAFETY: the kernel gives the place and number of the headers, which stay mapped.
        let header = unsafe { &*table.add(index) };
        if header.p_type == libc::PT_PHDR {
            return Some(headers.wrapping_sub(header.p_vaddr));
        }
    }
    None
}
