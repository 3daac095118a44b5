//! Encrypted depots: nothing of what was written lies anywhere in the clear, a changed or a misplaced page is damage,
//! and a password is needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::{Dir, Random, SimDir};
use onefold_keys::{Entropy, KdfCost, Secret};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::config::{Backend, Config, EngineKind};
use onefold_volume::depot::{CreateOptions, NewPassword, OpenOptions, Structure};
use onefold_volume::dump::Dump;
use onefold_volume::front::Options;
use onefold_volume::{Compression, Depot, Effort, Error, HeadId};

const CHUNK: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Where zones begin in the data file, and how long they are.
const HEAD_BYTES: u64 = 64 << 10;
const ZONE_BYTES: u64 = 256 << 10;
const HASH_KEY: [u8; 32] = *b"the key of hashes is 32 bytes...";

/// A cheap password for tests.
pub fn new_password() -> NewPassword {
    NewPassword {
        password: Secret::new("open sesame"),
        cost: KdfCost::LEAST,
        label: String::new(),
        created_unix_s: 0,
    }
}

pub fn create(device: &SimDir, encryption: Option<NewPassword>, compression: Compression) {
    let folder: Arc<dyn Dir> = Arc::new(device.clone());
    let options = CreateOptions {
        engine: EngineKind::Log,
        compression,
        encryption,
        entropy: Entropy::seeded(1),
        capacity_bytes: Some(16 * MIB),
        ..CreateOptions::new(8 * MIB, [1; 16], HASH_KEY)
    };
    Depot::create(&folder, &options).expect("a depot");
}

pub fn open_with(device: &SimDir, password: Option<&str>) -> Result<Depot, Error> {
    let options = OpenOptions {
        front: Options {
            inline: true,
            ..Options::default()
        },
        password: password.map(Secret::new),
        ..OpenOptions::default()
    };
    Depot::open(Arc::new(device.clone()), options)
}

fn open(device: &SimDir) -> (Depot, Caller) {
    let depot = open_with(device, Some("open sesame")).expect("it opens");
    let caller = Caller(depot.device(HeadId(0)).expect("the volume"));
    (depot, caller)
}

/// Half of the contents compress.
fn content(number: u64) -> Vec<u8> {
    let noise = if number.is_multiple_of(2) { CHUNK } else { 900 };
    let mut bytes = Random(900 + number).bytes(noise as usize);
    bytes.resize(CHUNK as usize, b'p');
    bytes
}

/// Bytes that must not be found, with a name for each.
fn secrets(chunks: u64) -> Vec<(&'static str, Vec<u8>)> {
    let mut secrets = vec![
        ("the key of hashes", HASH_KEY.to_vec()),
        ("a name of a snapshot", b"main@before-the-merger".to_vec()),
    ];
    for number in 0..chunks {
        let bytes = content(number);
        let keyed = Fingerprint::keyed(&HASH_KEY, &bytes);
        secrets.push(("plaintext", bytes[100..116].to_vec()));
        secrets.push((
            "a hash without a key",
            Fingerprint::of(&bytes).0[..16].to_vec(),
        ));
        secrets.push(("a hash", keyed.0[..16].to_vec()));
    }
    secrets
}

/// Which secrets lie in which files.
fn found(device: &SimDir, chunks: u64) -> BTreeMap<(&'static str, String), u32> {
    let secrets = secrets(chunks);
    let by_begin: BTreeMap<&[u8], &'static str> = secrets
        .iter()
        .map(|(what, bytes)| (&bytes[..16], *what))
        .collect();
    // Most places are told apart by two bytes.
    let two = |bytes: &[u8]| usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
    let mut may_begin = vec![false; 1 << 16];
    by_begin
        .keys()
        .for_each(|begin| may_begin[two(begin)] = true);
    let mut found = BTreeMap::new();
    for path in device.paths() {
        let mut bytes = Vec::new();
        device
            .fork()
            .damage(&path, |stored| bytes = stored.clone())
            .expect("it is there");
        for window in bytes.windows(16).filter(|window| may_begin[two(window)]) {
            if let Some(what) = by_begin.get(window) {
                let folder = path.split('/').next().unwrap_or(&path);
                *found.entry((*what, folder.to_owned())).or_default() += 1;
            }
        }
    }
    found
}

/// Writes, overwrites, takes a snapshot, collects, dies once, and is closed in the end.
fn work(device: &SimDir, chunks: u64) {
    let (depot, caller) = open(device);
    for number in 0..chunks {
        caller
            .write(number * CHUNK, &content(number))
            .expect("room");
    }
    caller.flush().expect("a flush");
    depot
        .snapshot(None, "before-the-merger", 7)
        .expect("a snapshot");
    for number in 0..chunks {
        let lbn = (number * 7) % (2 * chunks);
        caller.write(lbn * CHUNK, &content(number)).expect("room");
    }
    caller.flush().expect("a flush");
    drop((caller, depot));
    let (depot, caller) = open(device);
    caller.write(0, &content(1)).expect("room");
    caller.flush().expect("a flush");
    depot.collect(Effort::Whole).expect("a collection");
    assert_eq!(depot.check(true).expect("a check").chunks_damaged, 0);
    drop(caller);
    depot.close().expect("all is well");
}

#[test]
fn neither_contents_nor_hashes_nor_names_lie_anywhere_in_the_clear() {
    const CHUNKS: u64 = 300;
    for compression in [Compression::None, Compression::Auto] {
        let device = SimDir::new(1);
        create(&device, Some(new_password()), compression);
        work(&device, CHUNKS);
        assert_eq!(found(&device, CHUNKS), BTreeMap::new(), "{compression:?}");
    }
    // The same work without a password leaves what this test looks for.
    let device = SimDir::new(1);
    create(&device, None, Compression::None);
    work(&device, CHUNKS);
    let found = found(&device, CHUNKS);
    for (what, file) in [
        ("plaintext", "data"),
        ("a hash", "data"),
        ("a hash", "index"),
        ("the key of hashes", "config"),
        ("a name of a snapshot", "manifest"),
    ] {
        assert!(
            found.contains_key(&(what, file.to_owned())),
            "{what}: {found:?}"
        );
    }
}

/// Places on the device of the pages that hold the first chunks of the volume: one a chunk.
fn places(device: &SimDir, chunks: u64) -> Vec<u64> {
    let devices = OpenOptions::default().devices;
    let password = Secret::new("open sesame");
    let dump = |structure| {
        Depot::dump(device, &devices, structure, Some(&password)).expect("it can be looked at")
    };
    let mut places = BTreeMap::new();
    for zone in list(&dump(Structure::Zones)) {
        let place = number(zone, "place");
        let zone = dump(Structure::Zone(place as u32));
        for group in field(&zone, "groups").map(list).unwrap_or_default() {
            for entry in field(group, "entries").map(list).unwrap_or_default() {
                for ahead in 0..number(entry, "chunks") {
                    let page = number(entry, "page") + ahead;
                    let at = HEAD_BYTES + place * ZONE_BYTES + page * CHUNK;
                    places.insert(number(entry, "lbn") + ahead, at);
                }
            }
        }
    }
    (0..chunks).map(|lbn| places[&lbn]).collect()
}

fn list(dump: &Dump) -> &[Dump] {
    match dump {
        Dump::List(all) => all,
        _ => &[],
    }
}

fn field<'a>(dump: &'a Dump, wanted: &str) -> Option<&'a Dump> {
    let Dump::Fields(fields) = dump else {
        return None;
    };
    let found = fields.iter().find(|(name, _)| *name == wanted);
    found.map(|(_, value)| value)
}

fn number(dump: &Dump, wanted: &str) -> u64 {
    match field(dump, wanted) {
        Some(Dump::Number(number)) => *number,
        other => panic!("{wanted} is {other:?}"),
    }
}

/// A flipped bit, two pages of one zone that changed places, and two of different zones.
#[test]
fn a_changed_or_misplaced_page_is_damage_of_its_chunk_alone() {
    let device = SimDir::new(1);
    create(&device, Some(new_password()), Compression::None);
    let (depot, caller) = open(&device);
    for number in 0..150 {
        caller
            .write(number * CHUNK, &content(number))
            .expect("room");
    }
    drop(caller);
    depot.close().expect("all is well");
    let places = places(&device, 150);
    let zone_of = |lbn: usize| (places[lbn] - HEAD_BYTES) / ZONE_BYTES;
    assert!(zone_of(3) == zone_of(9) && zone_of(3) != zone_of(140));
    let page = |lbn: usize| places[lbn] as usize..places[lbn] as usize + CHUNK as usize;
    for (a, b) in [(3, 3), (3, 9), (3, 140)] {
        let image = device.fork();
        image
            .damage("data", |bytes| {
                if a == b {
                    bytes[page(a).start + 77] ^= 4
                } else {
                    let first = bytes[page(a)].to_vec();
                    bytes.copy_within(page(b), page(a).start);
                    bytes[page(b)].copy_from_slice(&first);
                }
            })
            .expect("it is there");
        let (depot, caller) = open(&image);
        let report = depot.check(true).expect("a check");
        let named: Vec<u64> = (report.damaged.iter())
            .flat_map(|stretch| stretch.lbns.clone())
            .collect();
        let expected: Vec<u64> = if a == b {
            vec![3]
        } else {
            vec![a as u64, b as u64]
        };
        assert_eq!(named, expected, "{report:?}");
        for lbn in 0..150 {
            match caller.read(lbn * CHUNK, CHUNK) {
                Ok(found) => assert!(found[..] == content(lbn)[..] && !expected.contains(&lbn)),
                Err(Error::Damaged { what, .. }) => {
                    assert!(expected.contains(&lbn) && what.contains("offset"), "{what}");
                }
                Err(error) => panic!("chunk {lbn}: {error}"),
            }
        }
        // An equal write heals.
        for lbn in &expected {
            caller.write(lbn * CHUNK, &content(*lbn)).expect("room");
        }
        caller.flush().expect("a flush");
        assert_eq!(depot.check(true).expect("a check").chunks_damaged, 0);
    }
}

/// The index is told hashes of hashes: a lost one is made anew from the zones' tables, and finds what is there.
#[test]
fn a_lost_index_is_made_anew_from_sealed_tables() {
    let device = SimDir::new(1);
    create(&device, Some(new_password()), Compression::Auto);
    let write = |caller: &Caller, from: u64| {
        for number in 0..300 {
            let at = (from + number) * CHUNK;
            caller.write(at, &content(number)).expect("room");
        }
        caller.flush().expect("a flush");
    };
    let (depot, caller) = open(&device);
    write(&caller, 0);
    drop(caller);
    depot.close().expect("all is well");
    let index = |path: &String| path.starts_with("index/");
    for path in device.paths().iter().filter(|path| index(path)) {
        device.lose(path).expect("it is there");
    }
    let (depot, caller) = open(&device);
    write(&caller, 1000);
    let stats = depot.stats().expect("open").engine;
    assert_eq!((stats.unique_writes, stats.duplicate_writes), (0, 300));
}

#[test]
fn a_depot_opens_with_its_own_password_alone() {
    let device = SimDir::new(1);
    create(&device, Some(new_password()), Compression::None);
    let before = device.counts().points;
    let refused = open_with(&device, None).err().expect("none was given");
    assert!(matches!(refused, Error::NoPassword { .. }), "{refused}");
    let refused = open_with(&device, Some("sesame"))
        .err()
        .expect("a wrong one");
    assert!(matches!(refused, Error::WrongPassword { .. }), "{refused}");
    assert_eq!(device.counts().points, before, "nothing was written");
    drop(open(&device));
    // A configuration that says that nothing is sealed, and one that says other sizes, are refused.
    let folder: Arc<dyn Dir> = Arc::new(device.clone());
    let mut stored = Vec::new();
    let keep = |bytes: &mut Vec<u8>| stored = bytes.clone();
    device.damage("config", keep).expect("it is there");
    let config = Config::decode(&stored, "config").expect("whole");
    assert!(config.is_encrypted() && config.hash_key == [0; 32]);
    let plain = Config {
        slots: Vec::new(),
        hash_key: HASH_KEY,
        ..config.clone()
    };
    let smaller = Config {
        capacity_bytes: config.capacity_bytes - CHUNK,
        ..config
    };
    for (config, word) in [(plain, "manifest"), (smaller, "somebody changed it")] {
        onefold_io::replace_file(&*folder, "config.new", "config", &config.encode()).expect("RAM");
        let error = open_with(&device, Some("open sesame")).err();
        let error = error.expect("somebody changed it");
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn what_seals_nothing_cannot_be_encrypted() {
    for backend in [Backend::InRam, Backend::Dtb, Backend::Cbt] {
        let folder: Arc<dyn Dir> = Arc::new(SimDir::new(1));
        let options = CreateOptions {
            engine: EngineKind::Dmdedup(backend),
            encryption: Some(new_password()),
            ..CreateOptions::new(MIB, [1; 16], HASH_KEY)
        };
        let error = Depot::create(&folder, &options).expect_err("it seals nothing");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("use log"), "{error}");
    }
}
