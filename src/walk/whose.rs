//! Whose the members of a group are: tasks of one type, threads of one name, the threads of one
//! thread-local, or several instances of something within one holder.

use super::names::Names;
use super::reach::{NOBODY, NONE, Reach, SHARED};
use super::roots::Holder;
use super::shape::mix;
use super::tree::Tree;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Whose {
    /// Into the owners.
    Tasks(u32),
    /// Into the slots.
    ThreadLocal(u32),
    /// Into the owners.
    Threads(u32),
    /// Several of one holder, or of holders of different kinds.
    Instances,
}

/// Tells who has what.
pub(super) struct Attribution<'a> {
    pub(super) names: &'a Names<'a>,
    pub(super) reach: &'a Reach,
    pub(super) tree: &'a Tree,
    /// Does the block count its owners, and has it several?
    pub(super) counts_owners: &'a dyn Fn(u32) -> bool,
}

impl Attribution<'_> {
    /// What the holder of a structure is one of, and its colour. What is shared without counting
    /// its owners has one, and only seems to have others: whoever reached it first.
    pub(super) fn kind(&self, top: u32) -> (Whose, u32) {
        let mut colour = self.reach.colour[top as usize];
        let parent = self.reach.parent[top as usize];
        if colour == SHARED && parent != NONE && !(self.counts_owners)(top) {
            colour = self.reach.colour[parent as usize];
        }
        if colour == SHARED || colour == NOBODY {
            return (Whose::Instances, colour);
        }
        let names = self.names;
        let whose = match names.set.holders[colour as usize - 1] {
            Holder::Task(cell) => Whose::Tasks(names.cells[cell as usize].owner),
            Holder::ThreadLocal { slot, .. } => Whose::ThreadLocal(slot),
            Holder::Thread(thread) | Holder::Stack(thread) => {
                Whose::Threads(names.owner_of_thread(thread))
            }
            Holder::Static(_) | Holder::Data | Holder::Elsewhere => Whose::Instances,
        };
        (whose, colour)
    }

    /// Whose most of the members are, and a number that is the same for groups which the same holders
    /// have.
    pub(super) fn of_members(&self, members: &[u32]) -> (Whose, u64) {
        let mut kinds: Vec<(Whose, u32)> = members.iter().map(|m| self.kind(*m)).collect();
        kinds.sort_unstable();
        let most = kinds
            .chunk_by(|a, b| a.0 == b.0)
            .max_by_key(|of_one| of_one.len());
        if let Some(held) = most
            && let whose = held[0].0
            && whose != Whose::Instances
            && held.len() * 2 >= members.len()
            && held[0].1 != held[held.len() - 1].1
        {
            let colours = held.iter().map(|(_, colour)| u64::from(*colour));
            return (whose, colours.fold(0, mix));
        }
        // Parts of the elements of one array hang on the same block.
        let number = members.iter().fold(0u64, |sum, &member| {
            sum.wrapping_add(match self.tree.parent[member as usize] {
                NONE => mix(u64::from(member), 1),
                parent => mix(u64::from(parent), 2),
            })
        });
        (Whose::Instances, number)
    }

    /// The name of the holder, where it is one that has a name.
    pub(super) fn holder_name(&self, whose: Whose, members: &[u32]) -> String {
        let (names, reach) = (self.names, self.reach);
        match whose {
            Whose::ThreadLocal(slot) => names.roots.thread_locals[slot as usize].name.clone(),
            Whose::Tasks(_) | Whose::Threads(_) => String::new(),
            Whose::Instances => {
                let colour = reach.colour[members[0] as usize];
                let same = |member: &u32| reach.colour[*member as usize] == colour;
                if members.iter().all(same) {
                    names.of_colour(colour)
                } else {
                    String::new()
                }
            }
        }
    }
}
