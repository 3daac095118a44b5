//! The suites find what is wrong: each of the engine's deliberate faults is noticed by the suite of engines, by crashes,
//! or by a device that fails.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{Dir, Disk, Random};

use super::faults::{DmdedupFault, leave_out};
use super::{DataArea, Dmdedup};
use crate::conformance::{CrashModel, EngineTrial, engine};
use crate::inram::{InRam, SaveAt};
use crate::{ChunkContent, ChunkRead, Engine, HashedChunk, HeadId, Lbn, Result};

const CHUNK: usize = 512;
const LBNS: u64 = 40;
const BLOCKS: u64 = 60;

/// An engine that saves its metadata at each commit.
fn open(device: &SimDir) -> Dmdedup {
    let disk: Arc<dyn Disk> = match device.open_write("blocks") {
        Ok(disk) => disk,
        Err(_) => {
            let disk = device.create("blocks").expect("simulated");
            disk.set_len(BLOCKS * CHUNK as u64).expect("simulated");
            disk.sync().expect("simulated");
            device.sync().expect("simulated");
            disk
        }
    };
    let backend = InRam::open(Arc::new(device.clone()), BLOCKS, SaveAt::Flush).expect("metadata");
    let data = DataArea::new(disk, 0, CHUNK as u32, BLOCKS);
    Dmdedup::open(Box::new(backend), data, LBNS).expect("an engine")
}

fn read(engine: &Dmdedup, lbn: u64) -> Vec<u8> {
    let mut buffer = vec![0xEE; CHUNK];
    let mut reads = [ChunkRead {
        lbn: Lbn(lbn),
        buffer: &mut buffer,
    }];
    let read = engine.reader().read(HeadId(0), &mut reads);
    read.expect("what is there can be read");
    buffer
}

fn write(engine: &mut Dmdedup, lbn: u64, bytes: &[u8]) -> Result<()> {
    let refused = engine.write(&[HashedChunk {
        head: HeadId(0),
        lbn: Lbn(lbn),
        content: ChunkContent::Fingerprinted(Fingerprint::of(bytes), bytes),
        has_page: true,
        is_metadata: false,
        is_incompressible: false,
    }])?;
    assert!(refused.is_empty(), "there is room");
    Ok(())
}

/// The suite of engines, in so little room that blocks are used again.
fn suite(seed: u64) {
    let device = SimDir::new(seed);
    let trial = EngineTrial {
        seed,
        steps: 800,
        chunk_bytes: CHUNK,
        lbns: LBNS,
        contents: BLOCKS,
    };
    engine(trial, &mut || Box::new(open(&device)));
}

/// Random work until a crash; what was committed is there, each chunk whole. Crash after crash.
fn crashes(seed: u64) {
    let (mut device, mut random) = (SimDir::new(seed), Random(seed));
    let (mut engine, mut model) = (open(&device), CrashModel::new(CHUNK));
    for round in 0..8 {
        device.inject(Faults {
            crash_at: Some(random.below(60)),
            ..Faults::default()
        });
        loop {
            let lbn = random.below(LBNS);
            let bytes = Random(random.below(50)).bytes(CHUNK);
            model.write(lbn * CHUNK as u64, &bytes);
            if write(&mut engine, lbn, &bytes).is_err() {
                break;
            }
            if random.one_in(5) {
                match engine.commit() {
                    Ok(()) => model.flushed(),
                    Err(_) => break,
                }
            }
        }
        drop(engine);
        device = device.crash_image(random.below(3));
        engine = open(&device);
        let mut found = CrashModel::new(CHUNK);
        for lbn in 0..LBNS {
            let bytes = read(&engine, lbn);
            assert!(
                model.allows(lbn, &bytes),
                "seed {seed}, round {round}, chunk {lbn}"
            );
            found.write(lbn * CHUNK as u64, &bytes);
        }
        found.flushed();
        model = found;
    }
}

/// Each write is tried on a device that fails at times. What failed changes nothing, and stores nothing for others.
fn failures(seed: u64) {
    let (device, mut random) = (SimDir::new(seed), Random(seed));
    let mut engine = open(&device);
    let mut twin = vec![vec![0; CHUNK]; LBNS as usize];
    for _ in 0..100 {
        let (lbn, content) = (random.below(LBNS), random.below(50));
        let bytes = Random(content).bytes(CHUNK);
        let fails = random.one_in(3);
        device.inject(Faults {
            write_error: if fails { When::From(0) } else { When::Never },
            ..Faults::default()
        });
        if write(&mut engine, lbn, &bytes).is_ok() {
            twin[lbn as usize] = bytes;
        }
        device.inject(Faults::default());
        for (lbn, expected) in (0..).zip(&twin) {
            assert!(read(&engine, lbn) == *expected, "seed {seed}, chunk {lbn}");
        }
    }
}

fn all(seed: u64) {
    suite(seed);
    crashes(seed);
    failures(seed);
}

#[test]
fn the_engine_as_it_is_passes() {
    (0..4).for_each(all);
}

#[test]
fn deliberate_faults_are_found() {
    for fault in [
        DmdedupFault::FailedWriteIsNamed,
        DmdedupFault::NoSyncBeforeFlush,
        DmdedupFault::HashOutlivesItsBlock,
        DmdedupFault::FailedWriteStaysPending,
        DmdedupFault::PrefetchedOutlivesItsBlock,
    ] {
        let is_found = (0..4).any(|seed| {
            leave_out(Some(fault));
            let found = std::panic::catch_unwind(|| all(seed)).is_err();
            leave_out(None);
            found
        });
        assert!(is_found, "{fault:?} is not found");
    }
}
