//! Scopes: owners that the program names itself.
//!
//! A scope stands in the place of the task or thread that runs it, for as long as the thread is in
//! it. It has no row of its own: its blocks are counted by context, as those of all owners are.

use super::owners::{self, Current};
use super::thread::Thread;
use crate::wire::{NO_ROW, OwnerKind};

/// What a thread allocated for before a scope began; 0 stands for its task, else the thread.
#[derive(Clone, Copy, Debug)]
pub struct ScopeBefore(u32);

/// The calling thread allocates for the scope from here on. `None` if it is not recorded.
pub fn enter_scope(name: &str) -> Option<ScopeBefore> {
    if !super::is_active() {
        return None;
    }
    let thread = Thread::enter()?;
    let kind = owners::type_of(OwnerKind::Scope, key_of(name), shortened(name).as_bytes());
    if let Some(known) = owners::owner_type(kind).filter(|_| kind != 0) {
        known
            .spawned
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let before = ScopeBefore(std::mem::replace(&mut thread.scope, kind));
    thread.leave();
    Some(before)
}

/// Puts back what was there.
pub fn leave_scope(before: ScopeBefore) {
    if let Some(thread) = Thread::enter() {
        let kind = std::mem::replace(&mut thread.scope, before.0);
        if let Some(known) = owners::owner_type(kind).filter(|_| kind != 0) {
            known
                .gone
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        thread.leave();
    }
}

impl Thread {
    /// The scope that runs, if any.
    #[inline(always)]
    pub fn current_scope(&self) -> Option<Current> {
        (self.scope != 0).then_some(Current {
            kind: self.scope,
            row: NO_ROW,
        })
    }
}

/// As much of the name as an owner has room for.
fn shortened(name: &str) -> &str {
    const ROOM: usize = 32;
    let mut end = name.len().min(ROOM);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

fn key_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |key, byte| {
        (key ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_letters() {
        assert_eq!(shortened("handler"), "handler");
        assert_eq!(shortened(&"ö".repeat(20)).len(), 32);
        assert_eq!(shortened(&format!("x{}", "ö".repeat(20))).len(), 31);
    }
}
