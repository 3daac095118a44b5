//! Digests: sums as the paper defines them, parts, and differences between files.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::nh::{self, KEY_WORDS};
use super::*;

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let mut stream = blake3::Hasher::new();
    stream
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut out);
    out
}

fn block(seed: u64) -> [u8; BLOCK_BYTES] {
    random(seed, BLOCK_BYTES).try_into().expect("a block")
}

/// The sum of products for one pass as the paper writes it, in numbers that cannot overflow.
fn by_definition(key: &nh::Key, block: &[u8; BLOCK_BYTES], pass: usize) -> u64 {
    let word = |i: usize| u64::from(u32::from_le_bytes(block[4 * i..][..4].try_into().unwrap()));
    let sum = |i: usize| u128::from((word(i) + u64::from(key[i + 4 * pass])) % (1 << 32));
    let products = (0..BLOCK_BYTES / 8).map(|pair| sum(2 * pair) * sum(2 * pair + 1));
    (products.sum::<u128>() % (1 << 64)) as u64
}

#[test]
fn sums_are_the_definitions() {
    for seed in 0..8 {
        let bytes = random(seed, 4 * KEY_WORDS);
        let key: nh::Key =
            core::array::from_fn(|i| u32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap()));
        // Blocks for which a sum of key and word overflows are among these.
        for block in [block(100 + seed), [0; BLOCK_BYTES], [0xff; BLOCK_BYTES]] {
            let expected = core::array::from_fn(|pass| by_definition(&key, &block, pass));
            assert_eq!(nh::plain(&key, &block), expected);
            #[cfg(all(feature = "std", target_arch = "x86_64"))]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: this CPU has AVX2.
                assert_eq!(unsafe { nh::avx2(&key, &block) }, expected);
            }
        }
    }
}

/// The repository format depends on these values.
#[test]
fn a_digest_stays_what_it_is() {
    let data = random(1, 3 * BLOCK_BYTES + 1000);
    let digest = Digester::new(&[7; 32]).digest(&data);
    assert_eq!(
        std::format!("{digest:?}"),
        "Digest(c745c5760c27c58a4e5875a4e7e9c621)"
    );
}

/// The digest by the words of FORMAT.md: a hash of data and a hash of holes.
#[test]
fn a_digest_of_a_file_with_holes_is_the_formats() {
    let key = [7; 32];
    let digester = Digester::new(&key);
    let [one, two] = [1, 2].map(|seed| random(seed, BLOCK_BYTES + 1000));
    let mut digest = digester.begin();
    digest.hole(512);
    digest.push(&digester.part(&one));
    digest.hole(1 << 40);
    digest.push(&digester.part(&two));
    let found = digest.finish();
    assert_eq!(
        std::format!("{found:?}"),
        "Digest(30184f0d954dc8af29d9e4d2d02b2e8d)"
    );

    let keyed = |data: &[u8]| half(blake3::Hasher::new_keyed(&key).update(data));
    let mut places = b"holes".to_vec();
    for (offset, len) in [(0, 512), (512 + one.len() as u64, 1u64 << 40)] {
        places.extend([offset, len].map(u64::to_le_bytes).concat());
    }
    let mut all = [digester.part(&one).sums, digester.part(&two).sums].concat();
    let len = 512 + one.len() as u64 + (1 << 40) + two.len() as u64;
    all.extend(len.to_le_bytes());
    all.extend(keyed(&places));
    assert_eq!(found, Digest(keyed(&all)));
}

/// Files with the same bytes, or the same data, but holes elsewhere.
#[test]
fn places_of_holes_count() {
    let digester = Digester::new(&[1; 32]);
    let zeros = digester.part(&[0; BLOCK_BYTES]);
    let short = digester.part(&[0; BLOCK_BYTES - 1]);
    let digests = [
        &[(Some(&zeros), 0), (Some(&zeros), 0)][..],
        &[(Some(&zeros), BLOCK_BYTES)],
        &[(None, BLOCK_BYTES), (Some(&zeros), 0)],
        &[(None, 2 * BLOCK_BYTES)],
        &[(None, BLOCK_BYTES), (None, BLOCK_BYTES)],
        &[(Some(&short), BLOCK_BYTES + 1)],
        &[(Some(&short), 1), (Some(&zeros), 0)],
        &[(Some(&short), 1), (None, BLOCK_BYTES)],
    ]
    .map(|file| {
        let mut digest = digester.begin();
        for (part, hole) in file {
            part.iter().for_each(|part| digest.push(part));
            if *hole > 0 {
                digest.hole(*hole as u64);
            }
        }
        digest.finish()
    });
    for (nth, digest) in digests.iter().enumerate() {
        assert!(!digests[..nth].contains(digest), "{nth}");
    }
}

#[test]
fn lengths_and_keys_count() {
    let digester = Digester::new(&[1; 32]);
    let zeros = vec![0; 2 * BLOCK_BYTES];
    let lengths = [
        0,
        1,
        BLOCK_BYTES - 1,
        BLOCK_BYTES,
        BLOCK_BYTES + 1,
        2 * BLOCK_BYTES,
    ];
    let mut digests: Vec<_> = lengths
        .iter()
        .map(|len| digester.digest(&zeros[..*len]).0)
        .collect();
    digests.push(Digester::new(&[2; 32]).digest(&zeros).0);
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), lengths.len() + 1);
}

proptest! {
    /// The files differ in any bit, anywhere.
    #[test]
    fn what_differs_in_a_bit_has_another_digest(seed: u64, len in 1..20_000usize, at: prop::sample::Index, bit in 0..8u32) {
        let digester = Digester::new(&[seed as u8; 32]);
        let mut data = random(seed, len);
        let before = digester.digest(&data);
        data[at.index(len)] ^= 1u8 << bit;
        prop_assert_ne!(digester.digest(&data), before);
    }

    #[test]
    fn parts_come_to_the_same_as_the_whole(seed: u64, len in 0..60_000usize, cuts in prop::collection::vec(1..4usize, 20)) {
        let digester = Digester::new(&[3; 32]);
        let data = random(seed, len);
        let (mut digest, mut rest) = (digester.begin(), &data[..]);
        for blocks in cuts {
            let (part, behind) = rest.split_at(rest.len().min(blocks * BLOCK_BYTES));
            digest.push(&digester.part(part));
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        if rest.is_empty() {
            prop_assert_eq!(digest.finish(), digester.digest(&data));
        }
    }
}
