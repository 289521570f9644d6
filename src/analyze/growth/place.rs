//! Which line makes what grows.
//!
//! A structure of thousands of blocks is made on many lines, and no single one has its bytes. The
//! line that a person looks for is the one that makes the whole: the innermost call under which
//! nearly all of the bytes were allocated. Where no such call is in the program's own code
//! the place is not known, and none is named.

use std::collections::HashMap;

use crate::analyze::sites::SiteTable;
use crate::profile::{FrameId, NodeId, Origin, Profile, Site};

/// So much of the bytes has to be made under one call, in percent.
const NEARLY_ALL: u64 = 90;

/// A line, and the program's own lines that led there, innermost first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    pub site: Site,
    pub called_from: Vec<Site>,
}

/// Of bytes by stack.
pub fn of(profile: &Profile, sites: &SiteTable, parts: &[(NodeId, u64)]) -> Option<Place> {
    let whole: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    let mut under: HashMap<NodeId, u64> = HashMap::new();
    for (node, bytes) in parts {
        for above in profile.nodes_outwards(*node) {
            *under.entry(above).or_default() += bytes;
        }
    }
    // Those that have nearly all lie on one path, and the innermost has the largest number.
    let enough = |bytes: u64| bytes > 0 && bytes >= whole / 100 * NEARLY_ALL;
    let common = under.iter().filter(|(_, bytes)| enough(**bytes));
    let node = common.map(|(node, _)| *node).max()?;
    let own = |frame: &FrameId| profile.frames.origin[frame.index()] == Origin::Own;
    let mut frames = profile.frames_outwards(node).filter(own);
    frames.next()?;
    Some(Place {
        site: sites.get(sites.of_node(node)).clone(),
        called_from: frames.map(|frame| line_of(profile, frame)).collect(),
    })
}

fn line_of(profile: &Profile, frame: FrameId) -> Site {
    let at = frame.index();
    let file = profile.text(profile.frames.file[at]);
    let line = profile.frames.line[at];
    Site {
        function: profile.function(frame).to_owned(),
        file: (!file.is_empty()).then(|| file.to_owned()),
        line: (line != 0).then_some(line),
        library: None,
    }
}
