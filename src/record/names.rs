//! Names of threads, as owners are told apart by them.

/// Every run of digits becomes `*`: the threads of a pool are one entry.
pub fn folded(name: &[u8; 16]) -> [u8; 16] {
    let mut short = [0u8; 16];
    let mut length = 0;
    let mut in_number = false;
    for byte in name.iter().take_while(|byte| **byte != 0) {
        let digit = byte.is_ascii_digit();
        if !(digit && in_number) {
            short[length] = if digit { b'*' } else { *byte };
            length += 1;
        }
        in_number = digit;
    }
    short
}

pub fn key_of(name: &[u8; 16]) -> u64 {
    let mut key = 0xcbf2_9ce4_8422_2325u64;
    for byte in name {
        key = (key ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_pool_are_folded() {
        let padded = |text: &[u8]| {
            let mut name = [0u8; 16];
            name[..text.len()].copy_from_slice(text);
            name
        };
        assert_eq!(folded(&padded(b"worker-12")), padded(b"worker-*"));
        assert_eq!(folded(&padded(b"a1b22c")), padded(b"a*b*c"));
        assert_eq!(folded(&padded(b"main")), padded(b"main"));
    }
}
