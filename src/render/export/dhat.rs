//! DHAT's JSON, version 2, for its viewer (`dh_view.html`).
//!
//! The viewer wants lifetimes beside live bytes, or neither. We have the bytes at the peak and at
//! the end, exactly, and no lifetimes: `tl` is left out, which its checks allow and which it
//! shows as "n/a"-like instead of a false zero. A location's own maximum is not recorded either;
//! `mb` is what it is known to have reached. `mode` says both. A repeated location is an error to
//! the viewer, so stacks are merged by the names of their frames.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::profile::{FrameId, NodeId, Profile};

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "dhatFileVersion")]
    version: u32,
    mode: String,
    verb: &'static str,
    bklt: bool,
    bkacc: bool,
    tu: &'static str,
    #[serde(rename = "Mtu")]
    mtu: &'static str,
    tuth: u64,
    cmd: String,
    pid: i32,
    tg: u64,
    te: u64,
    pps: Vec<Point>,
    ftbl: Vec<&'a str>,
}

/// A program point: total, at the peak (g), at the end (e), and largest known (m).
#[derive(Serialize, Default)]
struct Point {
    tb: u64,
    tbk: u64,
    mb: u64,
    mbk: u64,
    gb: u64,
    gbk: u64,
    eb: u64,
    ebk: u64,
    fs: Vec<u32>,
}

pub fn file(profile: &Profile) -> serde_json::Result<Vec<u8>> {
    let mut names = Names::new(profile);
    let mut points: BTreeMap<Vec<u32>, Point> = BTreeMap::new();
    let contexts = &profile.contexts;
    for context in profile.context_ids() {
        let at = context.index();
        let stack = names.stack(contexts.node[at]);
        let point = points.entry(stack).or_default();
        point.tb += contexts.allocated_bytes[at];
        point.tbk += contexts.allocations[at];
        point.gb += contexts.peak_bytes[at];
        point.gbk += contexts.peak_blocks[at];
        point.eb += contexts.live_bytes[at];
        point.ebk += contexts.live_blocks[at];
    }
    let program = &profile.program;
    let micros = |seconds: f64| (seconds.max(0.0) * 1e6) as u64;
    let file = File {
        version: 2,
        mode: "heap (taskheap: lifetimes not recorded; max is a lower bound)".to_owned(),
        verb: "Allocated",
        bklt: true,
        bkacc: false,
        tu: "µs",
        mtu: "s",
        tuth: 0,
        cmd: std::iter::once(&program.path)
            .chain(&program.args)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" "),
        pid: program.pid,
        tg: micros(profile.totals.peak_at_s),
        te: micros(program.duration_s).max(micros(profile.totals.peak_at_s)),
        pps: points.into_iter().map(|(fs, point)| point.at(fs)).collect(),
        ftbl: std::iter::once("[root]")
            .chain(names.table.iter().map(String::as_str))
            .collect(),
    };
    serde_json::to_vec_pretty(&file)
}

impl Point {
    fn at(mut self, fs: Vec<u32>) -> Point {
        (self.mb, self.mbk) = (self.gb.max(self.eb), self.gbk.max(self.ebk));
        self.fs = fs;
        self
    }
}

/// Frames by their text: number 0 is the viewer's root.
struct Names<'p> {
    profile: &'p Profile,
    of_frame: Vec<Option<u32>>,
    numbers: HashMap<String, u32>,
    table: Vec<String>,
}

impl<'p> Names<'p> {
    fn new(profile: &'p Profile) -> Names<'p> {
        Names {
            profile,
            of_frame: vec![None; profile.frames.function.len()],
            numbers: HashMap::new(),
            table: Vec::new(),
        }
    }

    /// Innermost first.
    fn stack(&mut self, node: NodeId) -> Vec<u32> {
        let frames: Vec<FrameId> = self.profile.frames_outwards(node).collect();
        match frames.is_empty() {
            true => vec![self.named("[no stack]".to_owned())],
            false => frames.into_iter().map(|frame| self.number(frame)).collect(),
        }
    }

    fn number(&mut self, frame: FrameId) -> u32 {
        let at = frame.index();
        if let Some(number) = self.of_frame[at] {
            return number;
        }
        let profile = self.profile;
        let function = profile.function(frame);
        let file = profile.text(profile.frames.file[at]);
        let library = profile.text(profile.frames.library[at]);
        let text = match (file, profile.frames.line[at], library) {
            ("", _, "") => function.to_owned(),
            ("", _, library) => format!("{function} (in {library})"),
            (file, 0, _) => format!("{function} ({file})"),
            (file, line, _) => format!("{function} ({file}:{line})"),
        };
        let number = self.named(text);
        self.of_frame[at] = Some(number);
        number
    }

    fn named(&mut self, text: String) -> u32 {
        *self.numbers.entry(text).or_insert_with_key(|text| {
            self.table.push(text.clone());
            self.table.len() as u32
        })
    }
}
