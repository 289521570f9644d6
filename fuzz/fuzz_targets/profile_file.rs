//! Any bytes as a profile's file: an error or a profile, never a panic.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(profile) = taskheap::profile::read_from(data, Path::new("fuzzed")) {
        taskheap::analyze::report(&profile);
    }
});
