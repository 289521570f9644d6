//! Exports, read back by the rules of their readers.

use std::collections::BTreeSet;
use std::io::Read;

use proptest::prelude::*;
use prost::Message;
use taskheap::profile::Profile;
use taskheap::render::export::{dhat, pprof};

use crate::{analyses, sample};

fn totals(profile: &Profile) -> [u64; 7] {
    let totals = &profile.totals;
    [
        totals.allocations,
        totals.allocated_bytes,
        totals.live_blocks,
        totals.live_bytes,
        totals.peak_live_blocks,
        totals.peak_live_bytes,
        totals.temporary_blocks,
    ]
}

fn check_pprof(profile: &Profile) {
    let file = pprof::file(profile).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&file[..])
        .read_to_end(&mut bytes)
        .unwrap();
    let message = pprof::PprofProfile::decode(&bytes[..]).unwrap();
    assert_eq!(message.string_table[0], "");
    let mut sums = [0; 7];
    for sample in &message.sample {
        assert_eq!(sample.value.len(), message.sample_type.len());
        for (sum, value) in sums.iter_mut().zip(&sample.value) {
            *sum += *value as u64;
        }
        for id in &sample.location_id {
            let location = &message.location[*id as usize - 1];
            assert_eq!(location.id, *id);
            assert!(!location.line.is_empty());
            for line in &location.line {
                let function = &message.function[line.function_id as usize - 1];
                assert!((function.name as usize) < message.string_table.len());
            }
        }
    }
    assert_eq!(sums, totals(profile));
}

fn check_dhat(profile: &Profile) {
    let file: serde_json::Value = serde_json::from_slice(&dhat::file(profile).unwrap()).unwrap();
    let frames = file["ftbl"].as_array().unwrap().len() as u64;
    assert_eq!(file["ftbl"][0], "[root]");
    let mut seen = BTreeSet::new();
    let mut sums = [0; 6];
    for point in file["pps"].as_array().unwrap() {
        for (sum, key) in sums.iter_mut().zip(["tbk", "tb", "ebk", "eb", "gbk", "gb"]) {
            *sum += point[key].as_u64().unwrap();
        }
        let stack: Vec<u64> = point["fs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f.as_u64().unwrap())
            .collect();
        assert!(stack.iter().all(|frame| (1..frames).contains(frame)));
        assert!(seen.insert(stack), "a location twice");
    }
    assert_eq!(sums[..], totals(profile)[..6]);
}

#[test]
fn task_and_thread_are_labels() {
    let message = pprof::message(&sample::server());
    let text = |at: i64| message.string_table[at as usize].as_str();
    let labels: BTreeSet<(&str, &str)> = message
        .sample
        .iter()
        .flat_map(|s| s.label.iter().map(|l| (text(l.key), text(l.str))))
        .collect();
    for label in [
        ("task", "server::handler"),
        ("task", "server::ticker"),
        ("thread", "main"),
        ("thread", "tokio-rt-worker"),
        ("shared", "first touched by server::handler"),
    ] {
        assert!(labels.contains(&label), "{label:?} in {labels:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn totals_of_exports_are_ours(profile in analyses::random()) {
        check_pprof(&profile);
        check_dhat(&profile);
    }
}
