//! Any bytes as a profile's tables, behind checksum and compression, which a fuzzer does not get
//! past: what the checks let through, the analyses must bear.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taskheap::profile::Profile;

fuzz_target!(|data: &[u8]| {
    let Ok(profile) = rmp_serde::from_slice::<Profile>(data) else {
        return;
    };
    if profile.validate().is_ok() {
        taskheap::analyze::report(&profile);
    }
});
