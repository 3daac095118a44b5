//! A crash at every write and sync of backups, forgetting and a sweep: each snapshot that was acknowledged restores whole, file by file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use onefold_backup::backup::{self, Input};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::{Progress, snapshots};
use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{
    CheckDepth, Entropy, InitOptions, KdfCost, OpenOptions, PinInfo, Repository, RootId, Secret,
    SweepObserver, SweepOptions,
};

use crate::scene::{Log, bytes, look, noise, options, restore_folder};

pub type Looks = BTreeMap<Vec<u8>, crate::scene::Look>;
/// Snapshots that must be there, and what restoring them must give.
pub type Kept = Vec<(RootId, backup::Outcome, Arc<Looks>)>;

fn secret() -> Secret {
    Secret::new("open sesame")
}

pub fn open(device: &SimDir, seed: u64) -> onefold_store::Result<Repository> {
    let options = OpenOptions {
        threads: 1,
        container_bytes: 16 << 10,
        block_bytes: Some(4 << 10),
        index_ram_bytes: 1 << 20,
        entropy: Entropy::seeded(seed),
        ..OpenOptions::default()
    };
    Repository::open(
        Arc::new(device.clone()) as Arc<dyn Dir>,
        options,
        Some(&secret()),
    )
}

pub fn init(device: &SimDir) {
    let mut init = InitOptions::new("test", 1);
    init.kdf_cost = KdfCost::LEAST;
    init.entropy = Entropy::seeded(7);
    Repository::init(
        Arc::new(device.clone()) as Arc<dyn Dir>,
        &init,
        Some(&secret()),
    )
    .expect("init");
}

pub struct NoWait;

impl SweepObserver for NoWait {
    fn progress(&mut self, _: onefold_store::Progress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        false
    }
}

pub fn back_up(
    repository: &Repository,
    source: &Path,
    secs: i64,
) -> (RootId, backup::Outcome, Arc<Looks>) {
    let one = backup::Options {
        walkers: 1,
        readers: 1,
        hashers: 1,
        ..options(secs)
    };
    let outcome = backup::run(
        repository,
        Input::Paths(vec![bytes(source)]),
        &one,
        &Progress::default(),
        &Log::default(),
    )
    .expect("backup");
    (outcome.id.expect("id"), outcome, Arc::new(look(source)))
}

/// Three backups of a tree that changes, the first forgotten, a sweep. What was acknowledged, with the points that the device had passed.
fn work(device: &SimDir, source: &Path) -> Vec<(u64, Kept)> {
    let mut kept = Kept::new();
    let mut told = Vec::new();
    init(device);
    for round in 0..3u64 {
        fs::write(source.join("changes"), noise(round, 20_000)).expect("write");
        fs::write(
            source.join("sub").join(format!("new-{round}")),
            noise(round + 10, 3_000),
        )
        .expect("write");
        let repository = open(device, 100 + round).expect("open");
        kept.push(back_up(&repository, source, 1 + round as i64));
        told.push((device.counts().points, kept.clone()));
    }
    let repository = open(device, 200).expect("open");
    let (gone, ..) = kept.remove(0);
    told.push((device.counts().points, kept.clone()));
    repository.remove_root(&gone).expect("forget");
    repository
        .sweep(&SnapshotRoots, &SweepOptions::default(), &mut NoWait)
        .expect("sweep");
    told
}

#[test]
fn every_acknowledged_snapshot_restores_whatever_the_crash() {
    let dir = tempfile::tempdir().expect("tempdir");
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("sub")).expect("dirs");
    fs::write(source.join("stays"), noise(99, 30_000)).expect("write");
    let device = SimDir::new(1);
    device.keep_history();
    let told = work(&device, &source);
    let points = device.counts().points;
    let first = told[0].0;
    assert!(points - first > 100, "only {} points", points - first);
    for point in first..points {
        let (_, kept) = told
            .iter()
            .rfind(|(at, _)| *at <= point)
            .expect("after the first");
        let image = device
            .crash_image_at(point, point + 2)
            .expect("history was kept");
        recovers(
            &image,
            kept,
            &source,
            dir.path(),
            &format!("point {point} of {points}"),
        );
    }
}

pub fn recovers(image: &SimDir, kept: &Kept, source: &Path, dir: &Path, context: &str) {
    let repository = open(image, 999).unwrap_or_else(|e| panic!("{context}: {e}"));
    let target = dir.join("target");
    for (id, outcome, looks) in kept {
        snapshots::load(&repository, *id).unwrap_or_else(|e| panic!("{context}: {e}"));
        restore_folder(&repository, outcome, source, &target);
        assert!(look(&target) == **looks, "{context}");
        fs::remove_dir_all(&target).expect("remove");
    }
    back_up(&repository, source, 77);
    let report = repository
        .check(
            &SnapshotRoots,
            CheckDepth::Structure,
            &mut |_| {},
            &mut |_| {},
        )
        .expect("check");
    assert!(report.damage.is_empty(), "{context}: {:?}", report.damage);
}
