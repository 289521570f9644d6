//! For which measurement the calling thread allocates.
//!
//! A guard puts a context in its place while the measured closure runs or a measured future is
//! polled, and puts back what was there. The thread-local must be usable in the allocator, also
//! while the thread's destructors run: so it is plain data without a destructor of its own, and
//! the count of the context that it holds is kept by hand.
//!
//! Guards may be dropped in another order than they were made in. A context that has ended is then
//! skipped, so that a thread is never left in a scope that is over.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::ledger::Ledger;

/// A measurement, and the scope of it that runs.
pub struct Context {
    pub ledger: Arc<Ledger>,
    /// Index into the ledger's instances.
    pub instance: u32,
    /// The scope, or the measurement, around this one.
    parent: Option<Arc<Context>>,
    ended: AtomicBool,
}

impl Context {
    pub fn new(ledger: Arc<Ledger>, instance: u32, parent: Option<Arc<Context>>) -> Arc<Context> {
        Arc::new(Context {
            ledger,
            instance,
            parent,
            ended: AtomicBool::new(false),
        })
    }

    pub fn end(&self) {
        self.ended.store(true, Relaxed);
    }
}

/// This context, or the innermost one around it that has not ended.
fn alive(context: Option<Arc<Context>>) -> Option<Arc<Context>> {
    let mut at = context;
    while let Some(context) = at.take_if(|context| context.ended.load(Relaxed)) {
        at = context.parent.clone();
    }
    at
}

struct State {
    /// From `Arc::into_raw`; holds one count.
    context: Cell<*const Context>,
    /// Stacks are looked at up to here: what lies beyond is not the measured code.
    stack_end: Cell<usize>,
    /// What the thread allocates now is the measurement's own.
    busy: Cell<bool>,
    /// Address and size of the block allocated last, 0 if it is freed.
    last: Cell<(usize, usize)>,
    /// A task that no measurement knows.
    #[cfg(feature = "tokio")]
    foreign: Cell<u64>,
}

thread_local! {
    static STATE: State = const {
        State {
            context: Cell::new(std::ptr::null()),
            stack_end: Cell::new(0),
            busy: Cell::new(false),
            last: Cell::new((0, 0)),
            #[cfg(feature = "tokio")]
            foreign: Cell::new(0),
        }
    };
}

fn swap(context: Option<Arc<Context>>, stack_end: usize) -> (Option<Arc<Context>>, usize) {
    let raw = context.map_or(std::ptr::null(), Arc::into_raw);
    STATE.with(|state| {
        let old = state.context.replace(raw);
        // SAFETY: what is not null was made by `into_raw` above, and its count is handed out once.
        let old = (!old.is_null()).then(|| unsafe { Arc::from_raw(old) });
        (old, state.stack_end.replace(stack_end))
    })
}

/// The calling thread's context.
pub fn get() -> Option<Arc<Context>> {
    STATE.with(|state| {
        let raw = state.context.get();
        if raw.is_null() {
            return None;
        }
        // SAFETY: from `into_raw`, and the thread-local holds a count of its own.
        unsafe {
            Arc::increment_strong_count(raw);
            Some(Arc::from_raw(raw))
        }
    })
}

pub fn is_set() -> bool {
    STATE.with(|state| !state.context.get().is_null())
}

pub fn stack_end() -> usize {
    STATE.with(|state| state.stack_end.get())
}

/// Notes the block that was allocated last; returns the one before.
pub fn set_last(address: usize, size: usize) -> (usize, usize) {
    STATE.with(|state| state.last.replace((address, size)))
}

/// Is this the block that this thread allocated last?
pub fn was_last(address: usize) -> bool {
    STATE.with(|state| {
        let is_last = state.last.get().0 == address;
        if is_last {
            state.last.set((0, 0));
        }
        is_last
    })
}

#[cfg(feature = "tokio")]
pub fn is_foreign(task: u64) -> bool {
    STATE.with(|state| state.foreign.get() == task)
}

#[cfg(feature = "tokio")]
pub fn set_foreign(task: u64) {
    STATE.with(|state| state.foreign.set(task));
}

/// Runs `work` unless the thread does so already. What `work` allocates is not measured.
#[inline]
pub fn busy<R>(work: impl FnOnce() -> R) -> Option<R> {
    STATE.with(|state| {
        if state.busy.replace(true) {
            return None;
        }
        let _guard = Idle(&state.busy);
        Some(work())
    })
}

struct Idle<'a>(&'a Cell<bool>);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// While it is there, the thread allocates for a context.
pub struct Entered {
    context: Arc<Context>,
    before: Option<Arc<Context>>,
    stack_end_before: usize,
    of_this_thread: PhantomData<*const ()>,
}

/// From here on the thread allocates for the context. `stack_end` is an address on the stack
/// beyond which it is not the measured code's.
pub fn enter(context: Arc<Context>, stack_end: usize) -> Entered {
    let (before, stack_end_before) = swap(Some(Arc::clone(&context)), stack_end);
    Entered {
        context,
        before,
        stack_end_before,
        of_this_thread: PhantomData,
    }
}

impl Entered {
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let is_current =
            STATE.with(|state| std::ptr::eq(state.context.get(), Arc::as_ptr(&self.context)));
        if is_current {
            let before = alive(self.before.take());
            swap(before, self.stack_end_before);
        }
    }
}
