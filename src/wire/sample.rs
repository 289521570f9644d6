//! What a sampled block stands for.
//!
//! Bytes are sampled by a Poisson process: each byte is met with the same small probability, so a
//! block of `size` bytes is recorded with probability p = 1 - exp(-size / distance), and booked as
//! 1/p blocks of that size. Then every sum of booked bytes is right on average, whatever the sizes.
//! A block count is a whole number, so 1/p is rounded up or down, with the odds that leave the
//! average right; the address decides, so that a free takes off what the allocation put on.
//!
//! Cells of tasks are always recorded, for the sake of the tasks' names and numbers, and stand for
//! themselves. An entry of the live table tells them by a bit of the address: no block starts 8
//! bytes into another one.
//!
//! Both processes have to come to the same figures, and the one that is recorded may not link to a
//! library of mathematics: so the exponential is computed here.

/// Bit of an entry's address: the block stands for itself.
pub const EXACT: u64 = 8;

/// What an entry is booked as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Booked {
    pub bytes: u64,
    pub blocks: u32,
}

/// The block of an entry, given the mean distance of samples; 0 if every block is recorded.
#[inline(always)]
pub fn booked(entry: u64, size: u64, distance: u64) -> Booked {
    if distance == 0 || entry & EXACT != 0 {
        return Booked {
            bytes: size,
            blocks: 1,
        };
    }
    weighed(entry, size, distance)
}

#[inline(never)]
fn weighed(address: u64, size: u64, distance: u64) -> Booked {
    let size = size.max(1);
    let weight = 1.0 / probability(size as f64 / distance as f64);
    let hash =
        address.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ size.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let odds = (hash >> 11) as f64 / (1u64 << 53) as f64;
    Booked {
        bytes: (size as f64 * weight).round_ties_even() as u64,
        blocks: (weight + odds) as u32,
    }
}

/// 1 - exp(-x).
fn probability(x: f64) -> f64 {
    if x > 40.0 {
        return 1.0;
    }
    if x < 0.01 {
        // The difference would lose the digits that count.
        return x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0 * (1.0 - x / 5.0))));
    }
    // exp(-x) = exp(-x / 1024) ^ 1024.
    let small = -x / 1024.0;
    let mut power = 1.0 + small * (1.0 + small / 2.0 * (1.0 + small / 3.0 * (1.0 + small / 4.0)));
    for _ in 0..10 {
        power *= power;
    }
    1.0 - power
}

/// A distance to the next sample, exponentially spread, from 53 random bits.
pub fn next_distance(random: u64, distance: u64) -> u64 {
    // In (0, 1]: its logarithm is finite.
    let u = ((random >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (-logarithm(u) * distance as f64) as u64 + 1
}

/// Natural logarithm of a number in (0, 1].
fn logarithm(u: f64) -> f64 {
    let bits = u.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // ln(m) = 2 artanh((m - 1) / (m + 1)), m in [1, 2).
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let mut sum = 0.0;
    for n in (0..12).rev() {
        sum = sum * square + 1.0 / f64::from(2 * n + 1);
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * t * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_agree_with_the_library_of_mathematics() {
        for n in 1..20_000 {
            let x = f64::from(n) / 500.0;
            let truth = -(-x).exp_m1();
            assert!((probability(x) / truth - 1.0).abs() < 1e-9, "{x}");
            let tiny = x / 1e7;
            let truth = -(-tiny).exp_m1();
            assert!((probability(tiny) / truth - 1.0).abs() < 1e-9, "{tiny}");
            let u = f64::from(n) / 20_000.0;
            assert!((logarithm(u) - u.ln()).abs() < 1e-9, "{u}");
        }
    }

    /// Every size on its own, over many addresses and draws: what is booked is what was allocated.
    #[test]
    fn booked_bytes_and_blocks_are_right_on_average() {
        const DISTANCE: u64 = 64 << 10;
        const BLOCKS: u64 = 2_000_000;
        let mut random = 88_172_645_463_325_252u64;
        let mut draw = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for size in [16, 1000, 64 << 10, 300_000] {
            let mut left = next_distance(draw(), DISTANCE) as i64;
            let (mut bytes, mut blocks) = (0.0, 0.0);
            for n in 0..BLOCKS {
                left -= size as i64;
                if left < 0 {
                    left = next_distance(draw(), DISTANCE) as i64;
                    let booked = booked(0x7000_0000 + n * 16 * 2, size, DISTANCE);
                    bytes += booked.bytes as f64;
                    blocks += f64::from(booked.blocks);
                }
            }
            let (all, error) = (
                (size * BLOCKS) as f64,
                ((size * BLOCKS * DISTANCE) as f64).sqrt(),
            );
            assert!((bytes - all).abs() < 5.0 * error, "{size}: {bytes} {all}");
            let blocks_error = error / size as f64 + 1000.0;
            assert!(
                (blocks - BLOCKS as f64).abs() < 5.0 * blocks_error,
                "{size}: {blocks}"
            );
        }
    }

    #[test]
    fn cells_and_exact_recordings_stand_for_themselves() {
        let itself = Booked {
            bytes: 300,
            blocks: 1,
        };
        assert_eq!(booked(0x1000, 300, 0), itself);
        assert_eq!(booked(0x1000 | EXACT, 300, 1 << 19), itself);
        assert!(booked(0x1000, 300, 1 << 19).blocks > 1000);
    }
}
