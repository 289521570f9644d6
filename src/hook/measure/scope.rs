//! Owners that the program names itself: a guard for code, a wrapper for futures.
//!
//! A future that is spawned is polled elsewhere: on a thread that runs nothing measured, or
//! something measured by another test. So the wrapper takes hold of the measurement where it is
//! made, which is in the code that spawns, and puts it in place at each poll and when the future
//! is dropped. A future that was wrapped outside of any measurement joins the one in which it is
//! polled first.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use super::cells;
use super::current::{self, Context, Entered};
use super::ledger::WHOLE;
use crate::hook::switch;

/// While it is there, what this thread allocates belongs to a scope. See [`scope`].
#[must_use = "the scope ends when this is dropped"]
pub struct Scope {
    entered: Option<Entered>,
    #[cfg(target_os = "linux")]
    recorded: Option<crate::record::ScopeBefore>,
    of_this_thread: PhantomData<*const ()>,
}

/// Gives what this thread allocates, until the guard is dropped, to an owner of this name: in a
/// [`measure`](crate::measure) a scope, in a recording of [`Recorder`](crate::Recorder) an owner
/// beside tasks and threads. Costs a load where neither goes on.
///
/// The guard stays on its thread, and must not be held across an `await`: for futures there is
/// [`heap_scope`](HeapScope::heap_scope).
pub fn scope(name: &'static str) -> Scope {
    let entered = (switch::is_measuring()).then(|| {
        let context = current::get()?;
        let child = child(&context, name)?;
        Some(current::enter(child, current::stack_end()))
    });
    Scope {
        entered: entered.flatten(),
        #[cfg(target_os = "linux")]
        recorded: super::recorded::enter(name),
        of_this_thread: PhantomData,
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(entered) = &self.entered {
            entered.context().end();
        }
        #[cfg(target_os = "linux")]
        if let Some(before) = self.recorded.take() {
            super::recorded::leave(before);
        }
    }
}

/// A new instance of the scope within a context.
fn child(context: &Arc<Context>, name: &str) -> Option<Arc<Context>> {
    if context.ledger.is_closed() {
        return None;
    }
    current::busy(|| {
        let instance = context.ledger.instance(name, context.instance);
        let ledger = Arc::clone(&context.ledger);
        Context::new(ledger, instance, Some(Arc::clone(context)))
    })
}

/// Scopes for futures.
pub trait HeapScope: Future + Sized {
    /// Gives what the future allocates, whenever and wherever it is polled, to an owner of this
    /// name. Wrap what is spawned inside a measurement: `tokio::spawn(work().heap_scope("work"))`.
    fn heap_scope(self, name: &'static str) -> Scoped<Self> {
        let around = switch::is_measuring().then(current::get).flatten();
        let context = around.and_then(|around| child(&around, name));
        Scoped {
            name: Some(name),
            was_polled: false,
            context,
            future: ManuallyDrop::new(self),
        }
    }
}

impl<F: Future> HeapScope for F {}

/// A future whose allocations belong to a scope. See [`HeapScope::heap_scope`].
#[must_use = "futures do nothing unless polled"]
pub struct Scoped<F> {
    /// `None` for the measured future itself.
    name: Option<&'static str>,
    was_polled: bool,
    context: Option<Arc<Context>>,
    /// Pinned with the whole. Dropped in its scope, by `drop`.
    future: ManuallyDrop<F>,
}

impl<F> Scoped<F> {
    /// The future of a measurement.
    pub(super) fn whole(context: Arc<Context>, future: F) -> Scoped<F> {
        debug_assert_eq!(context.instance, WHOLE);
        Scoped {
            name: None,
            was_polled: false,
            context: Some(context),
            future: ManuallyDrop::new(future),
        }
    }
}

/// What has to be put back after a poll.
struct Polled {
    _entered: Option<Entered>,
    #[cfg(target_os = "linux")]
    recorded: Option<crate::record::ScopeBefore>,
}

impl Drop for Polled {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(before) = self.recorded.take() {
            super::recorded::leave(before);
        }
    }
}

fn begin(name: Option<&'static str>, context: Option<&Arc<Context>>, stack_end: usize) -> Polled {
    let open = context.filter(|context| !context.ledger.is_closed());
    Polled {
        _entered: open.map(|context| current::enter(Arc::clone(context), stack_end)),
        #[cfg(target_os = "linux")]
        recorded: name.and_then(super::recorded::enter),
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is not moved out of, and is dropped in place by `drop`; the other
        // fields are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if let (None, Some(name)) = (&this.context, this.name)
            && switch::is_measuring()
        {
            this.context = current::get().and_then(|around| child(&around, name));
        }
        if !std::mem::replace(&mut this.was_polled, true) && this.context.is_some() {
            let here = &raw const *this as usize;
            current::busy(|| cells::followed(here));
        }
        let here = 0u8;
        let _polled = begin(this.name, this.context.as_ref(), &raw const here as usize);
        // SAFETY: pinned with the whole, see above.
        unsafe { Pin::new_unchecked(&mut *this.future) }.poll(cx)
    }
}

impl<F> Drop for Scoped<F> {
    fn drop(&mut self) {
        let here = 0u8;
        let _polled = begin(self.name, self.context.as_ref(), &raw const here as usize);
        // SAFETY: not used again, and dropped where it is pinned.
        unsafe { ManuallyDrop::drop(&mut self.future) };
    }
}

/// Lets a closure that runs on another thread count for the measurement in which it was made:
/// `std::thread::spawn(taskheap::carried("parser", || …))`, or with `spawn_blocking`.
pub fn carried<R>(name: &'static str, work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let around = switch::is_measuring().then(current::get).flatten();
    let context = around.and_then(|around| child(&around, name));
    move || {
        let here = 0u8;
        let _polled = begin(Some(name), context.as_ref(), &raw const here as usize);
        work()
    }
}
