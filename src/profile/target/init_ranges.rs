//! Code in which a lazily made value is being made.
//!
//! What a `LazyLock` allocates belongs to everyone, not to the task that came first; what the
//! first use of a thread-local allocates belongs to that thread-local. The recorder tells both by
//! a return address on the stack, so a range must be code that is on the stack only while the
//! initialiser runs: `Once::call`, not `LazyLock::deref`, whose fast path is everywhere.
//!
//! std keeps its slow paths out of line and not generic, so release builds have them as symbols.
//! Where link-time optimisation has inlined them, debug info still says which instructions they
//! became. With neither, these initialisers are not known; the walk finds such values by who
//! holds them.

use gimli::{AttributeValue, DebugInfoOffset, UnitOffset};

use super::debug_info::{Dwarf, Slice};
use super::{DebugInfo, Symbols, names};
use crate::wire::{InitKind, InitRange};

type Unit = gimli::Unit<Slice>;

/// Ranges of all functions and inlined instances, sorted by start, none within another of its
/// own kind.
pub(super) fn find(symbols: &Symbols, debug_info: Option<&DebugInfo>) -> Vec<InitRange> {
    let mut ranges = Vec::new();
    for symbol in symbols.functions() {
        if symbol.size > 0
            && let Some(kind) = kind_of_symbol(symbol.name)
        {
            ranges.push(range(
                symbol.svma,
                symbol.svma.saturating_add(symbol.size),
                kind,
            ));
        }
    }
    if let Some(info) = debug_info {
        inlined(info.dwarf(), &mut ranges);
    }
    merged(ranges)
}

fn range(start: u64, end: u64, kind: InitKind) -> InitRange {
    InitRange {
        start,
        end,
        kind: kind as u32,
        _pad: 0,
    }
}

/// Sorted; ranges of one kind that overlap become one.
fn merged(mut ranges: Vec<InitRange>) -> Vec<InitRange> {
    ranges.sort_by_key(|range| (range.kind, range.start, range.end));
    let mut out: Vec<InitRange> = Vec::with_capacity(ranges.len());
    for next in ranges {
        match out.last_mut() {
            Some(last) if last.kind == next.kind && next.start <= last.end => {
                last.end = last.end.max(next.end);
            }
            _ => out.push(next),
        }
    }
    out.sort_by_key(|range| (range.start, range.end));
    out
}

/// Demangling half a million names takes longer than the rest; most can't be meant.
fn kind_of_symbol(symbol: &str) -> Option<InitKind> {
    let hints = ["nce", "azy", "nitialize"];
    if !hints.iter().any(|hint| symbol.contains(hint)) {
        return None;
    }
    kind_of(&names::spelled(&names::demangle(symbol).0))
}

/// Is a function of this name on the stack exactly while an initialiser runs?
fn kind_of(name: &str) -> Option<InitKind> {
    let path: Vec<&str> = names::segments(name)
        .into_iter()
        .map(|segment| segment.split('<').next().unwrap_or_default())
        .collect();
    let (first, last) = (*path.first()?, *path.last()?);
    let owner = path.len().checked_sub(2).map(|at| path[at])?;
    let through = |segment: &str| path.contains(&segment);
    let shared = match first {
        "std" => match owner {
            "Once" => matches!(last, "call" | "call_inner") && through("once"),
            "OnceLock" => last == "initialize",
            "LazyLock" => last == "force",
            _ => false,
        },
        "once_cell" => {
            (through("imp")
                && matches!(
                    last,
                    "initialize" | "initialize_or_wait" | "initialize_inner"
                ))
                || (through("race") && matches!(last, "get_or_init" | "get_or_try_init" | "init"))
        }
        "parking_lot" => owner == "Once" && last == "call_once_slow",
        "spin" => owner == "Once" && last == "try_call_once_slow",
        "lazy_static" => through("lazy") && owner == "Lazy" && last == "get",
        "crossbeam_utils" => owner == "OnceLock" && last == "initialize",
        // The future that makes the value: polled only until it is made.
        "tokio" => {
            last.starts_with('{')
                && through("once_cell")
                && matches!(owner, "get_or_init" | "get_or_try_init")
        }
        _ => false,
    };
    if shared {
        return Some(InitKind::Shared);
    }
    let thread_local = first == "std"
        && (through("thread_local") || (through("thread") && through("local")))
        // A constant thread-local only registers its destructor.
        && !through("eager")
        && matches!(last, "initialize" | "get_or_init_slow" | "try_initialize");
    thread_local.then_some(InitKind::ThreadLocal)
}

/// Adds the ranges of inlined instances.
fn inlined(dwarf: &Dwarf, ranges: &mut Vec<InitRange>) {
    let mut headers = dwarf.units();
    let mut units = Vec::new();
    while let Ok(Some(header)) = headers.next() {
        units.extend(dwarf.unit(header));
    }
    let mut meant = std::collections::HashMap::new();
    for unit in &units {
        abstract_functions(dwarf, unit, &mut meant);
    }
    if meant.is_empty() {
        return;
    }
    for unit in &units {
        instances(dwarf, unit, &meant, ranges);
    }
}

type Meant = std::collections::HashMap<usize, InitKind>;

/// Functions of the wanted names that are inlined somewhere, by offset in the section.
fn abstract_functions(dwarf: &Dwarf, unit: &Unit, meant: &mut Meant) -> Option<()> {
    let start = unit.header.debug_info_offset()?.0;
    each(unit, gimli::DW_TAG_subprogram, |at, attributes| {
        let mut kind = None;
        let mut is_inlined = false;
        for attribute in attributes {
            match attribute.name() {
                gimli::DW_AT_inline => is_inlined = true,
                gimli::DW_AT_linkage_name => {
                    let name = dwarf.attr_string(unit, attribute.value()).ok();
                    kind = name
                        .and_then(|name| std::str::from_utf8(name.slice()).ok())
                        .and_then(kind_of_symbol);
                }
                _ => {}
            }
        }
        if is_inlined && let Some(kind) = kind {
            meant.insert(start + at.0, kind);
        }
    })
}

fn instances(dwarf: &Dwarf, unit: &Unit, meant: &Meant, ranges: &mut Vec<InitRange>) -> Option<()> {
    let start = unit.header.debug_info_offset()?.0;
    each(unit, gimli::DW_TAG_inlined_subroutine, |at, attributes| {
        let origin = attributes
            .iter()
            .find(|attribute| attribute.name() == gimli::DW_AT_abstract_origin)
            .and_then(|attribute| match attribute.value() {
                AttributeValue::UnitRef(offset) => start.checked_add(offset.0),
                AttributeValue::DebugInfoRef(DebugInfoOffset(at)) => Some(at),
                _ => None,
            });
        let Some(kind) = origin.and_then(|origin| meant.get(&origin)) else {
            return;
        };
        let Ok(entry) = unit.entry(at) else {
            return;
        };
        let Ok(mut parts) = dwarf.die_ranges(unit, &entry) else {
            return;
        };
        while let Ok(Some(part)) = parts.next() {
            // Functions that the linker dropped keep their entries, at address 0.
            if part.begin > 0 && part.begin < part.end {
                ranges.push(range(part.begin, part.end, *kind));
            }
        }
    })
}

/// Calls `f` with the attributes of each entry of one kind. Other entries are skipped over.
fn each(
    unit: &Unit,
    tag: gimli::DwTag,
    mut f: impl FnMut(UnitOffset, &[gimli::Attribute<Slice>]),
) -> Option<()> {
    let mut entries = unit.entries_raw(None).ok()?;
    let mut attributes = Vec::new();
    while !entries.is_empty() {
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation().ok()? else {
            continue;
        };
        if abbreviation.tag() == tag {
            attributes.clear();
            for specification in abbreviation.attributes() {
                attributes.push(entries.read_attribute(*specification).ok()?);
            }
            f(offset, &attributes);
        } else {
            entries.skip_attributes(abbreviation.attributes()).ok()?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialisers_are_known_by_name() {
        let shared = [
            "std::sys::sync::once::futex::Once::call",
            "std::sys_common::once::futex::Once::call",
            "std::sync::once::Once::call_inner",
            "std::sync::once_lock::OnceLock<T>::initialize",
            "std::sync::lazy_lock::LazyLock<T,F>::force",
            "once_cell::imp::initialize_or_wait",
            "once_cell::imp::OnceCell<T>::initialize",
            "parking_lot::once::Once::call_once_slow",
            "lazy_static::lazy::Lazy<T>::get",
            "tokio::sync::once_cell::OnceCell<T>::get_or_init::{closure}",
        ];
        for name in shared {
            assert_eq!(kind_of(name), Some(InitKind::Shared), "{name}");
        }
        let thread_local = [
            "std::sys::thread_local::native::lazy::Storage<T,D>::get_or_init_slow",
            "std::sys::thread_local::native::lazy::Storage<T,D>::initialize",
            "std::sys::common::thread_local::fast_local::Key<T>::try_initialize",
            "std::thread::local::fast::Key<T>::try_initialize",
        ];
        for name in thread_local {
            assert_eq!(kind_of(name), Some(InitKind::ThreadLocal), "{name}");
        }
        let neither = [
            "std::sync::once::Once::call_once",
            "std::sync::once::Once::call_once_force::{closure}",
            "core::cell::once::OnceCell<T>::try_init",
            "my::Once::call",
            "std::sys::thread_local::native::eager::Storage<T>::initialize",
            "tokio::sync::once_cell::OnceCell<T>::get",
            "x",
            "",
        ];
        for name in neither {
            assert_eq!(kind_of(name), None, "{name}");
        }
    }

    #[test]
    fn overlapping_ranges_become_one() {
        let shared = |start, end| range(start, end, InitKind::Shared);
        let local = |start, end| range(start, end, InitKind::ThreadLocal);
        let out = merged(vec![
            shared(10, 20),
            shared(15, 18),
            local(12, 14),
            shared(20, 25),
        ]);
        assert_eq!(out, [shared(10, 25), local(12, 14)]);
    }
}
