//! Repositories that may only be read: without a pin, beside the sweeps of others, and without an index.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{Dir, ErrorKind, MemDir};
use onefold_store::{
    ChunkReader, ChunkRef, ContainerId, Encryption, Error, OpenOptions, Repository, RootId,
    SessionKind, SweepOptions,
};

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, check, chunks, decode_root, init, open, sweep,
};
use crate::guarded::{Failing, Guarded};

struct Scene {
    dir: Arc<dyn Dir>,
    writing: Repository,
    /// Refers to every second chunk of all containers.
    root: RootId,
    data: Vec<Vec<u8>>,
    /// Keeps all of them.
    whole: RootId,
}

fn scene() -> Scene {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::None).unwrap();
    let writing = open(&dir, 1, 1).unwrap();
    let all = chunks(1, 120);
    let (whole, _) = back_up(&writing, &all).unwrap();
    let data: Vec<_> = all.into_iter().step_by(2).collect();
    let (root, stats) = back_up(&writing, &data).unwrap();
    assert_eq!(stats.new_chunks, 0);
    Scene {
        dir,
        writing,
        root,
        data,
        whole,
    }
}

impl Scene {
    /// Removes what keeps all chunks, and sweeps: every container has lost half of its own.
    fn sweep_half(&self) {
        self.writing.remove_root(&self.whole).unwrap();
        assert!(sweep(&self.writing).unwrap().compacted_containers > 0);
    }

    /// A repository that is open to be read only, in whose way `failing` stands.
    fn reading(&self, failing: &Failing) -> Repository {
        open(&Guarded::over(&self.dir, failing), 1, 2).unwrap()
    }

    fn refs(&self, from: &Repository) -> Vec<ChunkRef> {
        decode_root(&from.root(&self.root).unwrap())
    }
}

/// A chunk that is nowhere: asking for it makes a reader look at all containers.
fn nowhere() -> ChunkRef {
    ChunkRef {
        fingerprint: Fingerprint([9; 32]),
        container: ContainerId(1),
        len: 1,
    }
}

fn assert_lost(reader: &mut ChunkReader) {
    let lost = reader.read(&nowhere()).err();
    assert!(matches!(lost, Some(Error::Lost { .. })), "{lost:?}");
}

#[test]
fn a_reader_without_a_pin_finds_what_a_sweep_moved_since_it_looked() {
    let scene = scene();
    let reading = scene.reading(&Failing::default());
    let session = reading.session(SessionKind::Read).unwrap();
    let mut reader = session.reader().unwrap();
    let refs = scene.refs(&reading);
    assert_lost(&mut reader);
    scene.sweep_half();
    let Scene {
        writing,
        root,
        data,
        ..
    } = scene;
    for (chunk, expected) in refs.iter().zip(&data) {
        assert_eq!(&reader.read(chunk).unwrap()[..], &expected[..]);
    }
    // Also of containers that it had found chunks in, and had open.
    let (half, _) = back_up(&writing, &data[..20]).unwrap();
    writing.remove_root(&root).unwrap();
    assert!(sweep(&writing).unwrap().deleted_containers > 0);
    let mut fresh = session.reader().unwrap();
    for (chunk, expected) in refs.iter().zip(&data[..20]) {
        assert_eq!(&reader.read(chunk).unwrap()[..], &expected[..]);
        assert_eq!(&fresh.read(chunk).unwrap()[..], &expected[..]);
    }
    assert_lost(&mut reader);
    assert_sound(&writing, &[(half, data[..20].to_vec())], &"swept twice");
}

/// The name of one that was not swept.
fn a_container(dir: &Arc<dyn Dir>) -> String {
    let all = dir.open_subdir("containers").unwrap();
    let folders = all.list().unwrap().into_iter();
    let mut entries =
        folders.flat_map(|folder| all.open_subdir(&folder.name).unwrap().list().unwrap());
    entries.next().expect("a container").name
}

#[test]
fn a_container_that_cannot_be_read_is_named_and_tried_again() {
    let scene = scene();
    let refs = scene.refs(&scene.writing);
    scene.sweep_half();
    let failing = Failing::default();
    let reading = scene.reading(&failing);
    let session = reading.session(SessionKind::Read).unwrap();
    let mut reader = session.reader().unwrap();
    let name = a_container(&scene.dir);
    failing.set(&name, ErrorKind::Device);
    let mut told = 0;
    for (chunk, expected) in refs.iter().zip(&scene.data) {
        match reader.read(chunk) {
            Ok(found) => assert_eq!(&found[..], &expected[..]),
            Err(Error::Io(error)) if error.kind == ErrorKind::Device => {
                assert!(error.to_string().contains(&name), "{error}");
                told += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(told > 0, "the container holds nothing of it");
    failing.clear();
    // After some more chunks in vain.
    (0..2000).for_each(|_| drop(reader.read(&nowhere())));
    for (chunk, expected) in refs.iter().zip(&scene.data) {
        assert_eq!(&reader.read(chunk).unwrap()[..], &expected[..]);
    }
}

#[test]
fn a_check_without_a_pin_takes_nothing_for_lost_that_a_sweep_moved_or_took() {
    let Scene {
        dir,
        writing,
        whole,
        ..
    } = scene();
    let failing = Failing::default();
    let reading = open(&Guarded::over(&dir, &failing), 1, 2).unwrap();
    // When roots have been listed, and containers have not.
    failing.once_listed("/snapshots", move || {
        writing.remove_root(&whole).unwrap();
        assert!(sweep(&writing).unwrap().compacted_containers > 0);
    });
    let report = check(&reading).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    assert!(report.broken.is_empty(), "{:?}", report.broken);
    assert_eq!(report.roots, 1);
}

#[test]
fn what_a_sweep_would_do_is_told_of_a_repository_to_be_read_only_too() {
    let scene = scene();
    scene.writing.remove_root(&scene.whole).unwrap();
    let dry = SweepOptions {
        dry_run: true,
        ..SweepOptions::default()
    };
    let told = |of: &Repository| of.sweep(&Lists, &dry, &mut Hasty).unwrap();
    let reading = told(&scene.reading(&Failing::default()));
    assert!(reading.compacted_dead_bytes > 0);
    assert_eq!(reading, told(&scene.writing));
}

#[test]
fn a_repository_to_be_read_only_is_read_without_its_index() {
    for index in [
        "missing",
        "closed",
        "unreadable",
        "without room",
        "on a bad sector",
        "with its manifest on one",
    ] {
        let scene = scene();
        scene.sweep_half();
        let Scene {
            dir, root, data, ..
        } = scene;
        let failing = Failing::default();
        match index {
            "missing" => failing.set("/index", ErrorKind::NotFound),
            "closed" => failing.set("/index", ErrorKind::Denied),
            "without room" => failing.set("/index", ErrorKind::NoSpace),
            "on a bad sector" => failing.set("/index", ErrorKind::Medium),
            "with its manifest on one" => failing.set("/index/manifest", ErrorKind::Medium),
            _ => failing.set("/index/ingested", ErrorKind::Denied),
        }
        let reading = open(&Guarded::over(&dir, &failing), 1, 2).expect(index);
        assert_sound(&reading, &[(root, data)], &index);
        let refused = reading.session(SessionKind::Backup).err();
        assert!(
            matches!(&refused, Some(Error::Io(error)) if error.kind == ErrorKind::Denied),
            "{index}: {refused:?}"
        );
        let refused = reading.rebuild_index().err();
        assert!(refused.is_some(), "{index}");
    }
}

#[test]
fn a_dry_run_of_a_backup_knows_what_is_stored_in_a_repository_to_be_read_only() {
    let scene = scene();
    let options = OpenOptions {
        dry_run: true,
        indexes: onefold_papers::KINDS,
        ..OpenOptions::default()
    };
    let reading = Guarded::over(&scene.dir, &Failing::default());
    let reading = Repository::open(reading, options, None).unwrap();
    let (_, known) = back_up(&reading, &scene.data).unwrap();
    assert_eq!((known.new_chunks, known.new_bytes), (0, 0));
    let new = chunks(2, 10);
    let (_, stats) = back_up(&reading, &[&scene.data[..], &new].concat()).unwrap();
    assert_eq!(stats.new_chunks, 10);
    assert_eq!(scene.writing.roots().unwrap().len(), 2);
}

#[test]
fn a_device_without_room_for_an_empty_file_can_be_read() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let data = chunks(1, 20);
    let (root, _) = back_up(&open(&dir, 1, 1).unwrap(), &data).unwrap();
    device.inject(Faults {
        no_space: When::From(0),
        ..Faults::default()
    });
    let repository = open(&dir, 1, 2).unwrap();
    assert_sound(&repository, &[(root, data)], &"full");
    let refused = repository.session(SessionKind::Backup).err();
    assert!(refused.is_some_and(|error| error.is_no_space()));
}

#[test]
fn a_folder_that_does_not_list_costs_readers_what_is_in_it_alone() {
    let scene = scene();
    let refs = scene.refs(&scene.writing);
    let folder = |container: ContainerId| format!("{:02x}", container.0 >> 56);
    let bad = folder(refs[0].container);
    assert!(refs.iter().any(|chunk| folder(chunk.container) != bad));
    for path in [format!("/containers/{bad}"), format!("/containers/{bad}/")] {
        let failing = Failing::default();
        let reading = open(&Guarded::writable(&scene.dir, &failing), 1, 2).unwrap();
        failing.set(&path, ErrorKind::Medium);
        let session = reading.session(SessionKind::Read).unwrap();
        let mut reader = session.reader().unwrap();
        for (chunk, expected) in refs.iter().zip(&scene.data) {
            match reader.read(chunk) {
                Ok(found) => assert_eq!(&found[..], &expected[..]),
                Err(error) => {
                    assert_eq!(folder(chunk.container), bad, "{error}");
                    assert!(error.is_loss(), "{error}");
                }
            }
        }
        drop(reader);
        session.finish().unwrap();
        let damage = check(&reading).unwrap().damage;
        let is_named = |error: &Error| error.to_string().contains(&format!("containers/{bad}"));
        assert!(damage.iter().any(is_named), "{damage:?}");
        assert!(sweep(&reading).is_err_and(|error| error.is_unreadable()));
    }
    assert!(check(&scene.writing).unwrap().damage.is_empty());
}
