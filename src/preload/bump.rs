//! Memory for the few things that the preload library's own code allocates: framehop's list of
//! modules. Never given back; a module list changes a handful of times.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::record;

struct Bump;

#[global_allocator]
static OWN: Bump = Bump;

const PIECE: usize = 1 << 20;
/// Next free address, and the end of the piece.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every block is a range of a fresh mapping that no other block has: `NEXT` only moves
// up, by compare and exchange, and callers are serialised by the recorder's locks.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > PIECE / 2 {
            return record::pages(layout.size());
        }
        loop {
            let next = NEXT.load(Relaxed);
            let start = next.next_multiple_of(layout.align().max(1));
            let end = start + layout.size();
            if next == 0 || end > END.load(Relaxed) {
                let piece = record::pages(PIECE) as usize;
                if piece == 0 {
                    return std::ptr::null_mut();
                }
                END.store(piece + PIECE, Relaxed);
                NEXT.store(piece, Relaxed);
                continue;
            }
            if NEXT.compare_exchange(next, end, Relaxed, Relaxed).is_ok() {
                return start as *mut u8;
            }
        }
    }

    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}
}
