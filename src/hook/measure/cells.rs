//! Tasks that measured code spawns.
//!
//! A task is polled elsewhere, where nothing says that it works for a measurement. A count that
//! leaves it out is smaller than the truth, and a budget on it holds for the wrong reason. So the
//! cell that tokio allocates for a task is recognised among the measured blocks (alignment, then
//! its vtable, as in `record::cells`), and then either the task is followed or the budget fails:
//!
//! - With feature `tokio` the id of the running task is known. Where a thread allocates for no
//!   measurement but runs a task, the id is looked up among the cells: what the task allocates
//!   counts for the code that spawned it, under the scope `[tasks]`.
//! - A future that was wrapped by `heap_scope` says itself for whom it runs. At its first poll it
//!   lies in the cell, or in the box that was allocated just before the cell.
//! - What is neither is counted as not followed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::current::Context;
use super::ledger::Ledger;
use super::{blocks, vtables};

/// Alignment of a cell: `repr(align(128))` on x86-64 and aarch64.
const ALIGN: usize = 128;
const WORD: usize = size_of::<usize>();

/// A block that may be a task's cell.
struct Cell {
    size: usize,
    /// Of the block that its thread allocated before: the future's box, if that is large.
    before: usize,
    /// Who spawned.
    context: Arc<Context>,
    is_followed: bool,
}

#[derive(Default)]
struct Cells {
    by_address: BTreeMap<usize, Cell>,
    /// Addresses of those that nobody has looked at.
    fresh: Vec<usize>,
    /// Where a task's cell seems to be. A block that is not filled in yet may hold what is left
    /// of an earlier cell, so that only the id that is asked for is believed.
    seen: HashMap<u64, usize>,
    /// The blocks before: size, and the cell.
    boxes: BTreeMap<usize, (usize, usize)>,
    /// For whom the tasks allocate that were met, and their cells.
    tasks: HashMap<u64, (usize, Arc<Context>)>,
    /// Whose tasks were freed without having been followed.
    lost: Vec<Arc<Ledger>>,
}

static CELLS: LazyLock<Mutex<Cells>> = LazyLock::new(Mutex::default);
/// Of all running measurements: without any, nobody has to look for tasks.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn cells() -> MutexGuard<'static, Cells> {
    CELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A block of this alignment was made by measured code.
#[inline]
pub fn remember(
    address: usize,
    size: usize,
    align: usize,
    before: (usize, usize),
    context: &Arc<Context>,
) {
    if align != ALIGN || size < 8 * WORD {
        return;
    }
    COUNT.fetch_add(1, Relaxed);
    let cell = Cell {
        size,
        before: before.0,
        context: Arc::clone(context),
        is_followed: false,
    };
    let mut cells = cells();
    cells.boxes.insert(before.0, (before.1, address));
    cells.fresh.push(address);
    if cells.by_address.insert(address, cell).is_some() {
        // Its end was not seen.
        COUNT.fetch_sub(1, Relaxed);
    }
}

/// A measured block is about to be freed.
#[inline]
pub fn freed(address: usize) {
    if address.is_multiple_of(ALIGN) && COUNT.load(Acquire) > 0 {
        cells().freed(address);
    }
}

/// A wrapped future that lies at `address` is polled.
pub fn followed(address: usize) {
    if COUNT.load(Acquire) == 0 {
        return;
    }
    let mut cells = cells();
    let first = cells.by_address.range(..=address).next_back();
    let cell = first.filter(|(at, cell)| address < **at + cell.size);
    let boxed = cells.boxes.range(..=address).next_back();
    let boxed = boxed.filter(|(at, (size, _))| address < **at + size);
    let found = [cell.map(|(at, _)| *at), boxed.map(|(_, (_, cell))| *cell)];
    for at in found.into_iter().flatten() {
        if let Some(cell) = cells.by_address.get_mut(&at) {
            cell.is_followed = true;
        }
    }
}

/// For whom the task of this id allocates, if measured code spawned it.
#[cfg(all(feature = "tokio", target_os = "linux"))]
pub fn context_of(id: u64) -> Option<Arc<Context>> {
    if COUNT.load(Acquire) == 0 {
        return None;
    }
    let mut cells = cells();
    if let Some((_, context)) = cells.tasks.get(&id) {
        return Some(Arc::clone(context));
    }
    let address = cells.find(id)?;
    let cell = cells.by_address.get_mut(&address)?;
    cell.is_followed = true;
    let spawner = Arc::clone(&cell.context);
    let ledger = Arc::clone(&spawner.ledger);
    if ledger.is_closed() {
        return None;
    }
    let instance = ledger.instance("[tasks]", spawner.instance);
    let context = Context::new(ledger, instance, Some(spawner));
    cells.tasks.insert(id, (address, Arc::clone(&context)));
    Some(context)
}

/// Forgets the tasks of a measurement; returns how many were not followed.
pub fn close(ledger: &Arc<Ledger>) -> u64 {
    let mut cells = cells();
    let mut lost = 0;
    cells.lost.retain(|of| {
        let is_own = Arc::ptr_eq(of, ledger);
        lost += u64::from(is_own);
        !is_own
    });
    let before = cells.by_address.len();
    cells.by_address.retain(|address, cell| {
        let is_own = Arc::ptr_eq(&cell.context.ledger, ledger);
        lost += u64::from(is_own && cell.is_lost(*address));
        !is_own
    });
    COUNT.fetch_sub(before - cells.by_address.len(), Relaxed);
    let Cells {
        by_address,
        fresh,
        seen,
        boxes,
        tasks,
        ..
    } = &mut *cells;
    fresh.retain(|address| by_address.contains_key(address));
    seen.retain(|_, address| by_address.contains_key(address));
    boxes.retain(|_, (_, cell)| by_address.contains_key(cell));
    tasks.retain(|_, (address, _)| by_address.contains_key(address));
    lost
}

impl Cell {
    /// The id of the task whose cell it is.
    fn id(&self, address: usize) -> Option<u64> {
        let id = blocks::while_there(address, self.size, || {
            // SAFETY: the block can't be freed while its shard is locked.
            unsafe { vtables::id_of(address, self.size) }
        });
        id.flatten()
    }

    /// A task for which nothing was counted. With feature `tokio` one that allocates is followed.
    fn is_lost(&self, address: usize) -> bool {
        let follows_all = cfg!(all(feature = "tokio", target_os = "linux"));
        !follows_all && !self.is_followed && self.id(address).is_some()
    }
}

impl Cells {
    /// The cell of a task that runs, which is filled in therefore.
    #[cfg(all(feature = "tokio", target_os = "linux"))]
    fn find(&mut self, id: u64) -> Option<usize> {
        for address in std::mem::take(&mut self.fresh) {
            self.see(address);
        }
        if let Some(address) = self.confirmed(id) {
            return Some(address);
        }
        // One of the blocks was looked at before it was filled in.
        let all: Vec<usize> = self.by_address.keys().copied().collect();
        for address in all {
            self.see(address);
        }
        self.confirmed(id)
    }

    #[cfg(all(feature = "tokio", target_os = "linux"))]
    fn see(&mut self, address: usize) {
        let cell = self.by_address.get(&address);
        if let Some(id) = cell.and_then(|cell| cell.id(address)) {
            self.seen.insert(id, address);
        }
    }

    #[cfg(all(feature = "tokio", target_os = "linux"))]
    fn confirmed(&self, id: u64) -> Option<usize> {
        let address = *self.seen.get(&id)?;
        let now = self.by_address.get(&address)?.id(address);
        (now == Some(id)).then_some(address)
    }

    fn freed(&mut self, address: usize) {
        let Some(cell) = self.by_address.remove(&address) else {
            return;
        };
        COUNT.fetch_sub(1, Relaxed);
        self.boxes.remove(&cell.before);
        if cell.is_lost(address) {
            self.lost.push(Arc::clone(&cell.context.ledger));
        }
        if let Some(id) = cell.id(address) {
            self.seen.remove(&id);
            self.tasks.remove(&id);
        }
    }
}
