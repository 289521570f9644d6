//! What every analysis asks of a profile: the frames of a stack, the site of a context, sums.

use super::{ContextId, FrameId, NodeId, Origin, Owner, OwnerKind, Profile, Spread, StringId};
use crate::wire::NodeFlags;
use serde::{Deserialize, Serialize};

/// The innermost frame of the program's own crates, and the innermost library frame below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Site {
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub library: Option<String>,
}

impl Profile {
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id.index()).map_or("", String::as_str)
    }

    pub fn function(&self, frame: FrameId) -> &str {
        self.text(self.frames.function[frame.index()])
    }

    /// Frames from the innermost outwards, those inlined included.
    pub fn frames_outwards(&self, node: NodeId) -> impl Iterator<Item = FrameId> + '_ {
        self.nodes_outwards(node).flat_map(|node| {
            let first = self.nodes.first_frame[node.index()];
            let count = self.nodes.frame_count[node.index()];
            (first..first + count).rev().map(FrameId)
        })
    }

    /// The node and its ancestors, without the root.
    pub fn nodes_outwards(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let start = (node.0 != 0).then_some(node);
        std::iter::successors(start, |node| {
            let parent = self.nodes.parent[node.index()];
            (parent.0 != 0).then_some(parent)
        })
    }

    /// Made by a `OnceLock`-like initialiser: the block belongs to all.
    pub fn is_shared(&self, context: ContextId) -> bool {
        let node = self.contexts.node[context.index()];
        self.nodes.flags[node.index()] & NodeFlags::SHARED_INIT != 0
    }

    pub fn context_count(&self) -> usize {
        self.contexts.node.len()
    }

    pub fn context_ids(&self) -> impl Iterator<Item = ContextId> {
        (0..self.contexts.node.len() as u32).map(ContextId)
    }

    /// The site of a stack.
    pub fn site(&self, node: NodeId) -> Site {
        self.site_of_stack(self.frames_outwards(node))
    }

    /// The site of a stack, innermost frame first.
    pub fn site_of_stack(&self, stack: impl Iterator<Item = FrameId>) -> Site {
        let mut frames: Vec<FrameId> = stack.collect();
        frames.reverse();
        let found = frames
            .into_iter()
            .fold(SiteSearch::default(), |search, frame| {
                search.step(self, frame)
            });
        let library = found.library.map(|id| self.text(id).to_owned());
        match found.frame() {
            Some(frame) => self.site_of(frame, library),
            None => Site {
                function: "[unknown]".to_owned(),
                ..Site::default()
            },
        }
    }

    fn site_of(&self, frame: FrameId, library: Option<String>) -> Site {
        let at = frame.index();
        let file = self.text(self.frames.file[at]);
        let line = self.frames.line[at];
        Site {
            function: self.function(frame).to_owned(),
            file: (!file.is_empty()).then(|| file.to_owned()),
            line: (line != 0).then_some(line),
            library,
        }
    }
}

/// What the outer frames of a stack have to say about its site, one step for each frame
/// inwards.
///
/// Where no frame is the program's own, another stands in: a thread begins in libc and std,
/// which says nothing, and ends in the allocator, which says less. So, as far as there is one:
/// the outermost frame of a library; of C code that Rust calls; of the runtime; of std; else the
/// innermost frame.
#[derive(Clone, Copy, Default)]
pub struct SiteSearch {
    own: Option<FrameId>,
    /// Innermost library more inner than `own`.
    pub library: Option<StringId>,
    outermost: Option<FrameId>,
    foreign: Option<FrameId>,
    runtime: Option<FrameId>,
    std: Option<FrameId>,
    innermost: Option<FrameId>,
}

impl SiteSearch {
    /// With the next frame inwards.
    pub fn step(mut self, profile: &Profile, frame: FrameId) -> SiteSearch {
        let at = frame.index();
        let origin = profile.frames.origin[at];
        let in_rust = self.std.or(self.runtime).or(self.outermost).is_some();
        self.innermost = Some(frame);
        match origin {
            Origin::Own => {
                self.own = Some(frame);
                self.library = None;
                return self;
            }
            Origin::Library => self.outermost = self.outermost.or(Some(frame)),
            Origin::Foreign if in_rust => self.foreign = self.foreign.or(Some(frame)),
            Origin::Runtime => self.runtime = self.runtime.or(Some(frame)),
            // `main` and `_start` are not in a crate.
            Origin::Std if profile.function(frame).contains("::") => {
                self.std = self.std.or(Some(frame));
            }
            Origin::Foreign | Origin::Std | Origin::Unknown => {}
        }
        let library = profile.frames.library[at];
        if !matches!(origin, Origin::Std | Origin::Unknown) && !profile.text(library).is_empty() {
            self.library = Some(library);
        }
        self
    }

    /// The frame that is the site, or stands in for it.
    pub fn frame(&self) -> Option<FrameId> {
        self.own
            .or(self.outermost)
            .or(self.foreign)
            .or(self.runtime)
            .or(self.std)
            .or(self.innermost)
    }
}

impl Owner {
    /// Shown among the tasks; the runtime's own loops are threads to the reader.
    pub fn is_task(&self) -> bool {
        self.kind == OwnerKind::Task && !self.runtime_own
    }
}

impl Spread {
    /// From values in any order.
    pub fn of(mut values: Vec<u64>) -> Spread {
        values.sort_unstable();
        let mut spread: Vec<(u64, u64)> = Vec::new();
        for value in values {
            match spread.last_mut() {
                Some((last, count)) if *last == value => *count += 1,
                _ => spread.push((value, 1)),
            }
        }
        Spread(spread)
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    pub fn sum(&self) -> u64 {
        self.0.iter().map(|(value, count)| value * count).sum()
    }

    pub fn max(&self) -> u64 {
        self.0.last().map_or(0, |(value, _)| *value)
    }

    pub fn mean(&self) -> f64 {
        let count = self.count();
        if count == 0 {
            0.0
        } else {
            self.sum() as f64 / count as f64
        }
    }
}

/// The value below or at which `share` (0 to 1) of the values lie; 0 if there are none.
pub fn percentile(spread: &Spread, share: f64) -> u64 {
    let rank = (share * spread.count() as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (value, count) in &spread.0 {
        seen += count;
        if seen >= rank {
            return *value;
        }
    }
    spread.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occur() {
        let spread = Spread::of((1..=100).rev().collect());
        assert_eq!(percentile(&spread, 0.5), 50);
        assert_eq!(percentile(&spread, 0.99), 99);
        assert_eq!(percentile(&spread, 1.0), 100);
        assert_eq!(percentile(&Spread::default(), 0.5), 0);
    }
}
