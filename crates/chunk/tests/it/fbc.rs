//! Frequency-Based Chunking: estimates beside exact counts, cuts, bounds, the sketch.

use std::collections::{HashMap, HashSet};

use crate::random;
use onefold_chunk::Chunker;
use onefold_chunk::fbc::{Estimator, Fbc, Params, Segments, SharedFbc};
use proptest::prelude::*;

/// The lengths of all chunks, each checked against the limits.
fn lengths(chunker: &mut dyn Chunker, mut data: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while !data.is_empty() {
        let length = chunker.cut(data);
        assert!(length > 0 && length <= chunker.limits().max);
        lengths.push(length);
        data = &data[length..];
    }
    lengths
}

/// Blocks that occur once to 200 times, few often and most seldom (Fig. 2.3), in a seeded order.
fn skewed(seed: u64, block_bytes: usize) -> Vec<u8> {
    let blocks: Vec<_> = (0..500u64)
        .map(|i| random(seed * 1000 + i, block_bytes))
        .collect();
    let mut order: Vec<usize> = (0..500)
        .flat_map(|i| std::iter::repeat_n(i, (1500 / (i + 1)).clamp(1, 200)))
        .collect();
    let shuffle = random(seed, order.len() * 8);
    for i in (1..order.len()).rev() {
        let word = u64::from_le_bytes(shuffle[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        order.swap(i, (word % (i as u64 + 1)) as usize);
    }
    order.into_iter().flat_map(|i| blocks[i].clone()).collect()
}

/// The naive twin: windows, counted one by one.
fn exact(data: &[u8], window: usize) -> HashMap<&[u8], u32> {
    let mut counts = HashMap::new();
    for segment in data.windows(window) {
        // A sample of one in eight, by content, keeps the table small.
        if segment[0] & 7 == 1 {
            *counts.entry(segment).or_insert(0) += 1;
        }
    }
    counts
}

#[test]
fn estimates_are_close_to_exact_counts() {
    let (window, data) = (512, skewed(1, 1024));
    let counts = exact(&data, window);
    for resample in [1.0, 0.5] {
        let mut params = Params::new(window);
        params.resample = resample;
        let mut estimator = Estimator::new(params, 42);
        data.chunks(10_007).for_each(|piece| estimator.feed(piece));
        let frequent = estimator.finish();
        let often: Vec<_> = counts.iter().filter(|(_, count)| **count >= 15).collect();
        let estimates = frequent.estimates(often.iter().map(|(segment, _)| **segment));
        let known = often.iter().zip(estimates);
        let mut errors: Vec<f64> = known
            .filter_map(|((_, exact), estimate)| Some((estimate?, **exact)))
            .map(|(estimate, exact)| (f64::from(estimate) / f64::from(exact) - 1.0).abs())
            .collect();
        errors.sort_by(f64::total_cmp);
        let median = errors[errors.len() / 2];
        println!(
            "r1 {resample}: median relative error {median:.3} of {} segments",
            errors.len()
        );
        assert!(errors.len() > 100);
        assert!(median <= if resample < 1.0 { 0.2 } else { 0.1 }, "{median}");
    }
}

#[test]
fn an_estimator_stays_in_its_bounds_and_says_how_much_it_takes() {
    let mut params = Params::new(64);
    params.entries_max = 1000;
    params.filter_bytes = 50_000;
    let block = random(5, 300_000);
    let mut estimator = Estimator::new(params, 1);
    (0..20).for_each(|_| estimator.feed(&block));
    assert!(
        estimator.bytes() < 3 * 50_000 + 200_000,
        "{}",
        estimator.bytes()
    );
    let frequent = estimator.finish();
    assert!(frequent.len() <= 1000 && frequent.len() > 300);
    assert!(frequent.modulo() > 32, "thinned out");
}

fn unique_bytes(chunker: &mut Fbc, data: &[u8]) -> (usize, usize) {
    let mut unique = HashSet::new();
    let lengths = lengths(chunker, data);
    let mut at = 0;
    for length in &lengths {
        unique.insert(&data[at..at + length]);
        at += length;
    }
    (unique.iter().map(|chunk| chunk.len()).sum(), lengths.len())
}

/// Ten versions of 40 files of 6 KiB, each behind a header that is new in each version.
fn versions() -> Vec<u8> {
    let files: Vec<_> = (0..40).map(|i| random(100 + i, 6144)).collect();
    let file = |version: u64, i: usize| {
        let mut member = random(10_000 + version * 100 + i as u64, 512);
        member.extend(&files[i]);
        member
    };
    (0..10)
        .flat_map(|version| (0..40).flat_map(move |i| [(version, i)]))
        .flat_map(|(version, i)| file(version, i))
        .collect()
}

#[test]
fn both_find_more_than_content_defined_chunks_of_the_same_size() {
    let data = versions();
    let params = Params::new(1024);
    let mut estimator = Estimator::new(params, 1);
    estimator.feed(&data);
    let mut two = Fbc::with(params, estimator.finish());
    let mut one = Fbc::one_pass(2048);
    for fbc in [&mut two, &mut one] {
        let (stored, chunks) = unique_bytes(fbc, &data);
        let mut rabin = onefold_chunk::rabin::Rabin::new(data.len() / chunks);
        let lengths = lengths(&mut rabin, &data);
        let (mut unique, mut at) = (HashSet::new(), 0);
        for length in lengths {
            unique.insert(&data[at..at + length]);
            at += length;
        }
        let rabin: usize = unique.iter().map(|chunk| chunk.len()).sum();
        assert!(stored < rabin, "{stored} against {rabin}, {chunks} chunks");
    }
}

#[test]
fn a_coarse_chunk_beyond_the_escape_frequency_stays_whole() {
    let block = random(9, 400_000);
    let data: Vec<u8> = (0..12).flat_map(|_| block.clone()).collect();
    let chunks = |escape| {
        let params = Params {
            escape,
            ..Params::new(1024)
        };
        let mut estimator = Estimator::new(params, 1);
        estimator.feed(&data);
        lengths(&mut Fbc::with(params, estimator.finish()), &data).len()
    };
    let (split, whole) = (chunks(None), chunks(Some(8)));
    assert!(whole * 4 < split, "{whole} {split}");
}

#[test]
fn a_later_run_that_starts_informed_cuts_as_the_run_before_did() {
    let data = random(4, 1 << 20);
    let mut first = Fbc::one_pass(4096);
    let before = lengths(&mut first, &data);
    let sketch = Segments::decode(&first.segments().encode(), 1 << 18).expect("our own");
    // Other data in front: the cuts find back at once.
    let mut moved = random(5, 777);
    moved.extend(&data);
    let after = lengths(&mut Fbc::informed(4096, sketch), &moved);
    let ends = |lengths: &[usize], from: usize| -> HashSet<usize> {
        let mut at = 0;
        let ends = lengths.iter().map(|length| {
            at += length;
            at.wrapping_sub(from)
        });
        ends.collect()
    };
    let lost = ends(&before, 0).difference(&ends(&after, 777)).count();
    assert!(lost <= 1, "{lost}");
}

#[test]
fn the_table_of_the_one_pass_stays_in_its_bounds() {
    let mut fbc = Fbc::informed(256, Segments::new(128, 32, 500));
    lengths(&mut fbc, &random(6, 1 << 20));
    assert!(fbc.segments().len() <= 500);
    assert!(fbc.bytes() <= fbc.segments().bytes_max() + 8192);
}

#[test]
fn a_sketch_is_these_bytes() {
    let mut fbc = Fbc::one_pass(256);
    let data = random(1, 1200);
    lengths(&mut fbc, &data);
    lengths(&mut fbc, &data);
    let hex: String = fbc
        .segments()
        .encode()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hex, include_str!("fbc_sketch.in").trim());
}

#[test]
fn a_sketch_of_the_first_version_is_read() {
    let hex = include_str!("fbc_sketch_1.in").trim();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    let old: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let sketch = Segments::decode(&old, 100).expect("of a version before");
    let new = sketch.encode();
    assert_eq!((old[0], new[0]), (1, 2));
    assert_eq!(new.len(), old.len() + 4 * sketch.len());
    assert!(SharedFbc::informed(256, &old).is_ok());
}

/// Files that stay, behind headers that every version writes anew, each version a backup that starts with the sketch of
/// the one before: from the third on the places that change are known.
#[test]
fn backups_one_after_the_other_learn_the_places_that_change() {
    let files: Vec<Vec<u8>> = (0..60).map(|i| random(i, 9000 + 50 * i as usize)).collect();
    let mut sketch: Option<Vec<u8>> = None;
    let mut seen = HashSet::new();
    let mut new_bytes = Vec::new();
    for time in 1..=5u64 {
        let header = |i: u64| random(1000 * time + i, 512);
        let data: Vec<u8> = (0..60)
            .flat_map(|i| [header(1000 + i), files[i as usize].clone()].concat())
            .collect();
        let mut shared = match &sketch {
            Some(sketch) => SharedFbc::informed(2048, sketch).expect("our own"),
            None => SharedFbc::one_pass(2048),
        };
        let (mut at, mut new) = (0, 0);
        for length in lengths(&mut shared, &data) {
            if seen.insert(data[at..at + length].to_vec()) {
                new += length;
            }
            at += length;
        }
        new_bytes.push(new);
        sketch = Some(shared.sketch());
    }
    assert!(
        new_bytes[2..]
            .iter()
            .all(|bytes| *bytes < new_bytes[1] * 3 / 4),
        "{new_bytes:?}"
    );
}

#[test]
fn streams_that_share_a_table_cut_as_one_does_and_know_what_the_other_saw() {
    let data = random(9, 300_000);
    let mut alone = Fbc::one_pass(2048);
    let mut shared = SharedFbc::one_pass(2048);
    assert_eq!(lengths(&mut shared, &data), lengths(&mut alone, &data));
    assert_eq!(shared.sketch(), alone.segments().encode());
    let mut other = shared.clone();
    assert_eq!(lengths(&mut other, &data), lengths(&mut alone, &data));
    assert_eq!(shared.bytes_done(), 600_000);
    let both = std::thread::scope(|scope| {
        let run = |seed| {
            let mut stream = shared.clone();
            scope.spawn(move || lengths(&mut stream, &random(seed, 300_000)).len())
        };
        [run(10), run(11)].map(|thread| thread.join().expect("no panic"))
    });
    assert!(both.iter().all(|chunks| *chunks > 50), "{both:?}");
}

#[test]
fn a_sketch_of_another_mean_is_refused() {
    let mut first = SharedFbc::one_pass(2048);
    lengths(&mut first, &random(12, 100_000));
    assert!(SharedFbc::informed(2048, &first.sketch()).is_ok());
    assert!(SharedFbc::informed(4096, &first.sketch()).is_err());
    assert!(SharedFbc::informed(2048, b"no sketch").is_err());
    assert!(first.sketch().len() <= SharedFbc::SKETCH_BYTES_MAX);
}

/// A window of one byte: the chunk in front of it would have been empty.
#[test]
fn a_sketch_of_tiny_windows_is_refused() {
    let mut fbc = Fbc::one_pass(256);
    lengths(&mut fbc, &random(2, 4000));
    let mut bytes = fbc.segments().encode();
    bytes[1] = 1;
    assert!(Segments::decode(&bytes, 100).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn decoding_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), version: bool) {
        if version && !bytes.is_empty() {
            bytes[0] = 2;
        }
        let is_now = bytes.first() == Some(&2);
        if let Ok(segments) = Segments::decode(&bytes, 100)
            && is_now
        {
            prop_assert_eq!(segments.encode(), bytes);
        }
    }

    #[test]
    fn a_changed_sketch_is_refused_or_decodes(at in 0usize..200, to: u8) {
        let mut fbc = Fbc::one_pass(256);
        lengths(&mut fbc, &random(2, 4000));
        let mut bytes = fbc.segments().encode();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(sketch) = Segments::decode(&bytes, 100) {
            // With any sketch, chunks stay within the limits.
            if sketch.window_bytes() <= 4096 {
                lengths(&mut Fbc::informed(256, sketch), &random(3, 9000));
            }
        }
    }

    #[test]
    fn estimates_do_not_depend_on_the_pieces(seed: u64, cuts in proptest::collection::vec(1usize..5000, 1..20)) {
        let block = random(seed, 10_000);
        let data: Vec<u8> = (0..9).flat_map(|_| block.clone()).collect();
        let params = Params::new(256);
        let mut whole = Estimator::new(params, seed);
        whole.feed(&data);
        let mut pieces = Estimator::new(params, seed);
        let mut rest = &data[..];
        for length in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*length).min(rest.len()));
            pieces.feed(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(whole.finish().encode(), pieces.finish().encode());
    }
}

/// Files that stay, behind headers that every version writes anew, as in tars of releases. From the fourth version on,
/// one pass stores less.
#[test]
fn one_pass_learns_the_places_that_change() {
    let files: Vec<Vec<u8>> = (0..60).map(|i| random(i, 9000 + 50 * i as usize)).collect();
    let version = |time: u64| -> Vec<u8> {
        let header = |i: u64| random(1000 * time + i, 512);
        (0..60)
            .flat_map(|i| [header(1000 + i), files[i as usize].clone()].concat())
            .collect()
    };
    let mut fbc = Fbc::one_pass(2048);
    let mut seen = HashMap::new();
    let mut new_bytes = Vec::new();
    for time in 1..=6 {
        let data = version(time);
        let mut at = 0;
        let before: usize = seen.values().sum();
        for length in lengths(&mut fbc, &data) {
            seen.insert(data[at..at + length].to_vec(), length);
            at += length;
        }
        new_bytes.push(seen.values().sum::<usize>() - before);
    }
    // Without learning, every version costs as much as the second.
    let second = new_bytes[1];
    assert!(
        new_bytes[3..].iter().all(|bytes| *bytes < second * 4 / 5),
        "{new_bytes:?}"
    );
}

/// The dissertation's two stages in one pass, with segments counted after they were seen once.
fn stages(threshold: u32) -> Params {
    Params {
        threshold,
        filters: 1,
        ..Params::new(256)
    }
}

fn counting(params: Params) -> Fbc {
    let table = Segments::new(params.segment_bytes, params.modulo, params.entries_max);
    Fbc::counting(params, table)
}

fn ends(lengths: &[usize]) -> HashSet<usize> {
    let mut at = 0;
    let ends = lengths.iter().map(|length| {
        at += length;
        at
    });
    ends.collect()
}

/// The naive twin of the counter searches all earlier data for each segment.
#[test]
fn coarse_chunks_are_split_at_segments_that_came_more_often_than_the_threshold() {
    let data = skewed(3, 600)[..150_000].to_vec();
    let coarse = ends(&lengths(&mut counting(stages(1_000_000)), &data));
    for threshold in [1, 2, 3] {
        let split = lengths(&mut counting(stages(threshold)), &data);
        let split = ends(&split);
        assert!(coarse.is_subset(&split), "the first stage is the same");
        for cut in split.difference(&coarse) {
            let often = |segment: Option<&[u8]>| {
                segment.is_some_and(|segment| {
                    let before = data[..*cut].windows(256);
                    before.filter(|window| *window == segment).count() >= threshold as usize
                })
            };
            let ends_one = cut.checked_sub(256).map(|from| &data[from..*cut]);
            assert!(
                often(ends_one) || often(data.get(*cut..cut + 256)),
                "θ {threshold}, at {cut}"
            );
        }
        assert!(split.len() > coarse.len());
    }
}

#[test]
fn each_parameter_of_the_dissertation_changes_the_cuts() {
    let data = skewed(4, 700)[..400_000].to_vec();
    let cuts = |name: &str| {
        let mut chunker = onefold_chunk::by_name(name, 512, None).expect(name);
        lengths(&mut *chunker, &data)
    };
    let usual = cuts("fbc:threshold=5");
    for same in ["filters=3", "modulo=32", "resample=1", "ratio=16"] {
        assert_eq!(cuts(&format!("fbc:{same}")), usual, "{same}");
    }
    for other in [
        "threshold=40",
        "filters=5",
        "modulo=256",
        "resample=0.2",
        "ratio=4",
    ] {
        assert_ne!(cuts(&format!("fbc:{other}")), usual, "{other}");
    }
    assert_ne!(cuts("fbc"), usual, "one pass without parameters");
}

#[test]
fn streams_that_take_turns_keep_their_places_in_their_coarse_chunks() {
    let (one, other) = (random(31, 120_000), random(32, 120_000));
    let never = stages(1_000_000);
    let alone = |data: &[u8]| lengths(&mut counting(never), data);
    let mut streams = [SharedFbc::counting(never), SharedFbc::counting(never)];
    streams[1] = streams[0].clone();
    let mut at = [0, 0];
    let mut cut = [Vec::new(), Vec::new()];
    while at != [one.len(), other.len()] {
        for (i, data) in [&one, &other].into_iter().enumerate() {
            if at[i] < data.len() {
                cut[i].push(streams[i].cut(&data[at[i]..]));
                at[i] += cut[i][cut[i].len() - 1];
            }
        }
    }
    assert_eq!(cut, [alone(&one), alone(&other)]);
}

#[test]
fn a_later_run_goes_on_with_the_counts() {
    let data = skewed(5, 600)[..100_000].to_vec();
    let mut first = SharedFbc::counting(stages(9));
    let before = lengths(&mut first, &data).len();
    let sketch = first.sketch();
    let mut later = SharedFbc::counting(stages(9))
        .knowing(&sketch)
        .expect("ours");
    let after = lengths(&mut later, &data).len();
    assert!(after > before, "{after} {before}");
    let other = Params::new(512);
    assert!(SharedFbc::counting(other).knowing(&sketch).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A stream that comes in pieces has the same cuts as a whole one.
    #[test]
    fn counted_cuts_do_not_depend_on_how_the_bytes_come(seed in 0u64..1000, piece in 1usize..40_000) {
        let data = skewed(seed, 500)[..60_000].to_vec();
        let whole = lengths(&mut counting(stages(3)), &data);
        let mut stream = onefold_chunk::ChunkStream::new(counting(stages(3)));
        let mut pieces = Vec::new();
        for piece in data.chunks(piece) {
            stream.feed(piece, |chunk| pieces.push(chunk.len()));
        }
        stream.finish(|chunk| pieces.push(chunk.len()));
        prop_assert_eq!(whole, pieces);
    }
}
