//! Stacks with one figure each, named as a person reads them: what flamegraphs draw.
//!
//! A tokio stack is a few lines of the program's own between dozens of frames that poll, unwrap
//! and allocate. Kept, they hide the async call chain; dropped altogether, they take with them
//! what the program asked for (`to_vec`, `String::clone`). Rule: frames of the runtime and of std
//! are left out, except the first one below the last frame that stays: what the program's code
//! called. So are the foreign frames (libc's start) above the first that stays. `async fn`s lose
//! their `{{closure}}`. Nothing is lost in the figures: every byte stands on some stack.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::statics;
use crate::profile::{ContextId, FrameId, NodeId, Origin, OwnerId, OwnerKind, Profile};
use crate::wire::NodeFlags;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Metric {
    /// Bytes not freed at the end.
    Live,
    /// Bytes live when the whole program's were most.
    #[default]
    Peak,
    /// Bytes ever.
    Allocated,
    /// Blocks ever.
    Allocations,
    /// Blocks freed before the thread's next allocation.
    Temporary,
    /// Bytes that nothing reaches.
    Leaked,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum By {
    #[default]
    Stack,
    /// The task type at the root.
    Task,
    Thread,
    /// Only what initialisers of thread-locals made, the thread-local at the root.
    ThreadLocal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlameOptions {
    pub metric: Metric,
    pub by: By,
    /// Keep every frame, as it is named.
    pub runtime_frames: bool,
}

/// Stacks, outermost frame first, with their figures; in alphabetical order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flames {
    pub stacks: BTreeMap<Vec<String>, u64>,
    pub total: u64,
}

/// Why there is nothing to draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoFlames {
    /// Leaks need a walk.
    NoWalk,
    /// The figure is zero everywhere.
    Zero,
}

impl Metric {
    /// As it is said in a title.
    pub fn words(self) -> &'static str {
        match self {
            Metric::Live => "Live heap at the end",
            Metric::Peak => "Heap at its peak",
            Metric::Allocated => "Bytes allocated in the whole run",
            Metric::Allocations => "Allocations in the whole run",
            Metric::Temporary => "Temporary allocations",
            Metric::Leaked => "Leaked heap",
        }
    }

    pub fn is_bytes(self) -> bool {
        !matches!(self, Metric::Allocations | Metric::Temporary)
    }

    /// The figure of every context.
    pub fn values(self, profile: &Profile) -> Vec<u64> {
        let contexts = &profile.contexts;
        match self {
            Metric::Live => contexts.live_bytes.clone(),
            Metric::Peak => contexts.peak_bytes.clone(),
            Metric::Allocated => contexts.allocated_bytes.clone(),
            Metric::Allocations => contexts.allocations.clone(),
            Metric::Temporary => contexts.temporary.clone(),
            Metric::Leaked => leaked(profile),
        }
    }
}

fn leaked(profile: &Profile) -> Vec<u64> {
    let mut values = vec![0; profile.context_count()];
    for leak in profile.walks.last().iter().flat_map(|walk| &walk.leaks) {
        if let Some(context) = leak.context.filter(|_| !leak.possible) {
            values[context.index()] += leak.bytes;
        }
    }
    values
}

pub fn flames(profile: &Profile, options: &FlameOptions) -> Result<Flames, NoFlames> {
    if options.metric == Metric::Leaked && profile.walks.is_empty() {
        return Err(NoFlames::NoWalk);
    }
    let values = options.metric.values(profile);
    let mut tree = Tree::new(profile, options.runtime_frames);
    let mut sums: HashMap<(String, u32), u64> = HashMap::new();
    for context in profile.context_ids() {
        let value = values[context.index()];
        if value == 0 {
            continue;
        }
        if let Some(root) = root(profile, context, options.by) {
            let at = tree.place(profile.contexts.node[context.index()]);
            *sums.entry((root, at)).or_default() += value;
        }
    }
    let mut flames = Flames::default();
    for ((root, at), value) in sums {
        let mut stack = tree.path(at);
        if !root.is_empty() {
            stack.insert(0, root);
        }
        flames.total += value;
        *flames.stacks.entry(stack).or_default() += value;
    }
    match flames.total {
        0 => Err(NoFlames::Zero),
        _ => Ok(flames),
    }
}

/// The name at the root; empty for none. `None`: not in this picture.
fn root(profile: &Profile, context: ContextId, by: By) -> Option<String> {
    let owner = profile.contexts.owner[context.index()];
    let shared = profile.is_shared(context);
    match by {
        By::Stack => Some(String::new()),
        By::Task | By::Thread if shared => Some("[shared]".to_owned()),
        By::Task => Some(owner_name(profile, owner, OwnerKind::Task)),
        By::Thread => Some(owner_name(profile, owner, OwnerKind::Thread)),
        By::ThreadLocal => thread_local(profile, context),
    }
}

/// Owners of the wanted kind, each by its name; others in brackets.
fn owner_name(profile: &Profile, owner: OwnerId, wanted: OwnerKind) -> String {
    let owner = &profile.owners[owner.index()];
    let name = &owner.name;
    let is_task = owner.is_task();
    match owner.kind {
        OwnerKind::Unknown => "[unknown]".to_owned(),
        OwnerKind::Scope => format!("[scope {name}]"),
        _ if is_task && wanted == OwnerKind::Thread => "[tasks]".to_owned(),
        _ if is_task => format!("task {name}"),
        _ => format!("thread {name}"),
    }
}

/// The thread-local whose initialiser made it: by the name of its code, else unnamed.
fn thread_local(profile: &Profile, context: ContextId) -> Option<String> {
    let node = profile.contexts.node[context.index()];
    if profile.nodes.flags[node.index()] & NodeFlags::THREAD_LOCAL_INIT == 0 {
        return None;
    }
    let name = profile
        .frames_outwards(node)
        .find_map(|frame| statics::initialised(profile.function(frame)));
    Some(name.unwrap_or("[unnamed thread-local]").to_owned())
}

/// Paths of names. Node 0 is the root, above all of them.
struct Tree<'p> {
    profile: &'p Profile,
    whole: bool,
    /// Parent and name.
    nodes: Vec<(u32, String)>,
    by_name: HashMap<(u32, String), u32>,
    places: HashMap<NodeId, Place<'p>>,
}

/// Where a node of the profile is in the tree: the last frame that stays, and what it called.
#[derive(Clone, Copy, Default)]
struct Place<'p> {
    kept: u32,
    called: Option<&'p str>,
}

impl<'p> Tree<'p> {
    fn new(profile: &'p Profile, whole: bool) -> Tree<'p> {
        Tree {
            profile,
            whole,
            nodes: vec![(0, String::new())],
            by_name: HashMap::new(),
            places: HashMap::from([(NodeId(0), Place::default())]),
        }
    }

    /// Where the stack ends in the tree.
    fn place(&mut self, node: NodeId) -> u32 {
        let mut missing = Vec::new();
        let mut at = node;
        let mut place = loop {
            if let Some(place) = self.places.get(&at) {
                break *place;
            }
            missing.push(at);
            at = self.profile.nodes.parent[at.index()];
        };
        for node in missing.into_iter().rev() {
            let first = self.profile.nodes.first_frame[node.index()];
            let count = self.profile.nodes.frame_count[node.index()];
            for frame in first..first + count {
                place = self.step(place, FrameId(frame));
            }
            self.places.insert(node, place);
        }
        match place {
            Place {
                kept,
                called: Some(name),
            } => self.child(kept, &written(name)),
            Place {
                kept: 0,
                called: None,
            } => self.child(0, "[no stack]"),
            Place { kept, called: None } => kept,
        }
    }

    fn step(&mut self, place: Place<'p>, frame: FrameId) -> Place<'p> {
        let name = self.profile.function(frame);
        let stays = match self.profile.frames.origin[frame.index()] {
            _ if self.whole => true,
            Origin::Own | Origin::Library | Origin::Unknown => true,
            Origin::Foreign => place.kept != 0,
            Origin::Runtime | Origin::Std => false,
        };
        if !stays {
            return Place {
                kept: place.kept,
                called: place.called.or(Some(name)),
            };
        }
        let kept = match self.whole {
            true => self.child(place.kept, name),
            false => self.child(place.kept, &written(name)),
        };
        Place { kept, called: None }
    }

    fn child(&mut self, parent: u32, name: &str) -> u32 {
        // An `async fn` is polled through a closure of the same name.
        if !self.whole && parent != 0 && self.nodes[parent as usize].1 == name {
            return parent;
        }
        let key = (parent, name.to_owned());
        if let Some(at) = self.by_name.get(&key) {
            return *at;
        }
        let at = self.nodes.len() as u32;
        self.nodes.push(key.clone());
        self.by_name.insert(key, at);
        at
    }

    fn path(&self, mut at: u32) -> Vec<String> {
        let mut path = Vec::new();
        while at != 0 {
            let (parent, name) = &self.nodes[at as usize];
            path.push(name.clone());
            at = *parent;
        }
        path.reverse();
        path
    }
}

/// A function as a person writes it: without the closures that an `async fn` is compiled to, and
/// `Rules::clone` for `<Rules as Clone>::clone`; the initial value of a static has its name.
pub fn written(function: &str) -> Cow<'_, str> {
    let mut name = statics::initialised(function).unwrap_or(function);
    while let Some((start, last)) = name.rsplit_once("::") {
        let made = last.starts_with('{') && (last.contains("closure") || last.contains("async"));
        if !made {
            break;
        }
        name = start;
    }
    match implementor(name) {
        Some((of, method)) => Cow::Owned(format!("{of}{method}")),
        None => Cow::Borrowed(name),
    }
}

/// `Rules` and `::clone` of `<Rules as Clone>::clone`.
fn implementor(name: &str) -> Option<(&str, &str)> {
    let inside = name.strip_prefix('<')?;
    let (mut depth, mut of, mut before) = (0_u32, None, ' ');
    for (at, c) in inside.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            // The arrow of a function type closes nothing.
            '>' if before == '-' => {}
            '>' | ')' | ']' if depth > 0 => depth -= 1,
            '>' => return Some((of?, &inside[at + 1..])),
            ' ' if depth == 0 && inside[at..].starts_with(" as ") => of = Some(&inside[..at]),
            _ => {}
        }
        before = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::written;

    #[test]
    fn functions_are_named_as_they_are_written() {
        for (function, expected) in [
            ("a::handler::{{closure}}", "a::handler"),
            ("a::handler::{closure#0}::{closure}", "a::handler"),
            ("a::main::{async block}", "a::main"),
            ("a::CACHE::{constant}::__init", "a::CACHE"),
            ("<a::Rules as core::clone::Clone>::clone", "a::Rules::clone"),
            (
                "<a::V<fn() -> b::C> as d::E<F>>::g",
                "a::V<fn() -> b::C>::g",
            ),
            ("<[T] as a::B>::c::{closure}", "[T]::c"),
            ("<a::Rules>::load", "<a::Rules>::load"),
            ("<broken", "<broken"),
            ("", ""),
        ] {
            assert_eq!(written(function), expected);
        }
    }
}
