//! The estimator's counts beside exact ones (the dissertation's Fig 2.6), and its RAM.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;
use onefold_chunk::fbc::{Estimator, Params};

/// One window in this many is counted exactly, chosen by its content.
const SHARE: u64 = 128;
/// Smallest number of occurrences of a window that is judged: the estimator is for frequent ones.
const COUNT_MIN: u32 = 15;
/// Bytes that are passed to the estimator at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Prints the median and the 90th percentile of the relative error of windows that occur 15 times and more, and the
/// estimator's bytes.
pub fn run(stream: &[u8], segments: &[usize], entries: usize, seed: u64) {
    println!(
        "\nestimates beside exact counts of at least {COUNT_MIN}, {} MiB of stream",
        stream.len() >> 20
    );
    println!(
        "{:<10} {:>9} {:>9} {:>9} {:>12} {:>8}",
        "segment", "windows", "median", "p90", "estimator", "modulo"
    );
    for segment in segments.iter().copied() {
        let params = Params {
            entries_max: entries,
            ..Params::new(segment)
        };
        let mut estimator = Estimator::new(params, seed);
        let mut bytes_most = 0;
        for piece in stream.chunks(PIECE_BYTES) {
            estimator.feed(piece);
            bytes_most = bytes_most.max(estimator.bytes());
        }
        let frequent = estimator.finish();
        let often = counted(stream, segment);
        let windows = often.iter().map(|(at, _)| &stream[*at..at + segment]);
        let estimates = frequent.estimates(windows);
        let known = often.iter().zip(estimates);
        let mut errors: Vec<f64> = known
            .filter_map(|((_, exact), estimate)| Some((estimate?, *exact)))
            .map(|(estimate, exact)| (f64::from(estimate) / f64::from(exact) - 1.0).abs())
            .collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (errors.len() as f64 * share) as usize;
            errors.get(place).map_or(f64::NAN, |error| error * 100.0)
        };
        println!(
            "{segment:<10} {:>9} {:>7.1} % {:>7.1} % {:>8} KiB {:>8}",
            errors.len(),
            at(0.5),
            at(0.9),
            bytes_most >> 10,
            frequent.modulo(),
        );
    }
}

/// Offsets of frequent windows, each once, with their counts.
fn counted(stream: &[u8], segment: usize) -> Vec<(usize, u32)> {
    let mut counts: HashMap<u64, (usize, u32)> = HashMap::new();
    for (at, window) in stream.windows(segment).enumerate() {
        let first = u64::from_le_bytes(window[..8].try_into().expect("eight bytes"));
        let spread = (first ^ first >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if spread % SHARE == 0 {
            let name = Fingerprint::of(window).prefix();
            counts.entry(name).or_insert((at, 0)).1 += 1;
        }
    }
    counts.retain(|_, (_, count)| *count >= COUNT_MIN);
    counts.into_values().collect()
}
