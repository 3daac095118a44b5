//! Data of which every chunk is known: the rate at which a core cuts, fingerprints and looks up, as in a backup that
//! finds nothing new; and the rate of verifying it where the digest of the whole file is known, too.

use std::collections::HashMap;

use onefold_chunk::digest::{Digest, Digester};
use onefold_chunk::sieve::Sieve;
use onefold_chunk::{Chunker, Fingerprint, fingerprints};
use onefold_io::Random;

use super::ChunkArgs;
use super::speed::thread_seconds;

/// Bytes that are cut and fingerprinted at once, like a backup's segments.
const SEGMENT_BYTES: usize = 4 << 20;
const KEY: [u8; 32] = [7; 32];

/// A way to compute fingerprints.
type Naming = fn(&[&[u8]]) -> Vec<Fingerprint>;

const WAYS: [(&str, Naming); 2] = [
    ("fingerprints", |chunks| {
        fingerprints(Some(&KEY), chunks.iter().copied())
    }),
    ("one after the other", |chunks| {
        let one = |chunk: &&[u8]| Fingerprint::keyed(&KEY, chunk);
        chunks.iter().map(one).collect()
    }),
];

/// Prints a line for each way to compute fingerprints.
pub fn run(args: &ChunkArgs) {
    let data = Random(2).bytes(args.mib << 20);
    let mut known = HashMap::new();
    for (at, name) in WAYS[0].1(&cut(&data, args.mean)).into_iter().enumerate() {
        known.insert(name, at);
    }
    let digester = Digester::new(&KEY);
    let whole = digester.digest(&data);
    let (mut best, mut best_digest) = ([f64::MAX; WAYS.len()], f64::MAX);
    for _ in 0..args.rounds {
        let begin = thread_seconds();
        assert_eq!(digest(&digester, &data), whole);
        best_digest = best_digest.min(thread_seconds() - begin);
        for ((_, name), best) in WAYS.iter().zip(&mut best) {
            let begin = thread_seconds();
            let found = look_up(&data, args.mean, *name, &known);
            *best = best.min(thread_seconds() - begin);
            assert_eq!(found, known.len(), "everything is known");
        }
    }
    println!(
        "\nall known: sieve keyed, BLAKE3 keyed, a hash table, one core, CPU time\n{:<22} {:>8}",
        "fingerprints by", "GB/s"
    );
    let names = WAYS.iter().map(|(name, _)| *name);
    let digest = ("none: its digest", best_digest);
    for (name, best) in names.zip(best).chain([digest]) {
        println!("{name:<22} {:>8.2}", data.len() as f64 / best / 1e9);
    }
}

/// Digests in parts, as a backup does.
fn digest(digester: &Digester, data: &[u8]) -> Digest {
    let mut digest = digester.begin();
    let parts = data.chunks(SEGMENT_BYTES);
    parts.for_each(|part| digest.push(&digester.part(part)));
    digest.finish()
}

fn cut(data: &[u8], mean: usize) -> Vec<&[u8]> {
    let (mut chunks, mut at) = (Vec::new(), 0);
    Sieve::keyed(mean, &KEY).cuts(data, true, &mut |length| {
        chunks.push(&data[at..at + length]);
        at += length;
    });
    chunks
}

/// The number of known chunks.
fn look_up(data: &[u8], mean: usize, name: Naming, known: &HashMap<Fingerprint, usize>) -> usize {
    let mut sieve = Sieve::keyed(mean, &KEY);
    let (mut at, mut found) = (0, 0);
    while at < data.len() {
        let end = data.len().min(at + SEGMENT_BYTES);
        let segment = &data[at..end];
        let (mut chunks, mut taken) = (Vec::new(), 0);
        at += sieve.cuts(segment, end == data.len(), &mut |length| {
            chunks.push(&segment[taken..taken + length]);
            taken += length;
        });
        let names = name(&chunks);
        found += names
            .iter()
            .filter(|name| known.contains_key(*name))
            .count();
    }
    found
}
