//! Gear against its definition, with the table of the crate `fastcdc` (5.0).

use crate::{cuts, random};
use onefold_chunk::{Chunker, gear::Gear};
use proptest::prelude::*;

/// Every position's hash from its last 64 bytes.
fn naive(data: &[u8], gear: &Gear, table: &[u64]) -> Vec<usize> {
    let limits = gear.limits();
    let (mut lengths, mut rest) = (Vec::new(), data);
    while !rest.is_empty() {
        let end = rest.len().min(limits.max);
        let is_cut = |length: &usize| {
            let window = &rest[length.saturating_sub(64)..*length];
            let hash = window.iter().fold(0u64, |hash, byte| {
                (hash << 1).wrapping_add(table[usize::from(*byte)])
            });
            hash < gear.threshold()
        };
        let length = (limits.min + 1..=end).find(is_cut).unwrap_or(end);
        lengths.push(length);
        rest = &rest[length..];
    }
    lengths
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_data_is_cut_as_the_definition_says(
        seed: u64,
        len in 0usize..40_000,
        mean in 256usize..4000,
        alphabet in 1u8..=255,
    ) {
        let mut data = random(seed, len);
        data.iter_mut().for_each(|byte| *byte %= alphabet);
        let gear = Gear::new(mean);
        let (table, _) = fastcdc::v2020::get_gear_with_seed(0);
        prop_assert_eq!(cuts(gear.clone(), &data), naive(&data, &gear, &table));
    }

    #[test]
    fn any_pattern_is_found_where_the_definition_says(
        seed: u64,
        len in 0usize..8000,
        min in 64usize..300,
        more in 1usize..2000,
        bits in 1u32..=60,
        alphabet in 1u8..=255,
    ) {
        let mut data = random(seed, len);
        data.iter_mut().for_each(|byte| *byte %= alphabet);
        // Most patterns are dense, where a shifted hash often seems to match and does not.
        let gear = Gear::with_pattern(min, min + more, 1 + bits % 12);
        let (table, _) = fastcdc::v2020::get_gear_with_seed(0);
        prop_assert_eq!(cuts(gear.clone(), &data), naive(&data, &gear, &table));
        let gear = Gear::with_pattern(min, min + more, bits);
        prop_assert_eq!(cuts(gear.clone(), &data), naive(&data, &gear, &table));
    }
}
