//! A profile with one walk, made by hand.

use std::collections::HashMap;

use crate::analyze::{self, Finding, Report};
use crate::profile::*;

pub const KB: u64 = 1 << 10;
pub const MB: u64 = 1 << 20;

pub struct Sketch {
    pub profile: Profile,
    pub walk: Walk,
    strings: HashMap<String, StringId>,
    nodes: HashMap<(NodeId, String), NodeId>,
}

impl Sketch {
    pub fn new() -> Sketch {
        let mut sketch = Sketch {
            profile: Profile::default(),
            walk: Walk {
                at_s: 2.0,
                reason: WalkReason::Plateau,
                ..Walk::default()
            },
            strings: HashMap::new(),
            nodes: HashMap::new(),
        };
        sketch.profile.program.exit_code = Some(0);
        sketch.profile.program.duration_s = 5.0;
        sketch.node(NodeId(0));
        sketch.profile.owners.push(Owner::default());
        sketch
    }

    fn string(&mut self, text: &str) -> StringId {
        let next = StringId(self.profile.strings.len() as u32);
        let id = *self.strings.entry(text.to_owned()).or_insert(next);
        if id == next {
            self.profile.strings.push(text.to_owned());
        }
        id
    }

    fn node(&mut self, parent: NodeId) -> NodeId {
        let nodes = &mut self.profile.nodes;
        nodes.parent.push(parent);
        let frames = self.profile.frames.function.len() as u32;
        nodes.first_frame.push(frames);
        nodes.frame_count.push(0);
        nodes.flags.push(0);
        NodeId(nodes.parent.len() as u32 - 1)
    }

    /// Outermost first. `server::…` is the program's own, `std::…` and `alloc::…` are std's,
    /// `tokio::…` the runtime's, anything else is the library that its first part names.
    pub fn stack(&mut self, functions: &[&str]) -> NodeId {
        let mut node = NodeId(0);
        for function in functions {
            let key = (node, (*function).to_owned());
            if let Some(known) = self.nodes.get(&key) {
                node = *known;
                continue;
            }
            node = self.node(node);
            self.nodes.insert(key, node);
            let library = function.trim_start_matches('<').split("::").next();
            let library = library.unwrap_or("").to_owned();
            let origin = match library.as_str() {
                "server" => Origin::Own,
                "std" | "alloc" | "core" => Origin::Std,
                "tokio" => Origin::Runtime,
                _ => Origin::Library,
            };
            let own = origin == Origin::Own;
            let names = [
                *function,
                if own { "src/server.rs" } else { "" },
                if own { "" } else { &library },
            ];
            let [function, file, library] = names.map(|name| self.string(name));
            let frames = &mut self.profile.frames;
            frames.function.push(function);
            frames.file.push(file);
            frames.line.push(if own { 7 } else { 0 });
            frames.library.push(library);
            frames.origin.push(origin);
            frames.inlined.push(false);
            self.profile.nodes.frame_count[node.index()] = 1;
        }
        node
    }

    fn owner(&mut self, kind: OwnerKind, name: &str, spawned: u64) -> OwnerId {
        self.profile.owners.push(Owner {
            kind,
            name: name.to_owned(),
            spawned,
            ..Owner::default()
        });
        OwnerId(self.profile.owners.len() as u32 - 1)
    }

    pub fn thread(&mut self, name: &str, count: u64) -> OwnerId {
        self.owner(OwnerKind::Thread, name, count)
    }

    /// A task type with so many running and finished tasks, each with a cell, idle for so long.
    pub fn tasks(
        &mut self,
        name: &str,
        [live, finished]: [u64; 2],
        cell: u64,
        idle_ms: u64,
    ) -> OwnerId {
        let owner = self.owner(OwnerKind::Task, name, live + finished);
        self.profile.owners[owner.index()].cell_bytes = cell;
        let spawn = self.stack(&["server::main", "tokio::task::spawn"]);
        for (count, by) in [
            (live, HeldBy::Task(owner)),
            (finished, HeldBy::FinishedTask(owner)),
        ] {
            if count > 0 {
                let context = self.block(spawn, owner, by, count, cell);
                self.profile.owners[owner.index()].spawn_context = Some(context);
            }
        }
        self.walk.tasks.push(WalkTask {
            owner: Some(owner),
            live,
            finished,
            cell_bytes: cell,
            idle_ms: Spread(vec![(idle_ms, live)]),
            ..WalkTask::default()
        });
        owner
    }

    /// So many live blocks of one size.
    pub fn block(
        &mut self,
        node: NodeId,
        owner: OwnerId,
        by: HeldBy,
        blocks: u64,
        each: u64,
    ) -> ContextId {
        let contexts = &mut self.profile.contexts;
        contexts.node.push(node);
        contexts.owner.push(owner);
        contexts.allocator.push(0);
        for column in [&mut contexts.allocations, &mut contexts.peak_blocks] {
            column.push(blocks);
        }
        for column in [&mut contexts.allocated_bytes, &mut contexts.peak_bytes] {
            column.push(blocks * each);
        }
        for column in [
            &mut contexts.live_bytes,
            &mut contexts.live_blocks,
            &mut contexts.temporary,
        ] {
            column.push(0);
        }
        let context = ContextId(contexts.node.len() as u32 - 1);
        let bytes = blocks * each;
        self.walk.contexts.push((context, bytes, blocks));
        self.walk.held.push(WalkHeld {
            by,
            context,
            blocks,
            bytes,
        });
        self.walk.live_bytes += bytes;
        context
    }

    pub fn leak(&mut self, node: NodeId, owner: OwnerId, blocks: u64, each: u64) {
        let context = self.block(node, owner, HeldBy::Nobody, blocks, each);
        self.walk.leaks.push(WalkLeak {
            context: Some(context),
            root_context: Some(context),
            blocks,
            bytes: blocks * each,
            ..WalkLeak::default()
        });
    }

    /// Equal structures, of one context, that are held like its blocks.
    pub fn copies(&mut self, context: ContextId, holder: Holder, copies: u64, blocks_each: u64) {
        let (_, bytes, _) = self.walk.contexts[context.index()];
        let at = context.index();
        let owner = self.profile.contexts.owner[at];
        let named = matches!(holder, Holder::Task | Holder::Thread);
        self.walk.copies.push(WalkCopies {
            node: Some(self.profile.contexts.node[at]),
            holder,
            owner: named.then_some(owner),
            copies,
            bytes_each: bytes / copies,
            blocks_each,
            bytes,
            identical: Some(true),
            equal_share: 1.0,
            waste_bytes: bytes - bytes / copies,
            contexts: vec![(context, bytes)],
            ..WalkCopies::default()
        });
    }

    /// So much of the context's blocks was never touched, held by so many.
    pub fn untouched(&mut self, context: ContextId, percent: u64, owners: u64) {
        let (_, bytes, blocks) = self.walk.contexts[context.index()];
        self.walk.oversized.push(WalkOversized {
            context: Some(context),
            blocks,
            bytes,
            untouched_bytes: bytes / 100 * percent,
            zero_bytes: 0,
            spare_bytes: 0,
            owners,
        });
        for copies in &mut self.walk.copies {
            if copies.contexts.iter().any(|(of, _)| *of == context) {
                copies.blank_bytes += bytes / 100 * percent;
            }
        }
    }

    pub fn without_walk(self) -> Profile {
        self.profile
    }

    pub fn profile(&self) -> Profile {
        let mut profile = self.profile.clone();
        profile.walks.push(self.walk.clone());
        profile.validate().expect("a sketch is a valid profile");
        profile
    }

    pub fn report(&self) -> Report {
        analyze::report(&self.profile())
    }

    pub fn findings(&self) -> Vec<Finding> {
        self.report().findings
    }

    /// The only finding.
    pub fn finding(&self) -> Finding {
        let mut found = self.findings();
        assert_eq!(found.len(), 1, "{found:#?}");
        found.remove(0)
    }

    pub fn is_silent(&self) -> bool {
        let found = self.findings();
        assert!(found.is_empty(), "{found:#?}");
        true
    }
}
