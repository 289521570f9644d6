//! pprof's protocol buffer, gzipped: what `go tool pprof`, Pyroscope and Grafana read.
//!
//! A sample stands for one context: its stack, the labels `task`, `thread` or `shared`, and all
//! figures at once. A location is a return address; the functions inlined there are its lines,
//! innermost first, so that totals per function come out as the tool counts them.

use std::collections::HashMap;
use std::io::{self, Write};

use prost::Message;

use crate::profile::{NodeId, OwnerKind, Profile};

/// The messages of pprof's `profile.proto`, with its field numbers.
#[derive(Clone, PartialEq, Message)]
pub struct PprofProfile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub str: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
}

/// Name and unit of each figure, in the order of [`Sample::value`]. The first four are those of
/// Go's heap profiles, so that what people have set up for those fits.
pub const SAMPLE_TYPES: [(&str, &str); 7] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
    ("temporary_objects", "count"),
];
const DEFAULT_TYPE: usize = 5;

/// The file.
pub fn file(profile: &Profile) -> io::Result<Vec<u8>> {
    let message = message(profile).encode_to_vec();
    let mut out = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::default());
    out.write_all(&message)?;
    out.finish()
}

/// The message in it.
pub fn message(profile: &Profile) -> PprofProfile {
    let mut maker = Maker::new(profile);
    let sample_type = SAMPLE_TYPES.map(|(name, unit)| ValueType {
        r#type: maker.string(name),
        unit: maker.string(unit),
    });
    let sample = profile
        .context_ids()
        .filter_map(|id| maker.sample(id.index()))
        .collect();
    let program = &profile.program;
    let mapping = maker.mapping();
    let comment = maker.string("made by taskheap");
    let default_sample_type = sample_type[DEFAULT_TYPE].r#type;
    PprofProfile {
        sample_type: sample_type.to_vec(),
        sample,
        mapping: vec![mapping],
        location: maker.locations,
        function: maker.functions,
        string_table: maker.strings,
        time_nanos: (program.started_unix_s as i64).saturating_mul(1_000_000_000),
        duration_nanos: (program.duration_s * 1e9) as i64,
        comment: vec![comment],
        default_sample_type,
    }
}

struct Maker<'p> {
    profile: &'p Profile,
    strings: Vec<String>,
    string_numbers: HashMap<String, i64>,
    locations: Vec<Location>,
    /// By first frame and count.
    location_numbers: HashMap<(u32, u32), u64>,
    functions: Vec<Function>,
    /// By name and file.
    function_numbers: HashMap<(i64, i64), u64>,
}

impl<'p> Maker<'p> {
    fn new(profile: &'p Profile) -> Maker<'p> {
        Maker {
            profile,
            strings: vec![String::new()],
            string_numbers: HashMap::from([(String::new(), 0)]),
            locations: Vec::new(),
            location_numbers: HashMap::new(),
            functions: Vec::new(),
            function_numbers: HashMap::new(),
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(number) = self.string_numbers.get(text) {
            return *number;
        }
        let number = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.string_numbers.insert(text.to_owned(), number);
        number
    }

    /// None if the context says nothing.
    fn sample(&mut self, at: usize) -> Option<Sample> {
        let contexts = &self.profile.contexts;
        let value = [
            contexts.allocations[at],
            contexts.allocated_bytes[at],
            contexts.live_blocks[at],
            contexts.live_bytes[at],
            contexts.peak_blocks[at],
            contexts.peak_bytes[at],
            contexts.temporary[at],
        ];
        if value == [0; 7] {
            return None;
        }
        let location_id = self.stack(contexts.node[at]);
        let (key, name) = self.label(at);
        let label = Label {
            key: self.string(key),
            str: self.string(&name),
        };
        Some(Sample {
            location_id,
            value: value.map(|value| value as i64).to_vec(),
            label: vec![label],
        })
    }

    fn label(&self, at: usize) -> (&'static str, String) {
        let owner = &self.profile.owners[self.profile.contexts.owner[at].index()];
        let name = owner.name.clone();
        match owner.kind {
            _ if self.profile.is_shared(crate::profile::ContextId(at as u32)) => {
                ("shared", "first touched by ".to_owned() + &name)
            }
            _ if owner.is_task() => ("task", name),
            OwnerKind::Task | OwnerKind::Thread => ("thread", name),
            OwnerKind::Scope => ("scope", name),
            OwnerKind::Unknown => ("thread", "[unknown]".to_owned()),
        }
    }

    fn stack(&mut self, node: NodeId) -> Vec<u64> {
        let nodes: Vec<NodeId> = self.profile.nodes_outwards(node).collect();
        nodes
            .into_iter()
            .filter_map(|node| self.location(node))
            .collect()
    }

    fn location(&mut self, node: NodeId) -> Option<u64> {
        let first = self.profile.nodes.first_frame[node.index()];
        let count = self.profile.nodes.frame_count[node.index()];
        if count == 0 {
            return None;
        }
        if let Some(number) = self.location_numbers.get(&(first, count)) {
            return Some(*number);
        }
        let line = (first..first + count)
            .rev()
            .map(|at| self.line(at as usize))
            .collect();
        let id = self.locations.len() as u64 + 1;
        self.locations.push(Location {
            id,
            mapping_id: 1,
            // Real addresses are not kept; the tool wants them to differ.
            address: id,
            line,
        });
        self.location_numbers.insert((first, count), id);
        Some(id)
    }

    fn line(&mut self, frame: usize) -> Line {
        let frames = &self.profile.frames;
        let name = self.string(self.profile.text(frames.function[frame]));
        let filename = self.string(self.profile.text(frames.file[frame]));
        let next = self.functions.len() as u64 + 1;
        let id = *self
            .function_numbers
            .entry((name, filename))
            .or_insert(next);
        if id == next {
            self.functions.push(Function {
                id,
                name,
                // The tool takes a name that equals its system name for mangled, and cuts what
                // is in `<>` as C++'s templates.
                system_name: 0,
                filename,
            });
        }
        Line {
            function_id: id,
            line: i64::from(frames.line[frame]),
        }
    }

    fn mapping(&mut self) -> Mapping {
        let filename = self.string(&self.profile.program.path);
        Mapping {
            id: 1,
            memory_start: 0,
            memory_limit: self.locations.len() as u64 + 2,
            filename,
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        }
    }
}
