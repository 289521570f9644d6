//! Names in debug entries that line lookup does not give: rustc's own notation for what a closure
//! is (`{async_fn#0}`), and types with their arguments.
//!
//! An inlined function has its name in an abstract entry, which may be in another unit; entries
//! are followed there. Units are parsed once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use gimli::{AttributeValue, UnitOffset};

use crate::profile::target::DebugInfo;
use crate::profile::target::debug_info::Slice;

type Unit = gimli::Unit<Slice>;
type Header = gimli::UnitHeader<Slice>;

/// An entry is reached over at most so many references.
const MOST_HOPS: usize = 4;

pub(super) struct Entries {
    /// By offset in `.debug_info`.
    headers: Vec<(usize, Header)>,
    units: RefCell<HashMap<usize, Option<Arc<Unit>>>>,
}

impl Entries {
    pub fn of(info: &DebugInfo) -> Entries {
        let mut headers = Vec::new();
        let mut iterator = info.dwarf().units();
        while let Ok(Some(header)) = iterator.next() {
            if let Some(offset) = header.debug_info_offset() {
                headers.push((offset.0, header));
            }
        }
        Entries {
            headers,
            units: RefCell::default(),
        }
    }

    /// The unit that holds this offset of `.debug_info`.
    pub fn unit(&self, info: &DebugInfo, at: usize) -> Option<Arc<Unit>> {
        let after = self.headers.partition_point(|(offset, _)| *offset <= at);
        let (start, header) = self.headers.get(after.checked_sub(1)?)?;
        let mut units = self.units.borrow_mut();
        let unit = units
            .entry(*start)
            .or_insert_with(|| info.dwarf().unit(*header).ok().map(Arc::new));
        unit.clone()
    }

    /// `DW_AT_name` of an entry, or of what it is an instance of.
    pub fn name(&self, info: &DebugInfo, at: usize) -> Option<&'static [u8]> {
        let mut at = at;
        for _ in 0..MOST_HOPS {
            let unit = self.unit(info, at)?;
            let start = unit.header.debug_info_offset()?.0;
            let entry = unit.entry(UnitOffset(at - start)).ok()?;
            if let Some(value) = entry.attr_value(gimli::DW_AT_name) {
                return info
                    .dwarf()
                    .attr_string(&*unit, value)
                    .ok()
                    .map(|name| name.slice());
            }
            let origin = entry
                .attr_value(gimli::DW_AT_abstract_origin)
                .or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
            at = match origin {
                AttributeValue::UnitRef(offset) => start.checked_add(offset.0)?,
                AttributeValue::DebugInfoRef(offset) => offset.0,
                _ => return None,
            };
        }
        None
    }
}
