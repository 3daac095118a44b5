//! Promises that every chunker keeps.

use std::collections::HashSet;

use crate::{cuts, random};
use onefold_chunk::{Chunker, WHOLE_FILE_BYTES_MAX, by_name, names};
use proptest::prelude::*;

fn named(name: &str, mean: usize) -> Box<dyn Chunker> {
    by_name(name, mean, None).expect("a name of the list")
}

#[test]
fn means_are_what_was_asked_for() {
    let data = random(1, 48 << 20);
    // `fastcdc` is not here: masks of whole bits cannot give any mean.
    for name in [
        "sieve",
        "sieve-threshold",
        "rabin",
        "inc-k",
        "gear",
        "tttd",
        "ae",
        "ram",
        "seqcdc",
        "fixed",
    ] {
        for mean in [2048, 8192] {
            let found = data.len() as f64 / cuts(named(name, mean), &data).len() as f64;
            let off = found / mean as f64 - 1.0;
            assert!(off.abs() < 0.03, "{name}: asked for {mean}, found {found}");
        }
    }
}

#[test]
fn content_defined_chunkers_find_back_after_an_insertion() {
    let data = random(3, 2 << 20);
    let pieces = |name, data: &[u8]| -> HashSet<Vec<u8>> {
        let mut at = 0;
        let lengths = cuts(named(name, 4096), data).into_iter();
        lengths
            .map(|length| {
                at += length;
                data[at - length..at].to_vec()
            })
            .collect()
    };
    let mut edited = data.clone();
    edited.insert(1 << 20, 42);
    for name in names()
        .iter()
        .filter(|name| !["fixed", "whole-file"].contains(name))
    {
        let new = pieces(name, &edited)
            .difference(&pieces(name, &data))
            .count();
        assert!(new <= 12, "{name}: {new} new chunks");
    }
}

#[test]
fn unknown_names_and_impossible_means_are_errors() {
    assert!(by_name("sieve", 255, None).is_err());
    assert!(by_name("sieve", (4 << 20) + 1, None).is_err());
    assert!(by_name("cheese", 8192, None).is_err());
}

#[test]
fn a_whole_file_is_one_chunk() {
    assert_eq!(
        cuts(named("whole-file", 8192), &random(1, 100_000)),
        [100_000]
    );
}

/// A caller holds several of the longest chunks in RAM.
#[test]
fn no_chunk_is_longer_than_ram_allows() {
    let long = random(1, WHOLE_FILE_BYTES_MAX + 10);
    assert_eq!(
        cuts(named("whole-file", 8192), &long),
        [WHOLE_FILE_BYTES_MAX, 10]
    );
    for name in names() {
        for mean in [256, 8 << 10, 1 << 20] {
            let max = named(name, mean).limits().max;
            assert!(max <= 16 << 20, "{name} of {mean}: up to {max} bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_data_is_cut_within_the_limits(seed: u64, len in 0usize..60_000, mean in 256usize..9000, alphabet in 1u8..=255) {
        let mut data = random(seed, len);
        data.iter_mut().for_each(|byte| *byte %= alphabet);
        for name in names() {
            let lengths = cuts(named(name, mean), &data);
            prop_assert_eq!(lengths.iter().sum::<usize>(), data.len());
        }
    }
}
