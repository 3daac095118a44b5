//! The index's folder deleted, by hand, while a backup or a sweep runs: that costs time only.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_io::{Dir, FileDir};
use onefold_papers::KINDS;
use onefold_store::{
    Encryption, PinInfo, Repository, Result, RootId, SessionKind, StageProgress, StreamKind,
    SweepObserver, SweepOptions, SweepReport,
};

use crate::fixture::{
    Lists, assert_sound, back_up, chunks, encode_root, init_with, open, restore, sweep,
};

/// A repository in a folder of the disk, and the moment when its index is deleted.
struct Scene {
    temp: tempfile::TempDir,
    dir: Arc<dyn Dir>,
}

impl Scene {
    fn new(index: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir: Arc<dyn Dir> = Arc::new(FileDir::open(temp.path()).unwrap());
        init_with(&dir, Encryption::None, index).unwrap();
        Self { temp, dir }
    }

    fn open(&self, seed: u64) -> Repository {
        open(&self.dir, 1, seed).unwrap()
    }

    fn deleting_at(&self, moment: usize) -> Deleting {
        Deleting {
            index: self.temp.path().join("index"),
            left: moment,
            deleted: false,
        }
    }
}

/// Deletes the folder at the moment that comes after so many.
struct Deleting {
    index: PathBuf,
    left: usize,
    deleted: bool,
}

impl Deleting {
    fn moment(&mut self) {
        if self.left == 0 && !self.deleted {
            fs::remove_dir_all(&self.index).unwrap();
            self.deleted = true;
        }
        self.left = self.left.saturating_sub(1);
    }
}

impl SweepObserver for Deleting {
    fn progress(&mut self, _: StageProgress) {
        self.moment();
    }

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        false
    }
}

/// A backup with moments: before and after everything that it does.
fn back_up_meanwhile(
    repository: &Repository,
    data: &[Vec<u8>],
    deleting: &mut Deleting,
) -> Result<RootId> {
    deleting.moment();
    let session = repository.session(SessionKind::Backup)?;
    deleting.moment();
    let mut writer = session.writer(StreamKind::Data)?;
    let mut refs = Vec::new();
    for batch in data.chunks(300) {
        let named: Vec<_> = batch
            .iter()
            .map(|data| (repository.fingerprinter().fingerprint(data), &data[..]))
            .collect();
        writer.write(&named, &mut refs)?;
        deleting.moment();
    }
    writer.finish()?;
    deleting.moment();
    let root = session.put_root(&encode_root(&refs))?;
    deleting.moment();
    session.finish()?;
    Ok(root)
}

fn sweep_meanwhile(repository: &Repository, deleting: &mut Deleting) -> Result<SweepReport> {
    repository.sweep(&Lists, &SweepOptions::default(), deleting)
}

/// All is there, and the next backup of the same stores nothing: it has an index again.
fn assert_goes_on(scene: &Scene, roots: &[(RootId, Vec<Vec<u8>>)], moment: &str) {
    let repository = scene.open(99);
    assert_sound(&repository, roots, &moment);
    for (_, data) in roots {
        let (again, stats) = back_up(&repository, data).unwrap();
        assert_eq!(stats.new_chunks, 0, "{moment}");
        assert!(restore(&repository, &again).unwrap() == *data, "{moment}");
    }
    assert!(has_index(&scene.temp.path().join("index")), "{moment}");
    sweep(&repository).unwrap();
    assert_sound(&repository, roots, &moment);
}

fn has_index(folder: &Path) -> bool {
    folder.join("ingested").exists()
}

#[test]
fn a_backup_whose_index_is_deleted_under_it_ends_well() {
    for moment in 0.. {
        let scene = Scene::new("strata");
        let old = chunks(1, 200);
        let (before, _) = back_up(&scene.open(1), &old).unwrap();
        // Known ones and more new ones than the index holds in RAM.
        let data = [&old[100..], &chunks(2, 1300)[..]].concat();
        let mut deleting = scene.deleting_at(moment);
        let root = back_up_meanwhile(&scene.open(2), &data, &mut deleting)
            .unwrap_or_else(|error| panic!("moment {moment}: {error}"));
        if !deleting.deleted {
            assert!(moment > 8, "{moment}");
            return;
        }
        let roots = [(before, old), (root, data)];
        assert_goes_on(&scene, &roots, &format!("moment {moment}"));
    }
}

#[test]
fn a_sweep_whose_index_is_deleted_under_it_ends_well() {
    for moment in 0.. {
        let scene = Scene::new("strata");
        let repository = scene.open(1);
        let all = chunks(1, 160);
        let (whole, _) = back_up(&repository, &all).unwrap();
        let half: Vec<_> = all.into_iter().step_by(2).collect();
        let (root, _) = back_up(&repository, &half).unwrap();
        let (unused, _) = back_up(&repository, &chunks(2, 60)).unwrap();
        for gone in [whole, unused] {
            repository.remove_root(&gone).unwrap();
        }
        let mut deleting = scene.deleting_at(moment);
        let report = sweep_meanwhile(&scene.open(2), &mut deleting)
            .unwrap_or_else(|error| panic!("moment {moment}: {error}"));
        assert!(report.compacted_containers > 0 && report.deleted_containers > 0);
        if !deleting.deleted {
            assert!(moment > 8, "{moment}");
            return;
        }
        assert_goes_on(&scene, &[(root, half)], &format!("moment {moment}"));
    }
}

#[test]
fn whichever_index_it_is_a_backup_ends_well_without_its_folder() {
    for name in KINDS.iter().map(|kind| kind.name) {
        for moment in [0, 1, 4] {
            let scene = Scene::new(name);
            let data = chunks(1, 700);
            let mut deleting = scene.deleting_at(moment);
            let root = back_up_meanwhile(&scene.open(1), &data, &mut deleting)
                .unwrap_or_else(|error| panic!("{name}, moment {moment}: {error}"));
            assert!(deleting.deleted);
            let repository = scene.open(2);
            assert_sound(&repository, &[(root, data)], &name);
        }
    }
}
