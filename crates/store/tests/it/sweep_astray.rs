//! A sweep that cannot see everything: a table that is damaged, an index that does not know, a root that comes up. What
//! may be all that is left of a chunk stays.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{
    Encryption, PinInfo, Repository, RootId, SessionKind, StageProgress, SweepObserver,
    SweepOptions, SweepReport,
};

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, chunks, containers, decode_root, put_root,
};
use crate::fixture::{init, open, restore, sweep};

/// A repository in which every container has lost half of what it held.
struct Scene {
    device: SimDir,
    repository: Repository,
    /// Refers to the other half.
    root: RootId,
    data: Vec<Vec<u8>>,
    old: Vec<String>,
}

impl Scene {
    fn new() -> Self {
        let device = SimDir::new(1);
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        init(&dir, Encryption::Aes256Gcm).unwrap();
        let repository = open(&dir, 1, 1).unwrap();
        let all = chunks(1, 120);
        let (whole, _) = back_up(&repository, &all).unwrap();
        let data: Vec<_> = all.into_iter().step_by(2).collect();
        let (root, _) = back_up(&repository, &data).unwrap();
        repository.remove_root(&whole).unwrap();
        let old = containers(&device);
        Self {
            device,
            repository,
            root,
            data,
            old,
        }
    }

    /// Another opener, as another process is.
    fn open(&self, seed: u64) -> Repository {
        open(&(Arc::new(self.device.clone()) as Arc<dyn Dir>), 1, seed).unwrap()
    }

    /// The containers that a sweep has written.
    fn new_ones(&self) -> Vec<String> {
        let mut new = containers(&self.device);
        new.retain(|path| !self.old.contains(path));
        assert!(!new.is_empty());
        new
    }

    /// Flips a bit of the table of each container that a sweep has written; twice, it is as it was.
    fn flip_tables(&self) {
        flip_tables(&self.device, &self.new_ones());
    }

    fn assert_repaired(&self) {
        let repository = self.open(9);
        repository.repair(&Lists, &mut Hasty).unwrap();
        assert_sound(
            &repository,
            &[(self.root, self.data.clone())],
            &"after a repair",
        );
    }
}

fn flip_tables(device: &SimDir, paths: &[String]) {
    for path in paths {
        let flip = |bytes: &mut Vec<u8>| {
            let at = bytes.len() - 200;
            bytes[at] ^= 1;
        };
        device.damage(path, flip).unwrap();
    }
}

#[test]
fn a_container_that_may_hold_what_the_index_does_not_know_stays_until_it_is_repaired() {
    let scene = Scene::new();
    assert!(sweep(&scene.repository).unwrap().compacted_containers > 0);
    scene.flip_tables();
    let repository = scene.open(2);
    repository.rebuild_index().unwrap();
    let report = sweep(&repository).unwrap();
    assert_eq!(report.deleted_containers, 0, "{report:?}");
    scene.assert_repaired();
}

#[test]
fn a_sweep_that_deletes_nothing_tells_of_nothing_to_gain() {
    let scene = Scene::new();
    sweep(&scene.repository).unwrap();
    let copies = scene.new_ones();
    let (gone, _) = back_up(&scene.repository, &chunks(9, 60)).unwrap();
    scene.repository.remove_root(&gone).unwrap();
    flip_tables(&scene.device, &copies);
    let report = sweep(&scene.open(2)).unwrap();
    let none = SweepReport {
        containers: report.containers,
        stored_bytes: report.stored_bytes,
        unused_bytes_left: report.unused_bytes_left,
        ..SweepReport::default()
    };
    assert!(report == none && report.unused_bytes_left > 0, "{report:?}");
    scene.assert_repaired();
}

impl Scene {
    /// Leaves a list of condemned containers with copies of what lived there.
    fn condemn(&self) {
        let reading = self.open(2);
        let session = reading.session(SessionKind::Read).unwrap();
        let report = sweep(&self.repository).unwrap();
        assert!(report.pending_containers > 0, "{report:?}");
        session.finish().unwrap();
    }

    /// A sweep and a repair; then what was condemned goes, and all is there.
    fn assert_swept_without_loss(&self, context: &str) {
        sweep(&self.open(3)).unwrap();
        assert!(
            restore(&self.open(4), &self.root).unwrap() == self.data,
            "{context}"
        );
        self.assert_repaired();
        sweep(&self.open(5)).unwrap();
        let left = containers(&self.device);
        assert!(
            left.iter().all(|path| !self.old.contains(path)),
            "{context}: {left:?}"
        );
        let sound = [(self.root, self.data.clone())];
        assert_sound(&self.open(6), &sound, &context);
    }
}

#[test]
fn what_was_condemned_goes_only_once_it_is_elsewhere_where_its_copy_cannot_be_opened() {
    let scene = Scene::new();
    scene.condemn();
    scene.flip_tables();
    scene.assert_swept_without_loss("tables");
}

#[test]
fn what_was_condemned_goes_only_once_it_is_elsewhere_where_its_copy_cannot_be_read() {
    for place in [100, 2_000, 9_000] {
        let scene = Scene::new();
        scene.condemn();
        for path in scene.new_ones() {
            let flip = |bytes: &mut Vec<u8>| {
                let at = place.min(bytes.len() / 2);
                bytes[at] ^= 1;
            };
            scene.device.damage(&path, flip).unwrap();
        }
        scene.assert_swept_without_loss(&format!("bytes {place}"));
    }
}

/// Gives a root another name before it is read, as often as it is come across; what damage there was is over by then.
struct Renaming<'a> {
    repository: &'a Repository,
    root: RootId,
    times: u32,
    healed: Option<(&'a SimDir, Vec<String>)>,
}

impl SweepObserver for Renaming<'_> {
    fn progress(&mut self, progress: StageProgress) {
        if progress.stage == "marking" && self.times > 0 {
            self.times -= 1;
            if let Some((device, paths)) = self.healed.take() {
                flip_tables(device, &paths);
            }
            let refs = decode_root(&self.repository.root(&self.root).unwrap());
            let renamed = put_root(self.repository, &refs).unwrap();
            self.repository.remove_root(&self.root).unwrap();
            self.root = renamed;
        }
    }

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        false
    }
}

#[test]
fn a_root_that_is_renamed_while_it_is_marked_keeps_what_the_index_does_not_know() {
    for is_healed in [false, true] {
        let scene = Scene::new();
        sweep(&scene.repository).unwrap();
        scene.flip_tables();
        let repository = scene.open(2);
        repository.rebuild_index().unwrap();
        let mut observer = Renaming {
            repository: &scene.repository,
            root: scene.root,
            times: 1,
            healed: is_healed.then(|| (&scene.device, scene.new_ones())),
        };
        let report = repository
            .sweep(&Lists, &SweepOptions::default(), &mut observer)
            .unwrap();
        assert_eq!(report.deleted_containers, 0, "{report:?}");
        let renamed = observer.root;
        let repaired = scene.open(3);
        repaired.repair(&Lists, &mut Hasty).unwrap();
        assert_sound(&repaired, &[(renamed, scene.data.clone())], &is_healed);
    }
}
