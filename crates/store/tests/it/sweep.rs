//! The sweep beside sessions: each race of the protocol, step by step.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onefold_chunk::Fingerprint;
use onefold_io::{Dir, MemDir};
use onefold_store::{
    ChunkRef, Encryption, Error, PinInfo, Repository, RootId, SessionKind, StageProgress,
    StreamKind, SweepObserver, SweepOptions,
};
use parking_lot::Mutex;

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, chunks, decode_root, encode_root, init, open, restore,
    sweep,
};

fn repository() -> (Arc<dyn Dir>, Repository) {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    (dir, repository)
}

fn containers(repository: &Repository) -> u64 {
    let dry = SweepOptions {
        dry_run: true,
        ..SweepOptions::default()
    };
    repository
        .sweep(&Lists, &dry, &mut Hasty)
        .unwrap()
        .containers
}

#[test]
fn what_no_root_refers_to_goes_and_the_rest_stays() {
    let (_, repository) = repository();
    let (kept, gone) = (chunks(1, 60), chunks(2, 60));
    let (kept_root, _) = back_up(&repository, &kept).unwrap();
    let (gone_root, _) = back_up(&repository, &gone).unwrap();
    let before = containers(&repository);
    repository.remove_root(&gone_root).unwrap();
    let report = sweep(&repository).unwrap();
    assert!(
        report.deleted_containers > 0 && report.freed_bytes > 0,
        "{report:?}"
    );
    assert!(containers(&repository) < before);
    assert_sound(&repository, &[(kept_root, kept)], &"swept");
    // Chunks that are gone are stored again when they come again.
    let (_, stats) = back_up(&repository, &gone).unwrap();
    assert_eq!(stats.new_chunks, 60);
}

#[test]
fn a_dry_run_tells_and_changes_nothing() {
    let (_, repository) = repository();
    let (root, _) = back_up(&repository, &chunks(1, 60)).unwrap();
    repository.remove_root(&root).unwrap();
    let dry = SweepOptions {
        dry_run: true,
        ..SweepOptions::default()
    };
    let told = repository.sweep(&Lists, &dry, &mut Hasty).unwrap();
    assert!(told.dead_bytes > 0);
    assert_eq!(told, repository.sweep(&Lists, &dry, &mut Hasty).unwrap());
    assert_eq!(sweep(&repository).unwrap().freed_bytes, told.dead_bytes);
}

#[test]
fn old_references_lead_to_compacted_chunks() {
    let (dir, repository) = repository();
    let (left, right) = (chunks(1, 80), chunks(2, 80));
    let mixed: Vec<_> = left
        .iter()
        .zip(&right)
        .flat_map(|(left, right)| [left.clone(), right.clone()])
        .collect();
    let (mixed_root, _) = back_up(&repository, &mixed).unwrap();
    let some: Vec<_> = left.iter().step_by(2).cloned().collect();
    let (root, stats) = back_up(&repository, &some).unwrap();
    assert_eq!(stats.new_chunks, 0);
    repository.remove_root(&mixed_root).unwrap();
    let report = sweep(&repository).unwrap();
    assert!(report.compacted_containers > 0, "{report:?}");
    assert_sound(&repository, &[(root, some.clone())], &"compacted");
    // Also for who opens it anew, and without the index.
    assert_sound(
        &open(&dir, 1, 2).unwrap(),
        &[(root, some.clone())],
        &"reopened",
    );
    let reopened = open(&dir, 1, 3).unwrap();
    reopened.rebuild_index().unwrap();
    sweep(&reopened).unwrap();
    assert_sound(&reopened, &[(root, some)], &"index rebuilt, swept again");
}

/// Does something when the sweep waits for sessions, then lets it go on.
struct Meanwhile<F: FnMut(&[PinInfo]) -> bool>(F);

impl<F: FnMut(&[PinInfo]) -> bool> SweepObserver for Meanwhile<F> {
    fn progress(&mut self, _: StageProgress) {}

    fn wait_for(&mut self, sessions: &[PinInfo]) -> bool {
        (self.0)(sessions)
    }
}

#[test]
fn a_session_that_began_before_keeps_what_it_refers_to() {
    let (dir, repository) = repository();
    let data = chunks(1, 60);
    let (root, _) = back_up(&repository, &data).unwrap();
    let other = open(&dir, 1, 2).unwrap();
    let session = other.session(SessionKind::Backup).unwrap();
    let mut writer = session.writer(StreamKind::Data).unwrap();
    let named: Vec<(Fingerprint, &[u8])> = data
        .iter()
        .map(|data| (other.fingerprinter().fingerprint(data), &data[..]))
        .collect();
    let mut refs: Vec<ChunkRef> = Vec::new();
    writer.write(&named, &mut refs).unwrap();
    assert_eq!(writer.stats().new_chunks, 0);
    // Its chunks are kept alive by nothing but the session now.
    repository.remove_root(&root).unwrap();
    let mut session = Some((session, writer));
    let mut new_root = None;
    let mut waits = 0;
    let mut observer = Meanwhile(|sessions: &[PinInfo]| {
        assert_eq!(sessions.len(), 1);
        waits += 1;
        if let Some((session, writer)) = session.take() {
            writer.finish().unwrap();
            new_root = Some(session.put_root(&encode_root(&refs)).unwrap());
            session.finish().unwrap();
        }
        true
    });
    let report = repository
        .sweep(&Lists, &SweepOptions::default(), &mut observer)
        .unwrap();
    assert_eq!((waits, report.deleted_containers), (1, 0), "{report:?}");
    assert_sound(&repository, &[(new_root.unwrap(), data)], &"acquitted");
}

#[test]
fn a_session_that_begins_after_does_not_refer_to_condemned_containers() {
    let (dir, repository) = repository();
    let data = chunks(1, 60);
    let (root, _) = back_up(&repository, &data).unwrap();
    repository.remove_root(&root).unwrap();
    let blocker = open(&dir, 1, 2).unwrap();
    let pin = blocker.session(SessionKind::Read).unwrap();
    // The sweep condemns, meets the reader, and leaves the rest to a later one.
    let report = sweep(&repository).unwrap();
    assert!(
        report.pending_containers > 0 && report.deleted_containers == 0,
        "{report:?}"
    );
    let (new_root, stats) = back_up(&open(&dir, 1, 3).unwrap(), &data).unwrap();
    assert_eq!(
        stats.new_chunks, 60,
        "it must not count on what is condemned"
    );
    drop(pin);
    let report = sweep(&repository).unwrap();
    assert!(report.deleted_containers > 0, "{report:?}");
    assert_sound(
        &open(&dir, 1, 4).unwrap(),
        &[(new_root, data)],
        &"after both sweeps",
    );
}

#[test]
fn one_sweep_at_a_time() {
    let (dir, repository) = repository();
    let (root, _) = back_up(&repository, &chunks(1, 60)).unwrap();
    repository.remove_root(&root).unwrap();
    let reader = open(&dir, 1, 2).unwrap();
    let pin = reader.session(SessionKind::Read).unwrap();
    let mut observer = Meanwhile(|_: &[PinInfo]| {
        assert!(matches!(sweep(&reader), Err(Error::Locked { .. })));
        false
    });
    repository
        .sweep(&Lists, &SweepOptions::default(), &mut observer)
        .unwrap();
    drop(pin);
}

/// Raises a flag when this ends, by a failure too: whoever goes on until then would be waited for for ever.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rounds of each writer; and so many at most where nothing was deleted by then.
const ROUNDS: u64 = 12;
const ROUNDS_MAX: u64 = 2000;

/// Returns the chunks of a writer in a round: many that the other stores, too, and some that go with their root.
fn data_of(writer: u64, round: u64) -> Vec<Vec<u8>> {
    let shared = chunks(round % 3, 40).into_iter();
    let own = chunks(10 + writer, 10).into_iter();
    let passing = chunks(100 + 2 * round + writer, 10);
    shared.chain(own).chain(passing).collect()
}

/// A root's chunks. What a root refers to that is there when the session is stays until that ends, whoever removes
/// the root.
fn read_if_there(repository: &Repository, root: &RootId) -> Option<Vec<Vec<u8>>> {
    let session = repository.session(SessionKind::Read).unwrap();
    let bytes = repository.root(root).ok()?;
    let mut reader = session.reader().unwrap();
    let refs = decode_root(&bytes);
    let read = refs
        .iter()
        .map(|chunk| reader.read(chunk).unwrap().to_vec());
    Some(read.collect())
}

#[test]
fn writers_readers_and_sweeps_at_once() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let done = &AtomicBool::new(false);
    let (deleted, read) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let written: &Mutex<HashMap<RootId, Vec<Vec<u8>>>> = &Mutex::default();
    let is_enough = &|round: u64| {
        assert!(round < ROUNDS_MAX, "nothing is deleted, or nothing read");
        let both = deleted
            .load(Ordering::Relaxed)
            .min(read.load(Ordering::Relaxed));
        round >= ROUNDS && both > 0
    };
    std::thread::scope(|scope| {
        let raised = Raised(done);
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let dir = Arc::clone(&dir);
                scope.spawn(move || {
                    for round in (0..).take_while(|round| !is_enough(*round)) {
                        let repository = open(&dir, 2, 10_000 * (writer + 1) + round).unwrap();
                        let data = data_of(writer, round);
                        let (root, _) = back_up(&repository, &data).unwrap();
                        assert!(
                            restore(&repository, &root).unwrap() == data,
                            "writer {writer}, round {round}"
                        );
                        written.lock().insert(root, data);
                        if round % 2 == 0 {
                            repository.remove_root(&root).unwrap();
                        }
                    }
                })
            })
            .collect();
        let others = [
            scope.spawn(|| {
                for sweeps in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    let repository = open(&dir, 1, 5000 + sweeps).unwrap();
                    let mut patient = Meanwhile(|_: &[PinInfo]| {
                        std::thread::yield_now();
                        true
                    });
                    let options = SweepOptions::default();
                    let report = repository.sweep(&Lists, &options, &mut patient).unwrap();
                    deleted.fetch_add(report.deleted_containers, Ordering::Relaxed);
                }
            }),
            scope.spawn(|| {
                for number in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    let repository = open(&dir, 1, 7000 + number).unwrap();
                    for root in repository.roots().unwrap() {
                        if let Some(expected) = written.lock().get(&root).cloned()
                            && let Some(found) = read_if_there(&repository, &root)
                        {
                            assert!(found == expected, "{root}");
                            read.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            }),
        ];
        // Whoever fails ends the others: they would go on for ever.
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        drop(raised);
        let ended = ended.into_iter().chain(others.map(|other| other.join()));
        ended.for_each(|ended| ended.unwrap());
    });
    let repository = open(&dir, 1, 9).unwrap();
    let written = written.lock();
    let left = repository.roots().unwrap().into_iter();
    let left: Vec<_> = left.map(|root| (root, written[&root].clone())).collect();
    assert!(left.len() as u64 >= ROUNDS, "{} roots", left.len());
    assert_sound(&repository, &left, &"in the end");
}

/// A sweep that is killed while it writes its list leaves a temporary file beside the lists.
#[test]
fn what_a_killed_sweep_left_beside_the_lists_of_the_condemned_goes() {
    let (dir, repository) = repository();
    let lists = dir.subdir("condemned").unwrap();
    lists.create("tmp-0123456789abcdef").unwrap();
    lists.create("notes").unwrap();
    sweep(&repository).unwrap();
    let left = lists.list().unwrap().into_iter().map(|entry| entry.name);
    assert_eq!(left.collect::<Vec<_>>(), ["notes"]);
}

/// A person may have put them there.
#[test]
fn folders_in_the_places_of_the_engine_s_own_files_keep_no_sweep_from_its_work() {
    let (dir, repository) = repository();
    let (kept, gone) = (chunks(1, 60), chunks(2, 60));
    let (kept_root, _) = back_up(&repository, &kept).unwrap();
    let (gone_root, _) = back_up(&repository, &gone).unwrap();
    repository.remove_root(&gone_root).unwrap();
    let containers = dir.open_subdir("containers").unwrap();
    let inner = containers.list().unwrap().remove(0).name;
    let temporary = "tmp-0123456789abcdef";
    let places = [
        (dir.subdir("scratch").unwrap(), "marks"),
        (dir.open_subdir("sessions").unwrap(), "0123456789abcdef"),
        (Arc::clone(&dir), temporary),
        (dir.open_subdir("snapshots").unwrap(), temporary),
        (dir.subdir("condemned").unwrap(), temporary),
        (containers.open_subdir(&inner).unwrap(), temporary),
    ];
    for (folder, name) in &places {
        folder.subdir(name).unwrap();
    }
    assert!(sweep(&repository).unwrap().deleted_containers > 0);
    assert_sound(&repository, &[(kept_root, kept)], &"swept");
    for (folder, name) in &places {
        assert!(folder.open_subdir(name).is_ok(), "{name}");
    }
}
