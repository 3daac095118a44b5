//! Checking and deleting depots.

use std::sync::Arc;

use onefold_io::{Dir, Disk, MemDir, MemDisk, Random};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::depot::{CheckProgress, CreateOptions, OpenDevice, OpenOptions};
use onefold_volume::front::Options;
use onefold_volume::{Depot, Error, HeadId};

const CHUNK: u64 = 4096;
const HEAD_BYTES: u64 = 64 << 10;

fn options(engine: EngineKind) -> CreateOptions {
    CreateOptions {
        engine,
        ..CreateOptions::new(8 << 20, [1; 16], [2; 32])
    }
}

fn open(folder: &Arc<dyn Dir>) -> onefold_volume::Result<Depot> {
    let options = OpenOptions {
        front: Options {
            inline: true,
            ..Options::default()
        },
        ..OpenOptions::default()
    };
    Depot::open(Arc::clone(folder), options)
}

/// A closed depot with 400 chunks, of which each content lies at two places.
fn filled(engine: EngineKind) -> Arc<dyn Dir> {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    Depot::create(&folder, &options(engine)).expect("a depot");
    let depot = open(&folder).expect("a depot");
    let device = Caller(depot.device(HeadId(0)).expect("the volume"));
    for n in 0..400 {
        let content = Random(n % 200).bytes(CHUNK as usize);
        device.write(n * CHUNK, &content).expect("room");
        if n == 199 {
            device.flush().expect("a flush");
        }
    }
    drop(device);
    depot.close().expect("all is well");
    folder
}

fn flip(folder: &Arc<dyn Dir>, at: u64) {
    let disk = folder.open_write("data").expect("the data");
    let mut byte = [0];
    disk.read_at(&mut byte, at).expect("RAM");
    disk.write_at(&[byte[0] ^ 16], at).expect("RAM");
}

/// Where the data file holds these bytes.
fn find(folder: &Arc<dyn Dir>, bytes: &[u8]) -> u64 {
    let disk = folder.open("data").expect("the data");
    let mut all = vec![0; disk.len().expect("RAM") as usize];
    disk.read_at(&mut all, 0).expect("RAM");
    let chunks = all.chunks_exact(CHUNK as usize);
    chunks
        .enumerate()
        .find(|(_, chunk)| *chunk == bytes)
        .map(|(at, _)| at as u64 * CHUNK)
        .expect("it was written")
}

#[test]
fn a_check_names_every_place_of_a_damaged_chunk() {
    for engine in [EngineKind::Log, EngineKind::Dmdedup(Backend::InRam)] {
        let folder = filled(engine);
        let depot = open(&folder).expect("a depot");
        let report = depot.check(true).expect("readable");
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.chunks_read, 400);
        drop(depot);
        for n in [17, 18, 130] {
            let content = Random(n).bytes(CHUNK as usize);
            let at = find(&folder, &content);
            flip(&folder, at + 1000);
        }
        let depot = open(&folder).expect("a depot");
        assert!(depot.check(false).expect("readable").is_clean());
        let report = depot.check(true).expect("readable");
        assert_eq!(report.chunks_damaged, 6, "{engine:?}: {report:?}");
        let mut named: Vec<u64> = report
            .damaged
            .iter()
            .flat_map(|stretch| stretch.lbns.clone())
            .collect();
        named.sort_unstable();
        assert_eq!(named, [17, 18, 130, 217, 218, 330], "{engine:?}");
        assert!(
            report
                .damaged
                .iter()
                .all(|stretch| stretch.volume == "main")
        );
    }
}

#[test]
fn a_zone_that_lost_its_table_is_told_without_reading_data() {
    let folder = filled(EngineKind::Log);
    // Zones of 256 KiB begin behind the copy of the configuration; the last page of one is its footer.
    flip(&folder, HEAD_BYTES + (256 << 10) - CHUNK + 20);
    let depot = open(&folder).expect("a depot");
    let report = depot.check(false).expect("readable");
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(report.findings[0].place.contains("data"), "{report:?}");
    let report = depot.check(true).expect("readable");
    assert!(report.chunks_damaged > 0, "nothing proves those chunks now");
}

#[test]
fn a_deleted_depot_leaves_what_is_not_its_own() {
    for engine in [EngineKind::Log, EngineKind::Dmdedup(Backend::InRam)] {
        let folder = filled(engine);
        folder.create("letter").expect("RAM");
        let devices = OpenOptions::default().devices;
        let depot = open(&folder).expect("a depot");
        let held = Depot::delete(&*folder, &devices);
        assert!(matches!(held, Err(Error::Held { .. })), "{held:?}");
        drop(depot);
        // A deletion that was cut off can be repeated.
        folder.remove("data").expect("RAM");
        assert!(open(&folder).is_err());
        let left = Depot::delete(&*folder, &devices).expect("it goes");
        assert_eq!(left, ["letter"], "{engine:?}");
        assert!(matches!(open(&folder), Err(Error::NoDepot { .. })));
        let again = Depot::delete(&*folder, &devices);
        assert!(matches!(again, Err(Error::NoDepot { .. })), "{again:?}");
        Depot::create(&folder, &options(engine)).expect("there is room for another");
    }
}

#[test]
fn a_data_device_is_free_once_its_depot_is_deleted() {
    let disk = Arc::new(MemDisk::new());
    disk.set_len(32 << 20).expect("RAM");
    let shared = Arc::clone(&disk);
    let devices: OpenDevice = Arc::new(move |_, _| Ok(Arc::clone(&shared) as Arc<dyn Disk>));
    let options = |depot| CreateOptions {
        data_path: Some("/dev/sdb".into()),
        devices: Arc::clone(&devices),
        depot: [depot; 16],
        ..options(EngineKind::Log)
    };
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    Depot::create(&folder, &options(1)).expect("a depot");
    let other: Arc<dyn Dir> = Arc::new(MemDir::new());
    let taken = Depot::create(&other, &options(2));
    assert!(matches!(taken, Err(Error::Exists { .. })), "{taken:?}");
    Depot::delete(&*folder, &devices).expect("it goes");
    Depot::create(&other, &options(2)).expect("the device is free");
}

/// A map of many stretches is gone through piece by piece, and nothing of it is left out; a check tells how far it is, and
/// can be ended.
#[test]
fn a_check_reads_maps_of_many_stretches_tells_how_far_it_is_and_can_be_ended() {
    for engine in [EngineKind::Log, EngineKind::Dmdedup(Backend::InRam)] {
        let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
        let options = CreateOptions {
            engine,
            ..CreateOptions::new(64 << 20, [1; 16], [2; 32])
        };
        Depot::create(&folder, &options).expect("a depot");
        let depot = open(&folder).expect("a depot");
        let device = Caller(depot.device(HeadId(0)).expect("the volume"));
        // Each chunk is a stretch of its own; one content many times.
        for n in 0..5000 {
            let content = Random(n % 50).bytes(CHUNK as usize);
            device.write(2 * n * CHUNK, &content).expect("room");
        }
        device.flush().expect("a flush");
        let progress = CheckProgress::default();
        let report = depot.check_with(true, &progress).expect("no device failed");
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.chunks_read, 5000, "{engine:?}");
        let (done, total) = progress.bytes();
        assert!(done == total && done >= 5000 * CHUNK, "{done} of {total}");
        progress.stop();
        let ended = depot.check_with(true, &progress);
        assert!(matches!(ended, Err(Error::Closing)), "{ended:?}");
    }
}
