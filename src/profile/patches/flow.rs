//! Where code can go: the direct branches of a function, and all that some functions reach.
//!
//! Which calls does an allocator make to itself? Neither names (static helpers have plain ones)
//! nor neighbourhood in the file (the linker moves cold parts away) tells. The rule: what entry
//! points reach by direct branches, or by addresses of functions they take, is the allocator. C
//! code reaches the program only through pointers that it was given, so the walk ends at the
//! allocator's edge; it ends at Rust functions too, in case the two were linked as one.

use std::collections::HashSet;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::image::{Function, Image, Slot};

/// A direct branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    pub target: u64,
    /// Address of its signed 32-bit distance, the last four bytes of the instruction; `None` if
    /// the distance is shorter.
    pub field: Option<u64>,
    pub is_call: bool,
}

/// `call [rip + slot]` or `jmp [rip + slot]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotBranch {
    pub svma: u64,
    pub length: usize,
    pub slot: u64,
    pub is_call: bool,
}

/// What one function leads to.
#[derive(Default)]
pub struct Leads {
    pub branches: Vec<Branch>,
    /// Calls and jumps through a slot.
    pub slots: Vec<SlotBranch>,
    /// Addresses of code that are taken.
    pub taken: Vec<u64>,
}

pub fn leads(image: &Image, start: u64, end: u64) -> Leads {
    let mut leads = Leads::default();
    let bytes = image.bytes(start, end);
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if let Some(branch) = direct_branch(&instruction) {
            leads.branches.push(branch);
        } else if instruction.is_ip_rel_memory_operand() {
            let address = instruction.ip_rel_memory_address();
            match instruction.flow_control() {
                FlowControl::IndirectBranch | FlowControl::IndirectCall => {
                    leads.slots.push(SlotBranch {
                        svma: instruction.ip(),
                        length: instruction.len(),
                        slot: address,
                        is_call: instruction.flow_control() == FlowControl::IndirectCall,
                    });
                }
                _ if instruction.mnemonic() == Mnemonic::Lea => leads.taken.push(address),
                _ => {}
            }
        }
    }
    leads
}

pub fn direct_branch(instruction: &Instruction) -> Option<Branch> {
    let is_call = match instruction.flow_control() {
        FlowControl::Call => true,
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => false,
        _ => return None,
    };
    if !instruction.is_call_near() && instruction.near_branch_target() == 0 {
        return None;
    }
    Some(Branch {
        target: instruction.near_branch_target(),
        field: has_wide_distance(instruction).then(|| instruction.next_ip() - 4),
        is_call,
    })
}

/// Is the distance 32 bits wide? It then ends the instruction.
fn has_wide_distance(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Call_rel32_64 | Code::Jmp_rel32_64)
        || instruction.is_jcc_near()
}

/// Functions that are reached from `seeds`, the seeds' own included, sorted by start.
pub fn reach<'i, 'data>(
    image: &'i Image<'data>,
    seeds: impl IntoIterator<Item = u64>,
) -> Vec<&'i Function<'data>> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut open: Vec<u64> = seeds.into_iter().collect();
    while let Some(svma) = open.pop() {
        let Some(function) = image.function_at(svma) else {
            continue;
        };
        if function.names.iter().any(|name| is_rust(name)) || !seen.insert(function.start) {
            continue;
        }
        found.push(function);
        let leads = leads(image, function.start, function.end);
        open.extend(leads.branches.iter().map(|branch| branch.target));
        open.extend(
            leads
                .slots
                .iter()
                .filter_map(|branch| match image.slot(branch.slot)? {
                    Slot::Own(svma) => Some(svma),
                    Slot::Import(_) => None,
                }),
        );
        let starts = |svma: &u64| image.function_at(*svma).is_some_and(|to| to.start == *svma);
        open.extend(leads.taken.into_iter().filter(starts));
    }
    found.sort_by_key(|function| function.start);
    found
}

/// Is this the mangled name of a Rust function?
pub fn is_rust(name: &str) -> bool {
    let hash = name.rfind("17h").map(|at| &name[at + 3..]);
    let legacy = name.starts_with("_ZN")
        && hash.is_some_and(|hash| {
            hash.len() >= 16 && hash.as_bytes()[..16].iter().all(u8::is_ascii_hexdigit)
        });
    legacy || (name.starts_with("_R") && name.as_bytes().get(2).is_some_and(u8::is_ascii_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_names_are_told_from_others() {
        assert!(is_rust("_ZN4core3fmt5write17h0123456789abcdefE"));
        assert!(is_rust("_ZN4core3fmt5write17h0123456789abcdefE.llvm.123"));
        assert!(is_rust("_RNvCsfLfy6EI15iL_7___rustc12___rust_alloc"));
        assert!(!is_rust("_ZNSt6vectorIiE4pushEi"));
        assert!(!is_rust("mi_malloc"));
        assert!(!is_rust("_Rjem"));
    }

    #[test]
    fn a_branch_tells_where_its_distance_is() {
        // call +0; je +0 (near); jmp short +0
        let code = [0xe8, 0, 0, 0, 0, 0x0f, 0x84, 0, 0, 0, 0, 0xeb, 0];
        let decoder = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE);
        let found: Vec<_> = decoder
            .into_iter()
            .filter_map(|i| direct_branch(&i))
            .collect();
        assert_eq!(
            found[0],
            Branch {
                target: 0x1005,
                field: Some(0x1001),
                is_call: true
            }
        );
        assert_eq!(
            found[1],
            Branch {
                target: 0x100b,
                field: Some(0x1007),
                is_call: false
            }
        );
        assert_eq!(
            found[2],
            Branch {
                target: 0x100d,
                field: None,
                is_call: false
            }
        );
    }
}
