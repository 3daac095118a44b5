//! A device that fails at each of its operations in turn while a backup, a forget and a sweep run: acknowledged
//! snapshots restore byte for byte once the device is well again, a check finds no damage, and the next backup
//! succeeds.
//!
//! A quick run tries operations at some distance; with `ONEFOLD_TEST_SCALE` of 10 and more every operation is tried.

use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};

use onefold_backup::backup::{self, Input};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::{Error, Progress};
use onefold_io::sim::{Faults, SimCounts, SimDir, When};
use onefold_store::{RootId, SweepOptions};

use crate::crash::{Kept, NoWait, back_up, init, open, recovers};
use crate::scale::apart;
use crate::scene::{Log, bytes, look, noise, options};

/// Number of operations that a quick run lets fail, for each kind of fault.
const QUICK_CASES: u64 = 24;

/// A repository with two snapshots of a folder, and the folder in the state for a third backup.
struct Scene {
    dir: tempfile::TempDir,
    device: SimDir,
    kept: Kept,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let device = SimDir::new(1);
        init(&device);
        let mut scene = Self {
            dir,
            device,
            kept: Kept::new(),
        };
        fs::create_dir_all(scene.source().join("sub")).expect("dirs");
        fs::write(scene.source().join("stays"), noise(99, 30_000)).expect("write");
        for round in 0..2 {
            scene.change(round);
            let repository = open(&scene.device, 100 + round).expect("open");
            let kept = back_up(&repository, &scene.source(), 1 + round as i64);
            scene.kept.push(kept);
        }
        scene.change(2);
        scene
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn change(&self, round: u64) {
        let at = |name: &str| self.source().join(name);
        fs::write(at("changes"), noise(round, 90_000)).expect("write");
        fs::write(at(&format!("sub/new-{round}")), noise(round + 10, 3_000)).expect("write");
    }
}

/// The session cannot be finished either, but that is not why there is no snapshot.
#[test]
fn a_backup_that_fails_says_what_failed_first() {
    let scene = Scene::new();
    let repository = open(&scene.device, 300).expect("open");
    let is_whole = || {
        scene.device.inject(Faults {
            sync_error: When::From(0),
            ..Faults::default()
        });
        Err(Error::HalfInput("what fed it failed".into()))
    };
    let input = Input::Paths(vec![bytes(&scene.source())]);
    let (progress, log) = (Progress::default(), Log::default());
    let ended = backup::run_if(&repository, input, &options(5), &progress, &log, is_whole);
    assert!(matches!(ended, Err(Error::HalfInput(_))), "{ended:?}");
}

/// Runs a backup, a forget and a sweep, as far as the device lets them. Adds acknowledged snapshots to `kept`, and
/// returns the error that ended the run.
fn work(device: &SimDir, source: &Path, kept: &mut Kept) -> Result<(), Error> {
    let repository = open(device, 300)?;
    let one = backup::Options {
        walkers: 1,
        readers: 1,
        hashers: 1,
        ..options(5)
    };
    let input = Input::Paths(vec![bytes(source)]);
    let outcome = backup::run(
        &repository,
        input,
        &one,
        &Progress::default(),
        &Log::default(),
    )?;
    let id: RootId = outcome.id.expect("no dry run");
    kept.push((id, outcome, look(source).into()));
    let (gone, ..) = kept.remove(0);
    repository.remove_root(&gone)?;
    repository.sweep(&SnapshotRoots, &SweepOptions::default(), &mut NoWait)?;
    Ok(())
}

/// Lets each operation fail that `of` counts, alone and with all after it.
fn fail_everywhere(
    fault: impl Fn(When) -> Faults,
    of: impl Fn(SimCounts) -> u64,
    is_expected: impl Fn(&Error) -> bool,
) {
    let scene = Scene::new();
    let source = scene.source();
    let rehearsal = scene.device.fork();
    rehearsal.inject(Faults::default());
    work(&rehearsal, &source, &mut scene.kept.clone()).expect("without a fault it succeeds");
    let operations = of(rehearsal.counts());
    assert!(operations > 10, "only {operations} operations");

    let mut failures = 0;
    for n in (0..operations).step_by(step(operations)) {
        for when in [When::Once(n), When::From(n)] {
            let context = format!("{when:?} of {operations}");
            let device = scene.device.fork();
            let mut kept = scene.kept.clone();
            device.inject(fault(when));
            let failed = work(&device, &source, &mut kept).err();
            device.inject(Faults::default());
            if let Some(error) = failed {
                let cause = error.source().map(ToString::to_string);
                assert!(is_expected(&error), "{context}: {error:?} {cause:?}");
                failures += 1;
            }
            // A failed sync shows only in a power cut.
            let left = match when {
                When::Once(_) => device.crash_image(0),
                _ => device,
            };
            recovers(&left, &kept, &source, scene.dir.path(), &context);
        }
    }
    assert!(failures > 5, "only {failures} of them were told");
}

/// Returns the distance between the operations that fail.
fn step(operations: u64) -> usize {
    apart(operations / QUICK_CASES) as usize
}

#[test]
fn a_full_disk_costs_nothing_acknowledged() {
    fail_everywhere(
        |no_space| Faults {
            no_space,
            ..Faults::default()
        },
        |counts| counts.space,
        |error| matches!(error, Error::Store(error) if error.is_no_space()),
    );
}

#[test]
fn a_failed_read_costs_nothing_acknowledged() {
    fail_everywhere(
        |read_error| Faults {
            read_error,
            ..Faults::default()
        },
        |counts| counts.reads,
        is_no_damage,
    );
}

/// The repository is well once it is read again; every such read is reported. The chunks that were stored meanwhile are
/// right.
#[test]
fn a_bit_that_flips_in_a_read_costs_nothing_acknowledged() {
    fail_everywhere(
        |flip_read| Faults {
            flip_read,
            ..Faults::default()
        },
        |counts| counts.reads,
        Error::is_damage,
    );
}

#[test]
fn a_failed_write_costs_nothing_acknowledged() {
    fail_everywhere(
        |write_error| Faults {
            write_error,
            ..Faults::default()
        },
        |counts| counts.writes,
        is_no_damage,
    );
}

#[test]
fn a_failed_operation_on_a_folder_costs_nothing_acknowledged() {
    fail_everywhere(
        |folder_error| Faults {
            folder_error,
            ..Faults::default()
        },
        |counts| counts.folders,
        is_no_damage,
    );
}

#[test]
fn a_failed_sync_costs_nothing_acknowledged() {
    fail_everywhere(
        |sync_error| Faults {
            sync_error,
            ..Faults::default()
        },
        |counts| counts.syncs,
        is_no_damage,
    );
}

/// A failing device does not make a damaged repository: the user must not be told to repair it.
fn is_no_damage(error: &Error) -> bool {
    matches!(error, Error::Store(error) if !error.is_damage())
}
