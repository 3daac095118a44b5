//! A whole repository in which one object is replaced: opened, listed, checked with every byte, and repaired.

use std::sync::Arc;

use onefold_backup::roots::SnapshotRoots;
use onefold_backup::snapshots;
use onefold_chunk::Fingerprint;
use onefold_io::MemDir;
use onefold_store::config::{CONFIG_COPY_OBJECT, CONFIG_OBJECT};
use onefold_store::container::StreamKind;
use onefold_store::sketch::SKETCH_OBJECT;
use onefold_store::{
    CheckDepth, Entropy, OpenOptions, PinInfo, Repository, StageProgress, SweepObserver,
};

use super::backup::scene;
use super::{Reach, Target};
use crate::image::Image;
use crate::mend;

/// A repository takes so much whatever is in it.
const REPOSITORY_BYTES: usize = 256 << 20;

pub fn targets() -> Vec<Target> {
    let image = Image::of(&*scene().dir);
    vec![
        config(&image),
        sketch(&image),
        snapshot(&image),
        container(&image, StreamKind::Data),
        container(&image, StreamKind::Metadata),
    ]
}

fn target(name: &str, bytes: Vec<u8>, run: impl Fn(&[u8]) -> Reach + 'static) -> Target {
    Target::new(&format!("store/repository-{name}"), vec![bytes], run).allowing(REPOSITORY_BYTES)
}

/// In place of both files: else the other one is read.
fn config(image: &Image) -> Target {
    let (_, bytes) = one_of(image, CONFIG_OBJECT);
    let image = image.clone();
    let run = move |bytes: &[u8]| {
        look(image.with_all(&[(CONFIG_OBJECT, bytes), (CONFIG_COPY_OBJECT, bytes)]))
    };
    target("config", bytes, run).mended(mend::frames(*b"1FCONFIG"))
}

fn sketch(image: &Image) -> Target {
    let (path, bytes) = one_of(image, SKETCH_OBJECT);
    let image = image.clone();
    target("sketch", bytes, move |bytes| look(image.with(&path, bytes))).mended(mend::frame)
}

/// Under the name that its bytes have: under another, nobody looks at more than that.
fn snapshot(image: &Image) -> Target {
    let (path, bytes) = one_of(image, "snapshots/");
    let image = image.without(&path);
    let run = move |bytes: &[u8]| {
        let path = format!("snapshots/{}", Fingerprint::of(bytes));
        look(image.with(&path, bytes))
    };
    target("snapshot", bytes, run).mended(mend::frame)
}

fn container(image: &Image, stream: StreamKind) -> Target {
    let code = u8::from(stream == StreamKind::Metadata);
    let mut all = image.files("containers/").into_iter();
    let found = all.find(|(_, bytes)| bytes[32] == code);
    let (path, bytes) = found.expect("a container of each stream");
    let image = image.clone();
    let name = match stream {
        StreamKind::Data => "container",
        StreamKind::Metadata => "container-of-metadata",
    };
    target(name, bytes, move |bytes| look(image.with(&path, bytes))).mended(mend::container)
}

fn one_of(image: &Image, begin: &str) -> (String, Vec<u8>) {
    let found = image.files(begin).into_iter().next();
    found.expect("a whole repository")
}

/// Opens, lists, reads every byte, and repairs.
fn look(dir: Arc<MemDir>) -> Reach {
    let options = OpenOptions {
        entropy: Entropy::seeded(3),
        threads: 1,
        ..OpenOptions::default()
    };
    let repository = match Repository::open(dir, options, None) {
        Ok(repository) => repository,
        Err(error) => return Reach::of_error(&error),
    };
    let mut reach = Reach::of(&repository.sketch());
    let _ = snapshots::list(&repository, &mut |_| true, &mut |_, error| {
        reach = reach.and(Reach::of_error(&error));
    });
    let depth = CheckDepth::Data { part: 1, of: 1 };
    let checked = repository.check(&SnapshotRoots, depth, &mut |_| {}, &mut |error| {
        reach = reach.and(Reach::of_error(error));
    });
    let _ = repository.repair(&SnapshotRoots, &mut Silent);
    reach.and(Reach::of(&checked))
}

/// Sees nothing and waits for nobody.
struct Silent;

impl SweepObserver for Silent {
    fn progress(&mut self, _: StageProgress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        false
    }
}
