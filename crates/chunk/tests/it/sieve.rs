//! Sieve against a twin that is written for clarity, on every instruction set of this machine.

use crate::{cuts, random};
use onefold_chunk::Chunker;
use onefold_chunk::sieve::{CANDIDATES_MAX, Isa, Sieve};
use proptest::prelude::*;

/// The linear bits at position `t` by polynomial arithmetic over GF(2), straight from the definition.
fn naive_bits(data: &[u8], t: usize) -> u8 {
    const KEY: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut out = 0u8;
    for back in 0..9 {
        for bit in 0..8 {
            if data[t - back] >> bit & 1 == 1 {
                out ^= ((u128::from(KEY) << bit) >> (8 * back)) as u8;
            }
        }
    }
    out ^ 0x5b
}

#[test]
fn candidates_are_what_the_definition_says() {
    // A mean so small that every candidate is one in 256: cuts of at most one candidate each can be checked against the definition.
    let data = random(7, 60_000);
    let mut at = 0;
    for length in cuts(Sieve::new(256), &data) {
        let last = at + length - 1;
        // Where no candidate is found the cut is at the limit.
        let at_limit = length == Sieve::new(256).limits().max || last + 1 == data.len();
        assert!(
            at_limit || naive_bits(&data, last) == 0,
            "a cut after {last} that is no candidate"
        );
        at += length;
    }
}

#[test]
fn the_mean_is_what_was_asked_for() {
    let data = random(1, 64 << 20);
    for mean in [512, 1000, 4096, 8192, 16_384, 65_536] {
        for chunker in [Sieve::new(mean), Sieve::keyed(mean, &[7; 32])] {
            let found = data.len() as f64 / cuts(chunker, &data).len() as f64;
            assert!(
                (found / mean as f64 - 1.0).abs() < 0.02,
                "asked for {mean}, found {found}"
            );
        }
    }
}

#[test]
fn zeros_have_no_candidates_and_are_cut_at_the_limit() {
    let lengths = cuts(Sieve::new(8192), &vec![0; 1 << 20]);
    assert!(
        lengths[..lengths.len() - 1]
            .iter()
            .all(|length| *length == Sieve::new(8192).limits().max)
    );
}

#[test]
fn no_run_of_one_byte_has_candidates() {
    for byte in 0..=255 {
        assert_ne!(naive_bits(&[byte; 9], 8), 0, "a run of {byte}");
    }
}

/// The shortest period of bytes that makes one position in two a candidate, found by search.
fn dense_period() -> Vec<u8> {
    (0..=u16::MAX)
        .map(|pair| pair.to_le_bytes().repeat(8))
        .find(|run| naive_bits(run, 9) == 0 || naive_bits(run, 10) == 0)
        .expect("16 bits of choice against 8 bits of hash")
}

#[test]
fn a_search_ends_at_the_largest_number_of_candidates() {
    // At a mean of 2 KiB every candidate counts, whatever is before it.
    let data: Vec<u8> = dense_period().into_iter().cycle().take(200_000).collect();
    let chunker = Sieve::new(2048);
    let min = chunker.limits().min;
    for isa in Isa::available() {
        let lengths = cuts(chunker.on(isa).expect("available"), &data);
        // The end of the stream stays whole up to the mean.
        for length in &lengths[..lengths.len() - 1] {
            assert!(*length <= min + 2 * CANDIDATES_MAX, "{length} on {isa:?}");
        }
    }
}

#[test]
fn an_insertion_changes_few_chunks() {
    let data = random(3, 4 << 20);
    let before: std::collections::HashSet<Vec<u8>> = pieces(&data, 8192);
    let mut edited = data.clone();
    edited.insert(2 << 20, 42);
    let new = pieces(&edited, 8192).difference(&before).count();
    assert!(new <= 4, "{new} new chunks");
}

fn pieces(data: &[u8], mean: usize) -> std::collections::HashSet<Vec<u8>> {
    let mut at = 0;
    let cut = cuts(Sieve::new(mean), data).into_iter().map(|length| {
        at += length;
        data[at - length..at].to_vec()
    });
    cut.collect()
}

#[test]
fn a_key_moves_the_cuts() {
    let data = random(5, 1 << 20);
    assert_ne!(
        cuts(Sieve::keyed(8192, &[1; 32]), &data),
        cuts(Sieve::keyed(8192, &[2; 32]), &data)
    );
}

#[test]
fn known_cuts_stay_as_they_are() {
    let data = random(11, 100_000);
    assert_eq!(cuts(Sieve::new(8192), &data), include!("sieve_cuts.in"));
    assert_eq!(
        cuts(Sieve::keyed(8192, &[9; 32]), &data),
        include!("sieve_cuts_keyed.in")
    );
}

fn assert_all_alike(data: &[u8], mean: usize) {
    for chunker in [Sieve::new(mean), Sieve::keyed(mean, &[3; 32])] {
        let expected = cuts(chunker.on(Isa::Scalar).expect("always there"), data);
        for isa in Isa::available() {
            assert_eq!(
                cuts(chunker.on(isa).expect("available"), data),
                expected,
                "{isa:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_instruction_set_cuts_alike(seed: u64, len in 0usize..300_000, mean in 256usize..40_000, alphabet in 1u8..=255) {
        let mut data = random(seed, len);
        data.iter_mut().for_each(|byte| *byte %= alphabet);
        assert_all_alike(&data, mean);
    }

    #[test]
    fn periodic_data_is_cut_alike(period in proptest::collection::vec(any::<u8>(), 1..40), len in 0usize..100_000, mean in 256usize..9000) {
        let data: Vec<u8> = period.iter().copied().cycle().take(len).collect();
        assert_all_alike(&data, mean);
    }

    #[test]
    fn a_cut_does_not_depend_on_what_follows_the_limit(seed: u64, more in 0usize..50_000) {
        let data = random(seed, 14_336 + more);
        prop_assert_eq!(Sieve::new(8192).cut(&data), Sieve::new(8192).cut(&data[..14_336]));
    }
}
