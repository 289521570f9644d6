//! Any bytes as the file that `Recorder` leaves: the tables of another process.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(data).unwrap();
    if let Ok(profile) = taskheap::profile::read(file.path()) {
        taskheap::analyze::report(&profile);
    }
});
