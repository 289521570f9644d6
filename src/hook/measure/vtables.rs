//! Is a block the cell of a tokio task, and of which?
//!
//! The third word of a cell points to a vtable in the executable: seven functions, then the places
//! of trailer, scheduler and id within the cell.

const WORD: usize = size_of::<usize>();
const VTABLE_AT: usize = 2 * WORD;

/// # Safety
///
/// The block of `size` bytes at `address` is live and stays so during the call.
#[cfg(target_os = "linux")]
pub unsafe fn id_of(address: usize, size: usize) -> Option<u64> {
    if size < 8 * WORD {
        return None;
    }
    // SAFETY: the block has this word. Its thread may be about to fill the cell in: then this is
    // any value, which the next line checks.
    let vtable = unsafe { ((address + VTABLE_AT) as *const usize).read_volatile() };
    let id_at = id_offset(vtable, size)?;
    // SAFETY: `id_offset` has checked that the id lies within the block.
    let id = unsafe { ((address + id_at) as *const u64).read_volatile() };
    (id != 0 && id >> 36 == 0).then_some(id)
}

/// Elsewhere nobody knows what is code and what is data: no block is taken for a cell.
///
/// # Safety
///
/// None is needed.
#[cfg(not(target_os = "linux"))]
pub unsafe fn id_of(_address: usize, _size: usize) -> Option<u64> {
    let _ = VTABLE_AT;
    None
}

#[cfg(target_os = "linux")]
fn id_offset(vtable: usize, size: usize) -> Option<usize> {
    const WORDS: usize = 10;
    let segments = executable::segments();
    let end = vtable.checked_add(WORDS * WORD)?;
    let readable = segments.iter().any(|s| s.start <= vtable && end <= s.end);
    if !vtable.is_multiple_of(WORD) || !readable {
        return None;
    }
    // SAFETY: memory of the executable: the range was just checked.
    let words = unsafe { std::slice::from_raw_parts(vtable as *const usize, WORDS) };
    let is_code = |at: &usize| {
        let mut code = segments.iter().filter(|segment| segment.is_code);
        code.any(|s| s.start <= *at && *at < s.end)
    };
    let (trailer, scheduler, id) = (words[7], words[8], words[9]);
    let plausible = 3 * WORD <= scheduler && scheduler <= id && id < trailer && trailer < size;
    let fits = id + WORD <= size;
    (plausible && fits && words[..7].iter().all(is_code)).then_some(id)
}

/// Where the executable lies in memory. tokio is linked into it.
#[cfg(target_os = "linux")]
mod executable {
    use std::ffi::c_void;
    use std::sync::OnceLock;

    pub struct Segment {
        pub start: usize,
        pub end: usize,
        pub is_code: bool,
    }

    pub fn segments() -> &'static [Segment] {
        static SEGMENTS: OnceLock<Vec<Segment>> = OnceLock::new();
        SEGMENTS.get_or_init(|| {
            let mut segments = Vec::<Segment>::new();
            // SAFETY: `note` has the right signature, and gets the vector back as it is.
            unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut segments).cast()) };
            segments
        })
    }

    /// # Safety
    ///
    /// Called by `dl_iterate_phdr` with its own module, and with a `Vec<Segment>`.
    unsafe extern "C" fn note(
        module: *mut libc::dl_phdr_info,
        _: libc::size_t,
        segments: *mut c_void,
    ) -> libc::c_int {
        // SAFETY: the caller's.
        let (module, segments) = unsafe { (&*module, &mut *segments.cast::<Vec<Segment>>()) };
        for at in 0..usize::from(module.dlpi_phnum) {
            // SAFETY: the module has as many headers.
            let header = unsafe { &*module.dlpi_phdr.add(at) };
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_R == 0 {
                continue;
            }
            let start = module.dlpi_addr as usize + header.p_vaddr as usize;
            segments.push(Segment {
                start,
                end: start + header.p_memsz as usize,
                is_code: header.p_flags & libc::PF_X != 0,
            });
        }
        // The first module is the executable: stop.
        1
    }
}
