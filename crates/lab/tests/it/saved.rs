//! Tallies that are saved and merged.

use crate::{choice, random, read};
use onefold_chunk::Fingerprint;
use onefold_lab::{ChunkerChoice, Estimate, Tallies, Tally, saved};
use proptest::prelude::*;

fn counted(streams: &[&[u8]]) -> Vec<(ChunkerChoice, Tally)> {
    let tallies = Tallies::new(&[choice("sieve", 1024), choice("fixed", 4096)], 16 << 20);
    read(&tallies, streams);
    tallies.into_inner()
}

fn figures(tallies: &[(ChunkerChoice, Tally)]) -> Vec<Estimate> {
    tallies
        .iter()
        .map(|(_, tally)| Estimate::of(tally))
        .collect()
}

#[test]
fn two_hosts_merged_are_as_one_that_read_all() {
    let (shared, here, there) = (random(1, 300_000), random(2, 200_000), random(3, 100_000));
    let mut merged = Vec::new();
    for streams in [[&shared[..], &here], [&shared, &there]] {
        let bytes = saved::encode(&counted(&streams));
        let loaded = saved::decode(&bytes, "host", 16 << 20).expect("our own");
        saved::merge(&mut merged, loaded);
    }
    let all = counted(&[&shared, &here, &shared, &there]);
    assert_eq!(figures(&merged), figures(&all));
}

/// Tallies of two choices over `streams`, with `ram_bytes` for each choice.
fn little(ram_bytes: u64, streams: &[&[u8]]) -> Vec<(ChunkerChoice, Tally)> {
    let choices = [choice("sieve", 512), choice("whole-file", 4096)];
    let tallies = Tallies::new(&choices, ram_bytes * choices.len() as u64);
    read(&tallies, streams);
    tallies.into_inner()
}

#[test]
fn sketches_of_hosts_merge_into_the_sketch_of_all() {
    let (shared, here, there) = (
        random(4, 4_000_000),
        random(5, 3_000_000),
        random(6, 2_000_000),
    );
    let (shared, here, there) = (&shared[..], &here[..], &there[..]);
    let mut merged = Vec::new();
    // One host had enough memory.
    for (ram, streams) in [(0, [shared, here]), (16 << 20, [there, shared])] {
        let bytes = saved::encode(&little(ram, &streams));
        let loaded = saved::decode(&bytes, "host", 0).expect("our own");
        saved::merge(&mut merged, loaded);
    }
    let all = little(0, &[there, shared, here, shared]);
    assert!(saved::encode(&merged) == saved::encode(&all));
    let figures = figures(&merged);
    assert!(!figures[0].is_exact && figures[1].is_exact);
    let off = figures[0].unique_bytes - 9_000_000.0;
    assert!(off.abs() < 1.5 * figures[0].unique_bytes_error, "{off}");
}

#[test]
fn files_that_claim_more_than_there_can_be_are_merged_into_the_largest_number() {
    let mut forged = Tally::new(0);
    forged.add(Fingerprint([1; 32]), 300);
    (forged.bytes, forged.chunks) = (1 << 63, u64::MAX);
    let bytes = saved::encode(&[(choice("sieve", 8192), forged)]);
    let mut merged = Vec::new();
    for path in ["one", "other", "third"] {
        let loaded = saved::decode(&bytes, path, 0).expect("framed as ours");
        saved::merge(&mut merged, loaded);
    }
    merged[0].1.add(Fingerprint([2; 32]), 300);
    let found = Estimate::of(&merged[0].1);
    assert_eq!((found.bytes, found.chunks), (u64::MAX, u64::MAX));
    assert_eq!(found.unique_bytes, 600.0);
    assert!(found.ratio().is_finite() && found.gain_bytes().is_finite());
}

#[test]
fn golden_tallies_are_these_bytes() {
    let mut all = Tally::new(0);
    all.add(Fingerprint([1; 32]), 300);
    all.add(Fingerprint([1; 32]), 300);
    all.add(Fingerprint([2; 32]), 7);
    let mut sketched = all.clone();
    sketched.sketch_to(8);
    let bytes = saved::encode(&[
        (choice("sieve", 8192), all),
        (choice("rabin", 64), sketched),
    ]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/estimate-2");
    if std::env::var_os("ONEFOLD_BLESS").is_some() {
        std::fs::write(path, &bytes).expect("write");
    }
    assert!(
        bytes == std::fs::read(path).expect("golden file"),
        "{bytes:02x?}"
    );
    let loaded = saved::decode(&bytes, path, 0).expect("our own");
    assert!(saved::encode(&loaded) == bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn decoding_never_panics(at in 0usize..500, to: u8) {
        let mut bytes = saved::encode(&counted(&[&[7; 9000]]));
        let at = at % bytes.len();
        let before = bytes[at];
        bytes[at] = to;
        let decoded = saved::decode(&bytes, "bytes", 1 << 20);
        prop_assert!(decoded.is_err() || before == to);
        // Bytes behind a right checksum, too.
        let payload = &bytes[24..bytes.len() - 8];
        let framed = onefold_io::frame::encode_frame(saved::SAVED, payload);
        let _ = saved::decode(&framed, "bytes", 1 << 20);
    }
}
