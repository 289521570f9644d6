//! What a holder is called.

use super::cells::Cell;
use super::heap::{Heap, Roots, ThreadInfo};
use super::roots::{Holder, RootSet};

pub(super) struct Names<'a> {
    pub(super) heap: &'a Heap,
    pub(super) roots: &'a Roots,
    pub(super) set: &'a RootSet,
    pub(super) cells: &'a [Cell],
    pub(super) threads: &'a [ThreadInfo],
}

impl Names<'_> {
    /// Of a colour that stands for one holder.
    pub(super) fn of_colour(&self, colour: u32) -> String {
        match self.set.holders.get((colour as usize).wrapping_sub(1)) {
            Some(&holder) => self.of(holder),
            None => String::new(),
        }
    }

    fn of(&self, holder: Holder) -> String {
        match holder {
            Holder::Task(cell) => {
                let owner = self.cells[cell as usize].owner;
                format!("task {}", self.owner(owner))
            }
            Holder::ThreadLocal { slot, .. } => {
                self.roots.thread_locals[slot as usize].name.clone()
            }
            Holder::Static(slot) => self.roots.statics[slot as usize].name.clone(),
            Holder::Thread(thread) => format!("thread {}", self.thread(thread)),
            Holder::Stack(thread) => format!("the stack of {}", self.thread(thread)),
            Holder::Data => "a static".to_owned(),
            Holder::Elsewhere => "memory that the program mapped itself".to_owned(),
        }
    }

    pub(super) fn owner(&self, owner: u32) -> &str {
        self.heap.owners.get(owner as usize).map_or("", |o| &o.name)
    }

    fn thread(&self, thread: u32) -> &str {
        self.owner(self.owner_of_thread(thread))
    }

    /// Type of a thread, among the owners.
    pub(super) fn owner_of_thread(&self, thread: u32) -> u32 {
        let row = self.threads.get(thread as usize).map_or(0, |t| t.row);
        self.heap.rows.get(row as usize).map_or(0, |row| row.owner)
    }
}
