//! Metadata on a device of its own: both devices are needed, and a missing or foreign one is refused in words.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{Dir, Disk, Error as IoError, ErrorKind, MemDir, MemDisk, Random};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::backends::Parameters;
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::depot::{CreateOptions, OpenDevice, OpenOptions, Structure};
use onefold_volume::front::Options;
use onefold_volume::{Depot, Error, HeadId, Result};

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 4096;

/// Devices by path.
#[derive(Clone, Default)]
struct Host(HashMap<&'static str, Arc<dyn Disk>>);

impl Host {
    fn new(devices: &[(&'static str, u64)]) -> Self {
        let device = |(path, bytes): &(&'static str, u64)| {
            let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
            disk.set_len(*bytes).expect("RAM");
            (*path, disk)
        };
        Self(devices.iter().map(device).collect())
    }

    fn devices(&self) -> OpenDevice {
        let devices = self.0.clone();
        Arc::new(move |path, _| {
            let found = devices.get(path).cloned();
            found.ok_or_else(|| IoError::new("open", path, ErrorKind::NotFound, "no such device"))
        })
    }

    fn create(&self, folder: &Arc<dyn Dir>, backend: Backend, depot: u8) -> Result<()> {
        Depot::create(folder, &self.options(backend, depot)).map(drop)
    }

    fn options(&self, backend: Backend, depot: u8) -> CreateOptions {
        CreateOptions {
            engine: EngineKind::Dmdedup(backend),
            parameters: Parameters::default(),
            data_path: Some("/dev/data".into()),
            metadata_path: Some("/dev/metadata".into()),
            devices: self.devices(),
            ..CreateOptions::new(4 * MIB, [depot; 16], [2; 32])
        }
    }

    fn open(&self, folder: &Arc<dyn Dir>) -> Result<Depot> {
        let options = OpenOptions {
            front: Options {
                inline: true,
                ..Options::default()
            },
            devices: self.devices(),
            ..OpenOptions::default()
        };
        Depot::open(Arc::clone(folder), options)
    }

    /// The error of an opening that has to fail.
    fn refused(&self, folder: &Arc<dyn Dir>) -> Error {
        self.open(folder).err().expect("it must be refused")
    }
}

fn host() -> Host {
    Host::new(&[("/dev/data", 8 * MIB), ("/dev/metadata", 4 * MIB)])
}

fn folder() -> Arc<dyn Dir> {
    Arc::new(MemDir::new())
}

fn write(depot: &Depot, lbn: u64, byte: u8) {
    let device = Caller(depot.device(HeadId(0)).expect("the volume"));
    device
        .write(lbn * CHUNK, &[byte; CHUNK as usize])
        .expect("room");
    device.flush().expect("a flush");
}

fn read(depot: &Depot, lbn: u64) -> u8 {
    let device = Caller(depot.device(HeadId(0)).expect("the volume"));
    device.read(lbn * CHUNK, CHUNK).expect("a read")[0]
}

#[test]
fn metadata_lies_on_its_device_and_nowhere_else() {
    for backend in [Backend::Dtb, Backend::Cbt] {
        let (host, folder) = (host(), folder());
        host.create(&folder, backend, 1).expect("a depot");
        for round in 1..4 {
            let depot = host.open(&folder).expect("both devices are there");
            write(&depot, round, round as u8);
            depot.close().expect("all is well");
        }
        let depot = host.open(&folder).expect("both devices are there");
        assert_eq!([1, 2, 3].map(|lbn| read(&depot, lbn)), [1, 2, 3]);
        assert!(depot.check(true).expect("a check").is_clean());
        depot.close().expect("all is well");
        let names: Vec<String> = folder
            .list()
            .expect("RAM")
            .into_iter()
            .map(|it| it.name)
            .collect();
        assert!(
            !names.iter().any(|name| name == "meta" || name == "data"),
            "{names:?}"
        );
        let devices = &host.devices();
        for structure in [Structure::Metadata, Structure::Config] {
            Depot::dump(&*folder, devices, structure, None).expect("it can be looked at");
        }
        Depot::delete(&*folder, devices).expect("it goes");
        host.create(&folder, backend, 2)
            .expect("both devices are blank again");
    }
}

#[test]
fn a_missing_or_foreign_metadata_device_is_refused_in_words() {
    for backend in [Backend::Dtb, Backend::Cbt] {
        let (mine, theirs) = (host(), host());
        let (folder, other) = (folder(), self::folder());
        mine.create(&folder, backend, 1).expect("a depot");
        theirs.create(&other, backend, 2).expect("a depot");
        mine.open(&folder).expect("a depot").close().expect("well");
        let with = |path, disk: &Arc<dyn Disk>| {
            let mut host = mine.clone();
            host.0.insert(path, Arc::clone(disk));
            host.refused(&folder).to_string()
        };
        for path in ["/dev/data", "/dev/metadata"] {
            let mut lacking = mine.clone();
            lacking.0.remove(path);
            let said = lacking.refused(&folder).to_string();
            assert!(said.contains(path), "{said}");
        }
        let foreign = with("/dev/metadata", &theirs.0["/dev/metadata"]);
        assert!(foreign.contains("metadata of depot 0202"), "{foreign}");
        let data = with("/dev/metadata", &mine.0["/dev/data"]);
        assert!(data.contains("/dev/metadata"), "its own data: {data}");
        let swapped = with("/dev/data", &mine.0["/dev/metadata"]);
        assert!(swapped.contains("/dev/data"), "its own metadata: {swapped}");
        let blank = Host::new(&[("/dev/metadata", 4 * MIB)]);
        let blank = with("/dev/metadata", &blank.0["/dev/metadata"]);
        assert!(blank.contains("/dev/metadata"), "{blank}");
        mine.open(&folder).expect("nothing was changed");
    }
}

#[test]
fn a_metadata_device_of_an_earlier_day_is_refused() {
    let (host, folder) = (host(), folder());
    host.create(&folder, Backend::Cbt, 1).expect("a depot");
    host.open(&folder).expect("a depot").close().expect("well");
    let device = &host.0["/dev/metadata"];
    let mut bytes = vec![0; 4 << 20];
    device.read_at(&mut bytes, 0).expect("RAM");
    let depot = host.open(&folder).expect("a depot");
    write(&depot, 1, 7);
    depot.close().expect("all is well");
    device.write_at(&bytes, 0).expect("RAM");
    let said = host.refused(&folder).to_string();
    assert!(said.contains("another copy of the folder"), "{said}");
}

#[test]
fn a_metadata_device_that_is_too_small_or_not_wanted_is_refused() {
    for backend in [Backend::Dtb, Backend::Cbt] {
        let small = Host::new(&[("/dev/data", 8 * MIB), ("/dev/metadata", 100 << 10)]);
        let said = small.create(&folder(), backend, 1);
        let said = said.expect_err("it is too small").to_string();
        assert!(said.contains("bytes of metadata"), "{said}");
    }
    for backend in [Backend::InRam, Backend::InRamSaved] {
        let said = host().create(&folder(), backend, 1);
        let said = said.expect_err("it has none").to_string();
        assert!(said.contains("dtb or cbt is expected"), "{said}");
    }
    let host = host();
    host.0["/dev/metadata"].write_at(&[1], 100).expect("RAM");
    let taken = host.create(&folder(), Backend::Cbt, 1);
    assert!(matches!(taken, Err(Error::Exists { .. })), "{taken:?}");
}

/// Transactions end at flushes alone, so that each would copy all of the metadata if it did not commit for want of
/// room.
#[test]
fn the_smallest_metadata_device_takes_every_write() {
    const CHUNKS: u64 = 16 << 10;
    const SHORT: u64 = 512;
    let blocks = 4 * CHUNKS;
    let smallest = (64 << 10) + blocks * 56 + CHUNKS * 33 + MIB;
    let data = (64 << 10) + blocks * SHORT;
    for (bytes, is_enough) in [(smallest - 1, false), (smallest, true)] {
        let (folder, host) = (
            folder(),
            Host::new(&[("/dev/data", data), ("/dev/metadata", bytes)]),
        );
        let options = CreateOptions {
            parameters: Parameters {
                transaction_writes: 0,
                ..Parameters::default()
            },
            chunk_bytes: SHORT as u32,
            volume_bytes: CHUNKS * SHORT,
            ..host.options(Backend::Cbt, 1)
        };
        let created = Depot::create(&folder, &options);
        if !is_enough {
            assert!(matches!(created, Err(Error::Invalid { .. })), "{created:?}");
            continue;
        }
        created.expect("it has room for all");
        let mut random = Random(7);
        let mut expected = vec![0; CHUNKS as usize];
        for round in 0..3 {
            let depot = host.open(&folder).expect("a depot");
            let device = Caller(depot.device(HeadId(0)).expect("the volume"));
            for at in 0..2 * CHUNKS {
                let lbn = random.below(CHUNKS);
                let content = round * 2 * CHUNKS + at + 1;
                device
                    .write(lbn * SHORT, &content.to_le_bytes().repeat(64))
                    .expect("room");
                expected[lbn as usize] = content;
            }
            for (lbn, content) in (0..).zip(&expected) {
                let found = device.read(lbn * SHORT, 8).expect("a read");
                assert_eq!(&found[..], content.to_le_bytes(), "chunk {lbn}");
            }
            depot.close().expect("all is well");
        }
        let depot = host.open(&folder).expect("a depot");
        assert!(depot.check(true).expect("a check").is_clean());
        let device = Caller(depot.device(HeadId(0)).expect("the volume"));
        for (lbn, content) in (0..).zip(&expected) {
            let found = device.read(lbn * SHORT, 8).expect("a read");
            assert_eq!(&found[..], content.to_le_bytes(), "chunk {lbn}");
        }
    }
}

/// Whatever a creation is refused for, or fails at in the folder, either device is what it was.
#[test]
fn a_creation_that_is_refused_or_fails_changes_no_device() {
    let contents = |host: &Host| {
        ["/dev/data", "/dev/metadata"].map(|path| {
            let disk = &host.0[path];
            let mut bytes = vec![0; disk.len().expect("RAM") as usize];
            disk.read_at(&mut bytes, 0).expect("RAM");
            bytes
        })
    };
    let small = [("/dev/data", 8 * MIB), ("/dev/metadata", 120 << 10)];
    let roomy = [("/dev/data", 8 * MIB), ("/dev/metadata", 4 * MIB)];
    let begun = SimDir::new(1);
    begun.inject(Faults {
        write_error: When::From(0),
        ..Faults::default()
    });
    let failing: Arc<dyn Dir> = Arc::new(begun);
    for backend in [Backend::Dtb, Backend::Cbt] {
        for (devices, used, folder) in [
            (&small, None, folder()),
            (&roomy, Some("/dev/data"), folder()),
            (&roomy, Some("/dev/metadata"), folder()),
            (&roomy, None, Arc::clone(&failing)),
        ] {
            let host = Host::new(devices);
            if let Some(path) = used {
                host.0[path].write_at(b"a label", 1024).expect("RAM");
            }
            let before = contents(&host);
            host.create(&folder, backend, 1)
                .expect_err("it cannot be made");
            assert!(contents(&host) == before, "{backend:?}, {used:?}");
        }
    }
    let host = Host::new(&roomy);
    let (before, options) = (contents(&host), host.options(Backend::Cbt, 1));
    let options = CreateOptions {
        engine: EngineKind::Log,
        metadata_path: None,
        ram_bytes: Some(4096),
        ..options
    };
    Depot::create(&folder(), &options).expect_err("RAM for nothing");
    assert!(contents(&host) == before, "log with too little RAM");
}

/// Old bytes of a device are no metadata, and a block that the data device does not have is damage.
#[test]
fn metadata_begins_empty_whatever_its_device_held() {
    for backend in [Backend::Dtb, Backend::Cbt] {
        let (host, folder) = (host(), folder());
        let device = &host.0["/dev/metadata"];
        device.write_at(&[0xff; 4 << 20], 0).expect("RAM");
        // Tables of so many LBNs go beyond the first MiB.
        let chunks = match backend {
            Backend::Dtb => 1 << 18,
            _ => 1 << 10,
        };
        let options = CreateOptions {
            overwrite: true,
            volume_bytes: chunks * CHUNK,
            ..host.options(backend, 1)
        };
        Depot::create(&folder, &options).expect("it is meant");
        let depot = host.open(&folder).expect("a depot");
        let mut lbns = (0..chunks).step_by(61);
        assert!(lbns.all(|lbn| read(&depot, lbn) == 0), "{backend:?}");
        write(&depot, 3, 9);
        assert_eq!(read(&depot, 3), 9);
        assert!(depot.check(true).expect("a check").is_clean());
        depot.close().expect("all is well");
        if backend == Backend::Dtb {
            // Behind header and counts, of which a page has 1,024: the LBNs, 8 bytes each.
            let counts = (8 * MIB / CHUNK).div_ceil(1024);
            let lbns = (64 << 10) + (1 + counts) * 4096;
            device.write_at(&[0xff; 64], lbns).expect("RAM");
            let depot = host.open(&folder).expect("pages have no checksums");
            let caller = Caller(depot.device(HeadId(0)).expect("the volume"));
            let found = caller.read(0, 4 * CHUNK);
            assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
            assert!(!depot.check(true).expect("a check").is_clean());
        }
    }
}
