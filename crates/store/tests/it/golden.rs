//! Golden repositories of every format version: bytes that were once written must read for ever, and are still written
//! so.
//!
//! `cargo xtask golden --bless` writes `testdata/` anew; only a new format version may need that. FORMAT.md shows bytes
//! of these files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::{Dir, MemDir};
use onefold_keys::Keys;
use onefold_store::catalog::{self, Catalog, CatalogEntry};
use onefold_store::condemned::{self, ListId};
use onefold_store::ingested::{self, Ingested};
use onefold_store::local_cache;
use onefold_store::objects::{LocalObjects, ObjectStore};
use onefold_store::registry;
use onefold_store::registry::flock::{PIN_FOLDER, PinFile};
use onefold_store::registry::record::{NewRoot, Record, RecordState, RootChange, SessionEntry};
use onefold_store::sketch::SKETCH_OBJECT;
use onefold_store::{
    Compression, Encryption, Entropy, OpenOptions, PinInfo, Repository, RootId, forgotten,
};

use crate::fixture::{assert_sound, back_up, chunks, init, secret};

struct Golden {
    name: &'static str,
    encryption: Encryption,
    compression: Compression,
    /// Another zstd may compress otherwise: then only reading is compared.
    same_bytes: bool,
    data: fn() -> Vec<Vec<u8>>,
}

const GOLDEN: [Golden; 3] = [
    Golden {
        name: "v1-aes256gcm-raw",
        encryption: Encryption::Aes256Gcm,
        compression: Compression::Off,
        same_bytes: true,
        data: some,
    },
    Golden {
        name: "v1-none-zstd",
        encryption: Encryption::None,
        compression: Compression::Auto,
        same_bytes: false,
        data: some,
    },
    // Small enough to be shown whole.
    Golden {
        name: "v1-none-tiny",
        encryption: Encryption::None,
        compression: Compression::Off,
        same_bytes: true,
        data: || vec![b"every byte once\n".to_vec()],
    },
];

fn some() -> Vec<Vec<u8>> {
    chunks(1, 12)
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

fn open(dir: &Arc<dyn Dir>, compression: Compression) -> Repository {
    let options = OpenOptions {
        threads: 1,
        compression,
        container_bytes: 4 << 10,
        block_bytes: Some(2 << 10),
        entropy: Entropy::seeded(3),
        indexes: onefold_papers::KINDS,
        ..OpenOptions::default()
    };
    let config = Repository::config_at(dir).unwrap();
    let secret = (config.encryption != Encryption::None).then(secret);
    Repository::open_agreed(Arc::clone(dir), config, options, secret.as_ref()).unwrap()
}

/// A repository made as the golden one was.
fn make(golden: &Golden) -> Arc<dyn Dir> {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, golden.encryption).unwrap();
    back_up(&open(&dir, golden.compression), &(golden.data)()).unwrap();
    dir
}

/// All objects by path, but for what is no format of the store's.
fn objects(dir: &dyn Dir, path: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in dir.list().unwrap() {
        let path = format!("{path}{}", entry.name);
        if ["locks", "index", "scratch", "sessions"].contains(&path.as_str()) {
            continue;
        }
        if entry.is_dir {
            objects(
                &*dir.open_subdir(&entry.name).unwrap(),
                &format!("{path}/"),
                found,
            );
        } else {
            let disk = dir.open(&entry.name).unwrap();
            let mut bytes = vec![0; disk.len().unwrap() as usize];
            disk.read_at(&mut bytes, 0).unwrap();
            found.insert(path, bytes);
        }
    }
}

fn on_disk(folder: &Path, path: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder)
        .expect("golden files are there")
        .flatten()
    {
        let path = format!("{path}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            on_disk(&entry.path(), &format!("{path}/"), found);
        } else {
            found.insert(path, std::fs::read(entry.path()).unwrap());
        }
    }
}

/// Writes the files anew if that is asked for.
fn bless(folder: &Path, made: &BTreeMap<String, Vec<u8>>) {
    if std::env::var_os("ONEFOLD_BLESS").is_none() {
        return;
    }
    for (path, bytes) in made {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// The golden objects in a folder in memory.
fn load(objects: &BTreeMap<String, Vec<u8>>) -> Arc<dyn Dir> {
    let root: Arc<dyn Dir> = Arc::new(MemDir::new());
    for (path, bytes) in objects {
        let mut dir = Arc::clone(&root);
        let mut parts: Vec<_> = path.split('/').collect();
        let name = parts.pop().unwrap();
        for part in parts {
            dir = dir.subdir(part).unwrap();
        }
        dir.create(name).unwrap().write_at(bytes, 0).unwrap();
    }
    root
}

#[test]
fn golden_repositories_read_and_are_still_written_so() {
    for golden in &GOLDEN {
        let mut made = BTreeMap::new();
        objects(&*make(golden), "", &mut made);
        let folder = testdata().join(golden.name);
        bless(&folder, &made);
        let mut kept = BTreeMap::new();
        on_disk(&folder, "", &mut kept);
        let repository = open(&load(&kept), golden.compression);
        let roots: Vec<_> = repository
            .roots()
            .unwrap()
            .into_iter()
            .map(|root| (root, (golden.data)()))
            .collect();
        assert_eq!(roots.len(), 1, "{}", golden.name);
        assert_sound(&repository, &roots, &golden.name);
        if golden.same_bytes {
            let differs: Vec<_> = made
                .iter()
                .filter(|(path, bytes)| kept.get(*path) != Some(bytes))
                .map(|(path, _)| path)
                .collect();
            assert!(
                differs.is_empty() && made.len() == kept.len(),
                "{}: {differs:?} are written otherwise now",
                golden.name
            );
        }
    }
}

/// Files that live only while something runs: a session's, the sweep's list, the index's.
fn passing() -> BTreeMap<String, Vec<u8>> {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    let objects = LocalObjects::new(Arc::clone(&dir), Entropy::seeded(1));
    let mut made = BTreeMap::new();
    let list = ListId::Sweep(0x1f);
    condemned::put(&objects, 0x1f, &[ContainerId(0xfe), ContainerId(0x0102)]).unwrap();
    made.insert("condemned".into(), objects.get(&list.object()).unwrap());
    let list = Ingested::new(Arc::clone(&dir));
    list.add(&[ContainerId(0x0102)]).unwrap();
    list.add(&[ContainerId(0xfe), ContainerId(0xfd)]).unwrap();
    made.insert("ingested".into(), objects.get("ingested").unwrap());
    let repository = {
        let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
        init(&dir, Encryption::None).unwrap();
        (open(&dir, Compression::Off), dir)
    };
    repository.0.put_sketch(&frequent()).unwrap();
    let repository = LocalObjects::new(repository.1, Entropy::seeded(1));
    made.insert("sketch".into(), repository.get(SKETCH_OBJECT).unwrap());
    let pin = PinFile::set(&*dir, &info(), &[], &Entropy::seeded(1)).unwrap();
    let bytes = objects.get(&format!("{PIN_FOLDER}/{}", pin.name()));
    made.insert("session".into(), bytes.unwrap());
    made
}

/// Objects that live in registers and lists on object storage only.
fn remote() -> BTreeMap<String, Vec<u8>> {
    let stored = b"sixteen bytes...".to_vec();
    let root = NewRoot {
        id: RootId(*blake3::hash(&stored).as_bytes()),
        stored,
    };
    let session = SessionEntry {
        seen: vec![registry::ListNumber(0x0102)],
        info: info(),
        holds: Vec::new(),
    };
    let change = RootChange {
        put: vec![root.clone()],
        remove: vec![RootId([0xab; 32])],
    };
    let states = [
        ("active", RecordState::Active(session.clone())),
        ("committing", RecordState::Committing(root, session)),
        ("revoked", RecordState::Revoked),
        ("free", RecordState::Free),
        ("held", RecordState::Held),
        ("decided", RecordState::Decided(change)),
    ];
    let record = |state| Record {
        nonce: *b"a random number.",
        beat: 3,
        state,
    };
    let mut made: BTreeMap<_, _> = states
        .map(|(name, state)| (format!("register-{name}"), record(state).encode()))
        .into();
    let objects = LocalObjects::new(Arc::new(MemDir::new()), Entropy::seeded(1));
    forgotten::put(&objects, &[RootId([0xcd; 32]), RootId([0xab; 32])]).unwrap();
    let list = &objects.list(forgotten::FORGOTTEN_FOLDER).unwrap()[0];
    made.insert("forgotten".into(), objects.get(list).unwrap());
    made.insert("catalog".into(), catalog_of_one());
    made.insert("cached".into(), local_cache::encode(COPY, &[&COPIED]));
    made
}

/// The file of a copy of a block.
const COPY: &str = "00000000000000fe-40";
/// The bytes that are copied.
const COPIED: [u8; 5] = [1, 2, 3, 4, 5];

fn catalog() -> Catalog {
    let entry = CatalogEntry {
        container: ContainerId(0xfe),
        chunks: 300,
        hooks: vec![Fingerprint([0xab; 32]), Fingerprint([0xcd; 32])],
    };
    Catalog {
        sources: vec![ContainerId(0xfd)],
        entries: vec![entry],
    }
}

fn catalog_of_one() -> Vec<u8> {
    catalog::encode(&catalog(), &Keys::none(), &Entropy::seeded(1)).unwrap()
}

#[test]
fn golden_registers_and_lists_read_and_are_still_written_so() {
    let folder = testdata().join("v1-remote");
    let made = remote();
    bless(&folder, &made);
    let mut kept = BTreeMap::new();
    on_disk(&folder, "", &mut kept);
    assert_eq!(made, kept);
    for (name, bytes) in &kept {
        match &**name {
            "catalog" => {
                let found = catalog::decode(bytes, &Keys::none(), name).unwrap();
                assert_eq!(found, catalog());
            }
            "cached" => assert_eq!(local_cache::decode(bytes, COPY).unwrap(), COPIED),
            _ if name.starts_with("register") => {
                assert_eq!(Record::decode(bytes, name).unwrap().encode(), *bytes);
            }
            _ => {
                let roots = forgotten::decode(bytes, name).unwrap();
                assert_eq!(roots, [RootId([0xab; 32]), RootId([0xcd; 32])]);
            }
        }
    }
}

/// Two segments of 128 bytes: one was seen twice and ends a chunk of 213, one was seen and never cut at.
fn frequent() -> Vec<u8> {
    let head = [&[1][..], &128u32.to_le_bytes(), &32u32.to_le_bytes()].concat();
    let mut sketch = [&head[..], &2u32.to_le_bytes()].concat();
    for (signature, count, chunk_bytes) in [
        (0x0004_4674_dc84_8401u64, 2u32, 213u32),
        (0x0011_0000_0000_0021, 1, 0),
    ] {
        sketch.extend(signature.to_le_bytes());
        sketch.extend(count.to_le_bytes());
        sketch.extend(chunk_bytes.to_le_bytes());
    }
    sketch
}

fn info() -> PinInfo {
    PinInfo {
        process: 300,
        host: "there".into(),
        activity: "a backup".into(),
    }
}

#[test]
fn golden_passing_files_read_and_are_still_written_so() {
    let folder = testdata().join("v1-passing");
    let made = passing();
    bless(&folder, &made);
    let mut kept = BTreeMap::new();
    on_disk(&folder, "", &mut kept);
    assert_eq!(made, kept);
    let ids = |ids: &[u64]| ids.iter().copied().map(ContainerId).collect::<Vec<_>>();
    let condemned = condemned::decode(&kept["condemned"], ListId::Sweep(0x1f)).unwrap();
    assert_eq!(condemned, ids(&[0xfe, 0x0102]));
    let (ingested, _) = ingested::decode(&kept["ingested"]);
    assert_eq!(ingested, ids(&[0x0102, 0xfe, 0xfd]));
    assert_eq!(
        PinInfo::decode(&kept["session"], "session").unwrap(),
        (info(), Vec::new())
    );
    let root = load(&passing_repository(&kept));
    let found = open(&root, Compression::Off).sketch().unwrap();
    assert_eq!(found, Some(frequent()));
}

/// A repository that holds the golden sketch.
fn passing_repository(kept: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    on_disk(&testdata().join("v1-none-tiny"), "", &mut all);
    all.insert(SKETCH_OBJECT.into(), kept["sketch"].clone());
    all
}
