//! The machine code of the detour, and the memory that it lives in.
//!
//! A jump of five bytes reaches 2 GiB, and everything that is relocated reaches as far, so the
//! detours are mapped within that distance of the executable: below it, where nothing grows, else
//! above. They stay executable and never become writable again.

use std::arch::naked_asm;
use std::ptr::{addr_of, addr_of_mut};

use super::{Entry, Failure, Recorder, hooks};
use crate::record;
use crate::wire::{Allocator, JUMP_BYTES, PATCH_CODE, Patch, PatchRole, Redirect, RedirectKind};

const PAGE: u64 = 4096;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Farthest that a detour may be from what it leads to, with room for the executable itself.
const REACH: u64 = 0x7000_0000;
/// Distance between addresses that are tried.
const STEP: u64 = 1 << 20;

/// One patched function's share of the mapping.
#[repr(C)]
struct Detour {
    /// `lea r11, [entry]; jmp [enter]`
    to_hook: [u8; 16],
    /// `endbr64`, because the hook calls it through a pointer.
    landing: [u8; 4],
    code: [u8; PATCH_CODE],
    _pad: [u8; 4],
    enter: usize,
    entry: Entry,
}

/// # Safety
///
/// See [`super::apply`].
pub unsafe fn apply<R: Recorder>(
    patches: &[Patch],
    redirects: &[Redirect],
    bias: u64,
) -> Result<u32, Failure> {
    let svmas = || patches.iter().map(|patch| patch.svma.wrapping_add(bias));
    let (low, high) = (svmas().min().unwrap_or(0), svmas().max().unwrap_or(0));
    let bytes = ((patches.len() * size_of::<Detour>()) as u64).next_multiple_of(PAGE);
    let detours = map_near(low, high, bytes)? as *mut Detour;
    record::note_private(detours as u64, bytes);
    let plan = Plan {
        patches,
        redirects,
        bias,
        detours,
    };
    for index in 0..patches.len() {
        // SAFETY: the mapping has room for one detour for each patch.
        unsafe { plan.build::<R>(index) };
    }
    // SAFETY: the mapping is ours and of this size.
    if unsafe {
        libc::mprotect(
            detours.cast(),
            bytes as usize,
            libc::PROT_READ | libc::PROT_EXEC,
        )
    } != 0
    {
        return Err(Failure::System(errno()));
    }
    let pages = plan.pages();
    // SAFETY: these pages hold the executable's code, which the caller's plan names.
    unsafe {
        protect(pages, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)?;
        let count = plan.connect();
        protect(pages, libc::PROT_READ | libc::PROT_EXEC)?;
        Ok(count)
    }
}

struct Plan<'a> {
    patches: &'a [Patch],
    redirects: &'a [Redirect],
    bias: u64,
    detours: *mut Detour,
}

impl Plan<'_> {
    fn address(&self, svma: u64) -> usize {
        svma.wrapping_add(self.bias) as usize
    }

    fn original(&self, index: usize) -> usize {
        // SAFETY: the mapping has this many detours; only the address is taken.
        unsafe { addr_of!((*self.detours.add(index)).landing) as usize }
    }

    /// Writes one detour.
    ///
    /// # Safety
    ///
    /// `index` is that of a patch, and the mapping is writable and nobody else's.
    unsafe fn build<R: Recorder>(&self, index: usize) {
        let patch = &self.patches[index];
        let Some(role) = PatchRole::from_word(patch.role) else {
            return;
        };
        let Some(allocator) = Allocator::from_word(patch.allocator) else {
            return;
        };
        let detour = self.detours.wrapping_add(index);
        // SAFETY: the detour is within the mapping, and all bytes are valid for its fields but
        // `entry`, which is written whole.
        unsafe {
            addr_of_mut!((*detour).landing).write(ENDBR64);
            addr_of_mut!((*detour).code).write(patch.code);
            addr_of_mut!((*detour).enter).write(enter as *const () as usize);
            addr_of_mut!((*detour).entry).write(Entry {
                hook: hooks::hook::<R>(role),
                original: hooks::system(role).unwrap_or(self.original(index)),
                arguments: patch.arguments,
                allocator,
            });
            let stub = addr_of_mut!((*detour).to_hook).cast::<u8>();
            stub.copy_from(b"\x4c\x8d\x1d----\xff\x25----".as_ptr(), 13);
            put_distance(stub as usize + 3, addr_of!((*detour).entry) as usize);
            put_distance(stub as usize + 9, addr_of!((*detour).enter) as usize);
            let code = addr_of!((*detour).code) as usize;
            for fixup in patch.fixups.iter().take(patch.fixup_count as usize) {
                let target = match fixup.patch.checked_sub(1) {
                    Some(row) if self.is_sound(row as usize) => self.original(row as usize),
                    Some(row) => self
                        .patches
                        .get(row as usize)
                        .map_or(0, |p| self.address(p.svma)),
                    None => self.address(fixup.svma),
                };
                put_distance(code + fixup.at as usize, target);
            }
        }
    }

    /// Is it an entry point, to be overwritten?
    fn is_entry(&self, index: usize) -> bool {
        let role = PatchRole::from_word(self.patches[index].role);
        role.is_some_and(|role| !role.is_system()) && self.is_sound(index)
    }

    /// Where a redirected call goes.
    fn inner_target(&self, index: usize) -> usize {
        let role = PatchRole::from_word(self.patches[index].role);
        if role.is_some_and(PatchRole::is_system) {
            return self.to_hook(index);
        }
        self.original(index)
    }

    fn to_hook(&self, index: usize) -> usize {
        // SAFETY: the mapping has this many detours; only the address is taken.
        unsafe { addr_of!((*self.detours.add(index)).to_hook) as usize }
    }

    /// Is what the command saw what is in memory?
    fn is_sound(&self, index: usize) -> bool {
        let Some(patch) = self.patches.get(index) else {
            return false;
        };
        let Some(role) = PatchRole::from_word(patch.role) else {
            return false;
        };
        if role.is_system() {
            return true;
        }
        let length = patch.stolen_len as usize;
        let known = Allocator::from_word(patch.allocator).is_some()
            && (JUMP_BYTES..=patch.stolen.len()).contains(&length)
            && patch
                .fixups
                .iter()
                .take(patch.fixup_count as usize)
                .all(|f| f.at as usize <= PATCH_CODE - 4);
        // SAFETY: the plan is for the executable at `bias`, so its code is readable there.
        known && unsafe { is_there(self.address(patch.svma), &patch.stolen[..length]) }
    }

    /// First and one past the last page that changes.
    fn pages(&self) -> (usize, usize) {
        let svmas = self.patches.iter().map(|patch| patch.svma);
        let svmas = svmas.chain(self.redirects.iter().map(|redirect| redirect.svma));
        let (low, high) = svmas.fold((u64::MAX, 0), |(low, high), svma| {
            (low.min(svma), high.max(svma))
        });
        let low = self.address(low) as u64 & !(PAGE - 1);
        let high = (self.address(high) as u64 + 32).next_multiple_of(PAGE);
        (low as usize, high as usize)
    }

    /// Changes the executable's code: first the allocator's own calls, while its entry points are
    /// still what they were, then those. Returns how many entry points lead to hooks.
    ///
    /// # Safety
    ///
    /// The pages are writable, no other thread runs, and every detour is built.
    unsafe fn connect(&self) -> u32 {
        for redirect in self.redirects {
            let Some(kind) = RedirectKind::from_word(redirect.kind) else {
                continue;
            };
            let at = self.address(redirect.svma);
            // SAFETY: as for the plan: the executable's code is there.
            let there = unsafe { is_there(at, &redirect.found[..kind.bytes()]) };
            if !there || !self.is_sound(redirect.patch as usize) {
                continue;
            }
            let target = self.inner_target(redirect.patch as usize);
            // SAFETY: these bytes are one whole branch (or its distance), as the command found
            // and the comparison has shown, and they are replaced by one of the same length.
            unsafe {
                match kind {
                    RedirectKind::Distance => put_distance(at, target),
                    RedirectKind::CallSlot => {
                        (at as *mut u8).copy_from([0x67, 0xe8].as_ptr(), 2);
                        put_distance(at + 2, target);
                    }
                    RedirectKind::JumpSlot => {
                        (at as *mut u8).copy_from([0xe9, 0, 0, 0, 0, 0x90].as_ptr(), 6);
                        put_distance(at + 1, target);
                    }
                }
            }
        }
        let mut count = 0;
        for index in 0..self.patches.len() {
            if !self.is_entry(index) {
                continue;
            }
            let at = self.address(self.patches[index].svma);
            // SAFETY: the bytes are whole instructions that nothing branches into, as the command
            // found and the comparison has shown.
            unsafe {
                *(at as *mut u8) = 0xe9;
                put_distance(at + 1, self.to_hook(index));
            }
            count += 1;
        }
        count
    }
}

/// Memory within reach of all that is between `low` and `high`.
fn map_near(low: u64, high: u64, bytes: u64) -> Result<u64, Failure> {
    let lowest = high.saturating_sub(REACH).max(STEP);
    let highest = low.saturating_add(REACH);
    let below = (1..).map(|step| (low & !(STEP - 1)).wrapping_sub(step * STEP));
    // From far above downwards, so that the program's break keeps its room.
    let above = (0..).map(|step| (highest & !(STEP - 1)).wrapping_sub(step * STEP));
    let candidates = below
        .take_while(|at| *at >= lowest && *at < low)
        .chain(above.take_while(|at| *at > high));
    for at in candidates {
        // SAFETY: a new private mapping that replaces nothing.
        let got = unsafe {
            libc::mmap(
                at as *mut libc::c_void,
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if got as u64 == at {
            return Ok(at);
        }
        if got != libc::MAP_FAILED {
            // A kernel that takes the address for a hint.
            // SAFETY: the mapping was just made and nobody uses it.
            unsafe { libc::munmap(got, bytes as usize) };
        } else if !matches!(errno(), libc::EEXIST | libc::EPERM | libc::EINVAL) {
            return Err(Failure::System(errno()));
        }
    }
    Err(Failure::NoRoom)
}

/// # Safety
///
/// The pages hold the executable's code.
unsafe fn protect(pages: (usize, usize), protection: libc::c_int) -> Result<(), Failure> {
    // SAFETY: code stays readable and executable throughout.
    let done =
        unsafe { libc::mprotect(pages.0 as *mut libc::c_void, pages.1 - pages.0, protection) };
    if done == 0 {
        Ok(())
    } else {
        Err(Failure::System(errno()))
    }
}

/// # Safety
///
/// As many bytes as `expected` has are readable at `at`.
unsafe fn is_there(at: usize, expected: &[u8]) -> bool {
    // SAFETY: passed on to the caller.
    unsafe { std::slice::from_raw_parts(at as *const u8, expected.len()) == expected }
}

/// Fills in a signed 32-bit distance that counts from its own end.
///
/// # Safety
///
/// Four bytes at `field` are writable.
unsafe fn put_distance(field: usize, target: usize) {
    let distance = (target as i64).wrapping_sub(field as i64 + 4) as i32;
    // SAFETY: passed on to the caller.
    unsafe { (field as *mut i32).write_unaligned(distance) };
}

fn errno() -> i32 {
    // SAFETY: the C library returns the address of this thread's error number.
    unsafe { *libc::__errno_location() }
}

/// From a detour to its hook, with what the unwinder needs of the caller: behind the function's
/// own six arguments come the entry (in `r11`), the frame pointer, the stack pointer after the
/// return, and, because it lies there anyway, the return address.
///
/// # Safety
///
/// Entered by a jump from a detour only, in place of the patched function.
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        ".cfi_startproc",
        "lea rax, [rsp + 8]",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        "push r11",
        ".cfi_adjust_cfa_offset 8",
        "call [r11]",
        "add rsp, 24",
        ".cfi_adjust_cfa_offset -24",
        "ret",
        ".cfi_endproc",
    )
}
