//! Names for the nodes of the tree of stacks, and for task types.
//!
//! A node's address is resolved in the module that held it when the node was made: a library may
//! have been closed since, and another opened in its place.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::symbolize::{Address, Missing, ResolvedFrame, Symbolizer, TaskName};
use super::super::{FrameId, Frames, NodeId, Nodes, Origin, Profile, StringId};
use super::collect::{Interner, path_of};
use super::tables::{ModuleCopy, OwnerCopy, Tables};
use crate::wire::NodeFlags;

/// Names addresses and tasks. What it has learned of a file serves the next time.
#[derive(Default)]
pub struct Namer {
    symbolizer: Symbolizer,
}

/// What a walk needs to know of names.
#[derive(Default)]
pub struct Names {
    /// By node: it runs whatever it is given.
    pub machinery: Vec<bool>,
    /// By owner type.
    pub tasks: HashMap<u32, TaskName>,
}

/// Module and link-time address.
type Key = (usize, u64);
/// Frames of each distinct address, as a range of the frame table.
type Ranges = HashMap<Key, (u32, u32)>;

/// The addresses of a recording, by module.
struct Addresses {
    paths: Vec<PathBuf>,
    /// By node.
    keys: Vec<Option<Key>>,
    distinct: Vec<Key>,
}

impl Addresses {
    fn of(tables: &Tables, exe: &Path) -> Addresses {
        let paths = tables
            .modules
            .iter()
            .map(|module| path_of(module, exe))
            .collect();
        let nodes = tables.node_address.iter().zip(&tables.node_flags);
        let keys: Vec<Option<Key>> = nodes
            .map(|(address, flags)| key(tables, *address, flags >> 16))
            .collect();
        let mut distinct: Vec<Key> = keys.iter().flatten().copied().collect();
        distinct.sort_unstable();
        distinct.dedup();
        Addresses {
            paths,
            keys,
            distinct,
        }
    }
}

/// Where an address at run time is: a library may have been closed since, and another opened.
fn key(tables: &Tables, address: u64, generation: u32) -> Option<Key> {
    let lookup = address.checked_sub(1)?;
    let held = |m: &ModuleCopy| m.low <= lookup && lookup < m.high;
    let then =
        |m: &ModuleCopy| m.loaded <= generation && (m.unloaded == 0 || generation < m.unloaded);
    let mut candidates = tables
        .modules
        .iter()
        .enumerate()
        .filter(|(_, module)| held(module));
    let first = candidates.clone().find(|(_, module)| then(module));
    let (at, module) = first.or_else(|| candidates.next())?;
    Some((at, address - module.bias))
}

impl Namer {
    pub fn missing(&self) -> Missing {
        self.symbolizer.missing()
    }

    pub fn has_debug_info(&mut self, exe: &Path) -> bool {
        self.symbolizer.has_debug_info(exe)
    }

    /// Fills strings, frames and nodes of the profile. Gives the frames of `stacks`, which were
    /// taken from outside: innermost first, like their return addresses.
    pub fn name_nodes(
        &mut self,
        tables: &Tables,
        exe: &Path,
        profile: &mut Profile,
        stacks: &[&[u64]],
        progress: &dyn Fn(usize, usize),
    ) -> Vec<Vec<FrameId>> {
        let addresses = Addresses::of(tables, exe);
        let resolved = self.resolve(tables, &addresses, progress);
        let mut table = FrameTable::default();
        table.texts.number("");
        let unknown = table.add_one("[unknown]");
        let truncated = table.add_one("[truncated stack]");
        let distinct = addresses.distinct.iter().copied();
        let ranges: Ranges = distinct
            .zip(&resolved)
            .map(|(key, frames)| (key, table.add(frames)))
            .collect();
        profile.nodes = nodes(tables, &addresses.keys, &ranges, unknown, truncated);
        let mut frames_of = |address: &u64| {
            let known = key(tables, *address, u32::MAX).map(|(module, svma)| {
                let address = Address {
                    module: &addresses.paths[module],
                    build_id: &tables.modules[module].build_id,
                    svma,
                };
                table.add(&self.symbolizer.resolve(address))
            });
            let (first, count) = known.unwrap_or(unknown);
            (first..first + count).rev().map(FrameId)
        };
        let stacks = stacks.iter();
        let stacks = stacks.map(|stack| stack.iter().flat_map(&mut frames_of).collect());
        let stacks = stacks.collect();
        profile.frames = table.frames;
        profile.strings = table.texts.texts;
        stacks
    }

    /// What a walk needs to know.
    pub fn names(&mut self, tables: &Tables, exe: &Path) -> Names {
        let addresses = Addresses::of(tables, exe);
        let resolved = self.resolve(tables, &addresses, &|_, _| {});
        let distinct = addresses.distinct.iter().copied();
        let machinery: HashMap<Key, bool> = distinct
            .zip(&resolved)
            .map(|(key, frames)| (key, is_machinery(frames)))
            .collect();
        let keys = addresses.keys.iter();
        let mut names = Names {
            machinery: keys
                .map(|key| key.is_none_or(|key| machinery.get(&key).copied().unwrap_or(true)))
                .collect(),
            ..Names::default()
        };
        for (at, owner) in tables.owners.iter().enumerate() {
            if owner.kind == crate::wire::OwnerKind::Task as u32
                && let Some(name) = self.task_name(owner, tables, exe)
            {
                names.tasks.insert(at as u32, name);
            }
        }
        names
    }

    fn resolve(
        &mut self,
        tables: &Tables,
        addresses: &Addresses,
        progress: &dyn Fn(usize, usize),
    ) -> Vec<Arc<[ResolvedFrame]>> {
        let wanted: Vec<Address> = addresses
            .distinct
            .iter()
            .map(|(module, svma)| Address {
                module: &addresses.paths[*module],
                build_id: &tables.modules[*module].build_id,
                svma: *svma,
            })
            .collect();
        self.symbolizer.resolve_all(&wanted, progress)
    }

    /// The name of the task type whose vtable is the owner's key.
    pub fn task_name(
        &mut self,
        owner: &OwnerCopy,
        tables: &Tables,
        exe: &Path,
    ) -> Option<TaskName> {
        let (at, svma) = key(tables, owner.key + 1, owner.generation)?;
        let path = path_of(&tables.modules[at], exe);
        let name = self.symbolizer.name_task(&path, svma - 1);
        (!name.name.is_empty()).then_some(name)
    }
}

/// Frames that run whatever they are given: of the runtime, of std, of the C library's start.
fn is_machinery(frames: &[ResolvedFrame]) -> bool {
    frames
        .iter()
        .all(|frame| !matches!(frame.origin, Origin::Own | Origin::Library))
}

fn nodes(
    tables: &Tables,
    keys: &[Option<Key>],
    ranges: &Ranges,
    unknown: (u32, u32),
    truncated: (u32, u32),
) -> Nodes {
    let mut nodes = Nodes::default();
    for (at, key) in keys.iter().enumerate() {
        let flags = tables.node_flags[at] & 0xffff;
        let is_cut = flags & NodeFlags::TRUNCATED != 0 && tables.node_address[at] == 0;
        let (first, count) = match key {
            _ if at == 0 => (0, 0),
            _ if is_cut => truncated,
            Some(key) => ranges.get(key).copied().unwrap_or(unknown),
            None => unknown,
        };
        nodes.parent.push(NodeId(tables.node_parent[at]));
        nodes.first_frame.push(first);
        nodes.frame_count.push(count);
        nodes.flags.push(flags);
    }
    nodes
}

#[derive(Default)]
struct FrameTable {
    texts: Interner,
    frames: Frames,
    known: HashMap<Arc<[ResolvedFrame]>, (u32, u32)>,
}

impl FrameTable {
    fn add_one(&mut self, function: &str) -> (u32, u32) {
        let first = self.frames.function.len() as u32;
        self.push(function, "", 0, "", Origin::Unknown, false);
        (first, 1)
    }

    fn add(&mut self, frames: &Arc<[ResolvedFrame]>) -> (u32, u32) {
        if let Some(range) = self.known.get(frames) {
            return *range;
        }
        let first = self.frames.function.len() as u32;
        for frame in frames.iter() {
            let (file, library) = (&frame.file, &frame.library);
            self.push(
                &frame.function,
                file,
                frame.line,
                library,
                frame.origin,
                frame.inlined,
            );
        }
        let range = (first, frames.len() as u32);
        self.known.insert(frames.clone(), range);
        range
    }

    fn push(
        &mut self,
        function: &str,
        file: &str,
        line: u32,
        library: &str,
        origin: Origin,
        inlined: bool,
    ) {
        self.frames
            .function
            .push(StringId(self.texts.number(function)));
        self.frames.file.push(StringId(self.texts.number(file)));
        self.frames.line.push(line);
        self.frames
            .library
            .push(StringId(self.texts.number(library)));
        self.frames.origin.push(origin);
        self.frames.inlined.push(inlined);
    }
}
