//! The offset of the task id, from the description of the struct in the debug info.
//!
//! The variable is not the struct itself but std's storage for a thread-local, with the struct
//! somewhere in it, at an offset that is again the compiler's choice. So the variable's type is
//! searched for a struct of tokio that has a member `current_task_id`, adding offsets on the way.

use gimli::{AttributeValue, DebugInfoOffset, UnitOffset};

use super::{Context, Field};
use crate::profile::target::DebugInfo;
use crate::profile::target::debug_info::{Dwarf, Slice};

type Unit = gimli::Unit<Slice>;
type Entry = gimli::DebuggingInformationEntry<Slice>;

/// Members are followed so deep: storage, cell, value, context.
const DEEPEST: usize = 6;

/// For each context the field.
pub(super) fn fields(info: &DebugInfo, contexts: &[Context<'_>]) -> Vec<Option<Field>> {
    let mut found = vec![None; contexts.len()];
    let dwarf = info.dwarf();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        let of_tokio = unit
            .name
            .is_some_and(|name| memchr::memmem::find(name.slice(), b"tokio").is_some());
        if of_tokio {
            search(dwarf, &unit, contexts, &mut found);
        }
    }
    found
}

fn search(dwarf: &Dwarf, unit: &Unit, contexts: &[Context<'_>], found: &mut [Option<Field>]) {
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if entry.tag() != gimli::DW_TAG_variable {
            continue;
        }
        let Some(name) = linkage_name(dwarf, unit, entry) else {
            continue;
        };
        let Some(at) = contexts
            .iter()
            .position(|c| is_symbol(name.slice(), c.symbol))
        else {
            continue;
        };
        let context = &contexts[at];
        let place = entry
            .attr_value(gimli::DW_AT_type)
            .and_then(|value| in_unit(unit, value))
            .and_then(|kind| place_of_id(dwarf, unit, kind, 0));
        let field = place.map(|(offset, words)| {
            let start = context.offset.wrapping_add(offset as i64);
            let present = (words == 2).then_some(start);
            Field {
                id: start.wrapping_add(8 * (words as i64 - 1)),
                present,
            }
        });
        found[at] = field.filter(|field| context.holds_word(field.id));
    }
}

fn linkage_name(dwarf: &Dwarf, unit: &Unit, entry: &Entry) -> Option<Slice> {
    let value = entry.attr_value(gimli::DW_AT_linkage_name)?;
    dwarf.attr_string(unit, value).ok()
}

/// LLVM may have renamed the symbol when it was moved between modules.
fn is_symbol(linkage: &[u8], symbol: &str) -> bool {
    let bare = symbol.split(".llvm.").next().unwrap_or(symbol);
    linkage == bare.as_bytes()
}

fn in_unit(unit: &Unit, value: AttributeValue<Slice>) -> Option<UnitOffset> {
    match value {
        AttributeValue::UnitRef(offset) => Some(offset),
        AttributeValue::DebugInfoRef(DebugInfoOffset(at)) => {
            let start = unit.header.debug_info_offset()?.0;
            Some(UnitOffset(at.checked_sub(start)?))
        }
        _ => None,
    }
}

/// Where in a value of this type the field `current_task_id` is, and how many words it has.
fn place_of_id(dwarf: &Dwarf, unit: &Unit, kind: UnitOffset, depth: usize) -> Option<(u64, u64)> {
    if depth > DEEPEST {
        return None;
    }
    let mut tree = unit.entries_tree(Some(kind)).ok()?;
    let mut children = tree.root().ok()?.children();
    let mut inner: Vec<(u64, UnitOffset)> = Vec::new();
    while let Ok(Some(child)) = children.next() {
        let entry = child.entry();
        if entry.tag() != gimli::DW_TAG_member {
            continue;
        }
        let offset = entry
            .attr_value(gimli::DW_AT_data_member_location)?
            .udata_value()?;
        let kind = entry
            .attr_value(gimli::DW_AT_type)
            .and_then(|value| in_unit(unit, value))?;
        let name = entry.attr_value(gimli::DW_AT_name);
        let name = name.and_then(|value| dwarf.attr_string(unit, value).ok());
        if name.is_some_and(|name| name.slice() == b"current_task_id") {
            // An `Option` without a niche keeps the id in a second word.
            let words = size_of_type(unit, kind)? / 8;
            return matches!(words, 1 | 2).then_some((offset, words));
        }
        inner.push((offset, kind));
    }
    inner.into_iter().find_map(|(offset, kind)| {
        let (inner, words) = place_of_id(dwarf, unit, kind, depth + 1)?;
        Some((offset.checked_add(inner)?, words))
    })
}

fn size_of_type(unit: &Unit, kind: UnitOffset) -> Option<u64> {
    let entry = unit.entry(kind).ok()?;
    entry.attr_value(gimli::DW_AT_byte_size)?.udata_value()
}
