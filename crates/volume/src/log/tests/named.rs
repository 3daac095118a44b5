//! Faults that a log with moving chunks and no reference counts could have, each as a test named for it.

use onefold_index::{ChunkIndex, ContainerId, IndexStats, Location, RamIndex};
use onefold_io::Disk;
use parking_lot::Mutex;

use super::*;
use crate::log::faults::Fault;
use crate::log::faults::tests::leave_out;
use crate::log::layout::ZoneId;
use crate::log::manifest::Manifest;

/// LBNs that the tests write again what they wrote elsewhere before.
const AGAIN: u64 = 10_000;

/// A content that has a fingerprint in these tests.
fn plain(number: u64) -> u64 {
    number * 13 + 1
}

/// An engine whose index forgets nothing.
fn engine_over(dir: &SimDir, data: Arc<dyn Disk>, index: Box<dyn ChunkIndex>) -> LogEngine {
    let said = ever_said(0);
    let options = LogOptions {
        index,
        ..options(&said)
    };
    LogEngine::create(Arc::new(dir.clone()), data, CHUNK as u32, options).expect("an empty device")
}

fn new_device(dir: &SimDir, zones: u64) -> Arc<dyn Disk> {
    let data = dir.create("data").expect("simulated");
    data.set_len(zones * (256 << 10)).expect("simulated");
    data.sync().expect("simulated");
    dir.sync().expect("simulated");
    data
}

fn new_engine(dir: &SimDir, zones: u64) -> LogEngine {
    engine_over(dir, new_device(dir, zones), Box::new(RamIndex::default()))
}

fn reopened(dir: &SimDir) -> LogEngine {
    let options = LogOptions {
        index: Box::new(RamIndex::default()),
        ..options(&ever_said(0))
    };
    let data = dir.open_write("data").expect("there");
    LogEngine::open(Arc::new(dir.clone()), data, options).expect("it opens")
}

fn fill(engine: &mut LogEngine, lbns: std::ops::Range<u64>, add: u64) {
    let writes: Vec<_> = lbns.map(|lbn| (lbn, plain(lbn + add))).collect();
    for writes in writes.chunks(50) {
        write(engine, writes).expect("room");
    }
    engine.commit().expect("no faults");
}

/// Whether each chunk reads as it was written, at its LBN less `at` and with the content that [`fill`] gave it.
fn is_kept(engine: &LogEngine, mut lbns: impl Iterator<Item = u64>, at: u64) -> bool {
    lbns.all(|lbn| read(engine, at + lbn).is_ok_and(|found| found == bytes_of(plain(lbn))))
}

fn zone_ids(engine: &LogEngine) -> HashSet<ZoneId> {
    let zones = engine.shared.zones.read();
    zones.iter().map(|(id, _)| id).collect()
}

/// Zones lose half of their chunks. Some are emptied; while the others are condemned, what died is written again.
fn is_hit_in_condemned_zone_kept() -> bool {
    let mut engine = new_engine(&SimDir::new(31), 28);
    fill(&mut engine, 0..900, 0);
    for lbn in (0..900).step_by(2) {
        engine.discard(HEAD, lbn..lbn + 1).expect("no faults");
    }
    engine.collect(Effort::Step).expect("no faults");
    let condemned = |engine: &LogEngine| {
        let all = zone_ids(engine).into_iter();
        all.filter(|zone| engine.plan.condemns(*zone)).count()
    };
    assert!(condemned(&engine) > 3, "{}", condemned(&engine));
    for lbn in (400..900).step_by(2) {
        write(&mut engine, &[(AGAIN + lbn, plain(lbn))]).expect("room");
    }
    engine.commit().expect("no faults");
    engine.collect(Effort::Whole).expect("no faults");
    is_kept(&engine, (400..900).step_by(2), AGAIN) && is_kept(&engine, (1..900).step_by(2), 0)
}

#[test]
fn hit_in_a_condemned_zone() {
    assert!(is_hit_in_condemned_zone_kept());
    leave_out(Some(Fault::HitsInCondemnedZones));
    let is_kept = is_hit_in_condemned_zone_kept();
    leave_out(None);
    assert!(!is_kept, "the test finds nothing");
}

/// A disk that does something before its next read of several places.
struct HookedDisk {
    inner: Arc<dyn Disk>,
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Disk for HookedDisk {
    fn len(&self) -> onefold_io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> onefold_io::Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn read_many_at(&self, reads: &mut [onefold_io::ReadAt<'_>]) -> onefold_io::Result<()> {
        let hook = self.hook.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        self.inner.read_many_at(reads)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> onefold_io::Result<()> {
        self.inner.write_at(data, offset)
    }

    fn sync(&self) -> onefold_io::Result<()> {
        self.inner.sync()
    }

    fn set_len(&self, len: u64) -> onefold_io::Result<()> {
        self.inner.set_len(len)
    }

    fn discard(&self, offset: u64, len: u64) -> onefold_io::Result<()> {
        self.inner.discard(offset, len)
    }
}

/// Between finding out where a chunk lies and reading it there, its zone is emptied and filled with something else.
#[test]
fn reader_meets_a_reused_zone() {
    let dir = SimDir::new(32);
    let disk = Arc::new(HookedDisk {
        inner: new_device(&dir, 24),
        hook: Mutex::new(None),
    });
    let mut engine = engine_over(&dir, disk.clone(), Box::new(RamIndex::default()));
    fill(&mut engine, 0..400, 0);
    engine.checkpoint().expect("no faults");
    let reader = engine.reader();
    let zone_of = |engine: &LogEngine| {
        let zones = engine.shared.zones.read();
        zones
            .iter()
            .map(|(id, info)| (info.no, id))
            .min()
            .expect("some")
    };
    let (no, first) = zone_of(&engine);
    let engine = Arc::new(Mutex::new(engine));
    let worker = Arc::clone(&engine);
    *disk.hook.lock() = Some(Box::new(move || {
        let mut engine = worker.lock();
        engine.discard(HEAD, 1..400).expect("no faults");
        engine.collect(Effort::Whole).expect("no faults");
        let mut round = 1;
        while engine
            .shared
            .zones
            .read()
            .at(no)
            .is_none_or(|id| id == first)
        {
            assert!(round < 30, "the place is filled anew some time");
            fill(&mut engine, 500..600, round * 1000);
            engine.collect(Effort::Step).expect("no faults");
            round += 1;
        }
    }));
    let mut buffer = vec![0; CHUNK];
    let mut reads = [ChunkRead {
        lbn: Lbn(0),
        buffer: &mut buffer,
    }];
    reader.read(HEAD, &mut reads).expect("it is found again");
    assert!(disk.hook.lock().is_none(), "it was read from the device");
    assert!(buffer == bytes_of(plain(0)));
    assert_ne!(engine.lock().shared.zones.read().at(no), Some(first));
}

/// Returns the id that the log begins with behind a crash, and the highest one that was given before it.
fn ids_around_a_crash() -> (ZoneId, ZoneId) {
    let dir = SimDir::new(33);
    let mut engine = new_engine(&dir, 24);
    fill(&mut engine, 0..40, 0);
    // Behind the last checkpoint, and not all of it durable.
    let writes: Vec<_> = (40..110).map(|lbn| (lbn, plain(lbn))).collect();
    write(&mut engine, &writes).expect("room");
    let given = zone_ids(&engine).into_iter().max().expect("some");
    drop(engine);
    let engine = reopened(&dir.crash_image(0));
    (engine.begin.expect("nothing is written yet"), given)
}

/// An index may name what a crash took away: the id must never mean another filling.
#[test]
fn zone_id_after_a_crash_is_new() {
    let (new, given) = ids_around_a_crash();
    assert!(new > given, "{new:?}, {given:?}");
    leave_out(Some(Fault::IdsGivenAgain));
    let (new, given) = ids_around_a_crash();
    leave_out(None);
    assert!(new <= given, "the test finds nothing");
}

/// The manifest of a recovery says in which place and with which id the log goes on: the next recovery reads on there.
#[test]
fn log_begins_where_recovery_said() {
    let mut dir = SimDir::new(34);
    let mut engine = new_engine(&dir, 24);
    fill(&mut engine, 0..100, 0);
    for round in 1..8 {
        drop(engine);
        dir = dir.crash_image(0);
        engine = reopened(&dir);
        let said = Manifest::read(&dir, &seals()).expect("whole").position;
        assert_eq!(Some(said.zone), engine.begin);
        assert_eq!(Some(said.no), engine.shared.zones.read().next_journal());
        let first = round * 100;
        fill(&mut engine, first..first + 40, 0);
        let zone = engine.zone.as_ref().expect("it was written to");
        assert_eq!((zone.no, zone.id), (said.no, said.zone), "round {round}");
        let manifest = Manifest::read(&dir, &seals()).expect("whole");
        assert_eq!(manifest.position.zone, said.zone, "no checkpoint was made");
    }
    drop(engine);
    let engine = reopened(&dir.crash_image(0));
    assert!(is_kept(
        &engine,
        (0..100).chain((100..800).filter(|lbn| lbn % 100 < 40)),
        0
    ));
}

/// An index that takes only so many entries more, as one whose log pages are all numbered.
struct LimitedIndex {
    inner: RamIndex,
    left: u64,
}

impl LimitedIndex {
    fn refused() -> onefold_index::Error {
        onefold_index::Error::damaged("index/manifest", 0, "the last log page is used")
    }
}

impl ChunkIndex for LimitedIndex {
    fn lookup(
        &self,
        keys: &[Fingerprint],
        found: &mut [Option<Location>],
    ) -> onefold_index::Result<()> {
        self.inner.lookup(keys, found)
    }

    fn say(
        &mut self,
        key: &Fingerprint,
        container: Option<ContainerId>,
    ) -> onefold_index::Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(Self::refused)?;
        self.inner.say(key, container)
    }

    fn retire(&mut self, containers: &[ContainerId]) -> onefold_index::Result<()> {
        self.inner.retire(containers)
    }

    fn checkpoint(&mut self) -> onefold_index::Result<()> {
        match self.left {
            0 => Err(Self::refused()),
            _ => self.inner.checkpoint(),
        }
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> onefold_index::Result<()>,
    ) -> onefold_index::Result<()> {
        self.inner.iterate(visit)
    }

    fn ram_bytes(&self) -> usize {
        self.inner.ram_bytes()
    }

    fn stats(&self) -> IndexStats {
        self.inner.stats()
    }
}

/// When the index takes nothing any more, duplicates of new chunks are stored again, and nothing else changes; an index
/// that is made anew finds them all.
#[test]
fn log_pages_run_out() {
    let dir = SimDir::new(35);
    let index = LimitedIndex {
        inner: RamIndex::default(),
        left: 200,
    };
    let mut engine = engine_over(&dir, new_device(&dir, 40), Box::new(index));
    fill(&mut engine, 0..500, 0);
    engine.checkpoint().expect("an index is advice");
    engine.collect(Effort::Whole).expect("an index is advice");
    assert!(is_kept(&engine, 0..500, 0));
    let duplicates = |engine: &mut LogEngine, lbns: std::ops::Range<u64>| {
        let before = engine.stats().duplicate_writes;
        for lbn in lbns.clone() {
            write(engine, &[(AGAIN + lbn, plain(lbn))]).expect("room");
        }
        engine.commit().expect("no faults");
        assert!(is_kept(engine, lbns, AGAIN));
        engine.stats().duplicate_writes - before
    };
    assert!(
        duplicates(&mut engine, 0..50) == 50,
        "what it holds is found"
    );
    assert!(
        duplicates(&mut engine, 300..350) == 0,
        "it has no room for these"
    );
    drop(engine);
    let mut engine = reopened(&dir);
    assert_eq!(duplicates(&mut engine, 350..400), 50);
    assert!(is_kept(&engine, 0..500, 0));
}

/// A run of the map names a zone that was emptied into another, which is emptied in turn.
fn is_chunk_moved_twice_kept() -> bool {
    let dir = SimDir::new(36);
    let mut engine = new_engine(&dir, 40);
    fill(&mut engine, 0..300, 0);
    engine.checkpoint().expect("no faults");
    let old = zone_ids(&engine);
    // Every fourth chunk lives on, then every eighth: the first move fills zones of which the second empties some.
    for step in [4, 8] {
        for lbn in (0..300).filter(|lbn| lbn % step != 0) {
            engine.discard(HEAD, lbn..lbn + 1).expect("no faults");
        }
        engine.collect(Effort::Whole).expect("no faults");
    }
    let zones = zone_ids(&engine);
    let left = old.intersection(&zones).count();
    assert!(left <= 1, "{left} of the first zones are left");
    let is_kept_now = is_kept(&engine, (0..300).step_by(8), 0);
    drop(engine);
    is_kept_now && is_kept(&reopened(&dir), (0..300).step_by(8), 0)
}

#[test]
fn zone_moved_twice() {
    assert!(is_chunk_moved_twice_kept());
    leave_out(Some(Fault::RelocationsNotLedOn));
    let kept = std::panic::catch_unwind(is_chunk_moved_twice_kept).unwrap_or(false);
    leave_out(None);
    assert!(!kept, "the test finds nothing");
}
