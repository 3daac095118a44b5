//! Hints from requests and ranges down to each engine: what is not deduplicated, and what a copy needs no index for.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onefold_io::{Dir, MemDir};
use onefold_volume::conformance::{Caller, request};
use onefold_volume::depot::config::EngineKind;
use onefold_volume::depot::{CreateOptions, DepotStats, OpenOptions};
use onefold_volume::front::{NodedupCounts, Options};
use onefold_volume::hints::HintKind;
use onefold_volume::{Buffer, Compression, Depot, Effort, Error, HeadId, Hints, Op};

use crate::opened::{CHUNK, content};

const ENGINES: [&str; 4] = ["inram-saved", "dtb", "cbt", "log"];
const VOLUME_BYTES: u64 = 16 << 20;

/// A depot of 16 MiB, and the nanoseconds of its clock.
fn depot(engine: &str) -> (Depot, Caller, Arc<AtomicU64>) {
    depot_with(engine, Compression::None)
}

fn depot_with(engine: &str, compression: Compression) -> (Depot, Caller, Arc<AtomicU64>) {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let options = CreateOptions {
        engine: EngineKind::by_name(engine).expect("an engine"),
        capacity_bytes: Some(96 << 20),
        compression,
        ..CreateOptions::new(VOLUME_BYTES, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    let clock = Arc::new(AtomicU64::new(0));
    let read_clock = {
        let clock = Arc::clone(&clock);
        Arc::new(move || clock.load(Ordering::Relaxed))
    };
    let options = OpenOptions {
        front: Options {
            inline: true,
            clock: Some(read_clock),
            ..Options::default()
        },
        ..OpenOptions::default()
    };
    let depot = Depot::open(folder, options).expect("it opens");
    let caller = Caller(depot.device(HeadId(0)).expect("the volume"));
    (depot, caller, clock)
}

fn stats(depot: &Depot) -> DepotStats {
    depot.stats().expect("it is open")
}

/// A counter of the engine, in either spelling.
fn counter(depot: &Depot, name: &str) -> u64 {
    let engine = stats(depot).engine;
    let found = engine
        .counters
        .iter()
        .find(|(found, _)| found.replace(' ', "_") == name);
    found.map_or(0, |(_, value)| *value)
}

fn write(caller: &Caller, lbn: u64, contents: impl IntoIterator<Item = u64>) {
    for (lbn, number) in (lbn..).zip(contents) {
        caller
            .write(lbn * CHUNK, &content(number))
            .expect("a write");
    }
    caller.flush().expect("a flush");
}

fn assert_holds(caller: &Caller, lbn: u64, contents: impl IntoIterator<Item = u64>) {
    for (lbn, number) in (lbn..).zip(contents) {
        let found = caller.read(lbn * CHUNK, CHUNK).expect("a read");
        assert!(found[..] == content(number)[..], "chunk {lbn}");
    }
}

#[test]
fn compression_of_what_is_called_incompressible_is_not_tried() {
    let (depot, caller, _) = depot_with("log", Compression::Lz4);
    let text = |number: u64| number.to_le_bytes().repeat(CHUNK as usize / 8);
    let write = |lbns: Range<u64>| {
        for lbn in lbns {
            caller.write(lbn * CHUNK, &text(lbn + 1)).expect("a write");
        }
        caller.flush().expect("a flush");
    };
    write(0..20);
    assert_eq!(counter(&depot, "packed_chunks"), 20);
    let range = 100 * CHUNK..120 * CHUNK;
    depot
        .hint(None, &[range], &[HintKind::Incompressible], None)
        .expect("there is room");
    write(100..120);
    assert_eq!(counter(&depot, "packed_chunks"), 20);
    for lbn in 100..120 {
        let found = caller.read(lbn * CHUNK, CHUNK).expect("a read");
        assert!(found[..] == text(lbn + 1)[..], "chunk {lbn}");
    }
    depot.close().expect("it closes");
}

#[test]
fn what_is_hinted_is_stored_again_and_freed_by_the_next_overwrite() {
    for engine in ENGINES {
        let (depot, caller, _) = depot(engine);
        write(&caller, 0, 1..=20);
        let half = 100 * CHUNK..110 * CHUNK;
        let hint = |ranges: &[_]| depot.hint(None, ranges, &[HintKind::Nodedup], None);
        hint(std::slice::from_ref(&half)).expect("there is room");
        // Half of the copies lie in the range.
        write(&caller, 100, 1..=20);
        let now = stats(&depot);
        assert_eq!(now.engine.unique_writes, 30, "{engine}");
        assert_eq!(now.engine.duplicate_writes, 10, "{engine}");
        assert_eq!(now.front.nodedup.by_range, 10, "{engine}");
        assert_eq!(now.front.hinted_ranges, 1, "{engine}");
        depot.collect(Effort::Whole).expect("a collection");
        assert_holds(&caller, 100, 1..=20);
        // Chunks that a hint has kept from being known are freed by the next write, or by a collection.
        depot
            .unhint(None, Some(&[half]), &HintKind::ALL)
            .expect("it is the volume's");
        write(&caller, 100, 1..=10);
        depot.collect(Effort::Whole).expect("a collection");
        let now = stats(&depot);
        assert_eq!(now.engine.unique_writes, 30, "{engine}");
        assert_eq!(now.front.hinted_ranges, 0, "{engine}");
        assert_stored(&depot, engine, 20);
        assert_holds(&caller, 0, 1..=20);
        assert_holds(&caller, 100, 1..=20);
        depot.close().expect("it closes");
    }
}

#[test]
fn hints_of_requests_count_apart_and_those_of_ranges_end_in_time() {
    let (depot, caller, clock) = depot("log");
    let write_with = |lbn: u64, number: u64, hints: Hints| {
        let buffer = Buffer::copy_of(&content(number));
        let (mut request, waiting) = request(Op::Write, lbn * CHUNK, CHUNK, buffer, true);
        request.hints = hints;
        let mut answered = caller.submit(vec![(request, waiting)]);
        let answer = answered.remove(0).wait();
        answer.expect("a write");
    };
    let hint = |kind: HintKind, lasts: Option<u64>| {
        let lasts = lasts.map(Duration::from_secs);
        let first = 0..CHUNK;
        depot.hint(Some("main"), &[first], &[kind], lasts)
    };
    write_with(1, 1, Hints::default());
    write_with(2, 1, Hints::default().with(HintKind::Nodedup));
    let metadata = Hints {
        metadata: true,
        ..Hints::default()
    };
    write_with(3, 1, metadata);
    hint(HintKind::Nodedup, Some(10)).expect("there is room");
    write_with(0, 1, Hints::default());
    clock.store(11_000_000_000, Ordering::Relaxed);
    write_with(0, 1, Hints::default());
    let now = stats(&depot);
    let expected = NodedupCounts {
        by_request: 1,
        by_range: 1,
        as_metadata: 1,
    };
    assert_eq!(now.front.nodedup, expected);
    assert_eq!(now.engine.duplicate_writes, 1, "the hint has ended");
    // Zeros are zeros, whatever is said of them.
    hint(HintKind::Nodedup, None).expect("there is room");
    caller.write(0, &[0; CHUNK as usize]).expect("a write");
    caller.flush().expect("a flush");
    assert_eq!(stats(&depot).front.nodedup, expected);
    let reversed = Range { start: 5, end: 2 };
    for (range, word) in [
        (0..VOLUME_BYTES + 1, "none of volume"),
        (reversed, "none of"),
    ] {
        let refused = depot.hint(None, &[range], &[HintKind::Nodedup], None);
        let error = refused.expect_err("beyond the end");
        assert!(matches!(error, Error::Invalid { .. }));
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(depot.unhint(Some("other"), None, &HintKind::ALL).is_err());
}

/// A copy is known without the index, also where the source was overwritten meanwhile; what was read without the hint
/// is asked for.
#[test]
fn a_copy_of_what_was_read_with_prefetch_asks_no_index() {
    const CHUNKS: u64 = 200;
    for engine in ENGINES {
        let (depot, caller, _) = depot(engine);
        write(&caller, 0, 1..=CHUNKS);
        let source = 0..CHUNKS * CHUNK;
        depot
            .hint(None, &[source], &[HintKind::Prefetch], None)
            .expect("there is room");
        for at in (0..CHUNKS).step_by(50) {
            caller.read(at * CHUNK, 50 * CHUNK).expect("a read");
        }
        assert_eq!(stats(&depot).front.prefetch_reads, CHUNKS, "{engine}");
        assert_eq!(counter(&depot, "prefetched_chunks"), CHUNKS, "{engine}");
        let before = counter(&depot, "lookup");
        write(&caller, 1000, 1..=CHUNKS - 50);
        // The source changes before the last ones are copied, and one copy is not of the source.
        write(&caller, CHUNKS - 50, 5000..5025);
        write(&caller, 1000 + CHUNKS - 50, CHUNKS - 49..=CHUNKS);
        let now = stats(&depot);
        assert_eq!(now.engine.duplicate_writes, CHUNKS, "{engine}");
        let hits = counter(&depot, "prefetch_hits");
        match engine {
            // Chunks of zones that are still open are known besides.
            "log" => assert!(hits >= CHUNKS / 2, "{hits}"),
            _ => {
                assert_eq!(hits, CHUNKS - 25, "{engine}");
                // LBNs of 225 chunks, 25 new contents, and 25 of which only a hash was left.
                let lookups = counter(&depot, "lookup") - before;
                assert_eq!(lookups, 225 + 25 + 25, "{engine}");
            }
        }
        assert_holds(&caller, 1000, 1..=CHUNKS);
        assert_holds(&caller, CHUNKS - 50, 5000..5025);
        // Each is used once: a second copy is found by the index.
        write(&caller, 2000, 1..=10);
        assert_eq!(stats(&depot).engine.duplicate_writes, CHUNKS + 10);
        depot.close().expect("it closes");
    }
}

/// Engines that count references free a chunk with the last of them.
fn assert_stored(depot: &Depot, engine: &str, chunks: u64) {
    if engine != "log" {
        assert_eq!(stats(depot).engine.stored_chunks, chunks, "{engine}");
    }
}

/// Chunks that were written with NODEDUP are not shared, whatever a read with PREFETCH has met.
#[test]
fn prefetch_shares_no_chunk_that_was_not_to_be_shared() {
    for engine in ENGINES {
        let (depot, caller, _) = depot(engine);
        let whole = 0..VOLUME_BYTES;
        let hint = |kind: HintKind| depot.hint(None, std::slice::from_ref(&whole), &[kind], None);
        hint(HintKind::Nodedup).expect("there is room");
        write(&caller, 0, 1..=20);
        depot
            .unhint(None, None, &HintKind::ALL)
            .expect("its volume");
        hint(HintKind::Prefetch).expect("there is room");
        caller.read(0, 20 * CHUNK).expect("a read");
        write(&caller, 100, 1..=20);
        assert_eq!(stats(&depot).engine.unique_writes, 40, "{engine}");
        write(&caller, 0, 101..=120);
        depot.collect(Effort::Whole).expect("a collection");
        assert_holds(&caller, 100, 1..=20);
        assert_stored(&depot, engine, 40);
        depot.close().expect("it closes");
    }
}
