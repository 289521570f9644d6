//! What an allocator calls itself: its own entry points, and the system for memory.
//!
//! Calls of the program and calls of the allocator must not meet in the same hook, or a block
//! that `realloc` takes from `malloc` counts twice. Telling them apart when they happen costs a
//! thread-local on every call; here every branch inside the allocator is found beforehand and led
//! past the hooks.

use std::collections::HashMap;

use super::flow;
use super::image::{Function, Image, Slot};
use super::{Plan, empty_patch};
use crate::wire::{Allocator, MAX_PATCHES, PatchRole, Redirect, RedirectKind};

/// A branch from the allocator's own code, and the address that it leads to.
struct InnerCall<'data> {
    target: Slot<'data>,
    svma: u64,
    kind: RedirectKind,
}

/// The branches that can be redirected, and the targets of those that can't.
pub struct InnerCalls<'data> {
    calls: Vec<InnerCall<'data>>,
    short: Vec<u64>,
}

impl<'data> InnerCalls<'data> {
    /// Those in the code of `inside`.
    pub fn of(image: &Image<'data>, inside: &[&Function]) -> InnerCalls<'data> {
        let mut found = InnerCalls {
            calls: Vec::new(),
            short: Vec::new(),
        };
        for function in inside {
            found.add(image, function);
        }
        found
    }

    fn add(&mut self, image: &Image<'data>, function: &Function) {
        let leads = flow::leads(image, function.start, function.end);
        for branch in leads.branches {
            match branch.field {
                Some(svma) => self.calls.push(InnerCall {
                    target: stub(image, branch.target).unwrap_or(Slot::Own(branch.target)),
                    svma,
                    kind: RedirectKind::Distance,
                }),
                None if branch.target != function.start => self.short.push(branch.target),
                None => {}
            }
        }
        for branch in leads.slots {
            let Some(target) = image.slot(branch.slot) else {
                continue;
            };
            let kind = if branch.is_call {
                RedirectKind::CallSlot
            } else {
                RedirectKind::JumpSlot
            };
            if branch.length == kind.bytes() {
                self.calls.push(InnerCall {
                    target,
                    svma: branch.svma,
                    kind,
                });
            }
        }
    }

    /// Is this function reached by a branch that can't be changed?
    pub fn reach_shortly(&self, start: u64) -> bool {
        self.short.contains(&start)
    }

    /// Leads calls of entry points, given as row by address, to the originals.
    pub fn redirect(&self, image: &Image, rows: &HashMap<u64, u32>, plan: &mut Plan) {
        for patch in &mut plan.patches {
            for fixup in &mut patch.fixups[..patch.fixup_count as usize] {
                if let Some(&row) = rows.get(&fixup.svma) {
                    fixup.patch = row + 1;
                }
            }
        }
        for call in &self.calls {
            if let Slot::Own(target) = call.target
                && let Some(&row) = rows.get(&target)
            {
                add(image, call, row, plan);
            }
        }
    }

    /// Leads calls of the system by which the allocator gets and gives back memory to hooks.
    pub fn watch_system(&self, image: &Image, svma: u64, allocator: Allocator, plan: &mut Plan) {
        for role in [PatchRole::Map, PatchRole::Unmap] {
            let calls = self.calls.iter().filter(|call| match call.target {
                Slot::Import(name) => role_of(name) == Some(role),
                Slot::Own(_) => false,
            });
            let calls: Vec<&InnerCall> = calls.collect();
            if calls.is_empty() || plan.patches.len() == MAX_PATCHES {
                continue;
            }
            let row = plan.patches.len() as u32;
            plan.patches.push(empty_patch(svma, allocator, role));
            for call in calls {
                add(image, call, row, plan);
            }
        }
    }
}

fn role_of(name: &str) -> Option<PatchRole> {
    match name {
        "mmap" | "mmap64" => Some(PatchRole::Map),
        "munmap" => Some(PatchRole::Unmap),
        _ => None,
    }
}

/// What an address without a symbol leads to, if it is a stub of the linker.
fn stub<'data>(image: &Image<'data>, svma: u64) -> Option<Slot<'data>> {
    const STUB: u64 = 16;
    if image.function_at(svma).is_some() {
        return None;
    }
    let leads = flow::leads(image, svma, svma + STUB);
    let jump = leads.slots.first().filter(|branch| !branch.is_call)?;
    image.slot(jump.slot)
}

/// Adds a redirect, unless the branch is among the instructions that a patch overwrites.
fn add(image: &Image, call: &InnerCall, row: u32, plan: &mut Plan) {
    let overwritten = plan
        .patches
        .iter()
        .any(|patch| (patch.svma..patch.svma + u64::from(patch.stolen_len)).contains(&call.svma));
    if overwritten {
        return;
    }
    let bytes = image.bytes(call.svma, call.svma + call.kind.bytes() as u64);
    let mut found = [0; 8];
    found[..bytes.len()].copy_from_slice(bytes);
    plan.redirects.push(Redirect {
        svma: call.svma,
        found,
        patch: row,
        kind: call.kind as u32,
    });
}
