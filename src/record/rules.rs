//! Unwind rules: how to get from a return address to its caller.
//!
//! framehop knows how to read the unwind tables, but its cache of 509 rules thrashes in a tokio
//! program and then parses the tables at every frame. Here each return address is put to framehop
//! once: it is asked to unwind a made-up frame whose registers and stack words are markers, and
//! from which markers come back follows a rule of one word (stack or frame pointer plus a
//! constant, and where the caller's frame pointer was saved). Rules stand in a table that all
//! threads read without a lock. What has no such rule (signal frames, expressions) is put to
//! framehop every time.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{
    ExplicitModuleSectionInfo, FrameAddress, Module, MustNotAllocateDuringUnwind, Unwinder as _,
};

use super::lock::Lock;
use super::modules::{self, Loaded};
use super::{arena, intern, thread};

/// One word: two bits of kind, then the distance of the CFA and of the saved frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule(u64);

/// What a [`Rule`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The caller's stack pointer is this register plus `cfa` bytes; its return address stands
    /// 8 bytes below; its frame pointer, unless unchanged (0), `saved_bp` bytes below.
    Simple {
        from_bp: bool,
        cfa: u64,
        saved_bp: u64,
    },
    /// The outermost frame.
    End,
    /// Only framehop can tell, with the real registers and stack.
    Ask,
}

impl Rule {
    const END: Rule = Rule(2);
    const ASK: Rule = Rule(3);

    fn simple(from_bp: bool, cfa: u64, saved_bp: u64) -> Option<Rule> {
        let fits = cfa.is_multiple_of(8)
            && saved_bp.is_multiple_of(8)
            && cfa >> 31 == 0
            && saved_bp >> 28 == 0;
        // Never zero: that is a free slot.
        (fits && cfa != 0).then_some(Rule(u64::from(from_bp) | (cfa << 2) | (saved_bp << 33)))
    }

    #[inline(always)]
    pub fn step(self) -> Step {
        match self.0 & 3 {
            2 => Step::End,
            3 => Step::Ask,
            kind => Step::Simple {
                from_bp: kind == 1,
                cfa: (self.0 >> 2) & 0x7fff_ffff & !7,
                saved_bp: (self.0 >> 33) & !7,
            },
        }
    }
}

#[repr(C)]
struct Slot {
    address: AtomicU64,
    rule: AtomicU64,
}

#[repr(C)]
struct Table {
    mask: u32,
    used: AtomicU32,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
const FIRST_SLOTS: usize = 1 << 14;

type Unwinder = UnwinderX86_64<&'static [u8], MustNotAllocateDuringUnwind>;
type Cache = CacheX86_64<MustNotAllocateDuringUnwind>;

struct Framehop(UnsafeCell<Option<(Unwinder, Cache)>>);

// SAFETY: reached only while `ASKING` is held.
unsafe impl Sync for Framehop {}

static FRAMEHOP: Framehop = Framehop(UnsafeCell::new(None));
static ASKING: Lock = Lock::new();

impl Table {
    fn slots(&self) -> *const Slot {
        (self as *const Table).wrapping_add(1).cast()
    }

    /// # Safety
    ///
    /// `index` is at most `mask`.
    #[inline(always)]
    unsafe fn slot(&self, index: u32) -> &Slot {
        // SAFETY: `make` allocates `mask + 1` slots behind the table; the caller's for the index.
        unsafe { &*self.slots().add(index as usize) }
    }
}

#[inline(always)]
fn hash(address: u64) -> u32 {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The rule of a return address.
#[inline(always)]
pub fn of(address: u64) -> Rule {
    let table = TABLE.load(Acquire);
    // SAFETY: null, or a table that is never unmapped.
    if let Some(table) = unsafe { table.as_ref() } {
        let mut index = hash(address) & table.mask;
        for _ in 0..16 {
            // SAFETY: masked.
            let slot = unsafe { table.slot(index) };
            let found = slot.address.load(Acquire);
            if found == address {
                return Rule(slot.rule.load(Relaxed));
            }
            if found == 0 {
                break;
            }
            index = (index + 1) & table.mask;
        }
    }
    learn(address)
}

#[cold]
#[inline(never)]
fn learn(address: u64) -> Rule {
    modules::find_or_refresh(address.wrapping_sub(1));
    let _held = ASKING.hold();
    let rule = probe(address);
    insert(address, rule);
    rule
}

fn make(slots: usize) -> *mut Table {
    let table = arena::own(size_of::<Table>() + slots * size_of::<Slot>()).cast::<Table>();
    if !table.is_null() {
        // SAFETY: freshly mapped, zeroed, nobody else knows it.
        unsafe { (*table).mask = slots as u32 - 1 };
    }
    table
}

/// With `ASKING` held. A table that is too full is replaced; the old one stays for its readers.
fn insert(address: u64, rule: Rule) {
    let mut table = TABLE.load(Relaxed);
    if table.is_null() {
        table = make(FIRST_SLOTS);
        TABLE.store(table, Release);
    }
    // SAFETY: null, or a table that is never unmapped.
    let Some(mut current) = (unsafe { table.as_ref() }) else {
        return;
    };
    if current.used.load(Relaxed) > current.mask / 2 {
        let larger = make((current.mask as usize + 1) * 4);
        // SAFETY: as above.
        if let Some(larger_table) = unsafe { larger.as_ref() } {
            for index in 0..=current.mask {
                // SAFETY: at most `mask`.
                let slot = unsafe { current.slot(index) };
                let known = slot.address.load(Relaxed);
                if known != 0 {
                    put(larger_table, known, Rule(slot.rule.load(Relaxed)));
                }
            }
            TABLE.store(larger, Release);
            current = larger_table;
        }
    }
    put(current, address, rule);
}

fn put(table: &Table, address: u64, rule: Rule) {
    let mut index = hash(address) & table.mask;
    for _ in 0..=table.mask {
        // SAFETY: masked.
        let slot = unsafe { table.slot(index) };
        let found = slot.address.load(Relaxed);
        if found == 0 || found == address {
            slot.rule.store(rule.0, Relaxed);
            slot.address.store(address, Release);
            table.used.fetch_add(u32::from(found == 0), Relaxed);
            return;
        }
        index = (index + 1) & table.mask;
    }
}

/// Modules have gone: nothing that was learned of their addresses holds.
pub fn forget() {
    let _held = ASKING.hold();
    let muted = thread::mute();
    // SAFETY: `ASKING` is held.
    unsafe { *FRAMEHOP.0.get() = None };
    thread::unmute(muted);
    TABLE.store(std::ptr::null_mut(), Release);
    drop(_held);
    intern::forget();
    modules::refresh_unwinder();
}

/// Tells framehop of a module. Its name and list are the only things that may allocate here; in
/// the preload library the allocator behind them is our own.
pub fn add_module(module: &Loaded) {
    let (header, frames) = (module.eh_frame_hdr, module.eh_frame);
    if frames.0 == 0 {
        return;
    }
    let bytes = |(start, end): (u64, u64)| -> &'static [u8] {
        // SAFETY: ranges of loaded segments; the module is retired before it is unloaded.
        unsafe { std::slice::from_raw_parts(start as *const u8, (end - start) as usize) }
    };
    let svma = |(start, end): (u64, u64)| start - module.bias..end - module.bias;
    let sections = ExplicitModuleSectionInfo {
        base_svma: module.low - module.bias,
        text_svma: Some(svma(module.text)),
        eh_frame_hdr_svma: Some(svma(header)),
        eh_frame_hdr: Some(bytes(header)),
        eh_frame_svma: Some(svma(frames)),
        eh_frame: Some(bytes(frames)),
        ..Default::default()
    };
    let range = module.low..module.high;
    // In the library framehop's lists come from the allocator that is being recorded.
    let muted = thread::mute();
    let module = Module::new(String::new(), range, module.low, sections);
    let _held = ASKING.hold();
    // SAFETY: `ASKING` is held.
    let framehop = unsafe { &mut *FRAMEHOP.0.get() };
    let (unwinder, _) = framehop.get_or_insert_with(|| (Unwinder::new(), Cache::new_in()));
    unwinder.add_module(module);
    thread::unmute(muted);
}

/// Asks framehop about a made-up frame, twice with different markers. With `ASKING` held.
fn probe(address: u64) -> Rule {
    // SAFETY: `ASKING` is held by the caller.
    let Some((unwinder, cache)) = (unsafe { (*FRAMEHOP.0.get()).as_mut() }) else {
        return Rule::END;
    };
    let first = probe_with(unwinder, cache, address, 0x0100_0000_0000, 0x0200_0000_0000);
    let second = probe_with(unwinder, cache, address, 0x0300_0000_1230, 0x0500_0000_4560);
    match (first, second) {
        (Some(first), Some(second)) if first == second => first,
        _ => Rule::ASK,
    }
}

fn probe_with(
    unwinder: &Unwinder,
    cache: &mut Cache,
    address: u64,
    sp: u64,
    bp: u64,
) -> Option<Rule> {
    const MARK: u64 = 0x7a00_0000_0000_0000;
    const FAR: u64 = 1 << 31;
    let mut registers = UnwindRegsX86_64::new(address, sp, bp);
    let mut last_read = 0;
    let mut read = |at: u64| -> Result<u64, ()> {
        last_read = at;
        Ok(at ^ MARK)
    };
    let frame = FrameAddress::from_return_address(address)?;
    match unwinder.unwind_frame(frame, &mut registers, cache, &mut read) {
        Ok(Some(found)) => {
            let (cfa, new_bp) = (registers.sp(), registers.bp());
            let from_bp = cfa.wrapping_sub(bp) < FAR;
            if !from_bp && cfa.wrapping_sub(sp) >= FAR || found != (cfa - 8) ^ MARK {
                return None;
            }
            let distance = if from_bp { cfa - bp } else { cfa - sp };
            let saved_bp = match new_bp {
                same if same == bp => 0,
                marked => cfa.wrapping_sub(marked ^ MARK),
            };
            Rule::simple(from_bp, distance, saved_bp)
        }
        Ok(None) => Some(Rule::END),
        Err(_) => None,
    }
}

/// Unwinds one frame with the real registers and stack, for what has no rule. Returns the
/// caller's (return address, sp, bp).
pub fn ask(
    address: u64,
    sp: u64,
    bp: u64,
    mut read: impl FnMut(u64) -> Result<u64, ()>,
) -> Option<(u64, u64, u64)> {
    let _held = ASKING.hold();
    // SAFETY: `ASKING` is held.
    let (unwinder, cache) = unsafe { (*FRAMEHOP.0.get()).as_mut() }?;
    let mut registers = UnwindRegsX86_64::new(address, sp, bp);
    let frame = FrameAddress::from_return_address(address)?;
    let found = unwinder
        .unwind_frame(frame, &mut registers, cache, &mut read)
        .ok()??;
    Some((found, registers.sp(), registers.bp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_keeps_its_parts() {
        for (from_bp, cfa, saved_bp) in [(false, 8, 0), (true, 16, 16), (false, 1 << 20, 48)] {
            let rule = Rule::simple(from_bp, cfa, saved_bp).unwrap();
            assert_eq!(
                rule.step(),
                Step::Simple {
                    from_bp,
                    cfa,
                    saved_bp
                }
            );
        }
        assert_eq!(Rule::simple(false, 12, 0), None);
        assert_eq!(Rule::END.step(), Step::End);
        assert_eq!(Rule::ASK.step(), Step::Ask);
    }
}
