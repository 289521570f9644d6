//! The native stack of one thread, taken from outside.
//!
//! The thread stands still while its registers and the used part of its stack are copied; it is
//! unwound from the copy after it has gone on, by the unwind tables of the files that are loaded.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};
use object::{Object as _, ObjectSection as _};

use super::super::stop::{Stop, StoppedThread};
use super::super::{Options, WalkError};
use crate::profile::recording::{ModuleCopy, path_of};
use crate::profile::target::Image;
use crate::sys::mem::ProcessMemory;

/// What is copied of a stack, from the stack pointer up.
const MOST_BYTES: u64 = 256 << 10;
const MOST_FRAMES: usize = 256;

/// A thread's registers and stack.
pub struct Copied {
    thread: StoppedThread,
    stack: Vec<u8>,
}

/// Stops the thread, copies its stack up to `stack_high`, and lets it go on.
///
/// On an OS thread of its own: the kernel lets the traced thread go when its tracer ends.
pub fn copy(pid: i32, tid: i32, stack_high: u64) -> Result<Copied, WalkError> {
    std::thread::scope(|scope| {
        let tracer = std::thread::Builder::new()
            .name("taskheap-stack".to_owned())
            .spawn_scoped(scope, || stop_and_copy(pid, tid, stack_high))
            .map_err(WalkError::Read)?;
        tracer.join().unwrap_or(Err(WalkError::Panicked))
    })
}

fn stop_and_copy(pid: i32, tid: i32, stack_high: u64) -> Result<Copied, WalkError> {
    let memory = ProcessMemory::open(pid).map_err(WalkError::of_access)?;
    let options = Options {
        stop_within: Duration::from_millis(50),
        ..Options::default()
    };
    let stop = Stop::one(pid, tid, &memory, &options)?;
    let thread = stop.threads.first().cloned().ok_or(WalkError::Gone)?;
    let low = thread.stack_pointer;
    let high = match stack_high > low {
        true => stack_high.min(low + MOST_BYTES),
        false => low + MOST_BYTES,
    };
    let mut stack = vec![0; (high - low) as usize];
    let got = memory.read(low, &mut stack);
    stack.truncate(got);
    drop(stop);
    Ok(Copied { thread, stack })
}

/// The unwind tables of the files that a process has loaded.
pub struct UnwindTables {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    known: HashSet<(PathBuf, u64)>,
}

impl Default for UnwindTables {
    fn default() -> UnwindTables {
        UnwindTables {
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            known: HashSet::new(),
        }
    }
}

impl UnwindTables {
    /// Reads the tables of modules that have come since.
    pub fn add(&mut self, modules: &[ModuleCopy], exe: &Path) {
        for module in modules.iter().filter(|module| module.unloaded == 0) {
            let path = path_of(module, exe);
            if self.known.insert((path.clone(), module.low))
                && let Ok(image) = Image::open(&path)
            {
                self.unwinder.add_module(tables_of(&image, module));
            }
        }
    }

    /// Return addresses, innermost first. The first is one past the instruction pointer, so that
    /// all are looked up alike.
    pub fn unwind(&mut self, copied: &Copied) -> Vec<u64> {
        let thread = &copied.thread;
        let low = thread.stack_pointer;
        let mut read = |address: u64| {
            let at = address.checked_sub(low).ok_or(())? as usize;
            let word = copied.stack.get(at..at.saturating_add(8)).ok_or(())?;
            Ok(u64::from_le_bytes(word.try_into().map_err(|_| ())?))
        };
        let (pc, registers) = (thread.instruction_pointer, registers(thread));
        let mut frames = self
            .unwinder
            .iter_frames(pc, registers, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(match addresses.is_empty() {
                true => frame.address() + 1,
                false => frame.address(),
            });
            if addresses.len() >= MOST_FRAMES {
                break;
            }
        }
        addresses
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(thread: &StoppedThread) -> UnwindRegsNative {
    UnwindRegsNative::new(
        thread.instruction_pointer,
        thread.stack_pointer,
        thread.frame_pointer,
    )
}

#[cfg(target_arch = "aarch64")]
fn registers(thread: &StoppedThread) -> UnwindRegsNative {
    UnwindRegsNative::new(thread.link, thread.stack_pointer, thread.frame_pointer)
}

fn tables_of(image: &Image, module: &ModuleCopy) -> Module<Vec<u8>> {
    let section = |name: &str| image.elf().section_by_name(name);
    let range = |name: &str| {
        section(name).map(|section| section.address()..section.address() + section.size())
    };
    let data = |name: &str| section(name).map(|_| image.section(name).into_owned());
    let info = ExplicitModuleSectionInfo {
        text_svma: range(".text"),
        text: data(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        ..ExplicitModuleSectionInfo::default()
    };
    Module::new(String::new(), module.low..module.high, module.bias, info)
}
