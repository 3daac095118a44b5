//! The store's objects one by one, and what is in containers.

use onefold_io::frame::{self, FrameKind, decode_frame};
use onefold_store::block::{self, BlockHeader, append_chunk_lengths};
use onefold_store::catalog::{Catalog, CatalogEntry};
use onefold_store::container::{self, ContainerTable, Header, StreamKind};
use onefold_store::footer::{FOOTER_BYTES, Footer};
use onefold_store::ingested::INGESTED;
use onefold_store::registry::record::{Record, RecordState, RootChange, SessionEntry};
use onefold_store::registry::{ListNumber, PIN};
use onefold_store::slots::{SLOT, Slot};
use onefold_store::{
    ContainerId, Fingerprint, InitOptions, KdfCost, PinInfo, Repository, RepositoryConfig, Secret,
    condemned, config, forgotten, fuzzing, ingested, local_cache,
};

use super::backup::scene;
use super::{Reach, Target};
use crate::image::Image;
use crate::mend;

/// A block's raw bytes, and what decoding holds beside them.
const BLOCK_BYTES: usize = block::BLOCK_RAW_BYTES_MAX + (2 << 20);

pub fn targets() -> Vec<Target> {
    let image = Image::of(&*scene().dir);
    let containers = seeds(&image, "containers/");
    let mut targets = objects(&image);
    targets.extend(ends(&containers));
    targets.extend(blocks(&containers));
    targets
}

fn seeds(image: &Image, begin: &str) -> Vec<Vec<u8>> {
    let files = image.files(begin).into_iter().map(|(_, bytes)| bytes);
    files.filter(|bytes| !bytes.is_empty()).collect()
}

fn objects(image: &Image) -> Vec<Target> {
    let configs = seeds(image, "config");
    let bare = decode_frame(config::CONFIG, &configs[0], "fuzz", 0).expect("a configuration");
    let bare = bare.payload.to_vec();
    vec![
        Target::new("store/config", vec![bare], |bytes| {
            let _ = RepositoryConfig::decode(bytes, "fuzz", 0);
        }),
        Target::new("store/config-twice", configs, |bytes| {
            let _ = config::decode_twice(config::CONFIG, bytes, "fuzz");
            first_of(config::CONFIG, bytes)
        })
        .mended(mend::frames(config::CONFIG.magic)),
        Target::new("store/key", sealed_key(), |bytes| {
            let _ = Slot::decode(bytes, "fuzz");
            first_of(SLOT, bytes)
        })
        .mended(mend::frames(SLOT.magic)),
        Target::new(
            "store/session",
            vec![frame::encode_frame(PIN, b"\x01\x01h\x01a")],
            |bytes| Reach::of(&PinInfo::decode(bytes, "fuzz")),
        )
        .mended(mend::frame),
        Target::new("store/register", registers(), |bytes| {
            Reach::of(&Record::decode(bytes, "fuzz"))
        })
        .mended(mend::frame),
        Target::new(
            "store/forgotten",
            vec![frame::encode_frame(forgotten::FORGOTTEN, &[7; 64])],
            |bytes| Reach::of(&forgotten::decode(bytes, "fuzz")),
        )
        .mended(mend::frame),
        Target::new("store/catalog", catalogs(), |bytes| {
            Reach::of(&fuzzing::decode_catalog(bytes))
        })
        .mended(mend::frame),
        Target::new(
            "store/cached",
            vec![local_cache::encode("snapshots-1", &[&[7; 64]])],
            |bytes| Reach::of(&local_cache::decode(bytes, "snapshots-1")),
        )
        .mended(mend::frame),
        Target::new(
            "store/condemned",
            vec![frame::encode_frame(condemned::CONDEMNED, &[7; 24])],
            |bytes| Reach::of(&condemned::decode(bytes, condemned::ListId::Sweep(0))),
        )
        .mended(mend::frame),
        Target::new("store/ingested", seeds(image, "index/ingested"), |bytes| {
            let _ = ingested::decode(bytes);
            first_of(INGESTED, bytes)
        })
        .mended(mend::frames(INGESTED.magic)),
    ]
}

/// The error of the first of several frames: the decoder goes on with the next, or without.
fn first_of(kind: FrameKind, bytes: &[u8]) -> Reach {
    Reach::of(&decode_frame(kind, bytes, "fuzz", 0))
}

/// Headers, footers and tables, each of the container that it names itself.
fn ends(containers: &[Vec<u8>]) -> Vec<Target> {
    let heads = cut(containers, |bytes| &bytes[..container::HEADER_BYTES]);
    let feet = cut(containers, |bytes| &bytes[bytes.len() - FOOTER_BYTES..]);
    let tails = cut(containers, |bytes| &bytes[table_at(bytes)..]);
    let tables = cut(containers, |bytes| {
        &bytes[table_at(bytes)..bytes.len() - FOOTER_BYTES]
    });
    vec![
        Target::new("store/header", heads, |bytes| {
            Reach::of(&Header::decode(named(bytes), bytes))
        })
        .mended(mend::frame),
        Target::new("store/footer", feet, |bytes| Reach::of(&footer(bytes))).mended(mend::frame),
        Target::new("store/table", tables, |bytes| {
            let _ = ContainerTable::decode(bytes, "fuzz", 0);
        }),
        Target::new("store/tail", tails, |bytes| {
            let (table, last) = bytes.split_at(bytes.len().saturating_sub(FOOTER_BYTES));
            match footer(last) {
                Ok(footer) => Reach::of(&fuzzing::open_table(&footer, table.to_vec())),
                Err(error) => Reach::of_error(&error),
            }
        })
        .mended(mend::tail),
    ]
}

fn blocks(containers: &[Vec<u8>]) -> Vec<Target> {
    let bodies = cut(containers, |bytes| {
        &bytes[container::HEADER_BYTES..table_at(bytes)]
    });
    let first = cut(&bodies, |bytes| {
        let behind = block::BLOCK_HEADER_BYTES + at(bytes, 16, 4) as usize;
        &bytes[..behind]
    });
    vec![
        Target::new("store/block", bodies, |bytes| {
            let _ = BlockHeader::decode(bytes, "fuzz", 0);
            let _ = block::find_header(bytes);
        }),
        Target::new("store/block-decoded", first, |bytes| {
            let header = Header {
                id: ContainerId(7),
                stream: StreamKind::Data,
                salt: [0; 16],
            };
            let number = at(bytes, 4, 4) as u32;
            let decoded = fuzzing::decode_block(&header, number, bytes);
            if let Ok(raw) = &decoded {
                lengths(raw);
            }
            Reach::of(&decoded)
        })
        .mended(mend::block)
        .allowing(BLOCK_BYTES),
        Target::new("store/chunk-lengths", vec![raw_block()], lengths),
    ]
}

/// The lengths of a block's chunks are those of what is in front of them.
fn lengths(raw: &[u8]) {
    if let Ok(lengths) = block::chunk_lengths(raw, "fuzz", 0) {
        let sum: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
        assert!(sum < raw.len() as u64, "chunks longer than their block");
        assert!(!lengths.contains(&0), "a chunk of nothing");
    }
}

/// Three chunks.
fn raw_block() -> Vec<u8> {
    let mut raw = vec![7; 500];
    let name = Fingerprint([0; 32]);
    append_chunk_lengths(&mut raw, &[(name, 100), (name, 399), (name, 1)]);
    raw
}

/// A footer of the container that it names, which is as long as it says.
fn footer(bytes: &[u8]) -> onefold_store::Result<Footer> {
    let behind = at(bytes, 32, 8).saturating_add(at(bytes, 40, 4));
    let len = behind.saturating_add(bytes.len() as u64);
    Footer::decode(named(bytes), bytes, len)
}

/// The container that a header or footer names.
fn named(bytes: &[u8]) -> ContainerId {
    ContainerId(at(bytes, 24, 8))
}

/// Where a whole container's table begins.
fn table_at(bytes: &[u8]) -> usize {
    at(&bytes[bytes.len() - FOOTER_BYTES..], 32, 8) as usize
}

/// The number of `len` bytes at `from`; zeros where there are none.
fn at(bytes: &[u8], from: usize, len: usize) -> u64 {
    let bytes = bytes.iter().skip(from).take(len);
    bytes
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A key slot: only a repository with encryption has one.
fn sealed_key() -> Vec<Vec<u8>> {
    let dir = std::sync::Arc::new(onefold_io::MemDir::new());
    let mut init = InitOptions::new("fuzz", 1);
    init.kdf_cost = KdfCost::LEAST;
    Repository::init(dir.clone(), &init, Some(&Secret::new("fuzz"))).expect("RAM");
    seeds(&Image::of(&*dir), "keys/")
}

fn registers() -> Vec<Vec<u8>> {
    let session = SessionEntry {
        seen: vec![ListNumber(7)],
        ..SessionEntry::default()
    };
    let states = [
        RecordState::Active(session),
        RecordState::Revoked,
        RecordState::Decided(RootChange::default()),
    ];
    let record = |state| Record {
        nonce: [7; 16],
        beat: 1,
        state,
    };
    states.map(|state| record(state).encode()).into()
}

fn cut(all: &[Vec<u8>], part: impl Fn(&[u8]) -> &[u8]) -> Vec<Vec<u8>> {
    all.iter().map(|bytes| part(bytes).to_vec()).collect()
}

fn catalogs() -> Vec<Vec<u8>> {
    let entry = |chunks: u32| CatalogEntry {
        container: ContainerId(u64::from(chunks)),
        chunks,
        hooks: vec![Fingerprint([chunks as u8; 32]); chunks as usize / 2],
    };
    let made = fuzzing::encode_catalog(&Catalog {
        sources: vec![ContainerId(9)],
        entries: vec![entry(1), entry(5)],
    });
    vec![made.expect("it is not sealed")]
}
