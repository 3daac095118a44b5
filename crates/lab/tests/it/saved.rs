//! Tallies kept and merged.

use crate::{choice, random, read};
use onefold_chunk::Fingerprint;
use onefold_lab::{Choice, Estimate, Tallies, Tally, saved};
use proptest::prelude::*;

fn counted(streams: &[&[u8]]) -> Vec<(Choice, Tally)> {
    let tallies = Tallies::new(&[choice("sieve", 1024), choice("fixed", 4096)], 16 << 20);
    read(&tallies, streams);
    tallies.into_inner()
}

fn figures(tallies: &[(Choice, Tally)]) -> Vec<Estimate> {
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

#[test]
fn samples_of_different_depth_merge_at_the_coarser() {
    let data = random(4, 400_000);
    let mut exact = counted(&[&data]);
    let mut coarse = counted(&[&data]);
    coarse.iter_mut().for_each(|(_, tally)| tally.thin_to(3));
    let bytes = saved::encode(&coarse);
    saved::merge(
        &mut exact,
        saved::decode(&bytes, "host", 16 << 20).expect("our own"),
    );
    let merged = figures(&exact);
    assert!(merged.iter().all(|estimate| estimate.level == 3));
    assert!(
        (merged[0].ratio() - 2.0).abs() < 0.01,
        "{}",
        merged[0].ratio()
    );
}

#[test]
fn saved_tallies_are_these_bytes() {
    let mut tally = Tally::new(1 << 20);
    tally.add(Fingerprint([1; 32]), 300);
    tally.add(Fingerprint([1; 32]), 300);
    tally.add(Fingerprint([2; 32]), 7);
    let bytes = saved::encode(&[(choice("sieve", 8192), tally)]);
    assert_eq!(bytes, include_bytes!("../../testdata/estimate-1"));
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
        // Behind a checksum that fits, too.
        let payload = &bytes[24..bytes.len() - 8];
        let framed = onefold_io::frame::encode_frame(saved::SAVED, 0, payload);
        let _ = saved::decode(&framed, "bytes", 1 << 20);
    }
}
