//! From return addresses to the lines of the program, when a budget has failed.
//!
//! A debug build puts a dozen functions of the standard library between an allocation and the
//! line that wanted it. That line is what a person looks for: the innermost frame whose file is
//! neither the standard library's nor a registry crate's. Stacks with the same line and callers
//! are one site.

use std::collections::HashMap;

use super::figures::Site;
use super::ledger::SiteCounts;
use super::verdict::Metric;

/// Callers of a site that are told.
const CALLERS: usize = 3;

#[derive(Clone, Debug)]
struct Frame {
    function: String,
    file: Option<String>,
    line: Option<u32>,
}

/// The sites of a scope (of all, for none), most of the metric first.
pub fn sites(stacks: &[SiteCounts], group: Option<u32>, metric: Metric) -> Vec<Site> {
    let mut names: HashMap<usize, Vec<Frame>> = HashMap::new();
    let mut found: HashMap<(String, Option<u32>, Vec<String>), Site> = HashMap::new();
    for stack in stacks {
        if group.is_some_and(|group| !stack.groups.contains(&group)) {
            continue;
        }
        let named = site_of(&stack.stack, &mut names);
        let key = (named.function.clone(), named.line, named.callers.clone());
        let site = found.entry(key).or_insert(named);
        site.at_peak += stack.at_peak.0;
        site.at_peak_blocks += stack.at_peak.1;
        site.live += stack.counts.live;
        site.live_blocks += stack.counts.live_blocks;
        site.allocated += stack.counts.allocated;
        site.allocations += stack.counts.allocations;
        site.temporary += stack.counts.temporary;
    }
    let mut sites: Vec<Site> = found.into_values().collect();
    sites.sort_by(|a, b| {
        let size = |site: &Site| (metric.of(site), site.allocated);
        size(b)
            .cmp(&size(a))
            .then_with(|| (&a.function, a.line, &a.callers).cmp(&(&b.function, b.line, &b.callers)))
    });
    sites
}

fn site_of(stack: &[usize], names: &mut HashMap<usize, Vec<Frame>>) -> Site {
    let mut frames = Vec::new();
    for address in stack {
        let known = names.entry(*address).or_insert_with(|| named(*address));
        frames.extend(known.iter().cloned());
    }
    let last = frames.len().saturating_sub(1);
    let own = frames.iter().position(Frame::is_own);
    let foreign = || frames.iter().position(|frame| !frame.is_std());
    let at = own.or_else(foreign).unwrap_or(last);
    let Some(frame) = frames.get(at) else {
        return Site {
            function: "[no stack]".to_owned(),
            ..Site::default()
        };
    };
    let mut callers: Vec<String> = frames[at + 1..]
        .iter()
        .filter(|frame| frame.is_own())
        .map(Frame::place)
        .collect();
    callers.dedup();
    callers.truncate(CALLERS);
    Site {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        callers,
        ..Site::default()
    }
}

/// The functions at a return address, inlined ones first.
fn named(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    // The call is before the address to which it returns.
    let call = address.saturating_sub(1) as *mut std::ffi::c_void;
    backtrace::resolve(call, |symbol| {
        let function = symbol.name().map(|name| format!("{name:#}"));
        frames.push(Frame {
            function: function.unwrap_or_else(|| "[unknown]".to_owned()),
            file: symbol.filename().map(|file| file.display().to_string()),
            line: symbol.lineno(),
        });
    });
    if frames.is_empty() {
        frames.push(Frame {
            function: format!("[{address:#x}]"),
            file: None,
            line: None,
        });
    }
    frames
}

impl Frame {
    fn is_std(&self) -> bool {
        const CRATES: [&str; 5] = ["alloc::", "core::", "std::", "hashbrown::", "__rust"];
        let function = self.function.trim_start_matches('<');
        // The allocator's own wrapper, and what hands measured code on.
        let wrapper = function.starts_with("taskheap::hook::");
        let of_std = CRATES.iter().any(|name| function.starts_with(name));
        let file = self.file.as_deref().unwrap_or_default();
        wrapper || of_std || file.contains("/rustc/") || file.contains("/rustlib/src/")
    }

    fn is_own(&self) -> bool {
        let file = self.file.as_deref().unwrap_or_default();
        let of_registry = file.contains("/registry/src/") || file.contains("/git/checkouts/");
        !self.is_std() && !of_registry && !self.function.starts_with("[")
    }

    fn place(&self) -> String {
        place(&self.function, self.file.as_deref(), self.line)
    }
}

/// `function file:line`; the file as far as it lies in the folder where the test runs.
pub fn place(function: &str, file: Option<&str>, line: Option<u32>) -> String {
    let Some(file) = file else {
        return function.to_owned();
    };
    let here = std::env::current_dir().unwrap_or_default();
    let short = std::path::Path::new(file)
        .strip_prefix(&here)
        .map_or(file.to_owned(), |short| short.display().to_string());
    match line {
        Some(line) => format!("{function} {short}:{line}"),
        None => format!("{function} {short}"),
    }
}
