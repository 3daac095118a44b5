//! Depots as such: one owner, the right device, and words for what cannot be.

use std::sync::Arc;

use onefold_io::{Dir, Disk, LockKind, MemDir, MemDisk, remove_if_there};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::backends::{self, Parameters};
use onefold_volume::depot::config::{Backend, Config, EngineKind};
use onefold_volume::depot::{CreateOptions, OpenDevice, OpenOptions};
use onefold_volume::front::Options;
use onefold_volume::{Depot, Error, HeadId};

fn folder() -> Arc<dyn Dir> {
    Arc::new(MemDir::new())
}

fn options(depot: u8) -> CreateOptions {
    CreateOptions::new(1 << 20, [depot; 16], [2; 32])
}

fn inline() -> OpenOptions {
    OpenOptions {
        front: Options {
            inline: true,
            ..Options::default()
        },
        ..OpenOptions::default()
    }
}

fn open(folder: &Arc<dyn Dir>) -> onefold_volume::Result<Depot> {
    Depot::open(Arc::clone(folder), inline())
}

fn volume(depot: &Depot) -> Caller {
    Caller(depot.device(HeadId(0)).expect("the volume is there"))
}

#[test]
fn a_depot_has_one_owner() {
    let folder = folder();
    assert!(matches!(open(&folder), Err(Error::NoDepot { .. })));
    Depot::create(&folder, &options(1)).expect("a depot");
    let again = Depot::create(&folder, &options(2));
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
    let first = open(&folder).expect("a depot");
    assert!(matches!(open(&folder), Err(Error::Held { .. })));
    let heads = first.heads();
    assert_eq!((heads[0].name.as_str(), heads[0].bytes), ("main", 1 << 20));
    assert!(first.device(HeadId(7)).is_none());
    first.close().expect("it can be closed");
    open(&folder).expect("it is free again");
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    for (text, word) in [
        ("dtb:transaction=5", "cache"),
        ("cbt:cache=1", "64K"),
        ("inram:cache=1M", "no parameters"),
    ] {
        let refused = backends::parse(text).expect_err("no such parameter");
        assert!(refused.to_string().contains(word), "{refused}");
    }
    let unknown = EngineKind::by_name("zfs").expect_err("no such engine");
    assert!(unknown.to_string().contains("inram"), "{unknown}");
    let odd = CreateOptions {
        chunk_bytes: 3000,
        ..options(1)
    };
    assert!(matches!(
        Depot::create(&folder(), &odd),
        Err(Error::Invalid { .. })
    ));
}

#[test]
fn either_copy_of_the_configuration_is_enough() {
    for name in ["config", "config.copy"] {
        for damage in [true, false] {
            let folder = folder();
            Depot::create(&folder, &options(1)).expect("a depot");
            if damage {
                folder
                    .open_write(name)
                    .expect("it is there")
                    .write_at(&[9], 40)
                    .expect("RAM")
            } else {
                remove_if_there(&*folder, name).expect("RAM")
            }
            open(&folder).expect("the other one says all");
        }
    }
    let folder = folder();
    Depot::create(&folder, &options(1)).expect("a depot");
    for name in ["config", "config.copy"] {
        folder
            .open_write(name)
            .expect("it is there")
            .write_at(&[9], 40)
            .expect("RAM");
    }
    assert!(matches!(open(&folder), Err(Error::Damaged { .. })));
}

fn devices(disk: &Arc<dyn Disk>) -> OpenDevice {
    let disk = Arc::clone(disk);
    Arc::new(move |_, _| Ok(Arc::clone(&disk)))
}

#[test]
fn an_open_depot_has_its_data_file_to_itself() {
    let folder = folder();
    Depot::create(&folder, &options(1)).expect("a depot");
    let taken = || folder.lock("data", LockKind::Exclusive).expect("RAM");
    let depot = open(&folder).expect("a depot");
    assert!(taken().is_none(), "another may take the file");
    depot.close().expect("it can be closed");
    let other = taken().expect("it is free");
    assert!(matches!(open(&folder), Err(Error::Held { .. })));
    let held = Depot::delete(&*folder, &OpenOptions::default().devices);
    assert!(matches!(held, Err(Error::Held { .. })), "{held:?}");
    drop(other);
    open(&folder).expect("nothing of it was deleted");
}

/// A device that cannot discard is blank again at its ends, where a new depot looks.
#[test]
fn a_device_is_blank_where_neither_end_holds_anything() {
    let bytes = (1 << 20) + (2 << 20);
    for at in [64 << 10, (1 << 20) - 1, bytes - (1 << 20), bytes - 1] {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        disk.set_len(bytes).expect("RAM");
        disk.write_at(&[1], at).expect("RAM");
        let on_device = |overwrite| CreateOptions {
            data_path: Some("/dev/disk".into()),
            devices: devices(&disk),
            overwrite,
            ..options(1)
        };
        let folder = folder();
        let taken = Depot::create(&folder, &on_device(false));
        assert!(
            matches!(taken, Err(Error::Exists { .. })),
            "{at}: {taken:?}"
        );
        Depot::create(&folder, &on_device(true)).expect("it is meant");
        Depot::delete(&*folder, &devices(&disk)).expect("it goes");
        Depot::create(&folder, &on_device(false)).expect("it is blank again");
    }
}

/// A depot that has grown gives back all that it has had of its device, and nothing else.
#[test]
fn a_depot_that_has_grown_leaves_nothing_behind() {
    const MIB: u64 = 1 << 20;
    let head = 64 << 10;
    for encryption in [None, Some(crate::encrypted::new_password())] {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        disk.set_len(head + 16 * MIB).expect("RAM");
        let folder = folder();
        let password = encryption.as_ref().map(|new| new.password.clone());
        let options = CreateOptions {
            engine: EngineKind::Log,
            data_path: Some("/dev/disk".into()),
            devices: devices(&disk),
            encryption,
            entropy: onefold_keys::Entropy::seeded(1),
            ..CreateOptions::new(28 * MIB, [1; 16], [2; 32])
        };
        Depot::create(&folder, &options).expect("a depot");
        disk.set_len(head + 48 * MIB).expect("RAM");
        let others = head + 40 * MIB;
        disk.write_at(&[9; 4096], others).expect("RAM");
        let opened = OpenOptions {
            devices: devices(&disk),
            password,
            ..inline()
        };
        let depot = Depot::open(Arc::clone(&folder), opened).expect("a depot");
        let grown = depot.grow_capacity(32 * MIB).expect("the device is longer");
        assert_eq!(grown, 32 * MIB);
        let caller = volume(&depot);
        for mib in 0..24 {
            let bytes = onefold_io::Random(mib).bytes(MIB as usize);
            caller.write(mib * MIB, &bytes).expect("room");
        }
        depot.close().expect("it can be closed");
        let end = |disk: &dyn Disk| {
            let mut bytes = vec![0; (head + 48 * MIB) as usize];
            disk.read_at(&mut bytes, 0).expect("RAM");
            let last = bytes[..others as usize].iter().rposition(|byte| *byte != 0);
            assert!(bytes[others as usize..][..4096].iter().all(|it| *it == 9));
            last
        };
        assert!(end(&*disk).expect("data") as u64 > head + 20 * MIB);
        Depot::delete(&*folder, &devices(&disk)).expect("it goes");
        assert_eq!(end(&*disk), None, "a byte is left");
    }
}

#[test]
fn a_foreign_device_is_refused() {
    let disk = MemDisk::new();
    disk.set_len((1 << 20) + 70_000).expect("RAM");
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let on_device = |depot| CreateOptions {
        data_path: Some("/dev/disk".into()),
        devices: devices(&disk),
        ..options(depot)
    };
    let (mine, theirs) = (folder(), folder());
    let config = Depot::create(&mine, &on_device(1)).expect("a depot");
    assert_eq!(
        config.capacity_bytes,
        (1 << 20) + 4096,
        "what fits, in whole chunks"
    );
    let taken = Depot::create(&theirs, &on_device(2));
    assert!(matches!(taken, Err(Error::Exists { .. })), "{taken:?}");
    let with_device = || OpenOptions {
        devices: devices(&disk),
        ..inline()
    };
    let depot = Depot::open(Arc::clone(&mine), with_device()).expect("its own device");
    depot.close().expect("it can be closed");
    Depot::create(
        &theirs,
        &CreateOptions {
            overwrite: true,
            ..on_device(2)
        },
    )
    .expect("told to");
    let foreign = Depot::open(Arc::clone(&mine), with_device())
        .err()
        .expect("not its own");
    assert!(
        foreign.to_string().contains("belongs to depot 0202"),
        "{foreign}"
    );
    disk.set_len(100_000).expect("RAM");
    let short = Depot::open(theirs, with_device())
        .err()
        .expect("a part of it is gone");
    assert!(matches!(short, Error::Unsupported { .. }), "{short}");
}

#[test]
fn closing_keeps_everything_and_dying_is_told() {
    let folder = folder();
    Depot::create(&folder, &options(1)).expect("a depot");
    let depot = open(&folder).expect("a depot");
    volume(&depot).write(5000, b"kept").expect("a write");
    depot.close().expect("it can be closed");
    let depot = open(&folder).expect("a depot");
    assert!(!depot.lost_unsaved());
    assert_eq!(volume(&depot).read(5000, 4).expect("a read")[..], *b"kept");
    volume(&depot).write(5000, b"lost").expect("a write");
    volume(&depot).flush().expect("a flush");
    drop(depot);
    let depot = open(&folder).expect("a depot");
    assert!(depot.lost_unsaved(), "inram keeps what was saved");
    assert_eq!(volume(&depot).read(5000, 4).expect("a read")[..], *b"kept");
    depot.close().expect("it can be closed");
    assert!(!open(&folder).expect("a depot").lost_unsaved());
}

/// A depot with this backend, in which `kept` was written, and `lost` after the last flush.
fn killed(backend: &str) -> Arc<dyn Dir> {
    let folder = folder();
    let (engine, parameters) = backends::parse(backend).expect("known");
    let made = CreateOptions {
        engine,
        parameters,
        ..options(1)
    };
    Depot::create(&folder, &made).expect("a depot");
    let depot = open(&folder).expect("a depot");
    assert_eq!(depot.config().parameters, parameters);
    volume(&depot).write(5000, b"kept").expect("a write");
    volume(&depot).flush().expect("a flush");
    volume(&depot).write(5000, b"lost").expect("a write");
    folder
}

#[test]
fn cbt_has_what_was_flushed_and_dtb_refuses_after_a_kill() {
    let cbt = killed("cbt:cache=64K,transaction=7");
    let depot = open(&cbt).expect("whatever was flushed survives");
    assert!(!depot.lost_unsaved());
    assert_eq!(volume(&depot).read(5000, 4).expect("a read")[..], *b"kept");
    assert!(depot.check(true).expect("RAM").is_clean());
    let dtb = killed("dtb:cache=64K");
    let refused = open(&dtb).err().expect("nothing survives");
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    let said = refused.to_string();
    assert!(
        said.contains("dtb keeps nothing that survives a crash"),
        "{said}"
    );
    assert_eq!(
        Depot::delete(&*dtb, &OpenOptions::default().devices).expect("RAM"),
        [""; 0]
    );
}

/// The file of the metadata is gone: that is damage, and no empty volume.
#[test]
fn without_its_metadata_a_depot_is_damaged() {
    for backend in ["dtb", "cbt"] {
        let folder = folder();
        let made = CreateOptions {
            engine: EngineKind::by_name(backend).expect("known"),
            ..options(1)
        };
        Depot::create(&folder, &made).expect("a depot");
        open(&folder).expect("a depot").close().expect("RAM");
        open(&folder).expect("whole").close().expect("RAM");
        remove_if_there(&*folder, "meta").expect("RAM");
        assert!(matches!(open(&folder), Err(Error::Damaged { .. })));
    }
}

/// Parameters are in the configuration of the backends that have them.
#[test]
fn parameters_are_kept() {
    let folder = folder();
    let config = Depot::create(&folder, &options(1)).expect("a depot");
    let parameters = Parameters {
        cache_bytes: 70_000,
        transaction_writes: 3,
    };
    for (engine, expected) in [
        (Backend::Cbt, (70_000, 3)),
        (Backend::Dtb, (70_000, 1000)),
        (Backend::InRam, (64 << 20, 1000)),
    ] {
        let encoded = Config {
            engine: EngineKind::Dmdedup(engine),
            parameters,
            ..config.clone()
        }
        .encode();
        let found = Config::decode(&encoded, "config")
            .expect("our own")
            .parameters;
        assert_eq!((found.cache_bytes, found.transaction_writes), expected);
    }
}

#[test]
fn a_device_outlives_its_depot_and_says_so() {
    let folder = folder();
    Depot::create(&folder, &options(1)).expect("a depot");
    let depot = open(&folder).expect("a depot");
    let caller = volume(&depot);
    caller.write(0, &[1; 100]).expect("a write");
    depot.close().expect("it can be closed");
    assert!(matches!(caller.write(0, &[2; 100]), Err(Error::Closing)));
    assert!(matches!(caller.read(0, 100), Err(Error::Closing)));
    assert!(caller.flush().is_err());
}

/// The statistics of the report (§3.5), in a run that can be counted by hand.
#[test]
fn statistics_are_the_reports() {
    let folder = folder();
    Depot::create(
        &folder,
        &CreateOptions {
            engine: EngineKind::Dmdedup(Backend::InRam),
            ..options(1)
        },
    )
    .expect("a depot");
    let depot = open(&folder).expect("a depot");
    let caller = volume(&depot);
    let chunk = |n: u8| vec![n; 4096];
    for (lbn, content) in [(0, 1), (1, 2), (2, 1), (0, 2), (1, 2), (3, 0), (4, 3)] {
        caller.write(lbn * 4096, &chunk(content)).expect("a write");
        caller.flush().expect("a flush");
    }
    caller
        .write(4 * 4096 + 10, &[9; 10])
        .expect("a partial write");
    caller.discard(2 * 4096, 4096).expect("a discard");
    caller.read(0, 8192).expect("a read");
    caller.flush().expect("a flush");
    let stats = depot.stats().expect("it is open");
    let engine = &stats.engine;
    assert_eq!(
        (
            engine.unique_writes,
            engine.duplicate_writes,
            engine.zero_writes
        ),
        (4, 3, 1)
    );
    assert_eq!((engine.new_writes, engine.overwrites), (5, 3));
    assert_eq!(engine.discards, 1);
    // LBNs 0 and 1 hold content 2, LBN 4 what was merged; contents 1 and 3 are garbage.
    assert_eq!(
        (
            engine.mapped_lbns,
            engine.stored_chunks,
            engine.hash_entries
        ),
        (3, 4, 4)
    );
    assert_eq!(stats.space.reclaimable, 2);
    assert_eq!(
        (
            stats.front.writes,
            stats.front.reads,
            stats.front.reads_on_writes
        ),
        (8, 1, 1)
    );
    assert_eq!(
        depot
            .collect(onefold_volume::Effort::Whole)
            .expect("a collection")
            .pages_freed,
        2
    );
}
