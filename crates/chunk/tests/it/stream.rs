//! Streams fed in pieces.

use crate::{cuts, random};
use onefold_chunk::{ChunkStream, by_name, names};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn cuts_do_not_depend_on_the_pieces(
        seed: u64,
        pieces in proptest::collection::vec(0usize..20_000, 0..30),
        mean in 256usize..4000,
    ) {
        let data = random(seed, pieces.iter().sum());
        for name in names().iter().filter(|name| **name != "whole-file") {
            let new = || by_name(name, mean, None).expect("a name of the list");
            let mut stream = ChunkStream::new(new());
            let (mut lengths, mut joined, mut at) = (Vec::new(), Vec::new(), 0);
            let mut take = |chunk: &[u8]| {
                lengths.push(chunk.len());
                joined.extend_from_slice(chunk);
            };
            for piece in &pieces {
                stream.feed(&data[at..at + piece], &mut take);
                at += piece;
            }
            stream.finish(&mut take);
            prop_assert_eq!(lengths, cuts(new(), &data));
            prop_assert_eq!(&joined, &data);
        }
    }
}
