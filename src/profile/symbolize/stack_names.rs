//! The name of a task type from the stacks of what its tasks allocated.
//!
//! A boxed trait object says nothing of the future in it, and a task type whose code was merged
//! with another's has two names. But a task runs below tokio's poll function, and the first frame
//! of the program below that is the future's body. It names the type if all of its tasks agree;
//! where several futures share one type, none is picked.
//!
//! What `spawn` allocates for a task belongs to the task but is on its spawner's stack: such
//! stacks are passed over.

use std::collections::HashMap;

use crate::profile::{ContextId, FrameId, NodeId, Origin, OwnerId, Profile};

/// Allocations that have to agree, in percent: a waker or a guard may be made elsewhere.
const AGREEMENT: u64 = 95;

/// What the tasks of this type run, if they all run the same.
pub fn name_by_stacks(profile: &Profile, owner: OwnerId) -> Option<String> {
    let mut votes: HashMap<String, u64> = HashMap::new();
    let mut all = 0;
    for context in profile.context_ids() {
        if profile.contexts.owner[context.index()] != owner || profile.is_shared(context) {
            continue;
        }
        if let Some(name) = body(profile, context) {
            let allocations = profile.contexts.allocations[context.index()];
            all += allocations;
            *votes.entry(name).or_default() += allocations;
        }
    }
    let (name, most) = votes.into_iter().max_by_key(|(_, count)| *count)?;
    (most * 100 >= all * AGREEMENT).then_some(name)
}

/// Of several names, `a::one or a::other`, the one that the stacks say; else the text itself.
pub fn settle_by_stacks(profile: &Profile, owner: OwnerId, name: &str) -> String {
    let by_stacks = name_by_stacks(profile, owner);
    let one_of = |found: &String| name.split(" or ").any(|one| one == found);
    by_stacks.filter(one_of).unwrap_or_else(|| name.to_owned())
}

/// The outermost frame of the program's own, or of a library, inside of tokio's poll function.
fn body(profile: &Profile, context: ContextId) -> Option<String> {
    let node: NodeId = profile.contexts.node[context.index()];
    let mut found: Option<FrameId> = None;
    for frame in profile.frames_outwards(node) {
        match profile.frames.origin[frame.index()] {
            Origin::Own | Origin::Library => found = Some(frame),
            Origin::Runtime => {
                let function = profile.function(frame);
                if found.is_none() && makes_tasks(function) {
                    return None;
                }
                if polls_tasks(function) {
                    return found.map(|frame| function_of(profile.function(frame)));
                }
            }
            _ => {}
        }
    }
    None
}

fn makes_tasks(function: &str) -> bool {
    function.contains("::spawn")
        || function.contains("task::core::Cell")
        || function.contains("::new_task")
        || function.contains("::bind")
}

fn polls_tasks(function: &str) -> bool {
    let parts = [
        "task::raw::poll",
        "task::harness::Harness",
        "task::core::Core",
    ];
    function.starts_with("tokio::runtime::") && parts.iter().any(|part| function.contains(part))
}

/// The body of an async fn goes by the function's name.
fn function_of(frame: &str) -> String {
    let mut name = frame;
    while let Some(base) = name.strip_suffix("::{closure}") {
        name = base;
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::StringId;

    /// A profile with one stack for each list of frames, outermost first, all of owner 1.
    fn profile(stacks: &[(&[(&str, Origin)], u64)]) -> Profile {
        let mut profile = Profile::default();
        profile.nodes.parent.push(NodeId(0));
        profile.nodes.first_frame.push(0);
        profile.nodes.frame_count.push(0);
        profile.nodes.flags.push(0);
        for (frames, allocations) in stacks {
            profile.nodes.parent.push(NodeId(0));
            profile
                .nodes
                .first_frame
                .push(profile.frames.function.len() as u32);
            profile.nodes.frame_count.push(frames.len() as u32);
            profile.nodes.flags.push(0);
            for (function, origin) in *frames {
                profile.strings.push((*function).to_owned());
                let text = StringId(profile.strings.len() as u32 - 1);
                profile.frames.function.push(text);
                profile.frames.origin.push(*origin);
            }
            let node = NodeId(profile.nodes.parent.len() as u32 - 1);
            profile.contexts.node.push(node);
            profile.contexts.owner.push(OwnerId(1));
            profile.contexts.allocations.push(*allocations);
        }
        profile
    }

    const POLL: (&str, Origin) = ("tokio::runtime::task::raw::poll", Origin::Runtime);
    const PUSH: (&str, Origin) = ("alloc::vec::Vec<T,A>::push", Origin::Std);

    #[test]
    fn the_body_below_poll_is_the_name() {
        let main = ("server::main", Origin::Own);
        let body = ("server::handle::{closure}", Origin::Own);
        let inner = ("server::parse", Origin::Own);
        let spawn = ("tokio::task::spawn::spawn", Origin::Runtime);
        let of_cell = [main, POLL, ("server::accept", Origin::Own), spawn];
        let work = [main, POLL, body, inner, PUSH];
        let all = profile(&[(&work, 10), (&[main, POLL, body, PUSH], 5), (&of_cell, 10)]);
        assert_eq!(
            name_by_stacks(&all, OwnerId(1)).as_deref(),
            Some("server::handle")
        );
        assert_eq!(name_by_stacks(&all, OwnerId(2)), None);
        let settled = settle_by_stacks(&all, OwnerId(1), "server::other or server::handle");
        assert_eq!(settled, "server::handle");
        assert_eq!(settle_by_stacks(&all, OwnerId(1), "a or b"), "a or b");
    }

    #[test]
    fn futures_that_share_a_type_have_no_name() {
        let one = [POLL, ("server::one::{closure}", Origin::Own)];
        let other = [POLL, ("server::other::{closure}", Origin::Own)];
        let all = profile(&[(&one, 10), (&other, 10)]);
        assert_eq!(name_by_stacks(&all, OwnerId(1)), None);
    }
}
