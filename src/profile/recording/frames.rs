//! Names for the nodes of the tree of stacks, and for task types.
//!
//! A node's address is resolved in the module that held it when the node was made: a library may
//! have been closed since, and another opened in its place.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::symbolize::{Address, Missing, ResolvedFrame, Symbolizer, TaskName};
use super::super::{Frames, NodeId, Nodes, Origin, Profile, StringId};
use super::collect::{Interner, path_of};
use super::tables::{ModuleCopy, OwnerCopy, Tables};
use crate::wire::NodeFlags;

pub(super) struct Namer<'a> {
    tables: &'a Tables,
    exe: PathBuf,
    paths: Vec<PathBuf>,
    symbolizer: Symbolizer,
}

/// Frames of each distinct address, as a range of the frame table.
type Ranges = HashMap<(usize, u64), (u32, u32)>;

impl<'a> Namer<'a> {
    pub fn new(tables: &'a Tables, exe: PathBuf) -> Namer<'a> {
        let paths = tables
            .modules
            .iter()
            .map(|module| path_of(module, &exe))
            .collect();
        Namer {
            tables,
            exe,
            paths,
            symbolizer: super::collect::symbolizer(),
        }
    }

    pub fn missing(&self) -> Missing {
        self.symbolizer.missing()
    }

    pub fn has_debug_info(&mut self) -> bool {
        self.symbolizer.has_debug_info(&self.exe)
    }

    /// Fills strings, frames and nodes of the profile.
    pub fn name_nodes(&mut self, profile: &mut Profile, progress: &dyn Fn(usize, usize)) {
        let keys: Vec<Option<(usize, u64)>> = (0..self.tables.node_parent.len())
            .map(|node| {
                self.key(
                    self.tables.node_address[node],
                    self.tables.node_flags[node] >> 16,
                )
            })
            .collect();
        let mut distinct: Vec<(usize, u64)> = keys.iter().flatten().copied().collect();
        distinct.sort_unstable();
        distinct.dedup();
        let modules = &self.tables.modules;
        let addresses: Vec<Address> = distinct
            .iter()
            .map(|(module, svma)| Address {
                module: &self.paths[*module],
                build_id: &modules[*module].build_id,
                svma: *svma,
            })
            .collect();
        let resolved = self.symbolizer.resolve_all(&addresses, progress);
        let mut table = FrameTable::default();
        table.texts.number("");
        let unknown = table.add_one("[unknown]");
        let truncated = table.add_one("[truncated stack]");
        let ranges: Ranges = distinct
            .into_iter()
            .zip(&resolved)
            .map(|(key, frames)| (key, table.add(frames)))
            .collect();
        profile.nodes = self.nodes(&keys, &ranges, unknown, truncated);
        profile.frames = table.frames;
        profile.strings = table.texts.texts;
    }

    fn nodes(
        &self,
        keys: &[Option<(usize, u64)>],
        ranges: &Ranges,
        unknown: (u32, u32),
        truncated: (u32, u32),
    ) -> Nodes {
        let mut nodes = Nodes::default();
        for (at, key) in keys.iter().enumerate() {
            let flags = self.tables.node_flags[at] & 0xffff;
            let is_cut = flags & NodeFlags::TRUNCATED != 0 && self.tables.node_address[at] == 0;
            let (first, count) = match key {
                _ if at == 0 => (0, 0),
                _ if is_cut => truncated,
                Some(key) => ranges.get(key).copied().unwrap_or(unknown),
                None => unknown,
            };
            nodes.parent.push(NodeId(self.tables.node_parent[at]));
            nodes.first_frame.push(first);
            nodes.frame_count.push(count);
            nodes.flags.push(flags);
        }
        nodes
    }

    /// Module and link-time address of an address at run time.
    fn key(&self, address: u64, generation: u32) -> Option<(usize, u64)> {
        let lookup = address.checked_sub(1)?;
        let held = |m: &&ModuleCopy| m.low <= lookup && lookup < m.high;
        let then =
            |m: &ModuleCopy| m.loaded <= generation && (m.unloaded == 0 || generation < m.unloaded);
        let mut candidates = self
            .tables
            .modules
            .iter()
            .enumerate()
            .filter(|(_, module)| held(module));
        let (at, module) = candidates
            .clone()
            .find(|(_, module)| then(module))
            .or_else(|| candidates.next())?;
        Some((at, address - module.bias))
    }

    /// The name of the task type whose vtable is the owner's key.
    pub fn task_name(&mut self, owner: &OwnerCopy, tables: &Tables) -> Option<TaskName> {
        let (at, svma) = self.key(owner.key + 1, owner.generation)?;
        let _ = tables;
        let path = self.paths[at].clone();
        let name = self.symbolizer.name_task(&path, svma - 1);
        (!name.name.is_empty()).then_some(name)
    }
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
