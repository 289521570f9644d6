//! Which functions a function leads to: calls, tail calls and functions whose address it takes.

use crate::profile::target::Image;

/// Larger functions are not read to their end.
const LARGEST: usize = 256 * 1024;

#[cfg(target_arch = "x86_64")]
pub(super) fn leads_to(image: &Image, svma: u64, size: u64) -> Vec<u64> {
    use iced_x86::{Code, Decoder, DecoderOptions, FlowControl};
    let code = image.read(svma, (size as usize).min(LARGEST));
    let mut targets = Vec::new();
    for instruction in &mut Decoder::with_ip(64, code, svma, DecoderOptions::NONE) {
        let through_table = || image.pointer_at(instruction.ip_rel_memory_address());
        let target = match instruction.flow_control() {
            FlowControl::Call
            | FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch => Some(instruction.near_branch_target()),
            FlowControl::IndirectCall | FlowControl::IndirectBranch
                if instruction.is_ip_rel_memory_operand() =>
            {
                through_table()
            }
            _ if instruction.code() == Code::Lea_r64_m
                && instruction.is_ip_rel_memory_operand() =>
            {
                Some(instruction.ip_rel_memory_address())
            }
            _ => None,
        };
        let outside = |target: &u64| *target < svma || *target >= svma.saturating_add(size);
        if let Some(target) = target.filter(outside)
            && !targets.contains(&target)
        {
            targets.push(target);
        }
    }
    targets
}

/// Without a decoder for it nothing is followed, and types come from debug info or v0 names.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn leads_to(_image: &Image, _svma: u64, _size: u64) -> Vec<u64> {
    let _ = LARGEST;
    Vec::new()
}
