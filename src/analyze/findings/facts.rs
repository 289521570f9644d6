//! What the rules ask of a profile and of the walk that the report speaks of.

use std::collections::HashMap;

use super::claims::Claims;
use crate::analyze::sites::SiteTable;
use crate::profile::{
    ContextId, HeldBy, Memory, NodeId, Origin, Owner, OwnerId, Profile, Site, Walk,
};

/// Nothing smaller than this is a finding, and nothing that is so small a part of the heap.
const LEAST_BYTES: u64 = 1 << 20;
const LEAST_SHARE: u64 = 50;

pub struct Facts<'a> {
    pub profile: &'a Profile,
    pub walk: &'a Walk,
    pub sites: &'a SiteTable,
    held: HashMap<HeldBy, Claims>,
    /// Blocks and bytes by context.
    live: HashMap<ContextId, (u64, u64)>,
    /// Zero, untouched and spare bytes by context.
    blank: HashMap<ContextId, u64>,
}

impl<'a> Facts<'a> {
    pub fn new(profile: &'a Profile, walk: &'a Walk, sites: &'a SiteTable) -> Facts<'a> {
        let mut held: HashMap<HeldBy, Claims> = HashMap::new();
        for row in &walk.held {
            let claims = held.entry(row.by).or_default();
            *claims.0.entry(row.context).or_default() += row.bytes;
        }
        let live = walk.contexts.iter();
        let blank = walk.oversized.iter();
        Facts {
            profile,
            walk,
            sites,
            held,
            live: live
                .map(|(at, bytes, blocks)| (*at, (*blocks, *bytes)))
                .collect(),
            blank: blank
                .filter_map(|row| {
                    let unused = row.untouched_bytes + row.zero_bytes + row.spare_bytes;
                    Some((row.context?, unused))
                })
                .collect(),
        }
    }

    /// From which size on something is worth a person's attention.
    pub fn least(&self) -> u64 {
        LEAST_BYTES.max(self.walk.live_bytes / LEAST_SHARE)
    }

    pub fn owner(&self, id: OwnerId) -> &'a Owner {
        &self.profile.owners[id.index()]
    }

    /// What is reached in this way only.
    pub fn held(&self, by: HeldBy) -> Claims {
        self.held.get(&by).cloned().unwrap_or_default()
    }

    /// Owners that one task type has: tokio tells apart what is spawned from two runtimes.
    pub fn of_type(&self, name: &str) -> impl Iterator<Item = OwnerId> + 'a {
        let owners = (0..).map(OwnerId).zip(&self.profile.owners);
        let name = name.to_owned();
        owners
            .filter(move |(_, owner)| owner.is_task() && owner.name == name)
            .map(|(id, _)| id)
    }

    /// Blocks and bytes of a context.
    pub fn live(&self, context: ContextId) -> (u64, u64) {
        self.live.get(&context).copied().unwrap_or_default()
    }

    /// Of a context's large blocks that are mostly unused: zero, untouched or spare bytes.
    pub fn blank(&self, context: ContextId) -> u64 {
        self.blank.get(&context).copied().unwrap_or(0)
    }

    pub fn context_owner(&self, context: ContextId) -> OwnerId {
        self.profile.contexts.owner[context.index()]
    }

    pub fn node(&self, context: ContextId) -> NodeId {
        self.profile.contexts.node[context.index()]
    }

    /// Contexts of a task type's cells, and of the boxes for futures that are too large for one.
    pub fn is_cell(&self, context: ContextId) -> bool {
        let owner = self.owner(self.context_owner(context));
        let (blocks, bytes) = self.live(context);
        let all = |each: u64| each > 0 && bytes == each.saturating_mul(blocks);
        owner.is_task() && (all(owner.cell_bytes) || all(owner.box_bytes))
    }

    pub fn site(&self, node: NodeId) -> Site {
        self.sites.get(self.sites.of_node(node)).clone()
    }

    /// Does a frame between the block and the program's outermost code have such a name?
    pub fn passes(&self, context: ContextId, test: impl Fn(&str, Origin) -> bool) -> bool {
        let profile = self.profile;
        profile.frames_outwards(self.node(context)).any(|frame| {
            test(
                profile.function(frame),
                profile.frames.origin[frame.index()],
            )
        })
    }

    /// The memory of the last moment at which the program was still at work, if it had been so for
    /// a while: what an allocator keeps for a moment says nothing.
    pub fn lasting_memory(&self) -> Option<&'a Memory> {
        const A_WHILE_S: f64 = 0.5;
        let memory = self.profile.memory.as_ref()?;
        let walks = &self.profile.walks;
        let at = walks.iter().rposition(|walk| walk.at_s == memory.at_s)?;
        // As little was live, and as much was kept.
        let alike = |walk: &&Walk| {
            walk.live_bytes / 2 <= walks[at].live_bytes
                && walk.memory.retained_bytes >= memory.retained_bytes / 2
        };
        let since = walks[..=at].iter().rev().take_while(alike).last()?;
        let lasted = self.profile.program.duration_s - since.at_s >= A_WHILE_S;
        (lasted || self.is_running()).then_some(memory)
    }

    fn is_running(&self) -> bool {
        let program = &self.profile.program;
        program.exit_code.is_none() && program.exit_signal.is_none()
    }
}
