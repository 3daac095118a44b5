//! `fastcdc` against the crate of that name.

use crate::{cuts, random};
use onefold_chunk::fastcdc::FastCdc;
use proptest::prelude::*;

use fastcdc::v2020::{FastCDC, Normalization};

fn theirs(data: &[u8], min: usize, mean: usize, max: usize, level: usize) -> Vec<usize> {
    let level = [
        Normalization::Level0,
        Normalization::Level1,
        Normalization::Level2,
        Normalization::Level3,
    ][level];
    FastCDC::with_level(data, min, mean, max, level)
        .map(|chunk| chunk.length)
        .collect()
}

#[test]
fn every_size_and_level_cuts_as_the_crate_does() {
    let random = random(1, 3_000_001);
    let text: Vec<u8> = (0..200_000u32)
        .flat_map(|line| format!("line {} of {}\n", line, line / 7).into_bytes())
        .collect();
    for mean in [
        256,
        1000,
        1024,
        4096,
        8192,
        16_384,
        65_536,
        1 << 20,
        4 << 20,
    ] {
        for level in 0..=3 {
            for data in [&random, &text, &vec![0; 1_000_003]] {
                let (min, max) = ((mean / 4) & !1, mean * 4);
                assert_eq!(
                    cuts(FastCdc::with(min, mean, max, level), data),
                    theirs(data, min, mean, max, level),
                    "mean {mean}, level {level}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_data_is_cut_as_the_crate_does(
        seed: u64,
        len in 0usize..100_000,
        alphabet in 1u8..=255,
        min in 32usize..2000,
        more in 96usize..4000,
        most in 512usize..20_000,
        level in 0usize..=3,
    ) {
        let mut data = random(seed, len);
        data.iter_mut().for_each(|byte| *byte %= alphabet);
        let (min, mean, max) = (2 * min, 2 * (min + more), 2 * (min + more + most));
        prop_assert_eq!(cuts(FastCdc::with(min, mean, max, level), &data), theirs(&data, min, mean, max, level));
    }
}
