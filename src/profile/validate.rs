//! Checks a profile once, so that all later code may index and add without looking.
//!
//! Checked: every handle points into its table, the columns of a table are equally long, a
//! parent comes before its children, values of a spread ascend, and no sum over a column leaves
//! 64 bits. Not checked: whether the figures are true.

use std::fmt;

use super::{ContextId, FrameId, HeldBy, Memory, NodeId, OwnerId, Profile, Spread, StringId, Walk};

/// Frames that one call can stand for: inlining this deep does not exist.
const MOST_FRAMES: u32 = 4096;

/// What is wrong, as the end of a sentence about the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

type Checked = Result<(), Invalid>;

impl Profile {
    /// Is every index within its table and every sum within 64 bits?
    pub fn validate(&self) -> Checked {
        self.frames_are_whole()?;
        self.nodes_are_a_tree()?;
        self.contexts_are_whole()?;
        self.owners_are_whole()?;
        for (at, walk) in self.walks.iter().enumerate() {
            self.walk_is_whole(walk)
                .map_err(|Invalid(what)| Invalid(format!("walk {}: {what}", at + 1)))?;
        }
        self.timeline_is_whole()?;
        self.workers_are_whole()?;
        let times = [self.program.duration_s, self.totals.peak_at_s];
        times.into_iter().try_for_each(finite)?;
        [&self.memory, &self.memory_at_peak]
            .into_iter()
            .flatten()
            .try_for_each(memory_is_whole)
    }

    fn frames_are_whole(&self) -> Checked {
        let frames = &self.frames;
        let count = frames.function.len();
        let lengths = [
            frames.file.len(),
            frames.line.len(),
            frames.library.len(),
            frames.origin.len(),
            frames.inlined.len(),
        ];
        equally_long("frames", count, &lengths)?;
        [&frames.function, &frames.file, &frames.library]
            .into_iter()
            .flatten()
            .try_for_each(|id| self.has_string(*id))
    }

    fn nodes_are_a_tree(&self) -> Checked {
        let nodes = &self.nodes;
        let count = nodes.parent.len();
        let lengths = [
            nodes.first_frame.len(),
            nodes.frame_count.len(),
            nodes.flags.len(),
        ];
        equally_long("nodes", count, &lengths)?;
        for at in 0..count {
            let parent = nodes.parent[at].index();
            if parent >= at.max(1) {
                return invalid(format!("node {at} has the parent {parent}"));
            }
            let frames = nodes.frame_count[at];
            let end = u64::from(nodes.first_frame[at]) + u64::from(frames);
            if frames > MOST_FRAMES || end > self.frames.function.len() as u64 {
                return invalid(format!("node {at} has frames up to {end}"));
            }
        }
        Ok(())
    }

    fn contexts_are_whole(&self) -> Checked {
        let contexts = &self.contexts;
        let count = contexts.node.len();
        let numbers = [
            &contexts.allocations,
            &contexts.allocated_bytes,
            &contexts.live_bytes,
            &contexts.live_blocks,
            &contexts.peak_bytes,
            &contexts.peak_blocks,
            &contexts.temporary,
        ];
        equally_long("contexts", count, &numbers.map(Vec::len))?;
        let others = [contexts.owner.len(), contexts.allocator.len()];
        equally_long("contexts", count, &others)?;
        for column in numbers {
            sum("contexts", column.iter().copied())?;
        }
        contexts.node.iter().try_for_each(|id| self.has_node(*id))?;
        contexts.owner.iter().try_for_each(|id| self.has_owner(*id))
    }

    fn owners_are_whole(&self) -> Checked {
        let owners = &self.owners;
        for owner in owners {
            owner
                .spawn_context
                .iter()
                .try_for_each(|id| self.has_context(*id))?;
            [&owner.per_live, &owner.per_peak, &owner.idle_ms]
                .into_iter()
                .try_for_each(spread_ascends)?;
        }
        sum("owners", owners.iter().map(|o| o.spawned))?;
        sum("owners", owners.iter().map(|o| o.alive))?;
        sum(
            "owners",
            owners.iter().map(|o| o.finished_allocated.unwrap_or(0)),
        )?;
        sum("owners", owners.iter().map(|o| o.allocated_bytes))?;
        sum("owners", owners.iter().map(|o| o.live_bytes))?;
        sum("owners", owners.iter().map(|o| o.peak_bytes))?;
        sum("owners", owners.iter().map(|o| o.outlived_bytes))?;
        for owner in owners {
            let cells = owner.alive.max(owner.spawned);
            multiply("owners", cells, owner.cell_bytes)?;
            multiply("owners", cells, owner.box_bytes)?;
        }
        Ok(())
    }

    fn walk_is_whole(&self, walk: &Walk) -> Checked {
        [walk.at_s, walk.pause_s, walk.analysis_s]
            .into_iter()
            .try_for_each(finite)?;
        memory_is_whole(&walk.memory)?;
        for (context, ..) in &walk.contexts {
            self.has_context(*context)?;
        }
        sum("contexts", walk.contexts.iter().map(|(_, bytes, _)| *bytes))?;
        sum("contexts", walk.contexts.iter().map(|(.., blocks)| *blocks))?;
        self.walk_handles(walk)?;
        walk_spreads(walk)?;
        walk_sums(walk)
    }

    fn walk_handles(&self, walk: &Walk) -> Checked {
        let owners = (walk.tasks.iter().map(|t| t.owner))
            .chain(walk.statics.iter().map(|s| s.first_touched_by))
            .chain(walk.copies.iter().map(|c| c.owner))
            .chain(walk.owner_gone.iter().map(|o| o.owner));
        owners.flatten().try_for_each(|id| self.has_owner(id))?;
        let nodes = (walk.thread_locals.iter().map(|t| t.node))
            .chain(walk.statics.iter().map(|s| s.node))
            .chain(walk.copies.iter().map(|c| c.node));
        nodes.flatten().try_for_each(|id| self.has_node(id))?;
        let contexts = (walk.leaks.iter().flat_map(|l| [l.context, l.root_context]))
            .chain(walk.oversized.iter().map(|o| o.context))
            .chain(walk.pinned.iter().map(|p| p.context))
            .chain(walk.owner_gone.iter().map(|o| o.context));
        contexts.flatten().try_for_each(|id| self.has_context(id))?;
        let copies = walk.copies.iter().flat_map(|c| &c.contexts);
        copies
            .map(|(id, _)| *id)
            .try_for_each(|id| self.has_context(id))?;
        walk.held.iter().try_for_each(|row| {
            self.has_context(row.context)?;
            self.holder_is_known(walk, row.by)
        })
    }

    fn holder_is_known(&self, walk: &Walk, by: HeldBy) -> Checked {
        match by {
            HeldBy::Task(owner)
            | HeldBy::FinishedTask(owner)
            | HeldBy::Thread(owner)
            | HeldBy::Stack(owner) => self.has_owner(owner),
            HeldBy::ThreadLocal(at) => {
                within("thread-local", at as usize, walk.thread_locals.len())
            }
            HeldBy::Static(at) => within("static", at as usize, walk.statics.len()),
            HeldBy::Nobody | HeldBy::Several | HeldBy::Data | HeldBy::Elsewhere => Ok(()),
        }
    }

    fn timeline_is_whole(&self) -> Checked {
        let timeline = &self.timeline;
        let lengths = [
            timeline.live_bytes.len(),
            timeline.rss_bytes.len(),
            timeline.tasks_alive.len(),
            timeline.threads_alive.len(),
        ];
        equally_long("timeline", timeline.at_ms.len(), &lengths)
    }

    fn workers_are_whole(&self) -> Checked {
        for worker in &self.workers {
            finite(worker.busy_share)?;
            finite(worker.longest_stay_s)?;
            worker
                .longest_on
                .iter()
                .try_for_each(|id| self.has_owner(*id))?;
            for held in &worker.held {
                finite(held.at_s)?;
                finite(held.seconds)?;
                held.owner.iter().try_for_each(|id| self.has_owner(*id))?;
                held.stack.iter().try_for_each(|id| self.has_frame(*id))?;
            }
        }
        Ok(())
    }

    fn has_string(&self, id: StringId) -> Checked {
        within("string", id.index(), self.strings.len())
    }

    fn has_frame(&self, id: FrameId) -> Checked {
        within("frame", id.index(), self.frames.function.len())
    }

    fn has_node(&self, id: NodeId) -> Checked {
        within("node", id.index(), self.nodes.parent.len())
    }

    fn has_context(&self, id: ContextId) -> Checked {
        within("context", id.index(), self.contexts.node.len())
    }

    fn has_owner(&self, id: OwnerId) -> Checked {
        within("owner", id.index(), self.owners.len())
    }
}

fn walk_spreads(walk: &Walk) -> Checked {
    let tasks = walk
        .tasks
        .iter()
        .flat_map(|t| [&t.owned, &t.owned_finished, &t.retained, &t.idle_ms]);
    let locals = walk.thread_locals.iter().map(|t| &t.per_thread);
    tasks.chain(locals).try_for_each(spread_ascends)?;
    let shares = (walk.thread_locals.iter().map(|t| t.equal_share))
        .chain(walk.copies.iter().map(|c| c.equal_share));
    shares.into_iter().try_for_each(finite)
}

fn walk_sums(walk: &Walk) -> Checked {
    sum("tasks", walk.tasks.iter().map(|t| t.live))?;
    sum("tasks", walk.tasks.iter().map(|t| t.finished))?;
    sum("tasks", walk.tasks.iter().map(|t| t.retained_bytes))?;
    sum("tasks", walk.tasks.iter().map(|t| t.finished_bytes))?;
    for task in &walk.tasks {
        multiply("tasks", task.live.max(task.finished), task.cell_bytes)?;
    }
    sum("threads", walk.threads.iter().map(|t| t.count))?;
    sum("threads", walk.threads.iter().map(|t| t.stack_resident))?;
    sum("threads", walk.threads.iter().map(|t| t.owned_bytes))?;
    for thread in &walk.threads {
        multiply("threads", thread.count, thread.stack_reserved_each)?;
    }
    sum("thread-locals", walk.thread_locals.iter().map(|t| t.bytes))?;
    sum(
        "thread-locals",
        walk.thread_locals.iter().map(|t| t.threads),
    )?;
    sum("statics", walk.statics.iter().map(|s| s.bytes))?;
    sum("copies", walk.copies.iter().map(|c| c.bytes))?;
    sum("copies", walk.copies.iter().map(|c| c.waste_bytes))?;
    sum("copies", walk.copies.iter().map(|c| c.copies))?;
    let contexts = walk.copies.iter().flat_map(|c| &c.contexts);
    sum("copies", contexts.map(|(_, bytes)| *bytes))?;
    sum("held", walk.held.iter().map(|h| h.bytes))?;
    sum("held", walk.held.iter().map(|h| h.blocks))?;
    sum("leaks", walk.leaks.iter().map(|l| l.bytes))?;
    sum("leaks", walk.leaks.iter().map(|l| l.blocks))?;
    sum("oversized", walk.oversized.iter().map(|o| o.bytes))?;
    sum(
        "oversized",
        walk.oversized.iter().map(|o| o.untouched_bytes),
    )?;
    sum("oversized", walk.oversized.iter().map(|o| o.zero_bytes))?;
    sum("oversized", walk.oversized.iter().map(|o| o.spare_bytes))?;
    sum("pinned", walk.pinned.iter().map(|p| p.bytes))?;
    sum("pinned", walk.pinned.iter().map(|p| p.used_bytes))?;
    sum("owner gone", walk.owner_gone.iter().map(|o| o.bytes))?;
    sum("owner gone", walk.owner_gone.iter().map(|o| o.owners))
}

fn memory_is_whole(memory: &Memory) -> Checked {
    finite(memory.at_s)?;
    let parts = [
        memory.live_resident_bytes,
        memory.retained_bytes,
        memory.stacks_bytes,
        memory.mapped_files_bytes,
        memory.other_mappings_bytes,
        memory.profiler_bytes,
        memory.unexplained_bytes.unsigned_abs(),
    ];
    sum("memory", parts.into_iter())
}

fn equally_long(table: &str, count: usize, lengths: &[usize]) -> Checked {
    if lengths.iter().all(|length| *length == count) {
        return Ok(());
    }
    invalid(format!("the columns of its {table} differ in length"))
}

fn within(what: &str, index: usize, count: usize) -> Checked {
    if index < count {
        return Ok(());
    }
    invalid(format!("it names {what} {index}, but there are {count}"))
}

/// Half of 64 bits, so that two sums can be added.
fn sum(table: &str, mut values: impl Iterator<Item = u64>) -> Checked {
    match values.try_fold(0_u64, u64::checked_add) {
        Some(sum) if sum <= u64::MAX / 16 => Ok(()),
        _ => invalid(format!("the figures of its {table} are impossibly large")),
    }
}

fn multiply(table: &str, a: u64, b: u64) -> Checked {
    sum(table, std::iter::once(a.saturating_mul(b)))
}

fn spread_ascends(spread: &Spread) -> Checked {
    let pairs = &spread.0;
    if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
        return invalid("the values of a spread don't ascend".to_owned());
    }
    sum("spreads", pairs.iter().map(|(_, count)| *count))?;
    sum(
        "spreads",
        pairs
            .iter()
            .map(|(value, count)| value.saturating_mul(*count)),
    )
}

fn finite(value: f64) -> Checked {
    if value.is_finite() {
        return Ok(());
    }
    invalid("a time in it is not a number".to_owned())
}

fn invalid(what: String) -> Checked {
    Err(Invalid(what))
}
