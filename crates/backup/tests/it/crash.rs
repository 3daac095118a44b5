//! A crash at every write and sync of backups, tags, forgetting and sweeps that delete and compact: each acknowledged
//! snapshot restores completely, file by file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use onefold_backup::backup::{self, Input};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::snapshots::Retag;
use onefold_backup::{Progress, snapshots};
use onefold_io::sim::{Faults, SimDir};
use onefold_io::{Dir, Random};
use onefold_store::{
    CheckDepth, Entropy, InitOptions, KdfCost, OpenOptions, PinInfo, Repository, RootId, Secret,
    SweepObserver, SweepOptions,
};

use crate::scale::{apart, scale};
use crate::scene::{Log, bytes, look, noise, options, restore_folder};

pub type Looks = BTreeMap<Vec<u8>, crate::scene::Look>;
/// Snapshots that must be there, with the outcome of their backup and the result that restoring them must have.
pub type Kept = Vec<(RootId, backup::Outcome, Arc<Looks>)>;

fn secret() -> Secret {
    Secret::new("open sesame")
}

pub fn open(device: &SimDir, seed: u64) -> onefold_store::Result<Repository> {
    open_with(device, 1, seed)
}

fn open_with(device: &SimDir, threads: usize, seed: u64) -> onefold_store::Result<Repository> {
    let options = OpenOptions {
        threads,
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
    try_init(device).expect("init");
}

fn try_init(device: &SimDir) -> onefold_store::Result<()> {
    let mut init = InitOptions::new("test", 1);
    init.kdf_cost = KdfCost::LEAST;
    init.entropy = Entropy::seeded(7);
    Repository::init(
        Arc::new(device.clone()) as Arc<dyn Dir>,
        &init,
        Some(&secret()),
    )
}

pub struct NoWait;

impl SweepObserver for NoWait {
    fn progress(&mut self, _: onefold_store::StageProgress) {}

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
    back_up_with(repository, source, &one).expect("backup")
}

fn back_up_with(
    repository: &Repository,
    source: &Path,
    options: &backup::Options,
) -> onefold_backup::Result<(RootId, backup::Outcome, Arc<Looks>)> {
    let outcome = backup::run(
        repository,
        Input::Paths(vec![bytes(source)]),
        options,
        &Progress::default(),
        &Log::default(),
    )?;
    Ok((outcome.id.expect("id"), outcome, Arc::new(look(source))))
}

/// Changes every second small file, and some others that stay for the next rounds: a part of the containers that this
/// fills outlives its snapshot.
fn change(source: &Path, round: u64) {
    let stays = |number: u64| !number.is_multiple_of(2) && number / 2 % 3 != round % 3;
    for number in (0..24).filter(|number| !stays(*number)) {
        let name = source.join("sub").join(format!("small-{number:02}"));
        fs::write(name, noise(100 * round + number, 2_500)).expect("write");
    }
}

/// Snapshots that a run of verbs acknowledged, each with the number of the device's operation at that time.
#[derive(Default)]
pub struct Run {
    told: Vec<(u64, Kept)>,
    /// Snapshots that are there at the end.
    pub kept: Kept,
    compacted_containers: u64,
}

/// Number of rounds of a run of verbs, and number of its threads.
#[derive(Clone, Copy)]
struct How {
    rounds: u64,
    threads: usize,
}

/// Makes a run as in CI; `ONEFOLD_TEST_SCALE` multiplies the rounds of changes. One thread repeats exactly.
fn in_order() -> How {
    How {
        rounds: 4 * scale().max(1),
        threads: 1,
    }
}

/// Backs up, in each round, a tree that changes. In every second round the oldest snapshot gets a tag, and all others
/// except the newest are forgotten and swept: containers are deleted and compacted.
pub fn work(device: &SimDir, source: &Path) -> Run {
    let mut run = Run::default();
    run.work(device, source, in_order())
        .expect("no fault was asked for");
    run
}

impl Run {
    fn work(&mut self, device: &SimDir, source: &Path, how: How) -> onefold_backup::Result<()> {
        fs::create_dir_all(source.join("sub")).expect("dirs");
        fs::write(source.join("stays"), noise(99, 30_000)).expect("write");
        try_init(device)?;
        for round in 0..how.rounds {
            change(source, round);
            let repository = open_with(device, how.threads, 100 + round)?;
            let options = backup::Options {
                walkers: how.threads,
                readers: how.threads,
                hashers: how.threads,
                ..options(1 + round as i64)
            };
            self.kept.push(back_up_with(&repository, source, &options)?);
            self.note(device);
            if round % 2 == 1 {
                self.forget(device, &repository, round)?;
            }
        }
        Ok(())
    }

    /// Gives the oldest snapshot a tag, forgets all but that and the newest, and sweeps.
    fn forget(
        &mut self,
        device: &SimDir,
        repository: &Repository,
        round: u64,
    ) -> onefold_backup::Result<()> {
        let add = Retag {
            add: vec![format!("round {round}")],
            ..Retag::default()
        };
        let (tagged, ..) = &mut self.kept[0];
        let new = snapshots::retag(repository, *tagged, &add)?;
        *tagged = new.expect("it had no such tag");
        self.note(device);
        let newest = self.kept.len() - 1;
        let gone: Vec<_> = self.kept.drain(1..newest).collect();
        let gone = if gone.is_empty() {
            vec![self.kept.remove(0)]
        } else {
            gone
        };
        self.note(device);
        let lock = repository.lock_roots()?;
        for (id, ..) in &gone {
            repository.remove_root(id)?;
        }
        drop(lock);
        let swept = repository.sweep(&SnapshotRoots, &SweepOptions::default(), &mut NoWait)?;
        self.compacted_containers += swept.compacted_containers;
        Ok(())
    }

    fn note(&mut self, device: &SimDir) {
        self.told.push((device.counts().points, self.kept.clone()));
    }
}

/// A quick run tries points at some distance; with `ONEFOLD_TEST_SCALE` of 10 and more every point is tried, of ten
/// times as many.
#[test]
fn every_acknowledged_snapshot_restores_whatever_the_crash() {
    let dir = tempfile::tempdir().expect("tempdir");
    let source = dir.path().join("source");
    let device = SimDir::new(1);
    device.keep_history();
    let run = work(&device, &source);
    let points = device.counts().points;
    let first = run.told[0].0;
    assert!(points - first > 100, "only {} points", points - first);
    println!(
        "points {first}..{points}, {} containers compacted",
        run.compacted_containers
    );
    assert!(run.compacted_containers > 0);
    for point in (first..points).step_by(apart(2) as usize) {
        let (_, kept) = run
            .told
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

/// Number of power cuts among threads that a quick run tries.
const CUTS: u64 = 30;

/// Threads that walk, read, cut, seal, store and merge meet the power cut. Each run is different, so each has a device
/// of its own.
#[test]
fn every_acknowledged_snapshot_restores_whatever_the_crash_among_threads() {
    let how = How {
        rounds: 6,
        threads: 3,
    };
    let cut = |seed, crash_at| {
        let dir = tempfile::tempdir().expect("tempdir");
        let source = dir.path().join("source");
        let (device, mut run) = (SimDir::new(seed), Run::default());
        device.inject(Faults {
            crash_at,
            ..Faults::default()
        });
        let ended = run.work(&device, &source, how).err();
        (dir, source, device, run, ended)
    };
    let (_, _, rehearsal, _, ended) = cut(1, None);
    let points = rehearsal.counts().points;
    assert!(ended.is_none(), "{ended:?}");
    let mut crashed = 0;
    for seed in 0..CUTS * scale().max(1) {
        let point = Random(seed).below(points);
        let (dir, source, device, run, ended) = cut(seed, Some(point));
        let context = format!("seed {seed}, point {point} of {points}, 3 threads ({ended:?})");
        // Some runs have fewer points than the first one had.
        assert!(ended.is_none() || device.crashed(), "{context}");
        // Before the first acknowledgement there may be no repository.
        let Some((_, kept)) = run.told.last() else {
            continue;
        };
        crashed += u64::from(device.crashed());
        let image = device.crash_image(seed + 2);
        recovers(&image, kept, &source, dir.path(), &context);
    }
    assert!(crashed > CUTS / 3, "only {crashed} power cuts");
}

/// Checks that acknowledged snapshots restore, perhaps under a name that tags gave them since; a backup, a prune and a
/// check find no fault.
pub fn recovers(image: &SimDir, kept: &Kept, source: &Path, dir: &Path, context: &str) {
    let repository = open(image, 999).unwrap_or_else(|e| panic!("{context}: {e}"));
    let target = dir.join("target");
    for (id, outcome, looks) in kept {
        let outcome = backup::Outcome {
            id: Some(
                name_now(&repository, *id, outcome).unwrap_or_else(|e| panic!("{context}: {e}")),
            ),
            ..outcome.clone()
        };
        restore_folder(&repository, &outcome, source, &target);
        assert!(look(&target) == **looks, "{context}");
        fs::remove_dir_all(&target).expect("remove");
    }
    back_up(&repository, source, 77);
    repository
        .sweep(&SnapshotRoots, &SweepOptions::default(), &mut NoWait)
        .unwrap_or_else(|e| panic!("{context}: sweep: {e}"));
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

/// Returns the name of the snapshot, or of the one that other tags have made of it.
pub fn name_now(
    repository: &Repository,
    id: RootId,
    outcome: &backup::Outcome,
) -> onefold_backup::Result<RootId> {
    if snapshots::load_if_there(repository, id)?.is_some() {
        return Ok(id);
    }
    let mut new = Err(onefold_backup::Error::NoSnapshot(id.to_string()));
    snapshots::for_each(
        repository,
        &mut |_, error| panic!("{error}"),
        &mut |named| {
            if named.snapshot.original == outcome.id.map(|first| first.0) {
                new = Ok(named.id);
            }
        },
    )?;
    new
}
