//! Tests of the chunkers.

mod adaptive;
mod context;
mod every;
mod fastcdc;
mod fbc;
mod fingerprint;
mod gear;
mod sieve;
mod signatures;
mod simd;
mod stream;
mod tar;
#[path = "../../../io/tests/it/told.rs"]
mod told;
mod vectors;

use onefold_chunk::Chunker;

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut out);
    out
}

/// The lengths of all chunks, each checked against the limits.
fn cuts(mut chunker: impl Chunker, data: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let length = chunker.cut(&data[at..]);
        assert!(length > 0 && length <= chunker.limits().max);
        assert!(length >= chunker.limits().min || at + length == data.len());
        lengths.push(length);
        at += length;
    }
    lengths
}
