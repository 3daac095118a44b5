//! Streams fed in pieces.

use crate::{cuts, random};
use onefold_chunk::sieve::Sieve;
use onefold_chunk::tar::{Tar, Tars};
use onefold_chunk::whole_file::WholeFile;
use onefold_chunk::{ChunkStream, Chunker, Chunks, by_name, names};
use proptest::prelude::*;

/// Every chunker with a name (except `whole-file`), and those without one.
fn all(mean: usize) -> Vec<(String, Box<dyn Chunker>)> {
    let named = names().iter().filter(|name| **name != "whole-file");
    let mut all: Vec<(String, Box<dyn Chunker>)> = named
        .map(|name| {
            let chunker = by_name(name, mean, None).expect("a name of the list");
            (name.to_string(), chunker)
        })
        .collect();
    let tar = Tar::new(Sieve::new(mean), Tars::Magic);
    all.push(("whole files".into(), Box::new(WholeFile::new(3 * mean))));
    all.push(("keyed".into(), Box::new(Sieve::keyed(mean, &[9; 32]))));
    all.push(("tar".into(), Box::new(tar)));
    all
}

/// Feeds `data` in pieces of these sizes, in turn, and returns the chunks' lengths and bytes.
fn fed(chunker: Box<dyn Chunker>, data: &[u8], pieces: &[usize]) -> (Vec<usize>, Vec<u8>) {
    let (mut lengths, mut joined) = (Vec::new(), Vec::new());
    let mut take = |chunk: &[u8]| {
        lengths.push(chunk.len());
        joined.extend_from_slice(chunk);
    };
    let mut stream = ChunkStream::new(chunker);
    let (mut rest, mut sizes) = (data, pieces.iter().cycle());
    while !rest.is_empty() {
        let size = *sizes.next().expect("a cycle");
        let (piece, after) = rest.split_at(rest.len().min(size));
        stream.feed(piece, &mut take);
        rest = after;
    }
    stream.finish(&mut take);
    (lengths, joined)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn cuts_do_not_depend_on_the_pieces(
        seed: u64,
        len in 0usize..500_000,
        // tiny pieces, usual ones, and pieces long enough to be cut where they lie
        pieces in proptest::collection::vec(
            prop_oneof![0usize..100, 0usize..20_000, 100_000usize..400_000],
            1..12,
        ),
        mean in 256usize..4000,
        alphabet in 1u8..=255,
    ) {
        let mut data = random(seed, len);
        data.iter_mut().for_each(|byte| *byte %= alphabet);
        let pieces: Vec<usize> = pieces.into_iter().chain([1000]).collect();
        for ((name, chunker), (_, another)) in all(mean).into_iter().zip(all(mean)) {
            let expected = cuts(another, &data);
            let (lengths, joined) = fed(chunker, &data, &pieces);
            prop_assert!(lengths == expected, "{} with pieces {:?}", name, pieces);
            prop_assert!(joined == data, "{} gives other bytes", name);
        }
    }
}

#[test]
fn chunks_of_memory_are_those_of_the_stream() {
    let data = random(4, 200_000);
    for ((name, chunker), (_, another)) in all(1000).into_iter().zip(all(1000)) {
        let chunks = Chunks::new(chunker, &data);
        assert!(chunks.map(<[u8]>::len).eq(cuts(another, &data)), "{name}");
    }
}

#[test]
fn an_empty_stream_has_no_chunks() {
    for (name, chunker) in all(1000) {
        let (lengths, _) = fed(chunker, &[], &[1]);
        assert!(lengths.is_empty(), "{name}");
    }
    assert_eq!(Chunks::new(Sieve::new(1000), &[]).next(), None);
}
