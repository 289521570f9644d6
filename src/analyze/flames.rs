//! Stacks with one figure each, named as a person reads them: what flamegraphs draw.
//!
//! A tokio stack is a few lines of the program's own between dozens of frames that poll, unwrap
//! and allocate. Kept, they hide the async call chain; dropped altogether, they take with them
//! what the program asked for (`to_vec`, `String::clone`). Rule: frames of the runtime and of std
//! are left out, except the first one below the last frame that stays: what the program's code
//! called. So are the foreign frames (libc's start) above the first that stays. `async fn`s lose
//! their `{{closure}}`. A structure of which a walk found copies is drawn once, under a frame that
//! says how many. Nothing is lost in the figures: every byte stands on some stack.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{moment, statics};
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

/// A tree of frames with the figure of each: what ended there. Two figures each, since two
/// profiles can be laid over each other; of one profile, the second.
#[derive(Clone, Debug)]
pub struct Flames {
    /// Parent and name. Node 0 is above all stacks; a parent comes before its children.
    nodes: Vec<(u32, String)>,
    by_name: HashMap<(u32, String), u32>,
    own: Vec<[u64; 2]>,
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

/// The copies that are worth a frame in a picture: a tenth of the heap. Only of a walk that was
/// near the peak: a number of another moment would be a wrong one.
fn copies(profile: &Profile) -> HashMap<NodeId, u64> {
    let mut copies: HashMap<NodeId, u64> = HashMap::new();
    let walk = moment::choose(profile).filter(|walk| moment::is_near_peak(profile, walk));
    if let Some(walk) = walk {
        let least = walk.live_bytes / 10;
        for group in walk.copies.iter().filter(|group| group.waste_bytes > least) {
            if let Some(node) = group.node {
                let most = copies.entry(node).or_default();
                *most = group.copies.max(*most);
            }
        }
    }
    copies
}

pub fn flames(profile: &Profile, options: &FlameOptions) -> Result<Flames, NoFlames> {
    if options.metric == Metric::Leaked && profile.walks.is_empty() {
        return Err(NoFlames::NoWalk);
    }
    let values = options.metric.values(profile);
    let mut folder = Folder {
        profile,
        whole: options.runtime_frames,
        flames: Flames::default(),
        places: HashMap::new(),
        copies: match options.runtime_frames {
            true => HashMap::new(),
            false => copies(profile),
        },
    };
    for context in profile.context_ids() {
        let value = values[context.index()];
        if value == 0 {
            continue;
        }
        if let Some(root) = root(profile, context, options.by) {
            let root = match root.is_empty() {
                true => 0,
                false => folder.flames.child(0, &root),
            };
            let at = folder.place(root, profile.contexts.node[context.index()]);
            folder.flames.own[at as usize][1] += value;
        }
    }
    match folder.flames.total() {
        0 => Err(NoFlames::Zero),
        _ => Ok(folder.flames),
    }
}

impl Default for Flames {
    fn default() -> Flames {
        Flames {
            nodes: vec![(0, String::new())],
            by_name: HashMap::new(),
            own: vec![[0; 2]],
        }
    }
}

impl Flames {
    pub fn total(&self) -> u64 {
        self.own.iter().map(|own| own[1]).sum()
    }

    /// Of what lies beneath; 0 for one profile.
    pub fn base_total(&self) -> u64 {
        self.own.iter().map(|own| own[0]).sum()
    }

    /// This over a base: its figures become the first of each pair.
    pub fn over(mut self, base: &Flames) -> Flames {
        let mut numbers = vec![0; base.nodes.len()];
        for (at, (parent, name)) in base.nodes.iter().enumerate().skip(1) {
            numbers[at] = self.child(numbers[*parent as usize], name);
        }
        for (at, own) in base.own.iter().enumerate() {
            self.own[numbers[at] as usize][0] += own[1];
        }
        self
    }

    /// Calls back with every stack, outermost frame first, and its figures; stacks that begin
    /// alike follow each other, by name. What is smaller than `least` with all that it called
    /// counts for its caller; an outermost frame has none, and stays.
    pub fn each(&self, least: u64, mut tell: impl FnMut(&[&str], [u64; 2])) {
        let mut own = self.own.clone();
        let mut all = self.own.clone();
        for at in (1..self.nodes.len()).rev() {
            let parent = self.nodes[at].0 as usize;
            let [base, new] = all[at];
            all[parent] = [all[parent][0] + base, all[parent][1] + new];
        }
        let small = |at: usize| self.nodes[at].0 != 0 && all[at][0].max(all[at][1]) < least;
        for at in (1..self.nodes.len()).rev().filter(|at| small(*at)) {
            let parent = self.nodes[at].0 as usize;
            let [base, new] = std::mem::take(&mut own[at]);
            own[parent] = [own[parent][0] + base, own[parent][1] + new];
        }
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for at in (1..self.nodes.len()).filter(|at| !small(*at)) {
            children[self.nodes[at].0 as usize].push(at as u32);
        }
        for list in &mut children {
            // Taken from the end.
            list.sort_by(|a, b| self.name(*b).cmp(self.name(*a)));
        }
        let mut stack: Vec<&str> = Vec::new();
        let mut path = vec![0_u32];
        while let Some(at) = path.last().copied() {
            let own = std::mem::take(&mut own[at as usize]);
            if own != [0, 0] {
                tell(&stack, own);
            }
            match children[at as usize].pop() {
                Some(child) => {
                    path.push(child);
                    stack.push(self.name(child));
                }
                None => {
                    path.pop();
                    stack.pop();
                }
            }
        }
    }

    fn name(&self, at: u32) -> &str {
        &self.nodes[at as usize].1
    }

    fn child(&mut self, parent: u32, name: &str) -> u32 {
        let key = (parent, name.to_owned());
        if let Some(at) = self.by_name.get(&key) {
            return *at;
        }
        let at = self.nodes.len() as u32;
        self.nodes.push(key.clone());
        self.own.push([0; 2]);
        self.by_name.insert(key, at);
        at
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

/// A thread-local whose initialiser has no name.
pub const UNNAMED: &str = "[unnamed thread-local]";

/// The thread-local whose initialiser made it: by the name of its code, else unnamed.
pub fn thread_local(profile: &Profile, context: ContextId) -> Option<String> {
    let node = profile.contexts.node[context.index()];
    if profile.nodes.flags[node.index()] & NodeFlags::THREAD_LOCAL_INIT == 0 {
        return None;
    }
    let name = profile
        .frames_outwards(node)
        .find_map(|frame| statics::initialised(profile.function(frame)));
    Some(name.unwrap_or(UNNAMED).to_owned())
}

/// Leads stacks of the profile to places in the tree.
struct Folder<'p> {
    profile: &'p Profile,
    whole: bool,
    flames: Flames,
    /// By the root under which the stack is drawn, and its node.
    places: HashMap<(u32, NodeId), Place<'p>>,
    /// How often what is made under a node exists.
    copies: HashMap<NodeId, u64>,
}

/// The last frame that stays, and what it called.
#[derive(Clone, Copy)]
struct Place<'p> {
    kept: u32,
    called: Option<&'p str>,
}

impl<'p> Folder<'p> {
    /// Where the stack ends.
    fn place(&mut self, root: u32, node: NodeId) -> u32 {
        let mut missing = Vec::new();
        let mut at = node;
        let mut place = loop {
            if let Some(place) = self.places.get(&(root, at)) {
                break *place;
            }
            if at.0 == 0 {
                break Place {
                    kept: root,
                    called: None,
                };
            }
            missing.push(at);
            at = self.profile.nodes.parent[at.index()];
        };
        for node in missing.into_iter().rev() {
            let first = self.profile.nodes.first_frame[node.index()];
            let count = self.profile.nodes.frame_count[node.index()];
            for frame in first..first + count {
                place = self.step(root, place, FrameId(frame));
            }
            if let Some(copies) = self.copies.get(&node).copied() {
                place = self.multiplied(place, copies);
            }
            self.places.insert((root, node), place);
        }
        match place.called {
            Some(name) => self.child(place.kept, &written(name)),
            None if place.kept == root => self.child(root, "[no stack]"),
            None => place.kept,
        }
    }

    fn step(&mut self, root: u32, place: Place<'p>, frame: FrameId) -> Place<'p> {
        let name = self.profile.function(frame);
        let stays = match self.profile.frames.origin[frame.index()] {
            _ if self.whole => true,
            Origin::Own | Origin::Library | Origin::Unknown => true,
            Origin::Foreign => place.kept != root,
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

    /// One structure and its multiple: a frame of its own, so that what else is made by the
    /// same function stays apart.
    fn multiplied(&mut self, place: Place<'p>, copies: u64) -> Place<'p> {
        let kept = match place.called {
            Some(name) => self.child(place.kept, &written(name)),
            None => place.kept,
        };
        Place {
            kept: self.flames.child(kept, &format!("[{copies} copies]")),
            called: None,
        }
    }

    fn child(&mut self, parent: u32, name: &str) -> u32 {
        // An `async fn` is polled through a closure of the same name.
        if !self.whole && parent != 0 && self.flames.name(parent) == name {
            return parent;
        }
        self.flames.child(parent, name)
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
