//! The store's objects one by one, and a store in which one object is replaced.

use std::sync::Arc;

use onefold_backup::roots::SnapshotRoots;
use onefold_io::frame::decode_frame;
use onefold_store::block::BlockHeader;
use onefold_store::container::{self, Header, Table};
use onefold_store::footer::{FOOTER_BYTES, Footer};
use onefold_store::slots::Slot;
use onefold_store::{
    CheckDepth, Config, ContainerId, InitOptions, KdfCost, OpenOptions, PinInfo, Repository,
    Secret, condemned, config, ingested,
};

use super::Target;
use super::backup::scene;
use crate::image::Image;

pub fn targets() -> Vec<Target> {
    let image = Image::of(&*scene().dir);
    let mut targets = objects(&image);
    for (name, begin) in [
        ("config", "config"),
        ("container", "containers/"),
        ("snapshot", "snapshots/"),
        ("sketch", "sketch"),
    ] {
        let Some((path, bytes)) = image.files(begin).into_iter().next() else {
            continue;
        };
        let image = image.clone();
        let run = move |bytes: &[u8]| look(image.with(&path, bytes));
        let target = Target::new(&format!("store/repository-{name}"), vec![bytes], run);
        targets.push(target.allowing(256 << 20));
    }
    targets
}

fn objects(image: &Image) -> Vec<Target> {
    let seeds = |begin: &str| -> Vec<Vec<u8>> {
        let files = image.files(begin).into_iter();
        files.map(|(_, bytes)| bytes).collect()
    };
    let containers = seeds("containers/");
    let id = containers
        .first()
        .map_or(0, |bytes| u64::from_le_bytes(first(&bytes[24..])));
    let heads = cut(&containers, |bytes| &bytes[..container::HEADER_BYTES]);
    let feet = cut(&containers, |bytes| &bytes[bytes.len() - FOOTER_BYTES..]);
    let blocks = cut(&containers, |bytes| &bytes[container::HEADER_BYTES..]);
    let tables = cut(&containers, |bytes| {
        let footer = &bytes[bytes.len() - FOOTER_BYTES..];
        let payload = &footer[24..];
        let at = u64::from_le_bytes(first(&payload[8..])) as usize;
        &bytes[at..bytes.len() - FOOTER_BYTES]
    });
    let configs = seeds("config");
    let bare = configs
        .first()
        .and_then(|bytes| decode_frame(config::CONFIG, bytes, "fuzz", 0).ok())
        .map(|frame| frame.payload.to_vec());
    vec![
        Target::new("store/header", heads, move |bytes| {
            let _ = Header::decode(ContainerId(id), bytes);
        }),
        Target::new("store/footer", feet, move |bytes| {
            let _ = Footer::decode(ContainerId(id), bytes, 1 << 24);
        }),
        Target::new("store/table", tables, |bytes| {
            let _ = Table::decode(bytes, "fuzz", 0);
        }),
        Target::new("store/block", blocks, |bytes| {
            let _ = BlockHeader::decode(bytes, "fuzz", 0);
            let _ = onefold_store::block::find_header(bytes);
        }),
        Target::new("store/config", bare.into_iter().collect(), |bytes| {
            let _ = Config::decode(bytes);
        }),
        Target::new("store/config-twice", configs, |bytes| {
            let _ = config::decode_twice(config::CONFIG, bytes, "fuzz");
        }),
        Target::new("store/key", sealed_key(), |bytes| {
            let _ = Slot::decode(bytes, "fuzz");
        }),
        Target::new(
            "store/session",
            vec![framed(onefold_store::pin::PIN, b"\x01\x01h\x01a")],
            |bytes| {
                let _ = PinInfo::decode(bytes, "fuzz");
            },
        ),
        Target::new(
            "store/condemned",
            vec![framed(condemned::CONDEMNED, &[7; 24])],
            |bytes| {
                let _ = condemned::decode(bytes);
            },
        ),
        Target::new("store/ingested", seeds("index/ingested"), |bytes| {
            let _ = ingested::decode(bytes);
        }),
    ]
}

/// A key slot: only a repository with encryption has one.
fn sealed_key() -> Vec<Vec<u8>> {
    let dir = Arc::new(onefold_io::MemDir::new());
    let mut init = InitOptions::new("fuzz", 1);
    init.kdf_cost = KdfCost::LEAST;
    Repository::init(dir.clone(), &init, Some(&Secret::new("fuzz"))).expect("RAM");
    let files = Image::of(&*dir).files("keys/");
    files.into_iter().map(|(_, bytes)| bytes).collect()
}

fn framed(kind: onefold_io::frame::FrameKind, payload: &[u8]) -> Vec<u8> {
    onefold_io::frame::encode_frame(kind, payload)
}

fn cut(all: &[Vec<u8>], part: impl Fn(&[u8]) -> &[u8]) -> Vec<Vec<u8>> {
    all.iter().map(|bytes| part(bytes).to_vec()).collect()
}

fn first(bytes: &[u8]) -> [u8; 8] {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[..8]);
    eight
}

/// Opens, lists, and reads every byte.
fn look(dir: Arc<onefold_io::MemDir>) {
    let Ok(repository) = Repository::open(dir, OpenOptions::default(), None) else {
        return;
    };
    let _ = repository.sketch();
    let _ = onefold_backup::snapshots::list(&repository, &mut |_| true, &mut |_, _| {});
    let depth = CheckDepth::Data { part: 1, of: 1 };
    let _ = repository.check(&SnapshotRoots, depth, &mut |_| {}, &mut |_| {});
}
