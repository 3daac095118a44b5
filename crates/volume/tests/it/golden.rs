//! Golden files: what was once written is read for ever, and still written so.

use std::path::PathBuf;
use std::sync::Arc;

use onefold_chunk::{Fingerprint, fingerprints};
use onefold_index::RamIndex;
use onefold_io::{Dir, Disk, MemDir, Random, replace_file};
use onefold_keys::{Entropy, Keys};
use onefold_volume::cbt::{Cbt, CbtOptions, verify_superblock};
use onefold_volume::depot::CreateOptions;
use onefold_volume::depot::backends::Parameters;
use onefold_volume::depot::config::{Backend, Config, EngineKind};
use onefold_volume::depot::metadata_device::{decode_head, encode_head};
use onefold_volume::depot::openings::{DeviceOpening, Openings};
use onefold_volume::dtb::{Dtb, verify_header};
use onefold_volume::inram::{InRam, Limits, SaveAt, verify_saved};
use onefold_volume::log::formats::{self, Format};
use onefold_volume::log::{Budget, Layout, LogEngine, LogOptions, Seals};
use onefold_volume::{
    ChunkContent, ChunkRead, Compression, Depot, Engine, Error, HashedChunk, HeadId, HeadInfo, Key,
    Lbn, MetadataBackend,
};
use zeroize::Zeroizing;

use crate::encrypted::new_password;

fn compare(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name);
    if std::env::var_os("ONEFOLD_BLESS").is_some() {
        std::fs::write(&path, bytes).expect("the golden file can be written");
    }
    let golden = std::fs::read(&path).expect("the golden file is there");
    assert!(
        golden == bytes,
        "{name} would be written otherwise: {bytes:02x?}"
    );
}

#[test]
fn golden_config() {
    let config = Config {
        depot: [0x1D; 16],
        engine: EngineKind::Dmdedup(Backend::InRam),
        parameters: Parameters::default(),
        compression: Compression::None,
        chunk_bytes: 4096,
        hash_key: [0x4B; 32],
        slots: Vec::new(),
        volume: "main".into(),
        volume_bytes: 1 << 30,
        capacity_bytes: 1 << 29,
        zone_bytes: 0,
        data_path: "/dev/sdb".into(),
        metadata_path: String::new(),
    };
    let bytes = config.encode();
    compare("depot-config-1", &bytes);
    assert_eq!(Config::decode(&bytes, "config").expect("our own"), config);
    let packed = Config {
        engine: EngineKind::Log,
        compression: Compression::Auto,
        zone_bytes: 256 << 10,
        ..config
    };
    let bytes = packed.encode();
    compare("depot-config-2", &bytes);
    assert_eq!(Config::decode(&bytes, "config").expect("our own"), packed);
}

#[test]
fn golden_openings() {
    let opening = |number, tag| DeviceOpening {
        number,
        tag: [tag; 8],
    };
    let openings = Openings {
        before: opening(6, 0x6A),
        last: opening(7, 0x7A),
    };
    let bytes = openings.encode();
    compare("depot-openings-2", &bytes);
    let decoded = Openings::decode(&bytes, "openings");
    assert_eq!(decoded.expect("our own"), openings);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/depot-openings-1");
    let untagged = std::fs::read(path).expect("it is there for ever");
    let untagged = Openings::decode(&untagged, "openings").expect("it is read for ever");
    let (before, last) = (opening(6, 0), opening(7, 0));
    assert_eq!(untagged, Openings { before, last });
}

#[test]
fn golden_saved_metadata() {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let mut backend = InRam::open(Arc::clone(&folder), 100, SaveAt::Close).expect("memory");
    let lbns = backend.create_linear(1000).expect("a store");
    let hashes = backend.create_sparse(16, 100).expect("a store");
    for (lbn, hash) in [(7, [1; 16]), (8, [2; 16]), (500, [3; 16])] {
        let pbn = backend.alloc_block().expect("RAM").expect("a free block");
        backend
            .insert(hashes, Key::Sparse(&hash), pbn)
            .expect("room");
        backend.insert(lbns, Key::Linear(lbn), pbn).expect("room");
        backend.inc_ref(pbn).expect("a block");
        backend.inc_ref(pbn).expect("a block");
    }
    Box::new(backend).close().expect("it can be saved");
    let disk = folder.open("meta").expect("it was saved");
    let mut bytes = vec![0; disk.len().expect("RAM") as usize];
    disk.read_at(&mut bytes, 0).expect("RAM");
    compare("inram-1", &bytes);
    let limits = Limits {
        blocks: 100,
        keys_max: 1000,
    };
    verify_saved(&*disk, "meta", limits).expect("our own");
}

/// Three LBNs with three hashes, in a backend that keeps its metadata on a device.
fn fill(backend: &mut dyn MetadataBackend) {
    let lbns = backend.create_linear(1000).expect("a store");
    let hashes = backend.create_sparse(16, 100).expect("a store");
    for (lbn, hash) in [(7, [1; 16]), (8, [2; 16]), (500, [3; 16])] {
        let pbn = backend.alloc_block().expect("RAM").expect("a free block");
        backend
            .insert(hashes, Key::Sparse(&hash), pbn)
            .expect("room");
        backend.insert(lbns, Key::Linear(lbn), pbn).expect("room");
        backend.inc_ref(pbn).expect("a block");
        backend.inc_ref(pbn).expect("a block");
    }
}

/// A configuration with parameters of a backend, and the metadata of `cbt` after its first transaction.
#[test]
fn golden_cbt() {
    let config = Config {
        depot: [0x1D; 16],
        engine: EngineKind::Dmdedup(Backend::Cbt),
        parameters: Parameters {
            cache_bytes: 1 << 20,
            transaction_writes: 1000,
        },
        compression: Compression::None,
        chunk_bytes: 4096,
        hash_key: [0x4B; 32],
        slots: Vec::new(),
        volume: "main".into(),
        volume_bytes: 1 << 30,
        capacity_bytes: 1 << 29,
        zone_bytes: 0,
        data_path: String::new(),
        metadata_path: String::new(),
    };
    let bytes = config.encode();
    compare("depot-config-cbt-1", &bytes);
    assert_eq!(Config::decode(&bytes, "config").expect("our own"), config);
    let apart = Config {
        metadata_path: "/dev/sdc".into(),
        ..config
    };
    let bytes = apart.encode();
    compare("depot-config-4", &bytes);
    assert_eq!(Config::decode(&bytes, "config").expect("our own"), apart);
    let head = encode_head(apart.depot);
    compare("metadata-head-1", &head);
    assert_eq!(decode_head(&head, "head").expect("our own"), apart.depot);
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    Cbt::create(&*folder, 100).expect("RAM");
    let mut backend = Cbt::open(&*folder, 100, CbtOptions::new(1 << 20)).expect("RAM");
    fill(&mut backend);
    backend.flush().expect("RAM");
    let meta = folder.open("meta").expect("it was made");
    let superblock = frame_in(&*meta, 4096);
    compare("cbt-superblock-1", &superblock);
    verify_superblock(&superblock).expect("our own");
    // Hashes are inserted first: their leaf is the first page.
    compare("cbt-node-1", &frame_in(&*meta, 4 * 4096));
}

#[test]
fn golden_dtb() {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    Dtb::create(&*folder, 100).expect("RAM");
    let mut backend = Dtb::open(&*folder, 100, 1 << 20).expect("RAM");
    fill(&mut backend);
    backend.save().expect("RAM");
    let meta = folder.open("meta").expect("it was made");
    let header = frame_in(&*meta, 0);
    compare("dtb-header-1", &header);
    verify_header(&header).expect("our own");
}

fn log_options(compression: Compression) -> LogOptions {
    let layout = Layout::new(4 << 20, 4096).expect("large enough");
    LogOptions {
        first: HeadInfo::first("main", 1 << 20),
        compression,
        seals: Seals::none(),
        is_inline: true,
        clock: None,
        depot: [0x1D; 16],
        fingerprint: Arc::new(|chunks| fingerprints(None, chunks.iter().copied())),
        index: Box::new(RamIndex::default()),
        sizes: Budget::divide(64 << 20, &layout).expect("enough").sizes,
    }
}

/// A new engine over a folder with an empty device.
fn new_log(compression: Compression) -> (Arc<dyn Dir>, Arc<dyn Disk>, LogEngine) {
    new_log_with(log_options(compression))
}

fn new_log_with(options: LogOptions) -> (Arc<dyn Dir>, Arc<dyn Disk>, LogEngine) {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let data = folder.create("data").expect("RAM");
    data.set_len(4 << 20).expect("RAM");
    let engine = LogEngine::create(Arc::clone(&folder), Arc::clone(&data), 4096, options);
    (folder, data, engine.expect("RAM"))
}

/// Writes contents from LBN 7 on.
fn write_log(engine: &mut LogEngine, contents: &[Vec<u8>]) {
    let chunks: Vec<HashedChunk<'_>> = (7..)
        .zip(contents)
        .map(|(lbn, bytes)| HashedChunk {
            head: HeadId(0),
            lbn: Lbn(lbn),
            content: ChunkContent::Fingerprinted(Fingerprint::of(bytes), bytes),
            has_page: true,
            is_metadata: false,
            is_incompressible: false,
        })
        .collect();
    engine.write(&chunks).expect("room");
}

/// Two chunks share a page; a third one does not compress. A depot that never packed anything is read as ever.
#[test]
fn golden_packed() {
    let (_, data, mut engine) = new_log(Compression::Lz4);
    let noise = Random(3).bytes(4096);
    write_log(&mut engine, &[vec![1; 4096], noise, vec![2; 4096]]);
    engine.commit().expect("RAM");
    compare("log-group-packed-1", &frame_in(&*data, 4096));
    let mut page = vec![0; 4096];
    data.read_at(&mut page, 2 * 4096).expect("RAM");
    assert!(page == formats::example(Format::PackedPage));
    let slots = usize::from(page[4095]);
    let lengths = &page[4095 - 2 * slots..];
    let bytes = lengths[..2 * slots].chunks_exact(2);
    let bytes: usize = bytes
        .map(|it| usize::from(it[0]) + 256 * usize::from(it[1]))
        .sum();
    compare("log-packed-slots-1", &page[..bytes]);
    compare("log-packed-lengths-1", lengths);
}

/// A depot of the engine `log` with two chunks, one of them twice, and a discard: manifest, zone header, group, table.
#[test]
fn golden_log() {
    let options = || log_options(Compression::None);
    let (folder, data, mut engine) = new_log(Compression::None);
    write_log(&mut engine, &[vec![1; 4096], vec![2; 4096], vec![1; 4096]]);
    engine.discard(HeadId(0), 100..200).expect("room");
    engine.commit().expect("RAM");
    compare("log-zone-header-1", &frame_in(&*data, 0));
    compare("log-group-1", &frame_in(&*data, 4096));
    drop(engine);
    // Opening writes the zone's table, and a manifest in which the log goes on elsewhere.
    drop(LogEngine::open(Arc::clone(&folder), Arc::clone(&data), options()).expect("whole"));
    compare("log-zone-footer-1", &frame_in(&*data, (256 << 10) - 4096));
    compare(
        "log-manifest-3",
        &frame_in(&*folder.open("manifest").expect("there"), 0),
    );
    assert_nameless_is_read(&folder, &data, options());
    let map = folder.open_subdir("map").expect("there");
    let run = map.open("0000000000000001").expect("there");
    let mut page = vec![0; 4096];
    run.read_at(&mut page, 0).expect("a page");
    let end = page.iter().rposition(|byte| *byte != 0).expect("extents");
    compare("log-map-page-1", &page[..=end]);
    compare("log-map-footer-1", &frame_in(&*run, 4096));
    compare("log-zones-1", &formats::example(Format::Zones));
    compare("log-relocations-1", &formats::example(Format::Relocations));
    compare("log-damaged-1", &formats::example(Format::Damaged));
}

/// The same depot, encrypted, with salts of a seeded stream.
#[test]
fn golden_sealed() {
    let keys = Keys::from_master(&Zeroizing::new([0x5E; 32]));
    let seals = Seals::new(keys, Entropy::seeded(3));
    let options = || LogOptions {
        seals: seals.clone(),
        ..log_options(Compression::None)
    };
    let (folder, data, mut engine) = new_log_with(options());
    write_log(&mut engine, &[vec![1; 4096], vec![2; 4096], vec![1; 4096]]);
    engine.discard(HeadId(0), 100..200).expect("room");
    engine.commit().expect("RAM");
    compare("log-zone-header-2", &frame_in(&*data, 0));
    compare("log-group-2", &frame_in(&*data, 4096));
    drop(engine);
    let engine = LogEngine::open(Arc::clone(&folder), Arc::clone(&data), options());
    let engine = engine.expect("whole");
    compare("log-zone-footer-2", &frame_in(&*data, (256 << 10) - 4096));
    let manifest = folder.open("manifest").expect("there");
    compare("log-manifest-sealed-1", &frame_in(&*manifest, 0));
    let map = folder.open_subdir("map").expect("there");
    let run = map.open("0000000000000001").expect("there");
    compare("log-map-footer-2", &frame_in(&*run, 4096));
    let mut buffer = vec![0; 4096];
    let mut reads = [ChunkRead {
        lbn: Lbn(8),
        buffer: &mut buffer,
    }];
    engine.reader().read(HeadId(0), &mut reads).expect("a read");
    assert_eq!(buffer, [2; 4096]);
}

/// The configuration of an encrypted depot, with one slot.
#[test]
fn golden_config_encrypted() {
    let device = MemDir::new();
    let folder: Arc<dyn Dir> = Arc::new(device);
    let options = CreateOptions {
        engine: EngineKind::Log,
        compression: Compression::Auto,
        capacity_bytes: Some(16 << 20),
        encryption: Some(new_password()),
        entropy: Entropy::seeded(4),
        ..CreateOptions::new(1 << 30, [0x1D; 16], [0x4B; 32])
    };
    let made = Depot::create(&folder, &options).expect("a depot");
    let bytes = frame_in(&*folder.open("config").expect("there"), 0);
    compare("depot-config-3", &bytes);
    let found = Config::decode(&bytes, "config").expect("our own");
    assert_eq!((made.hash_key, found.hash_key), ([0x4B; 32], [0; 32]));
    assert_eq!(found.encode(), bytes);
    assert_eq!(found.slots, made.slots);
}

/// A manifest of version 2, which knows no names, is read: its one volume has the name that the depot was made with.
fn assert_nameless_is_read(folder: &Arc<dyn Dir>, data: &Arc<dyn Disk>, options: LogOptions) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/log-manifest-2");
    let bytes = std::fs::read(path).expect("the golden file is there");
    let newest = frame_in(&*folder.open("manifest").expect("there"), 0);
    let put = |bytes: &[u8]| {
        replace_file(&**folder, "manifest.new", "manifest", bytes).expect("RAM");
    };
    put(&bytes);
    let engine = LogEngine::open(Arc::clone(folder), Arc::clone(data), options).expect("known");
    let heads: Vec<String> = engine.heads().into_iter().map(|head| head.name).collect();
    assert_eq!(heads, ["main"]);
    let mut buffer = vec![0; 4096];
    let mut reads = [ChunkRead {
        lbn: Lbn(7),
        buffer: &mut buffer,
    }];
    engine.reader().read(HeadId(0), &mut reads).expect("a read");
    assert_eq!(buffer, [1; 4096]);
    drop(engine);
    put(&newest);
}

/// A depot of the first program that had the engine `log` is refused in words.
#[test]
fn a_manifest_of_version_1_is_refused() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/log-manifest-1");
    let bytes = std::fs::read(path).expect("the golden file is there");
    let layout = Layout::new(4 << 20, 4096).expect("large enough");
    let error = formats::verify(Format::Manifest, &bytes, &layout).expect_err("an old one");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("earlier version"), "{error}");
}

/// The frame at `offset`, without what follows it.
fn frame_in(disk: &dyn onefold_io::Disk, offset: u64) -> Vec<u8> {
    let mut header = [0; 24];
    disk.read_at(&mut header, offset).expect("a frame");
    let payload = u64::from_le_bytes(header[16..].try_into().expect("8 bytes"));
    let mut frame = vec![0; 32 + payload as usize];
    disk.read_at(&mut frame, offset).expect("a frame");
    frame
}
