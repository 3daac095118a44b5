//! Sieve against a twin that is written for clarity, on every instruction set of this machine.

use crate::told::not_tested;
use crate::{cuts, random};
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use onefold_chunk::sieve::{CANDIDATES_MAX, Sieve, SieveIsa};
use onefold_chunk::{ChunkLimits, Chunker};
use proptest::prelude::*;

/// The linear bits at position `t` by polynomial arithmetic over GF(2), straight from the definition.
fn naive_bits(data: &[u8], t: usize) -> u8 {
    const KEY: u64 = 0x100d_02c0_a068_1601;
    let mut out = 0u8;
    for back in 0..9 {
        for bit in 0..8 {
            if data[t - back] >> bit & 1 == 1 {
                out ^= ((u128::from(KEY) << bit) >> (8 * back)) as u8;
            }
        }
    }
    out ^ 0x8f
}

#[test]
fn candidates_are_what_the_definition_says() {
    // The mean is so small that every candidate is one in 256: cuts of at most one candidate each can be checked
    // against the definition.
    let data = random(7, 60_000);
    let mut at = 0;
    for length in cuts(Sieve::new(256), &data) {
        let last = at + length - 1;
        // A search without candidates cuts at the limit.
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

/// Random bytes, each changed by `change` of its linear bits.
fn crafted(seed: u64, len: usize, change: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut data = random(seed, len);
    for t in 8..len {
        data[t] ^= change(naive_bits(&data, t));
    }
    data
}

/// The densest data: the lowest eight bits of the key are 1, so for any eight bytes before, one value of a byte makes
/// its linear bits zero. From the ninth byte on, every position is a candidate, at any mean.
fn all_candidates(seed: u64, len: usize) -> Vec<u8> {
    crafted(seed, len, |bits| bits)
}

/// Random data in which no position is a candidate.
fn no_candidates(seed: u64, len: usize) -> Vec<u8> {
    crafted(seed, len, |bits| u8::from(bits == 0))
}

#[test]
fn crafted_data_is_what_it_claims_to_be() {
    let (all, none) = (all_candidates(1, 100_000), no_candidates(1, 100_000));
    assert!((8..100_000).all(|t| naive_bits(&all, t) == 0));
    assert!((8..100_000).all(|t| naive_bits(&none, t) != 0));
}

#[test]
fn a_search_ends_at_the_largest_number_of_candidates() {
    let data = all_candidates(2, 300_000);
    for (mean, isa) in [1024, 2048, 8192, 32_768].into_iter().flat_map(|mean| {
        SieveIsa::available()
            .into_iter()
            .map(move |isa| (mean, isa))
    }) {
        let chunker = Sieve::new(mean).on(isa).expect("available");
        let limits = chunker.limits();
        let lengths = cuts(chunker, &data);
        // The end of a stream stays whole up to `max`.
        for length in &lengths[..lengths.len() - 1] {
            let ends = limits.min..limits.max.min(limits.min + CANDIDATES_MAX);
            assert!(ends.contains(length), "{length} at {mean} on {isa:?}");
        }
    }
}

#[test]
fn data_without_candidates_is_cut_at_the_limit_whatever_it_is() {
    let data = no_candidates(3, 300_000);
    for (mean, isa) in [256, 2048, 8192].into_iter().flat_map(|mean| {
        SieveIsa::available()
            .into_iter()
            .map(move |isa| (mean, isa))
    }) {
        let chunker = Sieve::new(mean).on(isa).expect("available");
        let max = chunker.limits().max;
        let lengths = cuts(chunker, &data);
        assert_eq!(lengths.len(), data.len().div_ceil(max));
        assert!(
            lengths[..lengths.len() - 1]
                .iter()
                .all(|length| *length == max)
        );
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

/// The unkeyed strong hash, straight from the definition.
fn naive_fold(window: &[u8]) -> u64 {
    const PI: [u64; 5] = [
        0x243f_6a88_85a3_08d3,
        0x1319_8a2e_0370_7344,
        0xa409_3822_299f_31d0,
        0x082e_fa98_ec4e_6c89,
        0x4528_21e6_38d0_1377,
    ];
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product ^ product >> 64) as u64
    };
    let word =
        |i: usize| PI[i] ^ (0..8).fold(0, |w, k| w | u64::from(window[8 * i + k]) << (8 * k));
    let mixed = fold(word(0), word(1)).rotate_left(29) ^ fold(word(2), word(3));
    fold(mixed ^ PI[0], PI[4])
}

/// The keyed strong hash, straight from the definition: two blocks of AES-128 in CBC, the first eight bytes of the
/// last.
fn naive_mac(key: &[u8; 32]) -> impl Fn(&[u8]) -> u64 {
    let own = blake3::derive_key("onefold v1 sieve cut points", key);
    let cipher = aes::Aes128::new_from_slice(&own[..16]).expect("16 bytes");
    move |window| {
        let mut state = [0u8; 16];
        for half in window.chunks_exact(16) {
            let mut block = std::array::from_fn(|i| state[i] ^ half[i]).into();
            cipher.encrypt_block(&mut block);
            state = block.into();
        }
        u64::from_le_bytes(state[..8].try_into().expect("eight bytes"))
    }
}

/// Cuts by the definition alone: every chunk searched anew, position by position. `mask`: see [`mask_for`].
fn naive_cuts(
    data: &[u8],
    limits: ChunkLimits,
    mask: u8,
    strong: &dyn Fn(&[u8]) -> u64,
) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut start = 0;
    while start < data.len() {
        let rest = &data[start..];
        let end = rest.len().min(limits.max);
        let candidates = (limits.min..end)
            .filter(|l| naive_bits(rest, l - 1) == 0 && naive_bits(rest, l - 2) & mask == 0)
            .take(CANDIDATES_MAX);
        let best = candidates.min_by_key(|l| strong(&rest[l - 32..*l]));
        let whole = rest.len() < limits.max;
        lengths.push(if whole {
            rest.len()
        } else {
            best.unwrap_or(end)
        });
        start += lengths.last().expect("just pushed");
    }
    lengths
}

/// The bits of the position before that must be zero, so that the range has about 16 candidates.
fn mask_for(limits: ChunkLimits) -> u8 {
    let extra = ((limits.max - limits.min) as f64 / 16.0 / 256.0)
        .log2()
        .round();
    ((1u32 << extra.clamp(0.0, 8.0) as u32) - 1) as u8
}

fn all_at_once(mut chunker: Sieve, data: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    let covered = chunker.cuts(data, true, &mut |length| lengths.push(length));
    assert_eq!(covered, data.len());
    lengths
}

/// Cuts at a threshold by the definition alone. `mask` and `threshold` are worked out from PRUNE's model of the chunk
/// size.
fn naive_threshold_cuts(
    data: &[u8],
    limits: ChunkLimits,
    strong: &dyn Fn(&[u8]) -> u64,
) -> Vec<usize> {
    let (mask, threshold) = threshold_for(limits);
    let mut lengths = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let end = rest.len().min(limits.max);
        let mut candidates = (limits.min..end)
            .filter(|l| naive_bits(rest, l - 1) == 0 && naive_bits(rest, l - 2) & mask == 0)
            .take(CANDIDATES_MAX)
            .map(|l| (strong(&rest[l - 32..l]), l));
        let all: Vec<_> = candidates.by_ref().collect();
        let first = all.iter().find(|(hash, _)| *hash < threshold);
        let smallest = all.iter().min().filter(|_| rest.len() >= limits.max);
        let length = first.or(smallest).map_or(end, |(_, l)| *l);
        lengths.push(length);
        rest = &rest[length..];
    }
    lengths
}

/// The mask of candidates and the threshold of hashes that give the mean.
fn threshold_for(limits: ChunkLimits) -> (u8, u64) {
    let mean_at = |p: f64| {
        let positions = (limits.max - limits.min) as i32;
        limits.min as f64 + (1.0 - (1.0 - p).powi(positions)) / p
    };
    let (mut low, mut high) = (-60f64, -1f64);
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if mean_at(middle.exp2()) > limits.mean as f64 {
            low = middle
        } else {
            high = middle
        }
    }
    let odds = high.exp2();
    let extra = ((0.5 / odds).log2().round() - 8.0).clamp(0.0, 8.0);
    let share = odds * 256.0 * extra.exp2();
    (
        ((1u32 << extra as u32) - 1) as u8,
        (share * 2f64.powi(64)) as u64,
    )
}

/// Tests compare only the instruction sets of this machine; this one prints the missing ones, which a green run would
/// hide.
#[test]
fn instruction_sets_that_are_not_here_are_told() {
    let here = SieveIsa::available();
    let wanted: &[SieveIsa] = if cfg!(target_arch = "x86_64") {
        &[SieveIsa::Pclmul, SieveIsa::Avx2, SieveIsa::Avx512]
    } else {
        &[SieveIsa::Neon]
    };
    for isa in wanted.iter().filter(|isa| !here.contains(isa)) {
        not_tested(&format!(
            "sieve by {isa:?}: this CPU has no such instructions"
        ));
    }
}

fn assert_all_alike(data: &[u8], mean: usize) {
    let key = [3; 32];
    let mac = naive_mac(&key);
    for (sieve, strong) in [
        (Sieve::new(mean), &naive_fold as &dyn Fn(&[u8]) -> u64),
        (Sieve::keyed(mean, &key), &mac),
    ] {
        let limits = sieve.limits();
        let expected = naive_cuts(data, limits, mask_for(limits), strong);
        assert_eq!(all_at_once(sieve, data), expected);
    }
    for (sieve, strong) in [
        (Sieve::threshold(mean), &naive_fold as &dyn Fn(&[u8]) -> u64),
        (Sieve::threshold_keyed(mean, &key), &mac),
    ] {
        let expected = naive_threshold_cuts(data, sieve.limits(), strong);
        assert_eq!(all_at_once(sieve, data), expected);
    }
    for chunker in [
        Sieve::new(mean),
        Sieve::keyed(mean, &key),
        Sieve::threshold(mean),
        Sieve::threshold_keyed(mean, &key),
    ] {
        let expected = cuts(chunker.on(SieveIsa::Scalar).expect("always there"), data);
        for isa in SieveIsa::available() {
            assert_eq!(
                cuts(chunker.on(isa).expect("available"), data),
                expected,
                "{isa:?}"
            );
            let chunker = chunker.on(isa).expect("available");
            assert_eq!(all_at_once(chunker, data), expected, "at once, {isa:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_instruction_set_cuts_alike(seed: u64, len in 0usize..300_000, mean in 256usize..40_000, alphabet in 1u8..=255) {
        let mut data = random(seed, len);
        data.iter_mut().for_each(|byte| *byte %= alphabet);
        assert_all_alike(&data, mean);
    }

    #[test]
    fn dense_candidates_are_cut_alike(seed: u64, pieces in proptest::collection::vec((0usize..3000, 0usize..9000), 1..12), mean in 256usize..9000) {
        let mut data = Vec::new();
        for (i, (some, many)) in pieces.into_iter().enumerate() {
            let seed = seed ^ i as u64;
            data.extend(random(seed, some));
            data.extend(no_candidates(seed, some));
            data.extend(all_candidates(seed, many));
        }
        assert_all_alike(&data, mean);
    }

    #[test]
    fn pieces_searched_apart_are_cut_alike(
        seed: u64,
        lengths in proptest::collection::vec((0usize..60_000, any::<bool>(), any::<bool>()), 1..8),
        mean in 256usize..20_000,
        kind in 0..4,
    ) {
        let (mut data, mut splits) = (Vec::new(), vec![]);
        for (i, (length, crafted, listed)) in lengths.into_iter().enumerate() {
            let begin = data.len();
            if crafted { data.extend(all_candidates(seed ^ i as u64, length)) } else { data.extend(random(seed ^ i as u64, length)) }
            // Pieces may lie apart: data between them is searched when cuts are made.
            if listed {
                splits.push(begin..data.len());
            }
        }
        let mut sieve = match kind {
            0 => Sieve::new(mean),
            1 => Sieve::keyed(mean, &[5; 32]),
            2 => Sieve::threshold(mean),
            _ => Sieve::threshold_keyed(mean, &[5; 32]),
        };
        let pieces: Vec<_> = splits.into_iter().map(|piece| sieve.candidates(&data, piece)).collect();
        for ends in [false, true] {
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            let covered = sieve.cuts(&data, ends, &mut |length| expected.push(length));
            let by_pieces = sieve.cuts_from(&data, &pieces, ends, &mut |length| found.push(length));
            prop_assert_eq!((covered, &expected), (by_pieces, &found));
        }
    }

    #[test]
    fn a_prefix_is_cut_as_far_as_is_certain(seed: u64, len in 0usize..200_000) {
        let data = random(seed, len);
        let mut chunker = Sieve::new(4096);
        let mut lengths = Vec::new();
        let covered = chunker.cuts(&data, false, &mut |length| lengths.push(length));
        prop_assert_eq!(covered, lengths.iter().sum::<usize>());
        prop_assert!(data.len() - covered < chunker.limits().max);
        prop_assert_eq!(&lengths[..], &all_at_once(chunker, &data)[..lengths.len()]);
    }

    #[test]
    fn periodic_data_is_cut_alike(period in proptest::collection::vec(any::<u8>(), 1..40), len in 0usize..100_000, mean in 256usize..9000) {
        let data: Vec<u8> = period.iter().copied().cycle().take(len).collect();
        assert_all_alike(&data, mean);
    }

    #[test]
    fn a_cut_does_not_depend_on_what_follows_the_limit(seed: u64, more in 0usize..50_000) {
        let data = random(seed, 12_288 + more);
        prop_assert_eq!(Sieve::new(8192).cut(&data), Sieve::new(8192).cut(&data[..12_288]));
    }
}
