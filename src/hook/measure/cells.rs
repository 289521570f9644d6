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
    /// Once it is known to be one.
    id: Option<u64>,
    is_followed: bool,
}

#[derive(Default)]
struct Cells {
    by_address: BTreeMap<usize, Cell>,
    /// Addresses of those that nobody has looked at, or that were not filled in yet.
    unknown: Vec<usize>,
    /// The blocks before: size, and the cell.
    boxes: BTreeMap<usize, (usize, usize)>,
    /// The cells of tasks by their id, and for whom they allocate.
    tasks: HashMap<u64, (usize, Option<Arc<Context>>)>,
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
        id: None,
        is_followed: false,
    };
    let mut cells = cells();
    cells.boxes.insert(before.0, (before.1, address));
    cells.unknown.push(address);
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
    if !cells.tasks.contains_key(&id) {
        cells.look();
    }
    let (address, known) = cells.tasks.get(&id)?;
    if let Some(context) = known {
        return Some(Arc::clone(context));
    }
    let address = *address;
    let cell = cells.by_address.get_mut(&address)?;
    cell.is_followed = true;
    let spawner = Arc::clone(&cell.context);
    let ledger = Arc::clone(&spawner.ledger);
    if ledger.is_closed() {
        return None;
    }
    let instance = ledger.instance("[tasks]", spawner.instance);
    let context = Context::new(ledger, instance, Some(spawner));
    cells
        .tasks
        .insert(id, (address, Some(Arc::clone(&context))));
    Some(context)
}

/// Forgets the tasks of a measurement; returns how many were not followed.
pub fn close(ledger: &Arc<Ledger>) -> u64 {
    let mut cells = cells();
    cells.look();
    let mut lost = 0;
    cells.lost.retain(|of| {
        let is_own = Arc::ptr_eq(of, ledger);
        lost += u64::from(is_own);
        !is_own
    });
    let before = cells.by_address.len();
    cells.by_address.retain(|_, cell| {
        let is_own = Arc::ptr_eq(&cell.context.ledger, ledger);
        lost += u64::from(is_own && cell.is_lost());
        !is_own
    });
    COUNT.fetch_sub(before - cells.by_address.len(), Relaxed);
    let Cells {
        by_address,
        unknown,
        boxes,
        tasks,
        ..
    } = &mut *cells;
    unknown.retain(|address| by_address.contains_key(address));
    boxes.retain(|_, (_, cell)| by_address.contains_key(cell));
    tasks.retain(|_, (address, _)| by_address.contains_key(address));
    lost
}

impl Cell {
    /// A task for which nothing was counted. With feature `tokio` one that allocates is followed.
    fn is_lost(&self) -> bool {
        let follows_all = cfg!(all(feature = "tokio", target_os = "linux"));
        !follows_all && self.id.is_some() && !self.is_followed
    }
}

impl Cells {
    /// Looks at the blocks that are not known to be cells yet.
    fn look(&mut self) {
        for address in std::mem::take(&mut self.unknown) {
            if !self.look_at(address) {
                self.unknown.push(address);
            }
        }
    }

    /// Is there nothing left to find out about the block?
    fn look_at(&mut self, address: usize) -> bool {
        let Some(cell) = self.by_address.get_mut(&address) else {
            return true;
        };
        if cell.id.is_none() {
            let id = blocks::while_there(address, cell.size, || {
                // SAFETY: the block can't be freed while its shard is locked.
                unsafe { vtables::id_of(address, cell.size) }
            });
            cell.id = id.flatten();
            if let Some(id) = cell.id {
                self.tasks.insert(id, (address, None));
            }
        }
        cell.id.is_some()
    }

    fn freed(&mut self, address: usize) {
        self.look_at(address);
        let Some(cell) = self.by_address.remove(&address) else {
            return;
        };
        COUNT.fetch_sub(1, Relaxed);
        self.boxes.remove(&cell.before);
        if cell.is_lost() {
            self.lost.push(Arc::clone(&cell.context.ledger));
        }
        if let Some(id) = cell.id {
            self.tasks.remove(&id);
        }
    }
}
