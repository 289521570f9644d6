//! What jemalloc itself says of its memory.
//!
//! From outside it is seen which pages are resident, but not why: pages that are dirty (free, not
//! yet given back), muzzy (given back when the system wants them), or in a thread's cache look
//! alike. So the command asks before a walk, and the next thread that allocates answers with
//! `mallctl`, outside of any call into the allocator. If no thread allocates, the last answer
//! stands, with its time. Builds without statistics, as Rust's are unless asked, tell their pages
//! all the same.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::record;
use crate::sys::thread::keep_errno;
use crate::wire::{Header, STATISTICS, Statistic};

type Mallctl =
    unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

/// Address of `mallctl`, 0 if there is none.
static MALLCTL: AtomicUsize = AtomicUsize::new(0);

/// # Safety
///
/// `address` is that of the program's `mallctl`.
pub(super) unsafe fn tell_by(address: usize) {
    MALLCTL.store(address, Release);
}

/// Answers if the command has asked.
#[inline(always)]
pub(super) fn answer_if_asked() {
    if let Some(header) = record::header()
        && header.statistics.wanted.load(Relaxed) != header.statistics.claimed.load(Relaxed)
    {
        claim(header);
    }
}

/// One thread answers each question.
#[cold]
#[inline(never)]
fn claim(header: &Header) {
    let statistics = &header.statistics;
    let wanted = statistics.wanted.load(Acquire);
    let claimed = statistics.claimed.load(Relaxed);
    let mine = claimed != wanted
        && statistics
            .claimed
            .compare_exchange(claimed, wanted, AcqRel, Relaxed)
            .is_ok();
    let address = MALLCTL.load(Acquire);
    if !mine || address == 0 || !record::is_active() {
        return;
    }
    // SAFETY: the address is that of a function of this type, see `tell_by`.
    let mallctl = unsafe { std::mem::transmute::<usize, Mallctl>(address) };
    keep_errno(|| answer(header, mallctl));
    statistics.given.store(wanted, Release);
}

fn answer(header: &Header, mallctl: Mallctl) {
    // Figures are those of the last epoch: begin one.
    let mut epoch = 1u64;
    // SAFETY: a value of eight bytes is read from where it is, none is written.
    unsafe {
        let value = (&raw mut epoch).cast();
        mallctl(c"epoch".as_ptr(), null_mut(), null_mut(), value, 8)
    };
    let page = read(mallctl, c"arenas.page").unwrap_or(4096);
    for (statistic, name, is_pages) in NAMES {
        let value = read(mallctl, name).map(|value| if is_pages { value * page } else { value });
        header.statistics.values[statistic as usize].store(value.unwrap_or(u64::MAX), Relaxed);
    }
    let now = header.now_ms.load(Relaxed);
    header.statistics.at_ms.store(now, Relaxed);
}

/// 4096 stands for all arenas (`MALLCTL_ARENAS_ALL`).
const NAMES: [(Statistic, &CStr, bool); STATISTICS] = [
    (Statistic::Active, c"stats.arenas.4096.pactive", true),
    (Statistic::Dirty, c"stats.arenas.4096.pdirty", true),
    (Statistic::Muzzy, c"stats.arenas.4096.pmuzzy", true),
    (Statistic::Allocated, c"stats.allocated", false),
    (Statistic::Metadata, c"stats.metadata", false),
    (Statistic::Mapped, c"stats.mapped", false),
    (Statistic::Retained, c"stats.retained", false),
    (
        Statistic::ThreadCaches,
        c"stats.arenas.4096.tcache_bytes",
        false,
    ),
];

fn read(mallctl: Mallctl, name: &CStr) -> Option<u64> {
    let (mut value, mut length) = (0u64, 8usize);
    // SAFETY: the name ends with a zero, and there is room for the eight bytes of any of these
    // values; a value of another size is refused by the length.
    let error = unsafe {
        let place = (&raw mut value).cast();
        mallctl(name.as_ptr(), place, &mut length, null_mut(), 0)
    };
    (error == 0 && length == 8).then_some(value)
}
