//! Whether the program calls a function of its allocator that nothing can record.
//!
//! A heap that is destroyed takes its blocks along without naming them. Most programs that hold
//! such a function never call it, it is there because the allocator refers to it; a warning in
//! each of their reports would soon be read by nobody.

use super::image::{Function, Image, Slot};

/// Does code beside `inside` (sorted) branch to the function that starts at `target`?
///
/// Every place that reads like a branch to it is taken for one: that other bytes make the right
/// distance by chance is a matter of one in four billion.
pub fn is_called(image: &Image, target: u64, inside: &[&Function]) -> bool {
    image.code().iter().any(|&(start, code)| {
        let places = code.windows(6).enumerate().filter(|(at, bytes)| {
            let svma = start + *at as u64;
            leads_to(image, svma, bytes) == Some(target)
        });
        let mut places = places.map(|(at, _)| start + at as u64);
        places.any(|svma| !is_inside(inside, svma))
    })
}

/// Where a call or jump that these bytes may be leads.
fn leads_to(image: &Image, svma: u64, bytes: &[u8]) -> Option<u64> {
    let distance = |at: usize| {
        let word: [u8; 4] = bytes[at..at + 4].try_into().ok()?;
        Some(i64::from(i32::from_le_bytes(word)))
    };
    match bytes[..2] {
        [0xe8 | 0xe9, _] => Some(svma.wrapping_add(5).wrapping_add_signed(distance(1)?)),
        [0xff, 0x15 | 0x25] => {
            let slot = svma.wrapping_add(6).wrapping_add_signed(distance(2)?);
            match image.slot(slot)? {
                Slot::Own(svma) => Some(svma),
                Slot::Import(_) => None,
            }
        }
        _ => None,
    }
}

fn is_inside(inside: &[&Function], svma: u64) -> bool {
    let after = inside.partition_point(|function| function.start <= svma);
    after > 0 && svma < inside[after - 1].end
}
