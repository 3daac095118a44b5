//! Estimates that were kept for other hosts.

use onefold_chunk::Fingerprint;
use onefold_lab::{ChunkerChoice, Estimate, Tally, saved};

use super::{Reach, Target};
use crate::mend;

/// RAM for each tally.
const TALLY_BYTES: u64 = 64 << 10;

pub fn targets() -> Vec<Target> {
    vec![
        Target::new("lab/saved", vec![tallies(300), tallies(0)], |bytes| {
            let mut tallies = match saved::decode(bytes, "saved", TALLY_BYTES) {
                Ok(tallies) => tallies,
                Err(error) => return Reach::of_error(&error),
            };
            for (_, tally) in &tallies {
                let _ = Estimate::of(tally).ratio_meta();
            }
            if let Ok(again) = saved::decode(bytes, "saved", TALLY_BYTES) {
                saved::merge(&mut tallies, again);
            }
            let encoded = saved::encode(&tallies);
            assert!(saved::decode(&encoded, "saved", TALLY_BYTES).is_ok());
            Reach::Inside
        })
        .mended(mend::frame),
    ]
}

/// Two choices with some chunks.
fn tallies(chunks: u64) -> Vec<u8> {
    let tally = |mean: u32| {
        let mut tally = Tally::new(TALLY_BYTES);
        for n in 0..chunks {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&(n % 200).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            tally.add(Fingerprint(name), mean as usize + n as usize);
        }
        let chunker = "sieve".to_owned();
        (ChunkerChoice { chunker, mean }, tally)
    };
    saved::encode(&[tally(4096), tally(8192)])
}
