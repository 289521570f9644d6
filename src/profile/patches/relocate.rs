//! Making room for a jump at the start of a function.
//!
//! Copying the overwritten instructions elsewhere is not enough: what they say relative to their
//! own place must go on meaning the same, nothing may branch between them, and a call among them
//! must return into the function, where unwinders know the way, not into the copy. What can't be
//! kept is refused with the reason, and the function is left as it is.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::flow::{self, direct_branch};
use super::image::{Function, Image};
use crate::wire::{JUMP_BYTES, PATCH_CODE, PatchFixup};

/// Instructions that the jump overwrites, ready to run elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocated {
    /// Where the jump goes.
    pub svma: u64,
    pub stolen: Vec<u8>,
    pub code: Vec<u8>,
    /// Fields of `code`, with the link-time address each must reach.
    pub fixups: Vec<PatchFixup>,
}

/// Why a function can't be led through the recorder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    TooShort,
    BranchIntoStart,
    Unrelocatable,
    Undecodable,
    /// Calls to this entry point inside the allocator can't be told from the program's.
    ShortCall,
    TooMany,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::TooShort => "it is shorter than a jump",
            Refusal::BranchIntoStart => "it branches back into its first instructions",
            Refusal::Unrelocatable => "its first instructions work in their place only",
            Refusal::Undecodable => "its first instructions can't be decoded",
            Refusal::ShortCall => "the allocator itself reaches it by a short jump",
            Refusal::TooMany => "there are more entry points than expected",
        })
    }
}

pub fn relocate(image: &Image, function: &Function) -> Result<Relocated, Refusal> {
    let (svma, instructions) = first_instructions(image, function)?;
    let end = instructions.last().map_or(svma, |last| last.next_ip());
    if branches_into(image, function, end) {
        return Err(Refusal::BranchIntoStart);
    }
    let mut copy = Copy {
        image,
        code: Vec::new(),
        fixups: Vec::new(),
        ended: false,
    };
    for instruction in &instructions {
        copy.instruction(instruction)?;
    }
    if !copy.ended {
        copy.branch(&[0xe9], end);
    }
    if copy.code.len() > PATCH_CODE || copy.fixups.len() > 6 {
        return Err(Refusal::Unrelocatable);
    }
    let stolen = image.bytes(svma, end).to_vec();
    Ok(Relocated {
        svma,
        stolen,
        code: copy.code,
        fixups: copy.fixups,
    })
}

/// The whole instructions that a jump covers, behind the `endbr64` that indirect calls need. A
/// function may be shorter than the jump if only padding follows it.
fn first_instructions(
    image: &Image,
    function: &Function,
) -> Result<(u64, Vec<Instruction>), Refusal> {
    let limit = image
        .next_start(function.start)
        .min(function.end.next_multiple_of(16));
    let bytes = image.bytes(function.start, limit.max(function.end));
    let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
    let mut svma = function.start;
    let mut found: Vec<Instruction> = Vec::new();
    let mut ended = false;
    while (decoder.ip() - svma) < JUMP_BYTES as u64 {
        if !decoder.can_decode() {
            return Err(Refusal::TooShort);
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(Refusal::Undecodable);
        }
        if instruction.code() == Code::Endbr64 && found.is_empty() {
            svma = instruction.next_ip();
            continue;
        }
        let padding = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        if ended && !(padding && instruction.ip() >= function.end) {
            return Err(Refusal::TooShort);
        }
        ended |= matches!(
            instruction.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        );
        found.push(instruction);
    }
    Ok((svma, found))
}

/// Does the function, or a part of it that was moved away, jump to the overwritten bytes? A jump
/// to the very first of them too: it would go through the recorder as if it were a call.
fn branches_into(image: &Image, function: &Function, to: u64) -> bool {
    let is_part = |other: &&Function| {
        other.start == function.start
            || other.names.iter().any(|name| {
                let stem = |own: &&str| name.strip_prefix(*own).is_some_and(|r| r.starts_with('.'));
                function.names.iter().any(stem)
            })
    };
    image.functions().iter().filter(is_part).any(|part| {
        let branches = flow::leads(image, part.start, part.end).branches;
        let mut jumps = branches.into_iter().filter(|branch| !branch.is_call);
        jumps.any(|jump| function.start <= jump.target && jump.target < to)
    })
}

struct Copy<'a, 'data> {
    image: &'a Image<'data>,
    code: Vec<u8>,
    fixups: Vec<PatchFixup>,
    /// The last instruction does not go on to the next.
    ended: bool,
}

impl Copy<'_, '_> {
    fn instruction(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        if self.ended {
            return Ok(()); // padding
        }
        if let Some(branch) = direct_branch(instruction) {
            return self.direct(instruction, branch.target);
        }
        self.ended = matches!(
            instruction.flow_control(),
            FlowControl::Return | FlowControl::IndirectBranch
        );
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Return | FlowControl::IndirectBranch => {}
            _ => return Err(Refusal::Unrelocatable),
        }
        self.verbatim(instruction)
    }

    fn direct(&mut self, instruction: &Instruction, target: u64) -> Result<(), Refusal> {
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch => {
                self.branch(&[0xe9], target);
                self.ended = true;
            }
            FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
                let condition = instruction.condition_code() as u8 - 1;
                self.branch(&[0x0f, 0x80 | condition], target);
            }
            FlowControl::Call => {
                // lea r11, [return address]; push r11; jmp
                self.branch(&[0x4c, 0x8d, 0x1d], instruction.next_ip());
                self.code.extend([0x41, 0x53]);
                self.branch(&[0xe9], target);
                self.ended = true;
            }
            _ => return Err(Refusal::Unrelocatable),
        }
        Ok(())
    }

    fn branch(&mut self, opcode: &[u8], target: u64) {
        self.code.extend(opcode);
        self.fixups.push(PatchFixup {
            svma: target,
            patch: 0,
            at: self.code.len() as u32,
        });
        self.code.extend([0; 4]);
    }

    /// Bytes as they are, but for a distance to data.
    fn verbatim(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        let bytes = self.image.bytes(instruction.ip(), instruction.next_ip());
        if instruction.is_ip_rel_memory_operand() {
            let at = displacement(bytes, instruction).ok_or(Refusal::Unrelocatable)?;
            // The distance counts from the end of the instruction, the fix-up from its field's.
            let behind = (bytes.len() - at - 4) as u64;
            self.fixups.push(PatchFixup {
                svma: instruction.ip_rel_memory_address().wrapping_sub(behind),
                patch: 0,
                at: (self.code.len() + at) as u32,
            });
        }
        self.code.extend(bytes);
        Ok(())
    }
}

/// Offset of the 32-bit displacement in the instruction's bytes.
fn displacement(bytes: &[u8], instruction: &Instruction) -> Option<usize> {
    let mut decoder = Decoder::with_ip(64, bytes, instruction.ip(), DecoderOptions::NONE);
    let again = decoder.decode();
    let offsets = decoder.get_constant_offsets(&again);
    (offsets.has_displacement() && offsets.displacement_size() == 4)
        .then(|| offsets.displacement_offset())
}
