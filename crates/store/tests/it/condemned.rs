//! Condemned containers are only ever deleted: chunks that still live in them are rescued first, lists of several
//! sweeps stand beside each other, and the one list of versions before is taken over.

use std::sync::Arc;

use onefold_io::frame::{FrameKind, encode_frame};
use onefold_io::sim::SimDir;
use onefold_io::{Dir, ErrorKind};
use onefold_store::condemned::{CONDEMNED, CONDEMNED_BEFORE};
use onefold_store::{
    ChunkRef, Encryption, Error, Repository, RootId, Session, SessionKind, StreamKind,
};

use crate::fixture::{
    assert_sound, back_up, check, chunks, containers, decode_root, encode_root, init, open,
    restore, sweep,
};

/// A repository whose only root is removed.
struct Scene {
    device: SimDir,
    dir: Arc<dyn Dir>,
    data: Vec<Vec<u8>>,
    old: Vec<String>,
    refs: Vec<ChunkRef>,
}

impl Scene {
    fn new() -> Self {
        let device = SimDir::new(1);
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        init(&dir, Encryption::Aes256Gcm).unwrap();
        let repository = open(&dir, 1, 1).unwrap();
        let data = chunks(1, 60);
        let (root, _) = back_up(&repository, &data).unwrap();
        let refs = decode_root(&repository.root(&root).unwrap());
        repository.remove_root(&root).unwrap();
        let old = containers(&device);
        Self {
            device,
            dir,
            data,
            old,
            refs,
        }
    }

    fn open(&self, seed: u64) -> Repository {
        open(&self.dir, 1, seed).unwrap()
    }

    fn lists(&self) -> Vec<String> {
        let mut paths = self.device.paths();
        paths.retain(|path| path.starts_with("condemned"));
        paths
    }

    fn has_old_ones(&self) -> bool {
        let left = containers(&self.device);
        self.old.iter().any(|path| left.contains(path))
    }

    /// Puts the list that a version before would have put.
    fn put_list_of_before(&self) {
        let ids = self.refs.iter().map(|chunk| chunk.container.0);
        let ids: std::collections::BTreeSet<u64> = ids.collect();
        let payload: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let list = encode_frame(CONDEMNED_BEFORE, &payload);
        let file = self.dir.create("condemned").unwrap();
        file.write_at(&list, 0).unwrap();
    }
}

/// A session that refers to `data`, which is there, and has not put its root.
fn referring(repository: &Repository, data: &[Vec<u8>]) -> (Session, Vec<ChunkRef>) {
    let session = repository.session(SessionKind::Backup).unwrap();
    let mut writer = session.writer(StreamKind::Data).unwrap();
    let fingerprinter = repository.fingerprinter();
    let named = data
        .iter()
        .map(|data| (fingerprinter.fingerprint(data), &data[..]));
    let mut refs = Vec::new();
    writer.write(&named.collect::<Vec<_>>(), &mut refs).unwrap();
    assert_eq!(writer.finish().unwrap().new_chunks, 0);
    (session, refs)
}

fn put(session: Session, refs: &[ChunkRef]) -> RootId {
    let root = session.put_root(&encode_root(refs)).unwrap();
    session.finish().unwrap();
    root
}

#[test]
fn what_a_session_referred_to_before_it_was_condemned_is_rescued_and_then_goes() {
    let scene = Scene::new();
    let repository = scene.open(2);
    let (session, refs) = referring(&repository, &scene.data);
    let report = sweep(&scene.open(3)).unwrap();
    assert!(
        report.pending_containers > 0,
        "it waits for nobody: {report:?}"
    );
    let root = put(session, &refs);
    // The container stands on a list and is needed: nobody else may count on it meanwhile.
    let sound = [(root, scene.data.clone())];
    assert_sound(&scene.open(4), &sound, &"condemned");
    let (again, stats) = back_up(&scene.open(5), &scene.data).unwrap();
    assert_eq!(stats.new_chunks, 60);
    scene.open(5).remove_root(&again).unwrap();

    let report = sweep(&scene.open(6)).unwrap();
    assert!(report.deleted_containers > 0, "{report:?}");
    sweep(&scene.open(7)).unwrap();
    assert!(
        !scene.has_old_ones(),
        "what was condemned goes, whatever refers to it"
    );
    assert!(scene.lists().is_empty(), "{:?}", scene.lists());
    assert_sound(&scene.open(8), &sound, &"rescued");
    // Whoever comes later counts on the copies.
    let (_, stats) = back_up(&scene.open(9), &scene.data).unwrap();
    assert_eq!(stats.new_chunks, 0);
}

#[test]
fn what_is_rescued_can_be_read_without_an_index() {
    let scene = Scene::new();
    let repository = scene.open(2);
    let (session, refs) = referring(&repository, &scene.data);
    sweep(&scene.open(3)).unwrap();
    let root = put(session, &refs);
    let report = sweep(&scene.open(4)).unwrap();
    assert!(report.compacted_containers > 0, "{report:?}");
    assert!(!scene.has_old_ones(), "{report:?}");
    for path in scene.device.paths() {
        if path.starts_with("index/") {
            scene.device.lose(&path).unwrap();
        }
    }
    assert!(restore(&scene.open(5), &root).unwrap() == scene.data);
}

#[test]
fn lists_of_several_sweeps_stand_beside_each_other_and_go_with_what_they_name() {
    let scene = Scene::new();
    let reading = scene.open(2);
    let session = reading.session(SessionKind::Read).unwrap();
    for seed in 3..6 {
        let repository = scene.open(seed);
        let report = sweep(&repository).unwrap();
        assert_eq!(report.deleted_containers, 0, "{report:?}");
        let (gone, _) = back_up(&repository, &chunks(seed, 40)).unwrap();
        repository.remove_root(&gone).unwrap();
    }
    assert_eq!(scene.lists().len(), 3, "{:?}", scene.lists());
    session.finish().unwrap();
    sweep(&scene.open(7)).unwrap();
    assert_eq!(containers(&scene.device), [""; 0]);
    assert_eq!(scene.lists(), [""; 0]);
    assert!(check(&scene.open(8)).unwrap().damage.is_empty());
}

#[test]
fn the_list_of_a_version_before_counts_and_becomes_one_like_others() {
    let scene = Scene::new();
    scene.put_list_of_before();
    let (root, stats) = back_up(&scene.open(2), &scene.data).unwrap();
    assert_eq!(
        stats.new_chunks, 60,
        "it must not count on what is condemned"
    );
    let reading = scene.open(3);
    let session = reading.session(SessionKind::Read).unwrap();
    let report = sweep(&scene.open(4)).unwrap();
    assert_eq!(report.deleted_containers, 0, "{report:?}");
    assert!(
        scene
            .lists()
            .iter()
            .all(|path| path.starts_with("condemned/"))
    );
    assert!(!scene.lists().is_empty());
    // A version before looks for a file there.
    let found = scene.dir.open("condemned").err().map(|error| error.kind);
    assert_eq!(found, Some(ErrorKind::NotAFile));
    session.finish().unwrap();
    sweep(&scene.open(5)).unwrap();
    assert!(!scene.has_old_ones());
    assert_sound(&scene.open(6), &[(root, scene.data.clone())], &"taken over");
}

#[test]
fn what_a_version_before_condemned_is_rescued_where_it_is_needed() {
    let scene = Scene::new();
    let root = {
        let repository = scene.open(2);
        let session = repository.session(SessionKind::Pinned).unwrap();
        put(session, &scene.refs)
    };
    scene.put_list_of_before();
    sweep(&scene.open(3)).unwrap();
    assert!(!scene.has_old_ones());
    assert_eq!(scene.lists(), [""; 0]);
    assert_sound(&scene.open(4), &[(root, scene.data.clone())], &"rescued");
}

/// A later version may mean something else by a list.
#[test]
fn a_list_of_another_version_keeps_all_from_writing() {
    for place in ["condemned", "condemned/0123456789abcdef"] {
        let scene = Scene::new();
        let later = FrameKind {
            version: 3,
            ..CONDEMNED
        };
        let (dir, name) = match place.split_once('/') {
            Some((folder, name)) => (scene.dir.subdir(folder).unwrap(), name),
            None => (Arc::clone(&scene.dir), place),
        };
        let file = dir.create(name).unwrap();
        file.write_at(&encode_frame(later, &[]), 0).unwrap();
        let told = |error: Error| error.is_other_version() && error.to_string().contains(place);
        assert!(
            back_up(&scene.open(2), &scene.data).is_err_and(told),
            "{place}"
        );
        assert!(sweep(&scene.open(3)).is_err_and(told), "{place}");
        assert!(scene.has_old_ones());
    }
}
