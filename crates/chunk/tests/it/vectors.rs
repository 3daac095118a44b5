//! Chunks that other programs cut (`tests/vectors`, with how they were made), compared with our cuts of the same bytes.
//!
//! `seqcdc` cuts as its authors' program does. Where a program differs from ours in how it ends or begins a chunk
//! (docs/chunkers tells the faults), every one of its cuts is explained by our signature or our search, and none that
//! ours would make before is missing.

use crate::simd::naive_ae;
use crate::{cuts, random};
use onefold_chunk::rabin::Sum;
use onefold_chunk::ram::Ram;
use onefold_chunk::seqcdc::{SeqCdc, SeqParameters};
use onefold_chunk::{ChunkLimits, Chunker, gear::Gear};

/// Calls `check` with each input and the lengths of its chunks, in order.
fn each(vectors: &str, mut check: impl FnMut(&str, &[u8], &[usize])) {
    let mut inputs = 0;
    for line in vectors.lines() {
        let (name, lengths) = line.split_once(": ").expect("a name in front");
        let data = input(name);
        let lengths: Vec<usize> = lengths
            .split(' ')
            .map(|length| length.parse().expect("a length"))
            .collect();
        assert_eq!(lengths.iter().sum::<usize>(), data.len(), "{name}");
        check(name, &data, &lengths);
        inputs += 1;
    }
    assert_eq!(inputs, 3);
}

/// The input of this name, as `input.py` makes it.
fn input(name: &str) -> Vec<u8> {
    let (seed, alphabet, run) = match name {
        "random" => (1, 256, 1),
        "low" => (2, 16, 1),
        "runs" => (3, 200, 9),
        other => panic!("no input of the name {other}"),
    };
    let (mut state, mut out): (u64, Vec<u8>) = (seed, Vec::new());
    while out.len() < 1_000_003 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        for pair in (z ^ z >> 31).to_le_bytes().as_chunks::<2>().0 {
            let value = (u16::from(pair[0]) % alphabet) as u8;
            out.extend(std::iter::repeat_n(value, 1 + usize::from(pair[1]) % run));
        }
    }
    out.truncate(1_000_003);
    out
}

/// The rest of the data at the beginning of each chunk, with its length.
fn chunks<'a>(data: &'a [u8], lengths: &'a [usize]) -> impl Iterator<Item = (&'a [u8], usize)> {
    let mut rest = data;
    lengths.iter().map(move |length| {
        let here = rest;
        rest = &rest[*length..];
        (here, *length)
    })
}

#[test]
fn seqcdc_cuts_as_its_authors_program() {
    let (min, mean, max) = (4096, 8192, 16_384);
    each(
        include_str!("../vectors/dedupbench-seqcdc.txt"),
        |name, data, lengths| {
            let seqcdc = SeqCdc::tuned(ChunkLimits { min, mean, max }, SeqParameters::PAPER);
            assert_eq!(cuts(seqcdc.expect("in range"), data), lengths, "{name}");
        },
    );
}

/// The other program leaves the byte that decides to the next chunk.
#[test]
fn ram_finds_the_byte_that_dedup_bench_finds() {
    let mut ram = Ram::new(4096);
    let (window, max) = (ram.limits().min - 1, ram.limits().max);
    assert_eq!((window, max), (3841, 32_768));
    each(
        include_str!("../vectors/dedupbench-ram.txt"),
        |name, data, lengths| {
            for (rest, length) in chunks(data, lengths) {
                let ours = ram.cut(rest);
                let decides =
                    ours > window && rest[ours - 1] >= *rest[..window].iter().max().expect("some");
                assert_eq!(length, ours - usize::from(decides), "{name}");
            }
        },
    );
}

/// The other program compares single bytes, as the twin does here; with eight bytes, our chunker is tested against it.
#[test]
fn ae_with_values_of_one_byte_cuts_as_dedup_bench() {
    each(
        include_str!("../vectors/dedupbench-ae.txt"),
        |name, data, lengths| {
            for (rest, length) in chunks(data, lengths) {
                assert_eq!(naive_ae::<1>(rest, 4608, usize::MAX), length, "{name}");
            }
        },
    );
}

/// The first length from `min` on after which the last `window` bytes have a fingerprint whose bits of `mask` are zero.
fn first_zero(rest: &[u8], window: usize, min: usize, max: usize, mask: u64) -> usize {
    let end = rest.len().min(max);
    let fits = |length: &usize| Sum::of(&rest[length - window..*length]).0 & mask == 0;
    (min..=end).find(fits).unwrap_or(end)
}

#[test]
fn rabin_fingerprints_are_those_of_restics_chunker_and_of_dedup_bench() {
    each(
        include_str!("../vectors/restic-chunker.txt"),
        |name, data, lengths| {
            for (rest, length) in chunks(data, lengths) {
                assert_eq!(first_zero(rest, 64, 2048, 65_536, 8191), length, "{name}");
            }
        },
    );
    each(
        include_str!("../vectors/dedupbench-rabin.txt"),
        |name, data, lengths| {
            for (rest, length) in chunks(data, lengths) {
                assert_eq!(first_zero(rest, 48, 2048, 65_536, 8191), length, "{name}");
            }
        },
    );
}

/// The other program begins at the minimum with an empty window into which a byte 1 was put, ends a chunk before the
/// byte that matches, looks one byte beyond the maximum, and without a backup takes all given data. With these
/// differences, its cuts follow.
#[test]
fn tttd_cuts_as_dedup_bench_but_for_its_faults() {
    let (min, max, given) = (2048, 16_000, 16_384);
    each(
        include_str!("../vectors/dedupbench-tttd.txt"),
        |name, data, lengths| {
            for (rest, length) in chunks(data, lengths) {
                let given = &rest[..rest.len().min(given)];
                if given.len() < min {
                    assert_eq!(length, given.len(), "{name}");
                    continue;
                }
                // The byte behind the last one is unknown.
                let to = given.len().min(max + 1);
                let fingerprint = |at: usize| {
                    let mut window = vec![0; 48 - (at - min).min(47) - 1];
                    if let Some(last) = window.last_mut() {
                        *last = 1;
                    }
                    window.extend(&given[at - (at - min).min(47)..=at]);
                    Sum::of(&window).0
                };
                let main = (min..to).find(|at| fingerprint(*at) & 8191 == 0);
                let backup = (min..to).rev().find(|at| fingerprint(*at) & 4095 == 0);
                let expected = main.or(backup).unwrap_or(given.len());
                assert_eq!(length, expected, "{name}");
            }
        },
    );
}

#[test]
fn gear_cuts_where_the_crate_gearhash_finds_a_match() {
    let (table, _) = fastcdc::v2020::get_gear_with_seed(0);
    let table = table.first_chunk().expect("a word for every byte");
    let (min, max, bits) = (2048, 65_536, 13);
    let mask = !0 << (64 - bits);
    let inputs = ["random", "low", "runs"];
    for data in inputs.map(input).into_iter().chain([random(5, 3 << 20)]) {
        let (mut theirs, mut rest) = (Vec::new(), &data[..]);
        while !rest.is_empty() {
            let end = rest.len().min(max);
            let mut length = end;
            if end > min {
                let mut hasher = gearhash::Hasher::new(table);
                hasher.update(&rest[min - 64..min]);
                let found = hasher.next_match(&rest[min..end], mask);
                length = found.map_or(end, |behind| min + behind);
            }
            theirs.push(length);
            rest = &rest[length..];
        }
        assert_eq!(cuts(Gear::with_pattern(min, max, bits), &data), theirs);
    }
}
