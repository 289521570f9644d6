//! Budgets in tests: what a piece of code allocates, and nothing else.
//!
//! A test harness runs tests on many threads of one process, so a count of the whole process
//! holds the other tests too, and a budget on it fails now and then. Here a thread counts only
//! while it runs the measured closure, or polls the measured future or one that was wrapped
//! inside of it (`scope`); what it makes then is remembered by address, so that it may be freed
//! anywhere (`blocks`). Each measurement has books of its own (`ledger`): tests that run side by
//! side don't see each other.
//!
//! A measurement that counted nothing would pass every budget. So each begins by allocating a
//! byte, and panics if it did not see it.

mod blocks;
mod cells;
mod current;
mod events;
mod figures;
mod ledger;
#[cfg(target_os = "linux")]
mod recorded;
mod resolve;
mod scope;
#[doc(hidden)]
pub mod verdict;
mod vtables;

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;
use std::sync::Arc;

pub use events::{Taken, allocated, freed, reallocated, take};
pub use figures::{Measured, ScopeFigures, Site};
pub use scope::{HeapScope, Scope, Scoped, carried, scope};
pub use verdict::Bytes;

use super::switch;
use current::Context;
use ledger::{Ledger, Snapshot, WHOLE};

/// Runs the closure and counts what it allocates on this thread, and what futures and closures
/// allocate that were wrapped in it by [`HeapScope::heap_scope`] and [`carried`].
///
/// Blocks that were made before and are freed inside don't count. What the closure returns, and
/// all else that is not freed when it ends, is [`live`](Measured::live). Other threads, such as
/// those of other tests, don't count.
///
/// # Panics
///
/// If [`Alloc`](crate::Alloc) is not the program's global allocator: nothing would be counted.
#[track_caller]
pub fn measure<T>(work: impl FnOnce() -> T) -> Measured<T> {
    let session = Session::begin();
    let here = 0u8;
    let entered = current::enter(Arc::clone(&session.context), &raw const here as usize);
    let value = work();
    drop(entered);
    Measured::new(value, session.end())
}

/// Runs the future and counts what it allocates while it is polled, on whichever thread. See
/// [`measure`], which tells what counts. A task that the future spawns counts if what is spawned
/// is wrapped: `tokio::spawn(work().heap_scope("work"))`.
///
/// # Panics
///
/// As [`measure`] does.
pub async fn measure_async<F: Future>(future: F) -> Measured<F::Output> {
    let session = Session::begin();
    let value = Scoped::whole(Arc::clone(&session.context), future).await;
    Measured::new(value, session.end())
}

/// A measurement that goes on.
struct Session {
    context: Arc<Context>,
    is_open: bool,
}

impl Session {
    #[track_caller]
    fn begin() -> Session {
        switch::begin_measuring();
        let outer = current::get().filter(|outer| !outer.ledger.is_closed());
        let context = Context::new(Ledger::new(outer), WHOLE, None);
        let session = Session {
            context,
            is_open: true,
        };
        assert!(
            counts_a_byte(),
            "taskheap::measure counts nothing here: taskheap::Alloc is not the global allocator of \
             this program. Add to the test's file:\n    #[global_allocator]\n    static ALLOC: \
             taskheap::Alloc<std::alloc::System> = taskheap::Alloc::new(std::alloc::System);\n"
        );
        session
    }

    fn end(mut self) -> Snapshot {
        self.close()
    }

    fn close(&mut self) -> Snapshot {
        self.is_open = false;
        let ledger = &self.context.ledger;
        let snapshot = current::busy(|| {
            let mut snapshot = ledger.close();
            snapshot.not_followed = cells::close(ledger);
            if ledger.outer.is_none() {
                blocks::forget(ledger);
            }
            snapshot
        });
        switch::end_measuring();
        snapshot.expect("no measurement ends inside the allocator")
    }
}

/// A measured closure that panics, a measured future that is dropped.
impl Drop for Session {
    fn drop(&mut self) {
        if self.is_open {
            self.close();
        }
    }
}

/// Does the wrapped allocator tell of what this thread allocates?
fn counts_a_byte() -> bool {
    let context = Context::new(Ledger::new(None), WHOLE, None);
    let here = 0u8;
    let entered = current::enter(Arc::clone(&context), &raw const here as usize);
    let layout = Layout::new::<u8>();
    // SAFETY: the layout is of one byte.
    let block = black_box(unsafe { alloc(black_box(layout)) });
    if !block.is_null() {
        // SAFETY: just allocated, of this layout.
        unsafe { dealloc(block, layout) };
    }
    drop(entered);
    let snapshot = context.ledger.close();
    snapshot.groups[WHOLE as usize].counts.allocations > 0
}

#[cfg(test)]
mod tests {
    /// The test binary of this library has the standard library's allocator.
    #[test]
    #[should_panic(expected = "taskheap::Alloc is not the global allocator")]
    fn a_program_without_the_allocator_is_told() {
        super::measure(|| vec![0u8; 100]);
    }
}
