//! Faults of the reference implementation of Dmdedup, and of others, each as a test named for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use onefold_chunk::Fingerprint;
use onefold_io::{Dir, MemDir, Random};
use onefold_volume::conformance::Caller;
use onefold_volume::front::{Front, Options};
use onefold_volume::inram::{InRam, SaveAt};
use onefold_volume::{
    Buffer, ChunkContent, ChunkRead, Completion, Effort, Engine, Error, HashedChunk, HeadId, Hints,
    Key, Lbn, MetadataBackend, Op, Pbn, Request,
};

use crate::recorder::{Event, Recorder};

const HEAD: HeadId = HeadId(0);
pub const CHUNK: usize = 4096;

pub fn bytes(content: u64) -> Vec<u8> {
    Random(content).bytes(CHUNK)
}

fn dedup(lbn: u64, bytes: &[u8]) -> HashedChunk<'_> {
    HashedChunk {
        head: HEAD,
        lbn: Lbn(lbn),
        content: ChunkContent::Fingerprinted(Fingerprint::of(bytes), bytes),
        has_page: true,
        is_metadata: false,
        is_incompressible: false,
    }
}

fn read(engine: &dyn Engine, lbn: u64) -> Vec<u8> {
    let mut buffer = vec![0xEE; CHUNK];
    let mut reads = [ChunkRead {
        lbn: Lbn(lbn),
        buffer: &mut buffer,
    }];
    engine.reader().read(HEAD, &mut reads).expect("a read");
    buffer
}

pub fn device(engine: impl Engine + 'static, lbns: u64, options: Options) -> (Front, Caller) {
    let chunk_bytes = CHUNK as u32;
    let front = Front::new(Box::new(engine), chunk_bytes, [3; 32], options);
    let device = front.device(HEAD, "main", lbns * CHUNK as u64, true);
    (front, Caller(device))
}

pub fn inline() -> Options {
    Options {
        inline: true,
        ..Options::default()
    }
}

/// A discard once went to PBN 0, or to the block with the LBN's number, on the data device.
#[test]
fn discard_of_an_unmapped_lbn_stays_above() {
    let recorder = Arc::new(Recorder::default());
    let mut engine = recorder.engine(CHUNK as u32, 100, 100);
    engine.write(&[dedup(3, &bytes(1))]).expect("a write");
    recorder.take();
    engine.discard(HEAD, 50..60).expect("a discard");
    assert_eq!(recorder.take(), []);
    assert_eq!(engine.stats().discards, 0);
    assert_eq!(read(&engine, 3), bytes(1));
}

/// A discard once took a block on the data device that the hash index still named: the next duplicate read zeros.
#[test]
fn discard_keeps_what_the_hash_names() {
    let recorder = Arc::new(Recorder::default());
    let mut engine = recorder.engine(CHUNK as u32, 100, 100);
    engine.write(&[dedup(3, &bytes(1))]).expect("a write");
    engine.discard(HEAD, 0..100).expect("a discard");
    assert_eq!(read(&engine, 3), vec![0; CHUNK]);
    recorder.take();
    engine.write(&[dedup(9, &bytes(1))]).expect("a write");
    assert!(!recorder.take().contains(&Event::DataWrite), "it is known");
    assert_eq!(read(&engine, 9), bytes(1));
    // Once nobody needs it, it goes, and the hash before the block.
    engine.discard(HEAD, 0..100).expect("a discard");
    recorder.take();
    assert_eq!(
        engine
            .collect(Effort::Whole)
            .expect("a collection")
            .pages_freed,
        1
    );
    let events = recorder.take();
    let at = |event| events.iter().position(|found| *found == event);
    assert!(at(Event::DeleteHash) < at(Event::DecRef), "{events:?}");
    assert!(at(Event::DecRef) < at(Event::DataDiscard), "{events:?}");
}

/// Metadata was committed by its own timer, before the data that it names was on the disk.
#[test]
fn metadata_follows_durable_data() {
    let recorder = Arc::new(Recorder::default());
    let mut engine = recorder.engine(CHUNK as u32, 100, 100);
    for content in 1..30 {
        engine
            .write(&[dedup(content, &bytes(content))])
            .expect("a write");
        if content % 7 == 0 {
            engine.commit().expect("a commit");
        }
    }
    let mut is_synced = true;
    for event in recorder.take() {
        match event {
            Event::DataWrite => is_synced = false,
            Event::DataSync => is_synced = true,
            Event::Flush => assert!(is_synced, "a flush before the data is durable"),
            _ => {}
        }
    }
}

/// The hash was inserted before the write was done: where that failed, every later equal chunk was lost with it.
#[test]
fn hash_is_published_after_its_write() {
    let recorder = Arc::new(Recorder::default());
    let mut engine = recorder.engine(CHUNK as u32, 100, 100);
    engine.write(&[dedup(1, &bytes(1))]).expect("a write");
    let events = recorder.take();
    assert_eq!(
        events,
        [Event::DataWrite, Event::InsertHash, Event::InsertLbn]
    );
    recorder.data_writes_fail.store(true, Ordering::Relaxed);
    assert!(engine.write(&[dedup(2, &bytes(2))]).is_err());
    assert_eq!(recorder.take(), [Event::DataWrite, Event::DecRef]);
    recorder.data_writes_fail.store(false, Ordering::Relaxed);
    engine.write(&[dedup(3, &bytes(2))]).expect("a write");
    assert!(
        recorder.take().contains(&Event::DataWrite),
        "the failed one is not known"
    );
    assert_eq!(read(&engine, 3), bytes(2));
}

/// The old block was given up before the new one was written.
#[test]
fn failed_write_keeps_old_data() {
    let recorder = Arc::new(Recorder::default());
    let mut engine = recorder.engine(CHUNK as u32, 100, 4);
    engine.write(&[dedup(1, &bytes(1))]).expect("a write");
    recorder.data_writes_fail.store(true, Ordering::Relaxed);
    for content in 2..20 {
        assert!(engine.write(&[dedup(1, &bytes(content))]).is_err());
        assert_eq!(read(&engine, 1), bytes(1));
    }
    recorder.data_writes_fail.store(false, Ordering::Relaxed);
    // No block was lost by the failures.
    for content in 2..5 {
        let refused = engine
            .write(&[dedup(content, &bytes(content))])
            .expect("a write");
        assert!(refused.is_empty(), "content {content}");
    }
}

/// Keys that fall to one place: 5 probes were made, then the key was taken for absent.
fn colliding(number: u64) -> [u8; 16] {
    let mut key = [7; 16];
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

#[test]
fn probing_reaches_the_end() {
    let mut backend = InRam::unsaved(200).expect("RAM");
    let store = backend.create_sparse(16, 200).expect("a store");
    for number in 0..200 {
        let key = colliding(number);
        backend
            .insert(store, Key::Sparse(&key), Pbn(number))
            .expect("room");
    }
    check_colliding(&mut backend, store, |_| true);
    for number in (0..200).step_by(3) {
        backend
            .delete(store, Key::Sparse(&colliding(number)))
            .expect("RAM");
    }
    check_colliding(&mut backend, store, |number| number % 3 != 0);
}

fn check_colliding(
    backend: &mut InRam,
    store: onefold_volume::StoreId,
    is_there: impl Fn(u64) -> bool,
) {
    for number in 0..200 {
        let mut found = [None];
        let key = colliding(number);
        backend
            .lookup(store, &[Key::Sparse(&key)], &mut found)
            .expect("RAM");
        assert_eq!(found, [is_there(number).then_some(Pbn(number))]);
    }
}

/// Values of keys that collided were read back for the wrong keys.
#[test]
fn collided_keys_survive_a_restart() {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let open = || InRam::open(Arc::clone(&folder), 200, SaveAt::Close).expect("RAM");
    let mut backend = open();
    let store = backend.create_sparse(16, 200).expect("a store");
    for number in 0..200 {
        let key = colliding(number);
        backend
            .insert(store, Key::Sparse(&key), Pbn(number))
            .expect("room");
    }
    Box::new(backend).close().expect("RAM");
    let mut backend = open();
    let store = backend.create_sparse(16, 200).expect("the store");
    check_colliding(&mut backend, store, |_| true);
}

/// A superblock that could not be written was noted in the kernel's log, and the flush succeeded.
#[test]
fn failed_superblock_fails_the_flush() {
    let recorder = Arc::new(Recorder::default());
    let (_front, caller) = device(recorder.engine(CHUNK as u32, 100, 100), 100, inline());
    caller.write(0, &bytes(1)).expect("a write");
    caller.flush().expect("a flush");
    caller.write(0, &bytes(2)).expect("a write");
    caller.write(CHUNK as u64, &bytes(3)).expect("a write");
    recorder.flushes_fail.store(true, Ordering::Relaxed);
    assert!(caller.flush().is_err());
    recorder.flushes_fail.store(false, Ordering::Relaxed);
    // No later flush says that it is all there, and nothing is taken any more.
    assert!(caller.flush().is_err());
    let refused = caller.write(0, &bytes(4));
    assert!(
        matches!(refused, Err(Error::ReadOnly { .. })),
        "{refused:?}"
    );
    assert!(caller.write_through(0, &bytes(4)).is_err());
    assert!(caller.discard(0, CHUNK as u64).is_err());
    assert!(caller.write_zeroes(0, 10).is_err());
    assert_eq!(
        caller.read(0, CHUNK as u64).expect("a read")[..],
        bytes(2)[..]
    );
    assert_eq!(
        caller.read(CHUNK as u64, CHUNK as u64).expect("a read")[..],
        bytes(3)[..]
    );
}

/// Acknowledged data that could not be written stays readable, and so does the data below.
#[test]
fn staged_and_old_data_is_readable_after_a_failed_write() {
    let recorder = Arc::new(Recorder::default());
    let (front, caller) = device(recorder.engine(CHUNK as u32, 100, 100), 100, inline());
    caller.write(0, &bytes(1)).expect("a write");
    caller.write(CHUNK as u64, &bytes(5)).expect("a write");
    caller.flush().expect("a flush");
    caller.write(0, &bytes(2)).expect("a write");
    recorder.data_writes_fail.store(true, Ordering::Relaxed);
    while front.step() {}
    assert!(front.stats().failure.is_some());
    assert_eq!(
        caller.read(0, CHUNK as u64).expect("a read")[..],
        bytes(2)[..]
    );
    assert_eq!(
        caller.read(CHUNK as u64, CHUNK as u64).expect("a read")[..],
        bytes(5)[..]
    );
    assert!(caller.flush().is_err());
    assert!(
        front.close().is_err(),
        "closing does not say that all is well"
    );
}

/// A request of which several parts failed was ended several times, or never.
#[test]
fn each_request_ends_once() {
    for seed in 0..6 {
        let recorder = Arc::new(Recorder::default());
        let options = Options {
            inline: seed % 2 == 0,
            staging_bytes: 40 * CHUNK,
            ..Options::default()
        };
        let (front, caller) = device(recorder.engine(CHUNK as u32, 100, 30), 100, options);
        let mut random = Random(seed);
        let (sender, receiver) = channel();
        let mut sent = 0;
        for round in 0..200 {
            if round == 150 {
                recorder.data_writes_fail.store(true, Ordering::Relaxed);
            }
            let requests = &mut (0..1 + random.below(8))
                .map(|_| {
                    sent += 1;
                    some_request(&mut random, sent, &sender)
                })
                .collect();
            caller.0.submit(requests);
        }
        drop(sender);
        drop(caller);
        let _ = front.close();
        let mut ended: Vec<u64> = receiver.iter().collect();
        ended.sort_unstable();
        assert_eq!(ended, (1..=sent).collect::<Vec<_>>(), "seed {seed}");
    }
}

fn some_request(
    random: &mut Random,
    number: u64,
    sender: &std::sync::mpsc::Sender<u64>,
) -> Request {
    let start = random.below(90 * CHUNK as u64);
    let length = 1 + random.below(9 * CHUNK as u64);
    let op = [
        Op::Read,
        Op::Write,
        Op::Write,
        Op::Discard,
        Op::WriteZeroes,
        Op::Flush,
    ];
    let op = op[random.below(6) as usize];
    let buffer = match op {
        Op::Read => Buffer::zeroed(length as usize),
        Op::Write => Buffer::copy_of(&random.bytes(length as usize)),
        _ => Buffer::zeroed(0),
    };
    let sender = sender.clone();
    Request {
        op,
        offset: if op == Op::Flush { 0 } else { start },
        bytes: if op == Op::Flush { 0 } else { length },
        buffer,
        fua: random.one_in(3),
        hints: Hints {
            nodedup: random.one_in(3),
            ..Hints::default()
        },
        completion: Completion::new(move |_| sender.send(number).expect("the test listens")),
    }
}

/// Chunks longer than a page were hashed and written by their first page alone.
#[test]
fn chunks_above_a_page() {
    let recorder = Arc::new(Recorder::default());
    let mut engine = recorder.engine(64 << 10, 10, 10);
    let chunks: Vec<Vec<u8>> = (1..4)
        .map(|content| {
            let mut chunk = vec![5; 64 << 10];
            // They differ behind their first page alone.
            chunk[60 << 10..].copy_from_slice(&Random(content).bytes(4096));
            chunk
        })
        .collect();
    for (lbn, chunk) in chunks.iter().enumerate() {
        engine.write(&[dedup(lbn as u64, chunk)]).expect("a write");
    }
    assert_eq!(engine.stats().stored_chunks, 3);
    for (lbn, chunk) in chunks.iter().enumerate() {
        let mut buffer = vec![0; 64 << 10];
        let mut reads = [ChunkRead {
            lbn: Lbn(lbn as u64),
            buffer: &mut buffer,
        }];
        engine.reader().read(HEAD, &mut reads).expect("a read");
        assert!(buffer == *chunk);
    }
}

/// VDO acknowledged writes for which it then found no room.
#[test]
fn full_is_reported_before_the_acknowledgement() {
    for options in [inline(), Options::default()] {
        let recorder = Arc::new(Recorder::default());
        let (front, caller) = device(recorder.engine(CHUNK as u32, 100, 20), 100, options);
        let mut taken = Vec::new();
        for lbn in 0..40 {
            match caller.write(lbn * CHUNK as u64, &bytes(lbn + 1)) {
                Ok(()) => taken.push(lbn),
                Err(error) => assert!(matches!(error, Error::NoSpace { .. }), "{error}"),
            }
        }
        assert_eq!(taken, (0..20).collect::<Vec<_>>());
        // Known data, zeros, discards and flushes go on.
        caller
            .write(50 * CHUNK as u64, &bytes(7))
            .expect("a duplicate");
        caller.write(3 * CHUNK as u64, &[0; CHUNK]).expect("zeros");
        caller
            .discard(5 * CHUNK as u64, 2 * CHUNK as u64)
            .expect("a discard");
        caller.flush().expect("a flush");
        // Two blocks are garbage now (the third is named elsewhere): so many new ones are taken, by themselves.
        caller.write(60 * CHUNK as u64, &bytes(100)).expect("room");
        caller.write(61 * CHUNK as u64, &bytes(101)).expect("room");
        assert!(caller.write(62 * CHUNK as u64, &bytes(102)).is_err());
        // A long write that overwrites itself step by step needs no more than there is.
        caller
            .discard(61 * CHUNK as u64, CHUNK as u64)
            .expect("a discard");
        let many: Vec<u8> = (0..3).flat_map(|content| bytes(200 + content)).collect();
        caller
            .write(10 * CHUNK as u64, &many)
            .expect("one page at a time");
        assert_eq!(
            caller
                .read(10 * CHUNK as u64, many.len() as u64)
                .expect("a read")[..],
            many[..]
        );
        for lbn in [0, 1, 2, 19, 50, 60] {
            let expected = if lbn == 50 {
                7
            } else if lbn == 60 {
                100
            } else {
                lbn + 1
            };
            let found = caller
                .read(lbn * CHUNK as u64, CHUNK as u64)
                .expect("a read");
            assert!(found[..] == bytes(expected)[..], "chunk {lbn}");
        }
        front.close().expect("all is well");
    }
}

/// VDO counts references in a byte.
#[test]
fn more_than_254_references() {
    let recorder = Arc::new(Recorder::default());
    let mut engine = recorder.engine(CHUNK as u32, 1000, 10);
    let content = bytes(1);
    let all: Vec<_> = (0..1000).map(|lbn| dedup(lbn, &content)).collect();
    assert_eq!(engine.write(&all).expect("a write"), []);
    assert_eq!(engine.stats().stored_chunks, 1);
    engine.discard(HEAD, 0..999).expect("a discard");
    engine.collect(Effort::Whole).expect("a collection");
    assert_eq!(read(&engine, 999), content);
    engine.discard(HEAD, 999..1000).expect("a discard");
    assert_eq!(
        engine
            .collect(Effort::Whole)
            .expect("a collection")
            .pages_freed,
        1
    );
}
