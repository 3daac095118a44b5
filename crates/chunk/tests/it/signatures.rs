//! The rolling signatures of `rabin` and `inc-k` against their definitions, and PRUNE's model of the chunk size.

use crate::{cuts, random};
use onefold_chunk::inc_k::{IncK, MODULUS, Signature};
use onefold_chunk::rabin::{POLYNOMIAL, Rabin, Sum, remainder};
use onefold_chunk::{ChunkLimits, Chunker};
use proptest::prelude::*;

/// Horner's rule in numbers so wide that nothing is folded.
fn naive_modulo(window: &[u8]) -> u64 {
    window.iter().fold(0u128, |sum, byte| {
        (sum * 256 + u128::from(*byte)) % u128::from(MODULUS)
    }) as u64
}

/// Horner's rule for polynomials, reduced by long division.
fn naive_rabin(window: &[u8]) -> u64 {
    window.iter().fold(0, |sum, byte| {
        remainder(u128::from(sum) << 8 | u128::from(*byte))
    })
}

fn times(a: u64, b: u64) -> u64 {
    let product = (0..64).filter(|bit| b >> bit & 1 == 1);
    remainder(product.fold(0u128, |sum, bit| sum ^ u128::from(a) << bit))
}

#[test]
fn the_polynomial_is_irreducible() {
    // Rabin's test for the prime degree 53: x^(2^53) = x, and x^2 − x has no factor in common, that is, neither 0 nor 1
    // is a root.
    let raised = (0..53).fold(2, |power, _| times(power, power));
    assert_eq!(raised, 2);
    assert_eq!(POLYNOMIAL & 1, 1);
    assert_eq!(POLYNOMIAL.count_ones() % 2, 1);
    assert_eq!(POLYNOMIAL.ilog2(), 53);
}

#[test]
fn chunk_sizes_follow_the_model_of_prune() {
    let data = random(9, 96 << 20);
    let (min, max) = (2048, 65_536);
    for bits in 10..=15 {
        let scale = f64::from(1 << bits);
        let model = min as f64 + scale * (1.0 - (1.0 - 1.0 / scale).powi(max - min as i32));
        let lengths = cuts(IncK::with_pattern(min, max as usize, bits), &data);
        let found = data.len() as f64 / lengths.len() as f64;
        // the tolerance is 2 % and three standard errors of a sample of this size
        let tolerance = 0.02 + 3.0 / (lengths.len() as f64).sqrt() * 0.5;
        assert!(
            (found / model - 1.0).abs() < tolerance,
            "{bits} bits: {found}, model {model}"
        );
    }
}

/// A pattern of `wanted` bits of the fingerprint, as in LBFS: its mean follows the model.
#[test]
fn rabins_pattern_gives_the_mean_of_the_model() {
    let rabin = Rabin::with_pattern(2048, 65_536, 12);
    let mean = rabin.limits().mean as f64;
    let data = random(10, 32 << 20);
    let found = data.len() as f64 / cuts(rabin, &data).len() as f64;
    assert!((found / mean - 1.0).abs() < 0.03, "{found}, model {mean}");
}

/// The naive twins of the searches in lanes: every position alone.
fn naive_cuts(data: &[u8], limits: ChunkLimits, wanted: impl Fn(&[u8]) -> bool) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let end = rest.len().min(limits.max);
        let cut = (limits.min + 1..=end).find(|end| wanted(&rest[end - 48..*end]));
        lengths.push(cut.unwrap_or(end));
        rest = &rest[lengths[lengths.len() - 1]..];
    }
    lengths
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn lanes_cut_as_one_position_after_the_other(seed: u64, len in 0usize..40_000, alphabet in 1u8..=255, mean in 256usize..3000) {
        let mut data = random(seed, len);
        data.iter_mut().for_each(|byte| *byte %= alphabet);
        let (rabin, inc_k) = (Rabin::new(mean), IncK::new(mean));
        let fits = |window: &[u8]| rabin.matches(Sum::of(window));
        prop_assert_eq!(cuts(rabin.clone(), &data), naive_cuts(&data, rabin.limits(), fits));
        let fits = |window: &[u8]| inc_k.matches(Signature::of(window));
        prop_assert_eq!(cuts(inc_k.clone(), &data), naive_cuts(&data, inc_k.limits(), fits));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn inc_k_slides_to_what_the_definition_gives(data in proptest::collection::vec(any::<u8>(), 48..400)) {
        let mut signature = Signature::of(&data[..48]);
        prop_assert_eq!(signature.value(), naive_modulo(&data[..48]));
        for end in 49..=data.len() {
            signature.slide(data[end - 49], data[end - 1]);
            prop_assert_eq!(signature.value(), naive_modulo(&data[end - 48..end]));
        }
    }

    #[test]
    fn rabin_slides_to_what_the_definition_gives(data in proptest::collection::vec(any::<u8>(), 48..400)) {
        let mut sum = Sum::of(&data[..48]);
        for end in 49..=data.len() {
            sum.slide(data[end - 49], data[end - 1]);
            prop_assert_eq!(sum.0, naive_rabin(&data[end - 48..end]));
        }
    }
}
