//! Golden files: what was once written is read for ever, and still written so.

use std::path::PathBuf;
use std::sync::Arc;

use onefold_io::{Dir, MemDir};
use onefold_volume::depot::config::{Backend, Config, EngineKind};
use onefold_volume::inram::{InRam, Limits, SaveAt, verify_saved};
use onefold_volume::{Key, MetadataBackend};

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
        chunk_bytes: 4096,
        hash_key: [0x4B; 32],
        volume: "main".into(),
        volume_bytes: 1 << 30,
        capacity_bytes: 1 << 29,
        zone_bytes: 0,
        data_path: "/dev/sdb".into(),
    };
    let bytes = config.encode();
    compare("depot-config-1", &bytes);
    assert_eq!(Config::decode(&bytes, "config").expect("our own"), config);
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
