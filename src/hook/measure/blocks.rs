//! The blocks that measured code made and nobody has freed yet.
//!
//! The tempting way is to add what is allocated and subtract what is freed, each on the thread
//! that does it. Then a block made outside and freed inside makes live bytes negative, and one
//! that is handed to another thread and freed there stays live for ever. So each measured block is
//! remembered by its address, and whoever frees it, anywhere in the process, frees it in the books
//! of the measurement that made it. A block that is not here was made outside: its end is nobody's.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::current::Context;
use super::ledger::Ledger;

/// What a block is booked under, in one ledger.
pub struct Charge {
    pub context: Arc<Context>,
    pub site: u32,
    /// In the measurement around that one.
    pub outer: Option<Box<Charge>>,
}

pub struct Block {
    pub size: usize,
    pub charge: Charge,
}

const SHARDS: usize = 64;
type Shard = Mutex<HashMap<usize, Block>>;

static BLOCKS: LazyLock<[Shard; SHARDS]> =
    LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));

fn locked(shard: &Shard) -> MutexGuard<'_, HashMap<usize, Block>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shard(address: usize) -> MutexGuard<'static, HashMap<usize, Block>> {
    locked(&BLOCKS[(address >> 4).wrapping_mul(0x9e37_79b9) % SHARDS])
}

/// A block that was there before is one whose end nobody saw: it is given back.
pub fn insert(address: usize, block: Block) -> Option<Block> {
    shard(address).insert(address, block)
}

pub fn remove(address: usize) -> Option<Block> {
    shard(address).remove(&address)
}

/// Runs `work` while a block of this size is there and can't be freed.
pub fn while_there<R>(address: usize, size: usize, work: impl FnOnce() -> R) -> Option<R> {
    let shard = shard(address);
    let is_there = shard.get(&address).is_some_and(|block| block.size == size);
    is_there.then(work)
}

/// Forgets what the measurement made, and those within it.
pub fn forget(ledger: &Arc<Ledger>) {
    for shard in BLOCKS.iter() {
        locked(shard).retain(|_, block| !block.charge.outermost_is(ledger));
    }
}

impl Charge {
    fn outermost_is(&self, ledger: &Arc<Ledger>) -> bool {
        let mut at = self;
        while let Some(outer) = &at.outer {
            at = outer;
        }
        Arc::ptr_eq(&at.context.ledger, ledger)
    }
}
