//! Long chunks where bytes look random, and sieve's everywhere else.

use std::collections::HashSet;

use onefold_chunk::adaptive::{
    Adaptive, DEEP_BYTES, DEEP_BYTES_MAX, DEEP_BYTES_MIN, LONG_BYTES_MAX, LONG_BYTES_MIN,
    PIECE_BYTES, PLAIN_BYTES, SAMPLE_BYTES,
};
use onefold_chunk::sieve::Sieve;
use onefold_chunk::tar::{Tar, Tars};
use onefold_chunk::{ChunkStream, Chunker, Chunks, StreamHints};

use crate::{cuts, random};

const MEAN: usize = 8192;

/// Bytes that do not look random.
fn letters(seed: u64, len: usize) -> Vec<u8> {
    let mut data = random(seed, len);
    data.iter_mut().for_each(|byte| *byte = b'a' + *byte % 26);
    data
}

fn pieces(data: &[u8]) -> Vec<&[u8]> {
    Chunks::new(Adaptive::new(MEAN), data).collect()
}

/// Random parts of several lengths, between others.
fn mixed() -> Vec<u8> {
    [
        letters(1, 300_000),
        random(2, 5 << 20),
        letters(3, 70_000),
        random(4, LONG_BYTES_MIN - 5),
        letters(5, 1 << 20),
        random(6, 30 << 20),
    ]
    .concat()
}

#[test]
fn random_bytes_are_cut_into_long_chunks_and_others_as_by_sieve() {
    let lengths = cuts(Adaptive::new(MEAN), &random(1, 40 << 20));
    let (last, others) = lengths.split_last().expect("some");
    let mut at = 0;
    for length in others {
        let range = if at < DEEP_BYTES {
            LONG_BYTES_MIN..=LONG_BYTES_MAX
        } else {
            DEEP_BYTES_MIN..=DEEP_BYTES_MAX
        };
        assert!(range.contains(length), "{lengths:?}");
        at += length;
    }
    assert!(*last <= DEEP_BYTES_MAX);

    let text = letters(2, 10 << 20);
    assert_eq!(
        cuts(Adaptive::new(MEAN), &text),
        cuts(Sieve::new(MEAN), &text)
    );
    let zeros = vec![0; 5 << 20];
    assert_eq!(
        cuts(Adaptive::new(MEAN), &zeros),
        cuts(Sieve::new(MEAN), &zeros)
    );
    let short = random(3, LONG_BYTES_MIN - 1);
    assert_eq!(
        cuts(Adaptive::new(MEAN), &short),
        cuts(Sieve::new(MEAN), &short)
    );
}

/// Bytes that are nearly even, as deflate makes them: three values come twice as often as the others.
#[test]
fn what_is_a_little_uneven_is_cut_finely() {
    let mut data = random(1, 12 << 20);
    let fill = random(2, data.len());
    for (byte, other) in data.iter_mut().zip(fill) {
        if other < 3 {
            *byte = other;
        }
    }
    let lengths = cuts(Adaptive::new(MEAN), &data);
    assert!(
        lengths.iter().all(|length| *length < LONG_BYTES_MIN),
        "{lengths:?}"
    );
}

#[test]
fn an_encrypted_disk_is_cut_finely() {
    let mut disk = random(1, 8 << 20);
    disk[..6].copy_from_slice(b"LUKS\xba\xbe");
    let mut adaptive = Adaptive::new(MEAN);
    adaptive.begin(&StreamHints::of(b"disk", &disk));
    assert_eq!(cuts(adaptive.clone(), &disk), cuts(Sieve::new(MEAN), &disk));
    // The next stream is not such a disk.
    let other = random(2, 8 << 20);
    adaptive.begin(&StreamHints::of(b"other", &other));
    assert_eq!(cuts(adaptive, &other), cuts(Adaptive::new(MEAN), &other));
}

/// The duplicates of every repository depend on these cuts.
#[test]
fn cuts_stay_where_they_are() {
    let lengths = cuts(Adaptive::new(MEAN), &mixed());
    let long: Vec<_> = lengths.iter().filter(|length| **length > 1 << 20).collect();
    assert_eq!(lengths.len(), 678);
    assert_eq!(
        long,
        [
            &2542456, &1906630, &2055978, &2899453, &4255410, &4780889, &5759284, &7567720,
            &2187220
        ]
    );
    let keyed = cuts(Adaptive::keyed(MEAN, &[7; 32]), &mixed());
    let long: Vec<_> = keyed.iter().filter(|length| **length > 1 << 20).collect();
    assert_eq!(keyed.len(), 726);
    assert_eq!(
        long,
        [
            &2195775, &1358829, &2337055, &1666464, &4382640, &7169274, &7076987, &7388466
        ]
    );
}

/// Long chunks of two streams that end alike but begin elsewhere: the range is wide enough for cuts to meet again soon.
#[test]
fn what_two_streams_have_in_common_is_cut_alike_within_a_few_long_chunks() {
    let data = random(7, 192 << 20);
    let ends = |from: usize| {
        Chunks::new(Adaptive::new(MEAN), &data[from..]).scan(from, |at, piece| {
            *at += piece.len();
            Some(*at)
        })
    };
    let whole: HashSet<_> = ends(0).collect();
    const STARTS: usize = 60;
    let apart = |from: usize| {
        let meet = ends(from).find(|end| whole.contains(end));
        meet.expect("the end at least") - from
    };
    let mut all: Vec<usize> = (1..=STARTS).map(|n| apart(n * 1_000_003)).collect();
    all.sort_unstable();
    let (mean, median) = (all.iter().sum::<usize>() / STARTS, all[STARTS / 2]);
    assert!(mean < 12 << 20 && median < 8 << 20, "{mean}, {median}");
}

#[test]
fn a_long_chunk_begins_soon_and_ends_where_bytes_stop_to_look_random() {
    let data = mixed();
    let mut at = 0;
    for piece in pieces(&data) {
        if piece.len() >= LONG_BYTES_MIN {
            let ends = [300_000 + (5 << 20), data.len()];
            assert!(ends.iter().any(|end| at + piece.len() <= *end));
        }
        at += piece.len();
    }
    let found = pieces(&data);
    let first = found.iter().position(|piece| piece.len() >= LONG_BYTES_MIN);
    let before: usize = found[..first.expect("a long one")]
        .iter()
        .map(|piece| piece.len())
        .sum();
    assert!(before <= 300_000 + 2 * PLAIN_BYTES, "{before}");
}

#[test]
fn what_is_moved_is_found_again() {
    let old = random(3, 40 << 20);
    let known: HashSet<&[u8]> = pieces(&old).into_iter().collect();
    for front in [1, 100, 3_000_000] {
        let new = [&letters(9, front)[..], &old].concat();
        let missing: usize = pieces(&new)
            .iter()
            .filter(|piece| !known.contains(*piece))
            .map(|piece| piece.len())
            .sum();
        assert!(missing < front + (14 << 20), "{front}: {missing}");
    }
}

#[test]
fn cuts_do_not_depend_on_how_a_stream_comes() {
    let data = mixed();
    let whole = cuts(Adaptive::new(MEAN), &data);
    // One chunk at a time.
    let lengths: Vec<_> = pieces(&data).iter().map(|piece| piece.len()).collect();
    assert_eq!(lengths, whole);
    for step in [1 << 10, 512 << 10, (2 << 20) + 7, 4 << 20] {
        let mut lengths = Vec::new();
        let mut stream = ChunkStream::new(Adaptive::new(MEAN));
        for piece in data.chunks(step) {
            stream.feed(piece, |chunk| lengths.push(chunk.len()));
        }
        stream.finish(|chunk| lengths.push(chunk.len()));
        assert!(lengths == whole, "{step}");
        // As a backup reads: certain cuts at once, and the rest together with the next segment.
        for tars in [false, true] {
            let mut chunker: Box<dyn Chunker> = Box::new(Adaptive::new(MEAN));
            if tars {
                chunker = Box::new(Tar::new(chunker, Tars::Magic));
                chunker.begin(&StreamHints::of(b"", &data));
            }
            let (mut lengths, mut left) = (Vec::new(), Vec::new());
            for (i, piece) in data.chunks(step.max(64 << 10)).enumerate() {
                left.extend_from_slice(piece);
                let ends = (i + 1) * step.max(64 << 10) >= data.len();
                let covered = chunker.cuts(&left, ends, &mut |length| lengths.push(length));
                left.drain(..covered);
                assert!(ends || left.len() < DEEP_BYTES_MAX);
            }
            assert!(left.is_empty() && lengths == whole, "{step} {tars}");
        }
    }
}

/// Ranges of files, between which holes lie.
fn sparse_files() -> Vec<Vec<Vec<u8>>> {
    let noise = random(1, 2 * LONG_BYTES_MAX);
    // Behind the last look at letters, all bytes to be cut finely come before the hole, or not.
    let mut files: Vec<Vec<_>> = (512..=600)
        .step_by(8)
        .map(|kib| vec![letters(kib, (kib as usize) << 10), noise.clone()])
        .collect();
    // The last chunk is certain before the end is.
    let longest = Sieve::new(MEAN).limits().max;
    files.push(vec![vec![0; 50 * longest], noise.clone()]);
    files.push((1..6).map(|n| random(n, n as usize * 200_000)).collect());
    for bytes in [PLAIN_BYTES, LONG_BYTES_MIN, LONG_BYTES_MAX] {
        let around = [bytes - 1, bytes, bytes + 1, bytes + 70_000];
        files.extend(around.map(|bytes| {
            let behind_letters = [letters(3, 40_000), random(4, bytes)].concat();
            vec![
                random(2, bytes),
                noise.clone(),
                behind_letters,
                noise.clone(),
            ]
        }));
    }
    // A short rest behind a long chunk, and then one behind none; then a stream whose last sample is uneven.
    let mut uneven = noise[..LONG_BYTES_MIN + PIECE_BYTES].to_vec();
    uneven[LONG_BYTES_MIN..][..SAMPLE_BYTES].fill(0);
    files.push(vec![noise.clone(), random(5, 300_000), uneven, mixed()]);
    // Uneven far into random bytes, before the longest chunk would end: behind the shorter one's end, and before.
    files.extend([LONG_BYTES_MAX, LONG_BYTES_MIN].map(|far| {
        let far = 12 * LONG_BYTES_MAX + far.next_multiple_of(PIECE_BYTES);
        let mut stream = random(6, far + DEEP_BYTES_MAX);
        stream[far..far + PLAIN_BYTES].fill(0);
        vec![stream]
    }));
    files
}

/// The chunks of these ranges of one stream, fed in steps as by a backup: certain cuts at once, and the rest with the
/// next step. `tells_late`: the end of a range is reported behind its last byte.
fn fed(
    mut chunker: Box<dyn Chunker>,
    ranges: &[Vec<u8>],
    mut step: impl FnMut() -> usize,
    tells_late: bool,
) -> Vec<usize> {
    chunker.begin(&StreamHints::of(b"", &ranges[0]));
    let mut lengths = Vec::new();
    for range in ranges {
        let (mut left, mut rest, mut ends) = (Vec::new(), &range[..], false);
        while !ends {
            let (piece, after) = rest.split_at(step().min(rest.len()));
            ends = after.is_empty() && (!tells_late || piece.is_empty());
            left.extend_from_slice(piece);
            let covered = chunker.cuts(&left, ends, &mut |length| lengths.push(length));
            left.drain(..covered);
            rest = after;
        }
        assert!(left.is_empty());
    }
    lengths
}

/// The chunks of these ranges of one stream, cut by single calls of `cut`.
fn cut_one_by_one(mut chunker: Box<dyn Chunker>, ranges: &[Vec<u8>]) -> Vec<usize> {
    chunker.begin(&StreamHints::of(b"", &ranges[0]));
    let lengths = ranges.iter().flat_map(|range| {
        let (mut lengths, mut at) = (Vec::new(), 0);
        while at < range.len() {
            lengths.push(chunker.cut(&range[at..]));
            at += lengths[lengths.len() - 1];
        }
        lengths
    });
    lengths.collect()
}

/// Asserts equal cuts for all ways of feeding the ranges between a file's holes.
fn assert_cut_alike(chunker: impl Fn() -> Box<dyn Chunker>, ranges: &[Vec<u8>], seed: u64) {
    let expected = cut_one_by_one(chunker(), ranges);
    for tells_late in [false, true] {
        for step in [64 << 10, 512 << 10, 2 << 20, usize::MAX] {
            let lengths = fed(chunker(), ranges, || step, tells_late);
            assert!(lengths == expected, "{seed} {step} {tells_late}");
        }
        let mut bytes = random(seed, 4096).into_iter().cycle();
        let mut byte = || usize::from(bytes.next().expect("a cycle"));
        let step = || 1 + (byte() << 16 | byte() << 8 | byte()) % (3 << 20);
        let lengths = fed(chunker(), ranges, step, tells_late);
        assert!(lengths == expected, "{seed} random {tells_late}");
    }
}

#[test]
fn each_range_of_a_sparse_file_is_cut_as_if_it_were_all_however_it_comes() {
    let new = || -> Box<dyn Chunker> { Box::new(Adaptive::new(MEAN)) };
    let in_tars = || -> Box<dyn Chunker> { Box::new(Tar::new(new(), Tars::Magic)) };
    for (ranges, seed) in sparse_files().iter().zip(0..) {
        let alone = ranges.iter().flat_map(|range| cuts(new(), range));
        assert!(cut_one_by_one(new(), ranges) == alone.collect::<Vec<_>>());
        assert_cut_alike(new, ranges, seed);
        assert_cut_alike(in_tars, ranges, seed);
    }
}

/// Holes in a tar: in a member, and between two headers.
#[test]
fn each_range_of_a_sparse_tar_is_cut_alike_however_it_comes() {
    let members = [random(1, 4 << 20), letters(2, 600_000), mixed()];
    let archive = crate::tar::archive(&members);
    let tar = || -> Box<dyn Chunker> { Box::new(Tar::new(Adaptive::new(MEAN), Tars::Magic)) };
    let holes = [
        1 << 20,
        (4 << 20) + 1536,
        5 << 20,
        archive.len() - (5 << 20),
    ];
    for (hole, seed) in holes.into_iter().zip(0..) {
        for skipped in [0, 1 << 20] {
            let ranges = [&archive[..hole], &archive[hole + skipped..]];
            assert_cut_alike(tar, &ranges.map(<[u8]>::to_vec), seed);
        }
    }
}

/// A member is cut as the file that it is.
#[test]
fn members_of_a_tar_are_cut_as_files() {
    let file = [random(1, 7 << 20), letters(2, 100_000)].concat();
    let archive = crate::tar::archive(&[file.clone(), file.clone()]);
    let alone: HashSet<&[u8]> = pieces(&file).into_iter().collect();
    let mut tar = Tar::new(Adaptive::new(MEAN), Tars::Magic);
    tar.begin(&StreamHints::of(b"", &archive));
    let new: usize = Chunks::new(tar, &archive)
        .filter(|chunk| !alone.contains(chunk))
        .map(<[u8]>::len)
        .sum();
    assert!(new < 8192, "{new}");
}

#[test]
fn a_long_chunk_can_be_cut_into_short_ones() {
    let data = random(1, LONG_BYTES_MAX - 1);
    let mut adaptive: Box<dyn Chunker> = Box::new(Adaptive::new(MEAN));
    assert_eq!(adaptive.cut(&data), data.len());
    assert!(data.len() > adaptive.ahead());
    let mut lengths = Vec::new();
    let short = adaptive.short().expect("it has two sizes");
    short.cuts(&data, true, &mut |length| lengths.push(length));
    assert_eq!(lengths, cuts(Sieve::new(MEAN), &data));
    assert!(Tar::new(adaptive, Tars::Magic).short().is_some());
    assert!(Sieve::new(MEAN).short().is_none());
}
