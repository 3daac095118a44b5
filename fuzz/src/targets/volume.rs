//! Stored state of the block device: its configuration, and metadata that was saved.

use std::sync::Arc;

use onefold_io::{Dir, Disk, MemDir, MemDisk};
use onefold_volume::cbt::verify_superblock;
use onefold_volume::depot::backends::Parameters;
use onefold_volume::depot::config::{Backend, Config, EngineKind};
use onefold_volume::depot::metadata_device::decode_head;
use onefold_volume::depot::openings::Openings;
use onefold_volume::dtb::verify_header;
use onefold_volume::inram::{INRAM, InRam, Limits, SaveAt, verify_saved};
use onefold_volume::log::Layout;
use onefold_volume::log::formats::{Format, example, mend_map_page, verify, verify_sealed};
use onefold_volume::{Compression, Key, MetadataBackend};

use super::{Reach, Target};
use crate::mend;

/// Bytes of a salt.
const SALT_BYTES: usize = 16;
/// Blocks of the data device.
const BLOCKS: u64 = 300;
/// Keys of a linear store: what one of them takes is small.
const LIMITS: Limits = Limits {
    blocks: BLOCKS,
    keys_max: 1 << 16,
};

pub fn targets() -> Vec<Target> {
    [depot(), metadata_backends(), plain_log(), sealed_log()]
        .into_iter()
        .flatten()
        .collect()
}

/// Files of every depot.
fn depot() -> Vec<Target> {
    vec![
        Target::new(
            "volume/config",
            vec![
                config(Backend::InRam, "main", ""),
                config(Backend::Cbt, "a", "/dev/sdb"),
                golden("depot-config-2"),
                golden("depot-config-3"),
                golden("depot-config-4"),
            ],
            |bytes| {
                let decoded = Config::decode(bytes, "fuzz");
                if let Ok(config) = &decoded {
                    assert!(config.blocks() > 0 && config.lbns() > 0);
                    assert_eq!(
                        Config::decode(&config.encode(), "fuzz").ok().as_ref(),
                        Some(config)
                    );
                }
                Reach::of(&decoded)
            },
        )
        .mended(mend::frame),
        Target::new(
            "volume/openings",
            vec![golden("depot-openings-1"), golden("depot-openings-2")],
            |bytes| Reach::of(&Openings::decode(bytes, "fuzz")),
        )
        .mended(mend::frame),
        Target::new(
            "volume/metadata head",
            vec![golden("metadata-head-1")],
            |bytes| Reach::of(&decode_head(bytes, "fuzz")),
        )
        .mended(mend::frame),
    ]
}

fn metadata_backends() -> Vec<Target> {
    vec![
        // Tables are allocated once for all keys that there may be, in each of the stores.
        Target::new("volume/inram", vec![saved(0), saved(200)], |bytes| {
            let disk = MemDisk::new();
            match disk.write_at(bytes, 0) {
                Ok(()) => Reach::of(&verify_saved(&disk, "fuzz", LIMITS)),
                Err(error) => Reach::of_error(&error),
            }
        })
        .mended(mend::frames(INRAM.magic))
        .allowing(1 << 30),
        Target::new("volume/dtb header", vec![golden("dtb-header-1")], |bytes| {
            Reach::of(&verify_header(bytes))
        })
        .mended(mend::frame),
        Target::new(
            "volume/cbt superblock",
            vec![golden("cbt-superblock-1")],
            |bytes| Reach::of(&verify_superblock(bytes)),
        )
        .mended(mend::frame),
    ]
}

/// Formats of the engine `log` as they are without encryption.
fn plain_log() -> Vec<Target> {
    vec![
        log("map page", Format::MapPage, vec![example(Format::MapPage)]).mended(mend_map_page),
        log(
            "manifest",
            Format::Manifest,
            vec![golden("log-manifest-2"), golden("log-manifest-3")],
        )
        .mended(mend::frame),
        log("zones", Format::Zones, vec![example(Format::Zones)]).mended(mend::frame),
        log(
            "relocations",
            Format::Relocations,
            vec![example(Format::Relocations)],
        )
        .mended(mend::frame),
        log(
            "group",
            Format::Group,
            vec![golden("log-group-1"), golden("log-group-packed-1")],
        )
        .mended(mend::frame),
        log("damaged", Format::Damaged, vec![example(Format::Damaged)]).mended(mend::frame),
        log(
            "packed page",
            Format::PackedPage,
            vec![example(Format::PackedPage)],
        ),
    ]
}

/// Formats of the engine `log` in an encrypted depot.
fn sealed_log() -> Vec<Target> {
    vec![
        sealed("group", Format::Group, {
            let salt = golden("log-zone-header-2")[24 + 45..][..SALT_BYTES].to_vec();
            [salt, golden("log-group-2")].concat()
        })
        .mended(|bytes| {
            if let Some(group) = bytes.get_mut(SALT_BYTES..) {
                mend::frame(group);
            }
        }),
        sealed(
            "zone header",
            Format::ZoneHeader,
            golden("log-zone-header-2"),
        )
        .mended(mend::frame),
        sealed(
            "manifest",
            Format::Manifest,
            golden("log-manifest-sealed-1"),
        )
        .mended(mend::frame),
    ]
}

/// A format of the engine `log`.
fn log(name: &str, format: Format, seeds: Vec<Vec<u8>>) -> Target {
    let layout = Layout::new(1 << 30, 4096).expect("large enough");
    Target::new(&format!("volume/log {name}"), seeds, move |bytes| {
        Reach::of(&verify(format, bytes, &layout))
    })
}

/// A format of the engine `log` in an encrypted depot, of the golden files' master key. Changed bytes hardly ever have
/// a seal that holds: the shapes around the seal are tried.
fn sealed(name: &str, format: Format, seed: Vec<u8>) -> Target {
    let layout = Layout::new(1 << 30, 4096).expect("large enough");
    Target::new(
        &format!("volume/log sealed {name}"),
        vec![seed],
        move |bytes| Reach::of(&verify_sealed(format, bytes, &layout, [0x5E; 32])),
    )
}

/// Returns a golden file.
fn golden(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/volume/testdata");
    std::fs::read(std::path::Path::new(folder).join(name)).expect("the golden file is there")
}

fn config(backend: Backend, volume: &str, data_path: &str) -> Vec<u8> {
    Config {
        depot: [1; 16],
        engine: EngineKind::Dmdedup(backend),
        parameters: Parameters::default(),
        compression: Compression::None,
        chunk_bytes: 4096,
        hash_key: [2; 32],
        slots: Vec::new(),
        volume: volume.into(),
        volume_bytes: 1 << 30,
        capacity_bytes: 1 << 29,
        zone_bytes: 0,
        data_path: data_path.into(),
        metadata_path: String::new(),
    }
    .encode()
}

/// A file with so many chunks.
fn saved(chunks: u64) -> Vec<u8> {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let mut backend = InRam::open(Arc::clone(&folder), BLOCKS, SaveAt::Close).expect("RAM");
    let lbns = backend.create_linear(1000).expect("RAM");
    let hashes = backend.create_sparse(16, BLOCKS).expect("RAM");
    for n in 0..chunks {
        let pbn = backend.alloc_block().expect("RAM").expect("a free block");
        let mut hash = [7; 16];
        hash[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        backend
            .insert(hashes, Key::Sparse(&hash), pbn)
            .expect("room");
        backend.insert(lbns, Key::Linear(n * 3), pbn).expect("room");
        backend.inc_ref(pbn).expect("a block");
    }
    backend.save().expect("RAM");
    let disk = folder.open("meta").expect("it was saved");
    let mut bytes = vec![0; disk.len().expect("RAM") as usize];
    disk.read_at(&mut bytes, 0).expect("RAM");
    bytes
}
