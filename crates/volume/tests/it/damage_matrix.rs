//! The damage matrix: every structure of a depot × {a flipped bit, zeros, cut off, gone} × {open, check, read, collect}.
//! No byte is ever read wrong, nothing panics, and what cannot be read names its file, its offset, and what was expected
//! and found.

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_io::{Dir, Random, SimDir};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::depot::{CreateOptions, OpenOptions, Structure};
use onefold_volume::dump::Dump;
use onefold_volume::front::Options;
use onefold_volume::{Compression, Depot, Effort, Error, HeadId};

use crate::encrypted::new_password;

const CHUNK: u64 = 4096;
const MIB: u64 = 1 << 20;
const CHUNKS: u64 = 600;
/// Where zones begin in the data file, and how long they are.
const HEAD_BYTES: u64 = 64 << 10;
const ZONE_BYTES: u64 = 256 << 10;

fn open(device: &SimDir) -> onefold_volume::Result<Depot> {
    let options = OpenOptions {
        front: Options {
            inline: true,
            ..Options::default()
        },
        password: Some(new_password().password),
        ..OpenOptions::default()
    };
    Depot::open(Arc::new(device.clone()), options)
}

fn volume(depot: &Depot) -> Caller {
    Caller(depot.device(HeadId(0)).expect("the volume"))
}

/// The bytes of a content: two share a page where chunks are packed.
fn bytes_of(content: u64) -> Vec<u8> {
    let mut bytes = Random(content).bytes(CHUNK as usize / 5 * 2);
    bytes.resize(CHUNK as usize, 0);
    bytes
}

/// A closed depot, and the content of each chunk. Some were overwritten and cleaned, so that all structures are there.
fn depot(engine: EngineKind, compression: Compression) -> (SimDir, Vec<u64>) {
    // Depots that pack are encrypted, too.
    let encryption = (compression != Compression::None).then(new_password);
    let device = SimDir::new(1);
    let folder: Arc<dyn Dir> = Arc::new(device.clone());
    let options = CreateOptions {
        engine,
        compression,
        encryption,
        capacity_bytes: Some(16 * MIB),
        ..CreateOptions::new(CHUNKS * CHUNK, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    let depot = open(&device).expect("a depot");
    let caller = volume(&depot);
    let (mut twin, mut random) = (vec![0; CHUNKS as usize], Random(7));
    for n in 0..3 * CHUNKS {
        let lbn = if n < CHUNKS { n } else { random.below(CHUNKS) };
        // Some contents come again.
        let content = 1 + if random.one_in(8) {
            random.below(50)
        } else {
            1000 + n
        };
        caller.write(lbn * CHUNK, &bytes_of(content)).expect("room");
        twin[lbn as usize] = content;
        if n % 500 == 499 {
            caller.flush().expect("a flush");
        }
        if n == 2 * CHUNKS {
            depot.collect(Effort::Whole).expect("a collection");
        }
    }
    drop(caller);
    depot.close().expect("all is well");
    (device, twin)
}

/// Damage to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip(u64),
    Zeros(u64),
    Cut(u64),
    Gone,
}

impl Damage {
    /// Damages the file; returns whether that changed anything.
    fn act(self, device: &SimDir, path: &str) -> bool {
        let mut is_changed = true;
        let done = match self {
            Self::Gone => device.lose(path),
            Self::Flip(at) => device.damage(path, |bytes| bytes[at as usize] ^= 8),
            Self::Zeros(at) => device.damage(path, |bytes| {
                let end = bytes.len().min(at as usize + 700);
                is_changed = bytes[at as usize..end].iter().any(|byte| *byte != 0);
                bytes[at as usize..end].fill(0);
            }),
            Self::Cut(at) => device.damage(path, |bytes| bytes.truncate(at as usize)),
        };
        done.expect("the file is there");
        is_changed
    }
}

/// Each structure: its name, its file, and where in it damage falls. `zones` are places of zones that hold something.
fn structures(device: &SimDir, zones: &[u64]) -> Vec<(String, String, Vec<u64>)> {
    let mut all = Vec::new();
    for path in device.paths() {
        let mut length = 0;
        device
            .fork()
            .damage(&path, |bytes| length = bytes.len() as u64)
            .expect("it is there");
        if length == 0 || ["lock", "ballast"].contains(&path.as_str()) {
            continue;
        }
        if path != "data" {
            let places = vec![0, 20.min(length - 1), length / 2, length - 1];
            all.push((path.clone(), path, places));
            continue;
        }
        all.push(("data: copy of config".into(), path.clone(), vec![0, 100]));
        for (what, page) in [
            ("zone header", 0),
            ("group", 1),
            ("chunks", 5),
            ("rows and checks", 62),
            ("footer", 63),
        ] {
            let at = |zone: &u64| HEAD_BYTES + zone * ZONE_BYTES + page * CHUNK + 24;
            let places = zones.iter().map(at).collect();
            all.push((format!("data: {what}"), path.clone(), places));
        }
    }
    all
}

/// Places of the first and the last zone that is full, and of one between them.
fn full_zones(device: &SimDir) -> Vec<u64> {
    let devices = OpenOptions::default().devices;
    let password = new_password().password;
    let zones = Depot::dump(device, &devices, Structure::Zones, Some(&password));
    let Ok(Dump::List(zones)) = zones else {
        return Vec::new();
    };
    let field = |zone: &Dump, wanted: &str| match zone {
        Dump::Fields(fields) => fields.iter().find_map(|(name, value)| match value {
            Dump::Number(number) if *name == wanted => Some(*number),
            _ => None,
        }),
        _ => None,
    };
    let full = zones
        .iter()
        .filter(|zone| field(zone, "pages_used") > Some(50));
    let full: Vec<u64> = full.filter_map(|zone| field(zone, "place")).collect();
    assert!(full.len() > 2, "{full:?}");
    vec![full[0], full[full.len() / 2], full[full.len() - 1]]
}

/// Reads everything; returns how many chunks are damaged, and what the first error says.
fn read_all(depot: &Depot, twin: &[u64], why: &str) -> (u64, Option<String>) {
    let caller = volume(depot);
    let (mut damaged, mut first) = (0, None);
    for (lbn, content) in (0..).zip(twin) {
        match caller.read(lbn * CHUNK, CHUNK) {
            Ok(found) => assert!(
                found[..] == bytes_of(*content)[..],
                "{why}: chunk {lbn} is read wrong"
            ),
            Err(error @ Error::Damaged { .. }) => {
                damaged += 1;
                first.get_or_insert(error.to_string());
            }
            Err(error) => panic!("{why}: chunk {lbn}: {error}"),
        }
    }
    (damaged, first)
}

/// Signs of one damage.
enum Noticed {
    /// The depot does not open: what it said.
    Opening(String),
    /// A check or a read told.
    Later(Vec<String>),
    /// Nothing was lost.
    Harmless,
}

fn try_one(image: &SimDir, twin: &[u64], why: &str) -> Noticed {
    let depot = match open(image) {
        Ok(depot) => depot,
        Err(error @ (Error::Damaged { .. } | Error::Unsupported { .. })) => {
            return Noticed::Opening(error.to_string());
        }
        // A file that is gone is told by the folder.
        Err(error @ (Error::Io(_) | Error::NoDepot { .. })) => {
            return Noticed::Opening(error.to_string());
        }
        Err(error) => panic!("{why}: {error}"),
    };
    let report = depot
        .check(true)
        .unwrap_or_else(|error| panic!("{why}: {error}"));
    let (damaged, first) = read_all(&depot, twin, why);
    assert_eq!(report.chunks_damaged > 0, damaged > 0, "{why}: {report:?}");
    match depot.collect(Effort::Whole) {
        Ok(_) | Err(Error::Damaged { .. } | Error::ReadOnly { .. }) => {}
        Err(error) => panic!("{why}: a collection: {error}"),
    }
    let (damaged_later, _) = read_all(&depot, twin, why);
    assert!(damaged_later <= damaged, "{why}: cleaning damages more");
    // Damage goes with its content: what is overwritten is whole.
    if damaged_later > 0 {
        let caller = volume(&depot);
        let new = |lbn: u64| 1_000_000 + lbn;
        let all: Vec<u64> = (0..CHUNKS).map(new).collect();
        let rewritten = (0..)
            .zip(&all)
            .try_for_each(|(lbn, content)| caller.write(lbn * CHUNK, &bytes_of(*content)));
        if rewritten.and_then(|()| caller.flush()).is_ok() {
            assert_eq!(read_all(&depot, &all, why).0, 0, "{why}: overwritten");
        }
    }
    let mut said: Vec<String> = first.into_iter().collect();
    said.extend(
        (report.findings.iter()).map(|finding| format!("{}: {}", finding.place, finding.what)),
    );
    if said.is_empty() {
        Noticed::Harmless
    } else {
        Noticed::Later(said)
    }
}

/// The part that a message lacks: the file, the place in it, or the expectation. A file that is gone has no place.
fn lacking(said: &str, file: &str, damage: Damage) -> Option<&'static str> {
    let name = file.rsplit('/').next().unwrap_or(file);
    if !said.contains(name) {
        return Some("the file");
    }
    let at = match damage {
        Damage::Gone => return None,
        Damage::Cut(at) | Damage::Flip(at) | Damage::Zeros(at) => at,
    };
    let offset = said.split("offset ").nth(1).map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap_or(u64::MAX)
    });
    // A structure is named by its beginning, and the damage lies in it.
    match (offset, damage) {
        (None, _) => Some("the offset"),
        (Some(offset), Damage::Flip(_)) if offset > at || at - offset > ZONE_BYTES => {
            Some("the right offset")
        }
        _ if !said.contains("expected") => Some("what was expected"),
        _ => None,
    }
}

fn matrix(engine: EngineKind, compression: Compression) -> BTreeMap<String, [u32; 3]> {
    let (device, twin) = depot(engine, compression);
    let mut seen: BTreeMap<String, [u32; 3]> = BTreeMap::new();
    let mut poor = Vec::new();
    for (name, path, places) in structures(&device, &full_zones(&device)) {
        let kind = name.split('/').next().unwrap_or(&name);
        let kind = kind.split('-').next().unwrap_or(kind).to_owned();
        let mut all = vec![];
        if path != "data" {
            all.push(Damage::Gone);
        }
        // Files of the index are many, and alike.
        let places = if path.starts_with("index/") {
            vec![places[2]]
        } else {
            places
        };
        for at in places {
            all.extend([Damage::Flip(at), Damage::Zeros(at)]);
            if path != "data" {
                all.push(Damage::Cut(at));
            }
        }
        for damage in all {
            let image = device.fork();
            if !damage.act(&image, &path) {
                continue;
            }
            let why = format!("{engine:?}, {compression:?}, {name}, {damage:?}");
            let counts = seen.entry(kind.clone()).or_default();
            match try_one(&image, &twin, &why) {
                Noticed::Opening(said) => {
                    counts[0] += 1;
                    if let Some(what) = lacking(&said, &path, damage) {
                        poor.push(format!("{why}: {what} is missing: {said}"));
                    }
                }
                Noticed::Later(said) => {
                    counts[1] += 1;
                    let all = said.iter().map(|said| lacking(said, &path, damage));
                    if let Some(what) = all.min().flatten() {
                        poor.push(format!("{why}: {what} is missing: {said:?}"));
                    }
                }
                Noticed::Harmless => counts[2] += 1,
            }
        }
    }
    assert!(poor.is_empty(), "{}", poor.join("\n"));
    println!("{engine:?}: told at opening, told later, harmless: {seen:#?}");
    seen
}

#[test]
fn no_damage_of_a_log_is_read_and_each_is_named() {
    log(Compression::None);
}

#[test]
fn no_damage_of_sealed_and_packed_pages_is_read_and_each_is_named() {
    log(Compression::Auto);
}

fn log(compression: Compression) {
    let seen = matrix(EngineKind::Log, compression);
    let told = |kind: &str| {
        let counts = seen.get(kind).copied().unwrap_or_default();
        (counts[0] + counts[1], counts[2])
    };
    // Damage that nothing else can make good is always told.
    for kind in ["manifest", "map"] {
        let (told, harmless) = told(kind);
        assert!(told > 0 && harmless == 0, "{kind}: {seen:?}");
    }
    for kind in [
        "relocations",
        "data: chunks",
        "data: footer",
        "data: rows and checks",
    ] {
        assert!(told(kind).0 > 0, "{kind}: {seen:?}");
    }
    // A copy of the settings is enough, and the hash index is advice.
    for kind in ["config", "config.copy", "index"] {
        assert_eq!(told(kind).0, 0, "{kind}: {seen:?}");
    }
}

#[test]
fn no_damage_of_saved_metadata_is_read_and_each_is_named() {
    let seen = matrix(EngineKind::Dmdedup(Backend::InRamSaved), Compression::None);
    let meta = seen.get("meta").copied().unwrap_or_default();
    assert!(meta[0] > 0 && meta[2] == 0, "{seen:?}");
}
