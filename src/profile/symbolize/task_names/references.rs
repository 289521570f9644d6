//! Which functions mention a vtable: those that make the cells.
//!
//! Where all functions of two task types were merged, `Cell::new` still differs, since each
//! writes its own vtable's address. Debug info (or a v0 name) says for which type it is.

use std::collections::HashMap;

use object::{Object, ObjectSection, SectionKind};

use super::super::module::Module;
use super::evidence;

/// The type for which cells with each of these vtables are made, where it can be told.
pub(super) fn types(module: &Module, vtables: &[u64]) -> HashMap<u64, String> {
    let mut found: HashMap<u64, Vec<String>> = HashMap::new();
    let (Some(low), Some(high)) = (vtables.iter().min(), vtables.iter().max()) else {
        return HashMap::new();
    };
    for section in module.image.elf().sections() {
        if section.kind() != SectionKind::Text {
            continue;
        }
        let code = section.data().unwrap_or_default();
        for (at, bytes) in code.windows(4).enumerate() {
            // `lea register, [rip + displacement]`: the displacement ends the instruction.
            let displacement = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let end = section.address().wrapping_add(at as u64 + 4);
            let target = end.wrapping_add_signed(i64::from(displacement));
            if target < *low || target > *high || !vtables.contains(&target) {
                continue;
            }
            let place = end - 1;
            let Some(function) = module.symbols.containing(place) else {
                continue;
            };
            let types = evidence::named_at(module, place, function.svma);
            found.entry(target).or_default().extend(types);
        }
    }
    found
        .into_iter()
        .filter_map(|(vtable, mut types)| {
            types.sort();
            types.dedup();
            (types.len() == 1).then(|| (vtable, types.remove(0)))
        })
        .collect()
}
