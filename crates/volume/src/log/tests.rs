//! Engine `log` against a naive twin: random work, reopening, crashes at every point, an index that answers anything it
//! was ever told, a full device, damage.

mod acts;
mod crashes;
mod ever_said;
mod named;
mod packing;
mod snapshots;
mod zone_ends;

use std::collections::HashSet;
use std::sync::Arc;

use onefold_chunk::{Fingerprint, fingerprints};
use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{Dir, Random};

use self::acts::{Act, act};
use self::ever_said::{AdversarialIndex, EverSaid, ever_said};
use self::packing::{compression, has_threads, seals, use_threads, vary_by};
use super::{LogEngine, LogOptions, LogSizes, MergeSizes};
use crate::{
    ChunkContent, ChunkRead, Effort, Engine, Error, ExtentKind, HashedChunk, HeadId, HeadInfo, Lbn,
    Result,
};

const CHUNK: usize = 4096;
const HEAD: HeadId = HeadId(0);
/// LBNs that the tests write to.
const LBNS: u64 = 600;

fn options(said: &EverSaid) -> LogOptions {
    LogOptions {
        first: HeadInfo::first("main", 1 << 20),
        depot: [9; 16],
        fingerprint: Arc::new(|chunks| fingerprints(None, chunks.iter().copied())),
        index: Box::new(AdversarialIndex(Arc::clone(said))),
        sizes: LogSizes {
            ram_bytes: 1 << 20,
            checkpoint_bytes: 600 << 10,
            memtable_entries: 120,
            cache_bytes: 64 << 10,
            map_page_bytes: 0,
            relocations_max: 30,
            ballast_bytes: 0,
            merges: MergeSizes::SMALL,
        },
        compression: compression(),
        seals: seals(),
        is_inline: !has_threads(),
        clock: None,
    }
}

/// A device of `zones` zones of 256 KiB.
fn create(dir: &SimDir, zones: u64, said: &EverSaid) -> LogEngine {
    let data = dir.create("data").expect("simulated");
    data.set_len(zones * (256 << 10)).expect("simulated");
    data.sync().expect("simulated");
    dir.sync().expect("simulated");
    LogEngine::create(Arc::new(dir.clone()), data, CHUNK as u32, options(said))
        .expect("an empty device")
}

fn open(dir: &SimDir, said: &EverSaid) -> Result<LogEngine> {
    let data = dir.open_write("data")?;
    LogEngine::open(Arc::new(dir.clone()), data, options(said))
}

/// The bytes of content number `content`; 0 is zeros. One in four does not compress, others do more or less.
fn bytes_of(content: u64) -> Vec<u8> {
    let noise = match content % 4 {
        _ if content == 0 => 0,
        0 => CHUNK,
        _ => 16 + content as usize * 61 % 2600,
    };
    let mut bytes = Random(content).bytes(noise);
    bytes.resize(CHUNK, 0);
    bytes
}

fn write(engine: &mut LogEngine, writes: &[(u64, u64)]) -> Result<()> {
    write_to(engine, HEAD, writes)
}

fn write_to(engine: &mut LogEngine, head: HeadId, writes: &[(u64, u64)]) -> Result<()> {
    let all: Vec<(u64, Vec<u8>)> = writes
        .iter()
        .map(|(lbn, content)| (*lbn, bytes_of(*content)))
        .collect();
    let chunks: Vec<HashedChunk<'_>> = (all.iter().zip(writes))
        .map(|((lbn, bytes), (_, content))| HashedChunk {
            head,
            lbn: Lbn(*lbn),
            content: match content {
                0 => ChunkContent::Zero,
                content if content % 13 == 0 => ChunkContent::NoDedup(bytes),
                _ => ChunkContent::Fingerprinted(Fingerprint::of(bytes), bytes),
            },
            has_page: true,
            is_metadata: false,
            is_incompressible: false,
        })
        .collect();
    let refused = engine.write(&chunks)?;
    assert!(refused.is_empty(), "there is room");
    Ok(())
}

fn read(engine: &LogEngine, lbn: u64) -> Result<Vec<u8>> {
    read_from(engine, HEAD, lbn)
}

fn read_from(engine: &LogEngine, head: HeadId, lbn: u64) -> Result<Vec<u8>> {
    let mut buffer = vec![1; CHUNK];
    let mut reads = [ChunkRead {
        lbn: Lbn(lbn),
        buffer: &mut buffer,
    }];
    engine.reader().read(head, &mut reads)?;
    Ok(buffer)
}

/// Contents that each LBN may have: the last element is the newest; those before it back to the last commit may come
/// back after a crash.
#[derive(Clone)]
struct Twin {
    head: HeadId,
    versions: Vec<Vec<u64>>,
}

impl Twin {
    fn new() -> Self {
        Self {
            head: HEAD,
            versions: vec![vec![0]; LBNS as usize],
        }
    }

    fn set(&mut self, lbn: u64, content: u64) {
        self.versions[lbn as usize].push(content);
    }

    fn commit(&mut self) {
        for versions in &mut self.versions {
            versions.drain(..versions.len() - 1);
        }
    }

    /// Asserts that the engine holds the newest version of everything.
    fn assert_newest(&self, engine: &LogEngine) {
        for (lbn, versions) in self.versions.iter().enumerate() {
            let expected = bytes_of(*versions.last().expect("never empty"));
            assert!(
                read_from(engine, self.head, lbn as u64).expect("readable") == expected,
                "chunk {lbn}"
            );
        }
    }

    /// Asserts that each chunk is one of its versions since the last commit, and takes that for the newest.
    fn assert_possible(&mut self, engine: &LogEngine, why: &str) {
        for (lbn, versions) in self.versions.iter_mut().enumerate() {
            let found = read_from(engine, self.head, lbn as u64)
                .unwrap_or_else(|error| panic!("{why}: chunk {lbn}: {error}"));
            let version = versions
                .iter()
                .rev()
                .find(|version| bytes_of(**version) == found);
            let version =
                *version.unwrap_or_else(|| panic!("{why}: chunk {lbn} is none of {versions:?}"));
            *versions = vec![version];
        }
    }
}

#[test]
fn random_work_reads_back_and_survives_reopening() {
    for seed in 0..6 {
        vary_by(seed);
        let (dir, said) = (SimDir::new(seed), ever_said(seed));
        let mut engine = create(&dir, 24, &said);
        let (mut twin, mut random) = (Twin::new(), Random(seed));
        for round in 0..8 {
            for _ in 0..60 {
                act(&mut engine, &mut twin, &mut random, 900).expect("no faults");
            }
            twin.assert_newest(&engine);
            engine.commit().expect("no faults");
            twin.commit();
            drop(engine);
            engine = open(&dir, &said)
                .unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            twin.assert_newest(&engine);
        }
        let stats = engine.stats();
        assert!(stats.mapped_lbns > 300, "{stats:?}");
    }
}

#[test]
fn equal_chunks_are_stored_once() {
    let (dir, said) = (SimDir::new(1), ever_said(1));
    let mut engine = create(&dir, 64, &said);
    let contents: Vec<(u64, u64)> = (0..200).map(|lbn| (lbn, 1 + lbn % 10)).collect();
    write(&mut engine, &contents).expect("room");
    engine.commit().expect("no faults");
    let stats = engine.stats();
    assert_eq!(
        (
            stats.unique_writes,
            stats.duplicate_writes,
            stats.new_writes
        ),
        (10, 190, 200)
    );
    let mut stretches = Vec::new();
    engine
        .reader()
        .extents(HEAD, 0..300, &mut |lbns, kind| {
            stretches.push((lbns, kind));
            true
        })
        .expect("in RAM");
    assert_eq!(
        stretches,
        [(0..200, ExtentKind::Data), (200..300, ExtentKind::Hole)]
    );
}

/// Runs random work until a crash at `point`, and checks what is left; recovery is cut off at random points, too.
fn crash_at(seed: u64, point: u64, image: u64) -> bool {
    vary_by(seed);
    let (dir, said) = (SimDir::new(seed), ever_said(seed));
    let mut engine = create(&dir, 20, &said);
    let (mut twin, mut random) = (Twin::new(), Random(seed));
    for _ in 0..20 {
        act(&mut engine, &mut twin, &mut random, 700).expect("no faults yet");
    }
    dir.inject(Faults {
        crash_at: Some(point),
        ..Faults::default()
    });
    let mut acts = 0;
    let crashed = loop {
        if acts == 80 {
            break false;
        }
        acts += 1;
        if act(&mut engine, &mut twin, &mut random, 700).is_err() {
            assert!(dir.crashed(), "only the crash fails");
            break true;
        }
    };
    drop(engine);
    let mut after = dir.crash_image(image);
    let why = format!("seed {seed}, point {point}, image {image}");
    if random.one_in(2) {
        after.inject(Faults {
            crash_at: Some(random.below(12)),
            ..Faults::default()
        });
        if open(&after, &said).is_err() {
            after = after.crash_image(image + 1);
        } else {
            after.inject(Faults::default());
        }
    }
    let mut engine = open(&after, &said).unwrap_or_else(|error| panic!("{why}: {error}"));
    twin.assert_possible(&engine, &why);
    for _ in 0..15 {
        act(&mut engine, &mut twin, &mut random, 700).expect("no faults any more");
    }
    twin.assert_newest(&engine);
    crashed
}

#[test]
fn nothing_committed_is_lost_in_a_crash_at_any_point() {
    let scale: u64 = std::env::var("ONEFOLD_TEST_SCALE")
        .ok()
        .and_then(|scale| scale.parse().ok())
        .unwrap_or(1);
    let mut crashes = 0;
    for point in 0..60 * scale {
        for image in [0, 1, 2 + point] {
            crashes += u32::from(crash_at(point * 7 + image, point, image));
        }
    }
    assert!(crashes > 100, "{crashes}");
}

#[test]
fn a_full_device_refuses_new_chunks_and_takes_known_ones_and_deletes() {
    let (dir, said) = (SimDir::new(2), ever_said(2));
    let mut engine = create(&dir, 20, &said);
    let mut twin = Twin::new();
    for round in 0..10u64 {
        let mut filled = Vec::new();
        let error = loop {
            let lbn = filled.len() as u64 % LBNS;
            assert!(filled.len() < 5000, "the device is smaller than that");
            let content = 1000 * (round + 1) * 13 + 1 + filled.len() as u64;
            // Fills with unique chunks at LBNs of their own.
            match write_at(&mut engine, filled.len() as u64, content) {
                Ok(()) => filled.push(content),
                Err(error) => break error,
            }
            let _ = lbn;
        };
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert!(
            filled.len() > 500,
            "round {round}: only {} chunks",
            filled.len()
        );
        // This index forgets some chunks.
        let takes = |content: &u64| write_at(&mut engine, 9000, *content).is_ok();
        assert!(filled.iter().any(takes), "known chunks need no page");
        engine.commit().expect("a full device flushes");
        for (lbn, content) in filled.iter().enumerate().step_by(97) {
            assert!(read(&engine, lbn as u64).expect("readable") == bytes_of(*content));
        }
        engine
            .discard(HEAD, 0..10_000)
            .expect("a full device deletes");
        engine.commit().expect("no faults");
    }
    engine.collect(Effort::Whole).expect("no faults");
    assert_eq!(engine.stats().mapped_lbns, 0);
    write(&mut engine, &[(1, 5), (2, 0)]).expect("room again");
    twin.set(1, 5);
    twin.assert_newest(&engine);
}

/// Unlike [`write`], takes content numbers that are never NODEDUP.
fn write_at(engine: &mut LogEngine, lbn: u64, content: u64) -> Result<()> {
    let bytes = bytes_of(content);
    let refused = engine.write(&[HashedChunk {
        head: HEAD,
        lbn: Lbn(lbn),
        content: ChunkContent::Fingerprinted(Fingerprint::of(&bytes), &bytes),
        has_page: true,
        is_metadata: false,
        is_incompressible: false,
    }])?;
    if refused.is_empty() {
        Ok(())
    } else {
        Err(Error::NoSpace {
            what: "refused".to_string(),
        })
    }
}

#[test]
fn cleaning_keeps_what_lives_and_gives_back_the_rest() {
    vary_by(5);
    let (dir, said) = (SimDir::new(3), ever_said(3));
    let mut engine = create(&dir, 40, &said);
    let (mut twin, mut random) = (Twin::new(), Random(3));
    // Each round overwrites everything: many times the device in all.
    for round in 0..30 {
        let mut lbns: Vec<u64> = (0..LBNS).collect();
        (1..lbns.len())
            .rev()
            .for_each(|i| lbns.swap(i, random.below(i as u64 + 1) as usize));
        for part in lbns.chunks(50) {
            let writes: Vec<(u64, u64)> = part
                .iter()
                .map(|lbn| (*lbn, 1 + round * 10_000 + lbn))
                .collect();
            writes
                .iter()
                .for_each(|(lbn, content)| twin.set(*lbn, *content));
            write(&mut engine, &writes).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        engine.commit().expect("no faults");
        twin.commit();
    }
    twin.assert_newest(&engine);
    let stats = engine.stats();
    let counter = |name| {
        stats
            .counters
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, count)| *count)
    };
    assert!(counter("zones freed") > Some(100), "{stats:?}");
    drop(engine);
    twin.assert_newest(&open(&dir, &said).expect("whole"));
}

#[test]
fn a_failed_write_or_sync_stops_writing_and_loses_nothing_committed() {
    for (fault, name) in [
        (
            Faults {
                write_error: When::Once(0),
                ..Faults::default()
            },
            "write",
        ),
        (
            Faults {
                sync_error: When::Once(0),
                ..Faults::default()
            },
            "sync",
        ),
    ] {
        // Sealed: what waits in RAM can be read although its write failed.
        vary_by(2);
        let (dir, said) = (SimDir::new(4), ever_said(4));
        let mut engine = create(&dir, 20, &said);
        let mut twin = Twin::new();
        let writes: Vec<(u64, u64)> = (0..LBNS).map(|lbn| (lbn, 1 + lbn)).collect();
        writes
            .iter()
            .for_each(|(lbn, content)| twin.set(*lbn, *content));
        write(&mut engine, &writes).expect("no faults yet");
        engine.commit().expect("no faults yet");
        twin.commit();
        dir.inject(fault);
        write(&mut engine, &[(5, 777)]).ok();
        twin.set(5, 777);
        assert!(engine.commit().is_err(), "{name}: the flush fails");
        dir.inject(Faults::default());
        assert!(
            matches!(engine.commit(), Err(Error::ReadOnly { .. })),
            "{name}: a second one does not succeed"
        );
        assert!(
            matches!(write(&mut engine, &[(6, 8)]), Err(Error::ReadOnly { .. })),
            "{name}"
        );
        twin.assert_newest(&engine);
        drop(engine);
        twin.assert_possible(&open(&dir.crash_image(0), &said).expect("opens"), name);
    }
}

#[test]
fn a_flipped_bit_on_the_device_is_damage_and_never_wrong_bytes() {
    vary_by(2);
    let (dir, said) = (SimDir::new(5), ever_said(5));
    let mut engine = create(&dir, 20, &said);
    let mut twin = Twin::new();
    let writes: Vec<(u64, u64)> = (0..LBNS).map(|lbn| (lbn, 1 + lbn)).collect();
    writes
        .iter()
        .for_each(|(lbn, content)| twin.set(*lbn, *content));
    write(&mut engine, &writes).expect("room");
    engine.commit().expect("no faults");
    drop(engine);
    drop(open(&dir, &said).expect("whole"));
    let device_bytes = dir.open("data").expect("there").len().expect("simulated");
    let mut random = Random(6);
    let mut damaged = HashSet::new();
    for _ in 0..150 {
        let hurt = dir.fork();
        let disk = hurt.open_write("data").expect("there");
        let at = random.below(device_bytes / 4);
        let mut byte = [0];
        disk.read_at(&mut byte, at).expect("simulated");
        disk.write_at(&[byte[0] ^ 1 << random.below(8)], at)
            .expect("simulated");
        let Ok(engine) = open(&hurt, &said) else {
            damaged.insert(u64::MAX);
            continue;
        };
        for lbn in 0..LBNS {
            match read(&engine, lbn) {
                Ok(found) => assert!(found == bytes_of(1 + lbn), "chunk {lbn}, byte {at}"),
                Err(Error::Damaged { .. }) => {
                    damaged.insert(lbn);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(damaged.len() > 20, "{}", damaged.len());
}
