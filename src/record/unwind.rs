//! The stack of the caller, as a node of the tree of stacks.
//!
//! Unwinding 40 frames at every allocation costs more than the allocation. Most of them are those
//! of the last allocation on this thread. So frames are unwound from the inside only until one is
//! met that stood in the last stack with the same stack pointer, frame pointer and return address;
//! then every slot of the stack from which the outer frames were read is compared with what it
//! held. The step from one frame to the next depends on nothing else (`rules`), so equal slots
//! mean equal frames, and the rest of the last stack is the rest of this one. No return address is
//! patched, nothing is assumed about what the program did in between.
//!
//! Reads stay inside the thread's known stack, from the current stack pointer up. On any other
//! stack (signal handlers on their own, coroutines) nothing is spliced and memory is read through
//! the kernel, which fails where a crash would be. A stack of more than [`MOST`] frames is cut:
//! its [`KEPT`] innermost frames hang below a node that says so.

use std::sync::atomic::Ordering::Relaxed;

use super::rules::{self, Step};
use super::start::header;
use super::thread::Thread;
use super::{Caller, arena, intern};
use crate::sys::thread as sys_thread;

/// Frames of one stack that are kept whole.
pub const MOST: usize = 512;
/// Innermost frames that are kept of a deeper one.
const KEPT: usize = 100;

/// A frame of the last stack: the registers after the return into it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Frame {
    pc: u64,
    sp: u64,
    bp: u64,
    /// Where `bp` was read from by the step that led here; 0 if it was the inner frame's.
    bp_slot: u64,
    node: u32,
    /// The step that led here depended on more than return address, sp and bp.
    asked: u32,
}

/// The last stack of a thread, and room for new frames, both innermost frame first. The last
/// stack ends with its array, so that new frames take the place of those that have returned.
#[repr(C)]
pub struct Stack {
    frames: [Frame; MOST],
    /// Index of the innermost frame; [`MOST`] for no stack.
    first: usize,
    /// Not 0 if outer frames are missing because the stack was too deep.
    dropped: usize,
    /// Frames from this index on can be compared slot by slot.
    comparable: usize,
    generation: u32,
    fresh: [Frame; MOST],
}

const PAGE: usize = 4096;

/// A stack whose used parts, the end of one array and the start of the other, are on one page as
/// long as it is not deep: of ten thousand threads, each would have two.
#[repr(C, align(4096))]
struct Placed {
    before: [u8; PAGE / 2 - 16],
    stack: Stack,
}

const _: () = {
    let end_of_frames = std::mem::offset_of!(Placed, stack) + std::mem::offset_of!(Stack, first);
    assert!(end_of_frames % PAGE == PAGE / 2 - 16);
    assert!(size_of::<Placed>() == 11 * PAGE);
};

impl Stack {
    /// One that is never given back, or null.
    pub fn make() -> *mut Stack {
        let placed = arena::own_sparse(size_of::<Placed>(), PAGE).cast::<Placed>();
        if placed.is_null() {
            return std::ptr::null_mut();
        }
        // SAFETY: zeroed memory of this size and alignment, all integers; nobody else knows it.
        unsafe { &raw mut (*placed).stack }
    }

    /// For a new thread: nothing is known.
    pub fn forget(&mut self) {
        clear(self);
    }
}

/// The known extent of the thread's own stack, and of the last other one.
#[derive(Clone, Copy, Default)]
pub struct Bounds {
    pub low: u64,
    pub high: u64,
    foreign: (u64, u64),
}

impl Bounds {
    pub fn new(high: u64, sp: u64) -> Bounds {
        Bounds {
            low: sp.min(high),
            high,
            foreign: (0, 0),
        }
    }

    /// Is this stack pointer on the thread's own stack?
    #[inline(always)]
    fn holds(&mut self, sp: u64) -> bool {
        (self.low <= sp && sp < self.high) || self.reaches_down_to(sp)
    }

    #[cold]
    fn reaches_down_to(&mut self, sp: u64) -> bool {
        let (low, high) = self.foreign;
        if sp >= self.high || (low <= sp && sp < high) {
            return false;
        }
        if self.low - sp < (1 << 22) && sys_thread::is_readable(sp, self.low) {
            self.low = sp & !4095;
            return true;
        }
        self.foreign = (sp & !0xffff, (sp & !0xffff) + 0x1_0000);
        false
    }
}

/// The node of the caller's stack. Node 0 if there is none to be had.
#[inline(always)]
pub fn capture(thread: &mut Thread, caller: &Caller) -> u32 {
    if caller.pc < 4096 {
        return missing();
    }
    if !thread.bounds.holds(caller.sp) {
        return foreign(thread, caller);
    }
    let high = thread.bounds.high;
    // SAFETY: points to the stack that this thread owns, made when the thread was met.
    let stack = unsafe { &mut *thread.stack };
    let generation = header().map_or(0, |h| h.generation.load(Relaxed));
    if stack.generation != generation {
        stack.generation = generation;
        clear(stack);
    }
    let (fresh, joint) = descend(stack, caller, high);
    if stack.dropped == 0 && fresh < MOST && fresh <= joint {
        return join(stack, fresh, joint);
    }
    too_deep(stack, fresh, joint, high)
}

#[cold]
fn missing() -> u32 {
    if let Some(header) = header() {
        header.missing_stacks.fetch_add(1, Relaxed);
    }
    0
}

/// Unwinds into `stack.fresh` until the outermost frame, a frame of the last stack, or the limit.
/// Returns how many frames are new, and the index of the innermost frame of the last stack that
/// still runs, [`MOST`] if none does.
#[inline(always)]
fn descend(stack: &mut Stack, caller: &Caller, high: u64) -> (usize, usize) {
    let mut frame = Frame {
        pc: caller.pc,
        sp: caller.sp,
        bp: caller.bp,
        bp_slot: 0,
        node: 0,
        asked: 0,
    };
    let mut last = stack.frames[stack.first.min(MOST)..].iter();
    // Frames inside this many have a changed one outside them, or can't be compared.
    let mut candidates = MOST - stack.comparable.min(MOST);
    for (fresh, place) in stack.fresh.iter_mut().enumerate() {
        while let Some(old) = last.as_slice().first()
            && old.sp < frame.sp
        {
            last.next();
        }
        if let Some((old, outer)) = last.as_slice().split_first()
            && (old.sp, old.pc, old.bp) == (frame.sp, frame.pc, frame.bp)
            && outer.len() < candidates
        {
            match unchanged(outer, high) {
                Ok(()) => return (fresh, MOST - outer.len() - 1),
                Err(outside) => candidates = outside,
            }
        }
        *place = frame;
        if !step(&mut frame, high) {
            return (fresh + 1, MOST);
        }
    }
    (MOST, MOST)
}

/// Do the slots from which these frames were read still hold the same? If not, how many frames
/// lie outside the first that has changed: only those can be spliced, so that a stack is compared
/// once over, however many of its frames look like old ones.
#[inline(always)]
fn unchanged(outer: &[Frame], high: u64) -> Result<(), usize> {
    // The frame inside these was just compared by value; the step to each of them read two slots.
    let mut rest = outer.iter();
    while let Some(frame) = rest.next() {
        if frame.sp > high {
            return Err(rest.len());
        }
        // SAFETY: the slots lie between the current stack pointer, below the innermost frame's
        // `sp`, and `high`: on this thread's own stack, as `Bounds` knows it.
        let same = unsafe {
            *((frame.sp - 8) as *const u64) == frame.pc
                && (frame.bp_slot == 0 || *(frame.bp_slot as *const u64) == frame.bp)
        };
        if !same {
            return Err(rest.len());
        }
    }
    Ok(())
}

/// Goes to the caller; false at the outermost frame or where the way is lost.
#[inline(always)]
fn step(frame: &mut Frame, high: u64) -> bool {
    match rules::of(frame.pc).step() {
        Step::Simple {
            from_bp,
            cfa,
            saved_bp,
        } => {
            let base = if from_bp { frame.bp } else { frame.sp };
            let sp = base.wrapping_add(cfa);
            let slot = sp.wrapping_sub(saved_bp);
            let inside = frame.sp < sp && sp <= high && (saved_bp == 0 || slot >= frame.sp - 8);
            if !inside || sp % 8 != 0 {
                return false;
            }
            // SAFETY: both words lie between the current stack pointer and the top of this
            // thread's own stack.
            unsafe {
                frame.pc = *((sp - 8) as *const u64);
                frame.bp_slot = 0;
                if saved_bp != 0 {
                    frame.bp = *(slot as *const u64);
                    frame.bp_slot = slot;
                }
            }
            frame.sp = sp;
            frame.asked = 0;
            frame.pc >= 4096
        }
        Step::End => false,
        Step::Ask => ask(frame, high),
    }
}

#[cold]
#[inline(never)]
fn ask(frame: &mut Frame, high: u64) -> bool {
    let low = frame.sp;
    let read = |at: u64| {
        if at < low.saturating_sub(256) || at + 8 > high || !at.is_multiple_of(8) {
            return Err(());
        }
        // SAFETY: as above; 256 bytes below are the red zone and the frame just left.
        Ok(unsafe { *(at as *const u64) })
    };
    match rules::ask(frame.pc, frame.sp, frame.bp, read) {
        Some((pc, sp, bp)) if sp > frame.sp && sp <= high && pc >= 4096 => {
            *frame = Frame {
                pc,
                sp,
                bp,
                bp_slot: 0,
                node: 0,
                asked: 1,
            };
            true
        }
        _ => false,
    }
}

/// Puts the new frames before what remains of the last stack. `node_of` finds their nodes.
#[inline(always)]
fn prepend(stack: &mut Stack, fresh: usize, joint: usize, mut node_of: impl FnMut(&Frame) -> u32) {
    // A frame and all outside it can be compared as long as no step from it outwards was asked
    // for; the step that led to a frame is noted in that frame.
    let mut comparable = stack.comparable <= joint;
    stack.comparable = stack.comparable.max(joint);
    let first = joint - fresh;
    let places = stack.frames[first..joint].iter_mut().rev();
    for (place, frame) in places.zip(stack.fresh[..fresh].iter().rev()) {
        *place = Frame {
            node: node_of(frame),
            ..*frame
        };
        stack.comparable -= usize::from(comparable);
        comparable &= frame.asked == 0;
    }
    stack.first = first;
}

/// The node of a stack that is known from its outermost frame on.
#[inline(always)]
fn join(stack: &mut Stack, fresh: usize, joint: usize) -> u32 {
    let mut node = stack.frames.get(joint).map_or(0, |frame| frame.node);
    prepend(stack, fresh, joint, |frame| {
        node = intern::child(node, frame.pc);
        node
    });
    node
}

fn clear(stack: &mut Stack) {
    stack.first = MOST;
    stack.dropped = 0;
    stack.comparable = MOST;
}

/// A stack that does not fit, now or the last time.
#[cold]
#[inline(never)]
fn too_deep(stack: &mut Stack, fresh: usize, joint: usize, high: u64) -> u32 {
    if joint == MOST && fresh < MOST {
        clear(stack);
        return join(stack, fresh, MOST);
    }
    // Perhaps back from the depth: then the outer frames have to be found again.
    if stack.dropped > 0 && joint < MOST && MOST - joint + fresh < MOST / 4 {
        let innermost = match fresh {
            0 => stack.frames[joint],
            _ => stack.fresh[0],
        };
        let caller = Caller {
            pc: innermost.pc,
            sp: innermost.sp,
            bp: innermost.bp,
        };
        clear(stack);
        let (fresh, _) = descend(stack, &caller, high);
        return match fresh {
            MOST => truncated(stack, fresh, MOST),
            _ => join(stack, fresh, MOST),
        };
    }
    truncated(stack, fresh, joint)
}

/// Keeps the innermost frames in their array and names the stack by [`KEPT`] of them.
fn truncated(stack: &mut Stack, fresh: usize, mut joint: usize) -> u32 {
    let fresh = fresh.min(MOST - 1);
    if fresh > joint {
        let remaining = (MOST - joint).min(MOST * 3 / 4).min(MOST - fresh);
        stack
            .frames
            .copy_within(joint..joint + remaining, MOST - remaining);
        let dropped = MOST - remaining - joint;
        stack.comparable = (stack.comparable + dropped).min(MOST);
        joint = MOST - remaining;
    }
    stack.dropped = 1;
    prepend(stack, fresh, joint, |_| 0);
    if let Some(header) = header() {
        header.truncated_stacks.fetch_add(1, Relaxed);
    }
    let innermost = stack.frames[stack.first..].iter().take(KEPT);
    innermost
        .rev()
        .fold(intern::cut(), |node, frame| intern::child(node, frame.pc))
}

/// A stack that is not the thread's own: read through the kernel, compared with nothing.
#[cold]
#[inline(never)]
fn foreign(thread: &mut Thread, caller: &Caller) -> u32 {
    const WINDOW: usize = 16 << 10;
    let Some(window) = thread.window(WINDOW) else {
        return missing();
    };
    let mut low = caller.sp.saturating_sub(256) & !7;
    let mut bytes = readable(low, window);
    let own = thread.bounds;
    // SAFETY: points to the stack that this thread owns.
    let stack = unsafe { &mut *thread.stack };
    let (mut pc, mut sp, mut bp) = (caller.pc, caller.sp, caller.bp);
    let mut count = 0;
    loop {
        stack.fresh[count].pc = pc;
        count += 1;
        if count == MOST {
            break;
        }
        if sp > low + bytes as u64 / 2 && bytes == WINDOW {
            low = sp.saturating_sub(256) & !7;
            bytes = readable(low, window);
        }
        let read = |at: u64| {
            if own.low <= at && at + 8 <= own.high {
                // SAFETY: within the thread's own stack as far as it is known to be mapped.
                return Ok(unsafe { *(at as *const u64) });
            }
            let offset = at.checked_sub(low).ok_or(())? as usize;
            let word = window
                .get(offset..offset + 8)
                .filter(|_| offset + 8 <= bytes)
                .ok_or(())?;
            Ok(u64::from_le_bytes(word.try_into().map_err(|_| ())?))
        };
        match rules::ask(pc, sp, bp, read) {
            Some((new_pc, new_sp, new_bp)) if new_pc >= 4096 && new_sp != sp => {
                (pc, sp, bp) = (new_pc, new_sp, new_bp);
            }
            _ => break,
        }
    }
    // What the last stack held may lie below frames that are running now.
    clear(stack);
    let start = if count == MOST { intern::cut() } else { 0 };
    let kept = if count == MOST { KEPT } else { count };
    stack.fresh[..kept]
        .iter()
        .rev()
        .fold(start, |node, frame| intern::child(node, frame.pc))
}

/// Copies what can be read; page by page where not all can.
fn readable(low: u64, window: &mut [u8]) -> usize {
    let whole = sys_thread::read_own_memory(low, window);
    if whole > 0 {
        return whole;
    }
    let first_page = (4096 - (low & 4095)) as usize;
    let some = first_page.min(window.len());
    sys_thread::read_own_memory(low, &mut window[..some])
}
