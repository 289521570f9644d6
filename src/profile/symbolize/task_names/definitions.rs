//! Where async fns, async blocks and closures are written.
//!
//! Debug info spells a future's type `server::handle::{async_fn_env#0}` and its body
//! `server::handle::{async_fn#0}`. The body's entry has the place, and a symbol name that calls
//! methods by their type (`server::Server::serve`) where the type's path only counts impls
//! (`server::{impl#2}::serve`).

use std::cell::OnceCell;
use std::collections::HashMap;

use crate::profile::target::debug_info::Slice;
use crate::profile::target::names::{self, Language};

use super::super::module::Module;
use super::super::origin;
use super::future_type::split_arguments;

type Unit = gimli::Unit<Slice>;
type Entry = gimli::DebuggingInformationEntry<Slice>;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Definition {
    /// Empty if unknown.
    pub file: String,
    pub line: u32,
    /// The path by symbol name, with the kind of body as its last part.
    pub path: Option<String>,
}

/// Bodies by their path in debug info, without type arguments.
pub(super) struct Definitions {
    bodies: OnceCell<HashMap<String, Definition>>,
}

impl Definitions {
    pub fn of(_module: &Module) -> Definitions {
        Definitions {
            bodies: OnceCell::new(),
        }
    }

    /// The body of a future's or closure's type.
    pub fn find(&self, module: &Module, path: &str) -> Option<Definition> {
        if !path.contains("_env#") {
            return None;
        }
        let bodies = self.bodies.get_or_init(|| scan(module));
        let parts: Vec<String> = names::segments(path)
            .into_iter()
            .map(|part| split_arguments(part).0.replace("_env#", "#"))
            .collect();
        bodies.get(&parts.join("::")).cloned()
    }
}

fn scan(module: &Module) -> HashMap<String, Definition> {
    let mut bodies = HashMap::new();
    let Some((info, _)) = module.entries() else {
        return bodies;
    };
    let mut headers = info.dwarf().units();
    while let Ok(Some(header)) = headers.next() {
        if let Ok(unit) = info.dwarf().unit(header) {
            let _ = scan_unit(info.dwarf(), &unit, &mut bodies);
        }
    }
    bodies
}

fn scan_unit(
    dwarf: &crate::profile::target::debug_info::Dwarf,
    unit: &Unit,
    bodies: &mut HashMap<String, Definition>,
) -> gimli::Result<()> {
    // Names of the entries around the current one, by depth.
    let mut around: Vec<(isize, Slice)> = Vec::new();
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        let depth = entry.depth();
        while around.last().is_some_and(|(of, _)| *of >= depth) {
            around.pop();
        }
        let is_scope = matches!(
            entry.tag(),
            gimli::DW_TAG_namespace | gimli::DW_TAG_structure_type
        );
        let is_function = entry.tag() == gimli::DW_TAG_subprogram;
        if !is_scope && !is_function {
            continue;
        }
        let Some(name) = string(dwarf, unit, entry, gimli::DW_AT_name) else {
            continue;
        };
        if is_function && name.slice().starts_with(b"{") {
            let mut path = String::new();
            for (_, part) in &around {
                path.push_str(split_arguments(&part.to_string_lossy()).0);
                path.push_str("::");
            }
            path.push_str(split_arguments(&name.to_string_lossy()).0);
            bodies
                .entry(path)
                .or_insert_with(|| definition(dwarf, unit, entry, &name.to_string_lossy()));
        }
        around.push((depth, name));
    }
    Ok(())
}

fn definition(
    dwarf: &crate::profile::target::debug_info::Dwarf,
    unit: &Unit,
    entry: &Entry,
    name: &str,
) -> Definition {
    let line = entry
        .attr_value(gimli::DW_AT_decl_line)
        .and_then(|value| value.udata_value());
    let linkage = string(dwarf, unit, entry, gimli::DW_AT_linkage_name);
    let path = linkage.and_then(|linkage| {
        let linkage = linkage.to_string_lossy();
        let (path, language) = names::demangle(&linkage);
        let spelled = names::spelled(&path);
        let base = spelled
            .strip_suffix("::{closure}")
            .filter(|_| language == Language::Rust)?;
        Some(format!("{base}::{}", split_arguments(name).0))
    });
    Definition {
        file: file(dwarf, unit, entry).unwrap_or_default(),
        line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
        path,
    }
}

fn string(
    dwarf: &crate::profile::target::debug_info::Dwarf,
    unit: &Unit,
    entry: &Entry,
    attribute: gimli::DwAt,
) -> Option<Slice> {
    dwarf.attr_string(unit, entry.attr_value(attribute)?).ok()
}

/// The path of DW_AT_decl_file, as a person knows it.
fn file(
    dwarf: &crate::profile::target::debug_info::Dwarf,
    unit: &Unit,
    entry: &Entry,
) -> Option<String> {
    let index = match entry.attr_value(gimli::DW_AT_decl_file)? {
        gimli::AttributeValue::FileIndex(index) => index,
        value => value.udata_value()?,
    };
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let text = |value| {
        dwarf
            .attr_string(unit, value)
            .ok()
            .map(|text| text.to_string_lossy())
    };
    let name = text(file.path_name())?;
    let folder = file.directory(header).and_then(text).unwrap_or_default();
    let build = unit
        .comp_dir
        .map(|folder| folder.to_string_lossy())
        .unwrap_or_default();
    let mut path = String::new();
    for part in [&*build, &*folder, &*name] {
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') && !part.is_empty() {
            path.push('/');
        }
        path.push_str(part);
    }
    Some(origin::shown_path(&path, &build).to_owned())
}
