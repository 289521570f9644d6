//! The loaded ELF files: where code, unwind tables and vtables may be.
//!
//! `dl_iterate_phdr` takes the loader's lock, so it is called at the start and, when code turns
//! up that no known module holds, while none of our own locks is held. glibc's lock-free
//! `_dl_find_object` is asked first where it exists. Hooking `dlopen` instead would make us its
//! caller and change where it searches. A module that may be on its way out is retired before
//! `dlclose` runs: framehop reads its unwind tables in place.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::lock::Lock;
use super::start::header;
use super::{arena, rules};
use crate::sys::thread;
use crate::wire::Place;

const MOST: usize = 512;

/// What the recorder keeps of a module. Addresses as at run time.
#[derive(Clone, Copy, Default)]
pub struct Loaded {
    pub bias: u64,
    pub low: u64,
    pub high: u64,
    pub text: (u64, u64),
    pub eh_frame_hdr: (u64, u64),
    pub eh_frame: (u64, u64),
    /// Segments that are not code.
    data: [(u64, u64); 6],
    tls_offset: i64,
    /// There from the start: never closed.
    initial: bool,
    retired: bool,
    row: u32,
}

impl Loaded {
    /// Does the range lie in one readable segment that is not code?
    pub fn holds_data(&self, start: u64, end: u64) -> bool {
        self.data
            .iter()
            .any(|(low, high)| *low <= start && end <= *high)
    }
}

struct List {
    modules: UnsafeCell<[Loaded; MOST]>,
    count: AtomicUsize,
}

// SAFETY: entries below `count` are changed only under `CHANGING`, and readers of single fields
// that change (`retired`) hold it too.
unsafe impl Sync for List {}

static LIST: List = List {
    modules: UnsafeCell::new([const { EMPTY }; MOST]),
    count: AtomicUsize::new(0),
};
const EMPTY: Loaded = Loaded {
    bias: 0,
    low: 0,
    high: 0,
    text: (0, 0),
    eh_frame_hdr: (0, 0),
    eh_frame: (0, 0),
    data: [(0, 0); 6],
    tls_offset: 0,
    initial: false,
    retired: false,
    row: 0,
};
static CHANGING: Lock = Lock::new();
static STARTED: AtomicBool = AtomicBool::new(false);

fn with_list<R>(work: impl FnOnce(&mut [Loaded], usize) -> R) -> R {
    let _held = CHANGING.hold();
    let count = LIST.count.load(Relaxed);
    // SAFETY: `CHANGING` is held, so nobody else has a reference.
    work(unsafe { &mut *LIST.modules.get() }, count)
}

/// The module that holds this address, if it is known and not retired.
pub fn find(address: u64) -> Option<Loaded> {
    with_list(|modules, count| {
        let known = modules[..count].iter();
        known
            .copied()
            .find(|m| !m.retired && m.low <= address && address < m.high)
    })
}

/// As [`find`]; looks for modules that have come since. No lock of ours may be held.
pub fn find_or_refresh(address: u64) -> Option<Loaded> {
    find(address).or_else(|| {
        if !loader_knows(address) {
            return None;
        }
        refresh();
        find(address)
    })
}

/// Asks glibc's lock-free index, where there is one.
fn loader_knows(address: u64) -> bool {
    type FindObject = unsafe extern "C" fn(*mut c_void, *mut [u64; 16]) -> c_int;
    static FUNCTION: AtomicUsize = AtomicUsize::new(1);
    if FUNCTION.load(Relaxed) == 1 {
        // SAFETY: a C string; the lookup of an existing name does not allocate, and our thread is
        // marked as inside the recorder in case it does.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        FUNCTION.store(found as usize, Relaxed);
    }
    let function = FUNCTION.load(Relaxed);
    if function == 0 {
        return true;
    }
    // SAFETY: the symbol has this signature since glibc 2.35; its result is at most 12 words.
    let function: FindObject = unsafe { std::mem::transmute(function) };
    let mut result = [0u64; 16];
    // SAFETY: any address may be asked for.
    unsafe { function(address as *mut c_void, &mut result) == 0 }
}

/// Brings the list up to date with the loader.
pub fn refresh() {
    // SAFETY: the callback has the right signature and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
    STARTED.store(true, Relaxed);
}

/// `dlclose` is about to run, or has run: what was opened later must prove itself again.
pub fn retire_closable() {
    let Some(header) = header() else { return };
    let mut any = false;
    with_list(|modules, count| {
        for module in modules[..count]
            .iter_mut()
            .filter(|m| !m.initial && !m.retired)
        {
            module.retired = true;
            any = true;
        }
    });
    if any {
        let generation = header.generation.fetch_add(1, Relaxed) + 1;
        with_list(|modules, count| {
            for module in modules[..count].iter().filter(|m| m.retired) {
                mark_unloaded(module.row, generation);
            }
        });
        rules::forget();
    }
}

fn mark_unloaded(row: u32, generation: u32) {
    let Some(header) = header() else { return };
    let row = header.modules.address(row, &arena::EXTENT);
    // SAFETY: null, or a row of the column, made of atomics.
    if let Some(row) = unsafe { row.as_ref() }
        && row.unloaded.load(Relaxed) == 0
    {
        row.unloaded.store(generation, Relaxed);
    }
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description for the duration of the call.
    let info = unsafe { &*info };
    let Some(mut module) = describe(info) else {
        return 0;
    };
    module.initial = !STARTED.load(Relaxed);
    let known = with_list(|modules, count| {
        let same = modules[..count]
            .iter_mut()
            .find(|m| m.bias == module.bias && m.low == module.low && m.high == module.high);
        same.map(|m| (m.row, std::mem::replace(&mut m.retired, false)))
    });
    // SAFETY: a C string that lives as long as the module.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    match known {
        Some((_, false)) => {}
        Some((row, true)) if is_same_file(row, path) => revive(row, &module),
        Some((_, true)) | None => add(module, path, info),
    }
    0
}

fn revive(row: u32, module: &Loaded) {
    let Some(header) = header() else { return };
    let row = header.modules.address(row, &arena::EXTENT);
    // SAFETY: null, or a row of the column, made of atomics.
    if let Some(row) = unsafe { row.as_ref() } {
        row.unloaded.store(0, Relaxed);
    }
    rules::add_module(module);
}

fn is_same_file(row: u32, path: &[u8]) -> bool {
    let Some(header) = header() else { return false };
    let row = header.modules.address(row, &arena::EXTENT);
    // SAFETY: null, or a row of the column, made of atomics.
    let Some(row) = (unsafe { row.as_ref() }) else {
        return false;
    };
    let length = row.path_len.load(Relaxed) as usize;
    let text =
        crate::wire::ExtentMap::address(&arena::EXTENT, Place(row.path.load(Relaxed)), length);
    if text.is_null() {
        return length == path.len();
    }
    // SAFETY: `store_text` wrote so many bytes there.
    unsafe { std::slice::from_raw_parts(text, length) == path }
}

fn add(mut module: Loaded, path: &[u8], info: &libc::dl_phdr_info) {
    let Some(header) = header() else { return };
    let (text, length) = store_text(path);
    let build_id = build_id(info);
    let row = arena::append(&header.modules, |_, row| {
        // SAFETY: a fresh, zeroed row that no reader knows yet.
        let row = unsafe { &*row };
        row.bias.store(module.bias, Relaxed);
        row.low.store(module.low, Relaxed);
        row.high.store(module.high, Relaxed);
        row.loaded.store(header.generation.load(Relaxed), Relaxed);
        row.path.store(text.0, Relaxed);
        row.path_len.store(length, Relaxed);
        row.tls_offset.store(module.tls_offset, Relaxed);
        let id = &build_id[..build_id.len().min(32)];
        row.build_id_len.store(id.len() as u32, Relaxed);
        for (word, bytes) in row.build_id.iter().zip(id.chunks(8)) {
            let mut padded = [0u8; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
    });
    let Some(row) = row else { return };
    module.row = row;
    let placed = with_list(|modules, count| {
        let same = modules[..count]
            .iter()
            .position(|m| m.bias == module.bias && m.low == module.low && m.high == module.high);
        let at = same.unwrap_or(count);
        let Some(slot) = modules.get_mut(at) else {
            return false;
        };
        *slot = module;
        if at == count {
            LIST.count.store(count + 1, Release);
        }
        true
    });
    if placed {
        rules::add_module(&module);
    }
}

/// Difference between run-time and link-time addresses of the executable: it comes first.
pub fn executable_bias() -> u64 {
    // SAFETY: entry 0 is written before the recording starts and never changes.
    unsafe { (*LIST.modules.get())[0].bias }
}

/// Tells the unwinder of every module that is not retired, after it has forgotten all.
pub fn refresh_unwinder() {
    with_list(|modules, count| {
        modules[..count]
            .iter()
            .filter(|m| !m.retired)
            .for_each(rules::add_module);
    });
}

/// Copies bytes into the recording.
pub fn store_text(text: &[u8]) -> (Place, u32) {
    match arena::shared(text.len().max(1)) {
        Some((place, address)) => {
            // SAFETY: `shared` returned so many bytes that nobody else knows.
            unsafe { address.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
            (place, text.len() as u32)
        }
        None => (Place::NOWHERE, 0),
    }
}

fn program_headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader's own table of so many entries.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) }
}

fn describe(info: &libc::dl_phdr_info) -> Option<Loaded> {
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    let bias = info.dlpi_addr;
    let mut module = Loaded {
        bias,
        low: u64::MAX,
        ..EMPTY
    };
    let mut segments = [(0u64, 0u64); 16];
    let mut count = 0;
    for header in program_headers(info) {
        let start = bias.wrapping_add(header.p_vaddr);
        let end = start.wrapping_add(header.p_memsz);
        match header.p_type {
            libc::PT_LOAD => {
                module.low = module.low.min(start);
                module.high = module.high.max(end);
                if header.p_flags & libc::PF_X != 0 {
                    let low = if module.text.0 == 0 {
                        start
                    } else {
                        module.text.0.min(start)
                    };
                    module.text = (low, module.text.1.max(end));
                } else if header.p_flags & libc::PF_R != 0
                    && let Some(free) = module.data.iter_mut().find(|d| d.0 == 0)
                {
                    *free = (start, end);
                }
                if count < segments.len() {
                    segments[count] = (start, end);
                    count += 1;
                }
            }
            PT_GNU_EH_FRAME => module.eh_frame_hdr = (start, end),
            _ => {}
        }
    }
    if module.low >= module.high {
        return None;
    }
    module.eh_frame = eh_frame(&module, &segments[..count]);
    if !info.dlpi_tls_data.is_null() {
        module.tls_offset = (info.dlpi_tls_data as i64).wrapping_sub(thread::pointer() as i64);
    }
    Some(module)
}

/// `.eh_frame` starts where its header says and ends at the latest with its segment.
fn eh_frame(module: &Loaded, segments: &[(u64, u64)]) -> (u64, u64) {
    const PC_RELATIVE_SDATA4: u8 = 0x1b;
    let (header, end) = module.eh_frame_hdr;
    if header == 0 || end - header < 8 {
        return (0, 0);
    }
    // SAFETY: the loader has mapped the segment with at least these 8 bytes.
    let head = unsafe { std::slice::from_raw_parts(header as *const u8, 8) };
    if head[0] != 1 || head[1] != PC_RELATIVE_SDATA4 {
        return (0, 0);
    }
    let relative = i32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let start = (header + 4).wrapping_add_signed(i64::from(relative));
    let segment = segments
        .iter()
        .find(|(low, high)| *low <= start && start < *high);
    segment.map_or((0, 0), |(_, high)| (start, *high))
}

fn build_id(info: &libc::dl_phdr_info) -> &'static [u8] {
    const GNU_BUILD_ID: u32 = 3;
    for header in program_headers(info)
        .iter()
        .filter(|h| h.p_type == libc::PT_NOTE)
    {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        // SAFETY: a loaded note segment stays mapped as long as its module.
        let mut notes =
            unsafe { std::slice::from_raw_parts(start as *const u8, header.p_memsz as usize) };
        while notes.len() >= 12 {
            let word = |at: usize| {
                u32::from_le_bytes([notes[at], notes[at + 1], notes[at + 2], notes[at + 3]])
            };
            let (name, bytes, kind) = (word(0) as usize, word(4) as usize, word(8));
            let content = 12 + name.next_multiple_of(4);
            let Some(found) = notes.get(content..content + bytes) else {
                break;
            };
            if kind == GNU_BUILD_ID && notes.get(12..16) == Some(b"GNU\0") {
                return found;
            }
            notes = notes
                .get(content + bytes.next_multiple_of(4)..)
                .unwrap_or(&[]);
        }
    }
    &[]
}
