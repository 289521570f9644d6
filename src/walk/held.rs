//! Who holds what was made where: the blocks of each context, by kind of holder.
//!
//! Every question about a kind of holder ("what do finished tasks keep", "is this buffer a
//! thread-local's") could be asked with a table of its own. But the answers must not overlap: a
//! byte that two of them claim would be blamed twice. One table in which every byte has one row
//! answers all of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::census::LocalValues;
use super::names::Names;
use super::reach::{NOBODY, Reach, SHARED};
use super::roots::Holder;
use super::shape::mix;
use crate::profile::{ContextId, HeldBy, OwnerId, WalkHeld};

/// One row for each context and kind of holder, by context. `locals` and `statics` are the slots
/// of the rows that the walk lists, in their order.
pub(super) fn find(
    names: &Names,
    reach: &Reach,
    locals: &[LocalValues],
    statics: &[u32],
) -> Vec<WalkHeld> {
    let kinds = kinds(names, locals, statics);
    let mut rows: HashMap<u64, (u64, u64), BuildHasherDefault<Mixed>> = HashMap::default();
    for (block, &colour) in names.heap.blocks.iter().zip(&reach.colour) {
        let kind = match colour {
            NOBODY => 0,
            SHARED => 1,
            holder => kinds.of_holder[holder as usize - 1],
        };
        let row = rows.entry(u64::from(block.context) << 32 | u64::from(kind));
        let (blocks, bytes) = row.or_default();
        *blocks += 1;
        *bytes += block.size;
    }
    let mut rows: Vec<WalkHeld> = rows
        .into_iter()
        .map(|(key, (blocks, bytes))| WalkHeld {
            by: kinds.list[key as u32 as usize],
            context: ContextId((key >> 32) as u32),
            blocks,
            bytes,
        })
        .collect();
    rows.sort_by_key(|row| (row.context, row.by));
    rows
}

struct Kinds {
    list: Vec<HeldBy>,
    /// Of each holder: into the list.
    of_holder: Vec<u32>,
}

fn kinds(names: &Names, locals: &[LocalValues], statics: &[u32]) -> Kinds {
    let rows =
        |slots: &mut dyn Iterator<Item = u32>| -> HashMap<u32, u32> { slots.zip(0..).collect() };
    let local_rows = rows(&mut locals.iter().map(|values| values.slot));
    let static_rows = rows(&mut statics.iter().copied());
    let mut kinds = Kinds {
        list: vec![HeldBy::Nobody, HeldBy::Several],
        of_holder: Vec::with_capacity(names.set.holders.len()),
    };
    let mut known: HashMap<HeldBy, u32> = HashMap::new();
    for holder in &names.set.holders {
        let kind = match *holder {
            Holder::Task(cell) => {
                let cell = names.cells[cell as usize];
                match cell.is_complete() {
                    true => HeldBy::FinishedTask(OwnerId(cell.owner)),
                    false => HeldBy::Task(OwnerId(cell.owner)),
                }
            }
            Holder::ThreadLocal { slot, thread } => match local_rows.get(&slot) {
                Some(row) => HeldBy::ThreadLocal(*row),
                None => HeldBy::Thread(OwnerId(names.owner_of_thread(thread))),
            },
            Holder::Static(slot) => static_rows
                .get(&slot)
                .map_or(HeldBy::Data, |row| HeldBy::Static(*row)),
            Holder::Thread(thread) => HeldBy::Thread(OwnerId(names.owner_of_thread(thread))),
            Holder::Stack(thread) => HeldBy::Stack(OwnerId(names.owner_of_thread(thread))),
            Holder::Data => HeldBy::Data,
            Holder::Elsewhere => HeldBy::Elsewhere,
        };
        let list = &mut kinds.list;
        let number = *known.entry(kind).or_insert_with(|| {
            list.push(kind);
            list.len() as u32 - 1
        });
        kinds.of_holder.push(number);
    }
    kinds
}

/// Ten million blocks are looked up: a hash that resists attacks would cost as much as the walk.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0, u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0, value);
    }
}
