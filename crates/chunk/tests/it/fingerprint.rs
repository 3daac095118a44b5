//! Fingerprints of many chunks at once are those of one after the other.

use onefold_chunk::{Fingerprint, fingerprints};
use proptest::prelude::*;

use crate::random;

fn check(lengths: &[usize]) {
    let data = random(9, lengths.iter().sum());
    for key in [None, Some([3; 32])] {
        let mut rest = &data[..];
        let chunks: Vec<&[u8]> = lengths
            .iter()
            .map(|len| rest.split_off(..*len).expect("the data is as long"))
            .collect();
        let many = fingerprints(key.as_ref(), chunks.iter().copied());
        for (i, chunk) in chunks.iter().enumerate() {
            let one = match &key {
                Some(key) => Fingerprint::keyed(key, chunk),
                None => Fingerprint::of(chunk),
            };
            let len = chunk.len();
            assert_eq!(many[i], one, "chunk {i} of {len} bytes");
        }
    }
}

#[test]
fn lengths_around_every_edge() {
    let mut lengths: Vec<usize> = vec![0, 1, 63, 64, 65, 1023];
    for leaves in 1..=20 {
        for off in [-65i64, -64, -63, -1, 0, 1, 63, 64, 65, 512] {
            lengths.push((leaves * 1024 + off) as usize);
        }
    }
    check(&lengths);
    lengths.iter().for_each(|len| check(&[*len]));
    check(&[]);
    check(&[300_001, 5, 1 << 20, 70_000]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_lengths(lengths in prop::collection::vec(0usize..40_000, 0..40)) {
        check(&lengths);
    }
}
