//! A machine that is new to a repository on object storage reads catalogs, and not the descriptors of all containers.

use std::sync::Arc;

use onefold_io::{Dir, MemDir};
use onefold_store::catalog::CATALOG_FOLDER;
use onefold_store::ingested::Ingested;
use onefold_store::objects::ObjectStore;
use onefold_store::replica::{self, SyncObserver, SyncOptions};
use onefold_store::simulated::SimStore;
use onefold_store::{
    CONTAINER_FOLDER, ContainerId, Encryption, Entropy, InitOptions, OpenOptions, PinInfo, Place,
    Repository, SessionKind, SweepOptions, SweepReport, Ways, WriteStats,
};

use crate::fixture::{Hasty, Lists, assert_sound, back_up, chunks, decode_root, put_root};

/// Enough for eight containers, whose chunks are some four hundred each.
const CHUNKS: usize = 3_200;

/// A machine with a folder of its own.
struct Machine {
    process: SimStore,
    own: Arc<dyn Dir>,
    repository: Repository,
}

fn made() -> SimStore {
    let store = SimStore::new(1);
    let mut init = InitOptions::new("test", 1);
    init.encryption = Encryption::None;
    init.entropy = Entropy::seeded(7);
    let place = store.place(Arc::new(MemDir::new()), &init.entropy);
    Repository::init(place, &init, None).unwrap();
    store
}

impl Machine {
    fn new(store: &SimStore, seed: u64) -> Self {
        Self::with_own(store, seed, Arc::new(MemDir::new()))
    }

    fn with_own(store: &SimStore, seed: u64, own: Arc<dyn Dir>) -> Self {
        Self::reading_whole(store, seed, own, 0)
    }

    /// A machine that reads up to `whole_max` containers whole.
    fn reading_whole(store: &SimStore, seed: u64, own: Arc<dyn Dir>, whole_max: usize) -> Self {
        let options = OpenOptions {
            threads: 1,
            container_bytes: 384 << 10,
            block_bytes: Some(4 << 10),
            entropy: Entropy::seeded(seed),
            ..OpenOptions::default()
        };
        let process = store.connect();
        let place = Place {
            ways: Ways {
                tail_bytes: 64 << 10,
                whole_max,
                ..Ways::default()
            },
            ..process.place(Arc::clone(&own), &options.entropy)
        };
        Self {
            process,
            own,
            repository: Repository::open(place, options, None).unwrap(),
        }
    }

    fn back_up(&self, data: &[Vec<u8>]) -> WriteStats {
        back_up(&self.repository, data).unwrap().1
    }

    /// How many containers its index knows whole, and of how many it has the hooks.
    fn known(&self) -> (usize, usize) {
        let folder = self.own.open_subdir("index").unwrap();
        let whole = Ingested::new(Arc::clone(&folder)).read().unwrap();
        (whole.len(), Ingested::hooked(folder).read().unwrap().len())
    }
}

fn containers(store: &SimStore) -> Vec<ContainerId> {
    let place = store.place(Arc::new(MemDir::new()), &Entropy::seeded(3));
    let listed = place.objects.list(CONTAINER_FOLDER).unwrap().into_iter();
    let id = |name: String| u64::from_str_radix(name.rsplit('/').next()?, 16).ok();
    listed.filter_map(id).map(ContainerId).collect()
}

fn objects(store: &SimStore) -> Arc<dyn ObjectStore> {
    store
        .place(Arc::new(MemDir::new()), &Entropy::seeded(4))
        .objects
}

#[test]
fn a_second_machine_finds_by_hooks_what_is_stored() {
    let store = made();
    let data = chunks(1, CHUNKS);
    Machine::new(&store, 1).back_up(&data);
    let stored = containers(&store).len();
    let second = Machine::new(&store, 2);
    let stats = second.back_up(&data);
    let missed = stats.new_chunks as f64 / CHUNKS as f64;
    assert!(missed <= 0.02, "{stats:?}");
    assert!(
        second.known().0 >= stored,
        "{:?} of {stored}",
        second.known()
    );
    // The part in the middle of a container, too.
    let third = Machine::new(&store, 3);
    let stats = third.back_up(&data[1_000..1_300]);
    assert!(stats.new_chunks <= 128, "{stats:?}");
}

#[test]
fn few_containers_are_read_whole_and_are_not_cataloged_again() {
    let store = made();
    let data = chunks(1, CHUNKS);
    Machine::new(&store, 1).back_up(&data);
    let stored = containers(&store).len();
    let catalogs = || objects(&store).list(CATALOG_FOLDER).unwrap();
    let before = catalogs();
    let own = Arc::new(MemDir::new());
    let second = Machine::reading_whole(&store, 2, own, stored);
    assert_eq!(second.back_up(&data).new_chunks, 0);
    assert_eq!(second.known(), (stored, 0));
    assert_eq!(catalogs(), before);
    let own = Arc::new(MemDir::new());
    let third = Machine::reading_whole(&store, 3, own, stored - 1);
    let session = third.repository.session(SessionKind::Backup).unwrap();
    assert_eq!(third.known(), (0, stored), "one too many");
    session.finish().unwrap();
}

#[test]
fn who_stores_other_data_reads_no_descriptors() {
    let store = made();
    Machine::new(&store, 1).back_up(&chunks(1, CHUNKS));
    let stored = containers(&store).len();
    let second = Machine::new(&store, 2);
    let before = second.process.requests();
    let session = second.repository.session(SessionKind::Backup).unwrap();
    let (whole, hooked) = second.known();
    assert_eq!((whole, hooked), (0, stored));
    // Lists, the catalog, the session's register, and no container.
    let requests = second.process.requests() - before;
    assert!(requests < stored as u64 + 10, "{requests}");
    session.finish().unwrap();
    let stats = second.back_up(&chunks(2, 400));
    assert_eq!(stats.new_chunks, 400);
    assert_eq!(second.known().1, stored);
}

#[test]
fn what_is_in_no_catalog_or_a_damaged_one_is_read_from_descriptors() {
    let store = made();
    let data = chunks(1, CHUNKS);
    Machine::new(&store, 1).back_up(&data);
    let stored = containers(&store).len();
    let objects = objects(&store);
    for name in objects.list(CATALOG_FOLDER).unwrap() {
        let mut bytes = objects.get(&name).unwrap();
        bytes[20] ^= 1;
        objects.put(&name, &[&bytes]).unwrap();
    }
    let second = Machine::new(&store, 2);
    assert_eq!(second.back_up(&data).new_chunks, 0);
    assert_eq!(second.known(), (stored, 0));
    // The second machine has told of its containers in a catalog of its own.
    let third = Machine::new(&store, 3);
    third.back_up(&chunks(3, 10));
    assert_eq!(third.known().1, stored);
}

#[test]
fn a_machine_whose_own_folder_is_lost_loses_time_alone() {
    let store = made();
    let data = chunks(1, CHUNKS);
    let first = Machine::new(&store, 1);
    let (root, _) = back_up(&first.repository, &data).unwrap();
    let again = Machine::new(&store, 5);
    let stats = again.back_up(&data);
    assert!(stats.new_chunks as f64 <= 0.02 * CHUNKS as f64, "{stats:?}");
    // The copies of catalogs serve another index.
    again.own.open_subdir("index").unwrap().list().unwrap();
    let own = Arc::clone(&again.own);
    drop(again);
    let once_more = Machine::with_own(&store, 6, own);
    assert_eq!(once_more.back_up(&data).new_chunks, 0);
    assert_sound(&once_more.repository, &[(root, data)], &"after the loss");
}

#[test]
fn what_a_sweep_deletes_leaves_both_lists() {
    let store = made();
    let first = Machine::new(&store, 1);
    let (root, _) = back_up(&first.repository, &chunks(1, CHUNKS)).unwrap();
    let second = Machine::new(&store, 2);
    let (kept, _) = back_up(&second.repository, &chunks(2, 400)).unwrap();
    assert!(second.known().1 > 0);
    let lock = second.repository.lock_roots().unwrap();
    lock.replace(None, &[], &[root]).unwrap();
    drop(lock);
    for _ in 0..2 {
        second
            .repository
            .sweep(&Lists, &SweepOptions::default(), &mut Hasty)
            .unwrap();
    }
    assert_eq!(second.known().1, 0);
    let third = Machine::new(&store, 3);
    assert_eq!(third.back_up(&chunks(2, 400)).new_chunks, 0);
    assert_sound(
        &third.repository,
        &[(kept, chunks(2, 400))],
        &"after the sweep",
    );
}

#[test]
fn what_another_machines_sweep_moved_is_found_without_reading_it_again() {
    let store = made();
    let first = Machine::new(&store, 1);
    let data = chunks(1, CHUNKS);
    let (root, _) = back_up(&first.repository, &data).unwrap();
    let all = decode_root(&first.repository.root(&root).unwrap());
    let half: Vec<_> = all.iter().step_by(2).copied().collect();
    let half_root = put_root(&first.repository, &half).unwrap();
    let second = Machine::new(&store, 2);
    let lock = second.repository.lock_roots().unwrap();
    lock.replace(None, &[], &[root]).unwrap();
    drop(lock);
    let options = SweepOptions {
        compact_below: 0.9,
        ..SweepOptions::default()
    };
    for _ in 0..2 {
        let report = second.repository.sweep(&Lists, &options, &mut Hasty);
        report.unwrap();
    }
    assert!(!containers(&store).contains(&half[0].container));
    let kept: Vec<_> = data.iter().step_by(2).cloned().collect();
    assert_sound(&second.repository, &[(half_root, kept)], &"compacted");
    let session = first.repository.session(SessionKind::Backup).unwrap();
    let moved = half
        .iter()
        .filter(|chunk| session.relocate(chunk).is_some());
    assert_eq!(moved.count(), half.len());
    session.finish().unwrap();
}

#[test]
fn many_small_catalogs_become_one_when_a_sweep_deletes() {
    let store = made();
    let first = Machine::new(&store, 1);
    let (gone, _) = back_up(&first.repository, &chunks(99, 10)).unwrap();
    let parts: Vec<_> = (0..40).map(|part| chunks(100 + part, 20)).collect();
    let roots: Vec<_> = parts
        .iter()
        .map(|part| (back_up(&first.repository, part).unwrap().0, part.clone()))
        .collect();
    let catalogs = || objects(&store).list(CATALOG_FOLDER).unwrap().len();
    assert!(catalogs() >= 40);
    let lock = first.repository.lock_roots().unwrap();
    lock.replace(None, &[], &[gone]).unwrap();
    drop(lock);
    for _ in 0..2 {
        let options = SweepOptions::default();
        first
            .repository
            .sweep(&Lists, &options, &mut Hasty)
            .unwrap();
    }
    assert!(catalogs() <= 2, "{}", catalogs());
    let second = Machine::new(&store, 2);
    let all = parts.concat();
    assert_eq!(second.back_up(&all).new_chunks, 0);
    assert_sound(&second.repository, &roots, &"after catalogs were merged");
}

/// Sweeps with an hour of grace.
fn sweep_with_grace(machine: &Machine) -> SweepReport {
    let options = SweepOptions {
        grace_s: Some(3600),
        ..SweepOptions::default()
    };
    let swept = machine.repository.sweep(&Lists, &options, &mut Hasty);
    swept.unwrap()
}

#[test]
fn nothing_is_deleted_before_its_grace_is_over_and_no_backup_is_waited_for() {
    let store = made();
    let first = Machine::new(&store, 1);
    let (root, _) = back_up(&first.repository, &chunks(1, CHUNKS)).unwrap();
    let (kept, _) = back_up(&first.repository, &chunks(2, 400)).unwrap();
    let stored = containers(&store).len();
    let running = first.repository.session(SessionKind::Backup).unwrap();
    let second = Machine::new(&store, 2);
    let lock = second.repository.lock_roots().unwrap();
    lock.replace(None, &[], &[root]).unwrap();
    drop(lock);
    for _ in 0..2 {
        let report = sweep_with_grace(&second);
        assert!(report.graced_containers > 0, "{report:?}");
        let left = (report.deleted_containers, report.pending_containers);
        assert_eq!(left, (0, 0));
    }
    assert_eq!(containers(&store).len(), stored);
    running.finish().unwrap();
    store.advance_ms(3_601_000);
    let report = sweep_with_grace(&second);
    assert!(report.deleted_containers > 0, "{report:?}");
    assert_eq!(report.graced_containers, 0);
    assert!(containers(&store).len() < stored);
    assert_sound(
        &second.repository,
        &[(kept, chunks(2, 400))],
        &"after the grace",
    );
}

/// Hears of nothing.
struct Deaf;

impl SyncObserver for Deaf {
    fn begin(&self, _: u64, _: u64) {}

    fn done(&self, _: u64) -> bool {
        true
    }
}

#[test]
fn a_replica_that_becomes_a_repository_has_the_catalogs() {
    let store = made();
    Machine::new(&store, 1).back_up(&chunks(1, CHUNKS));
    let stored = containers(&store).len();
    let replica = SimStore::new(2);
    let [from, to] =
        [&store, &replica].map(|it| it.place(Arc::new(MemDir::new()), &Entropy::seeded(5)));
    let sync = |delete| {
        let options = SyncOptions {
            delete,
            info: PinInfo::default(),
        };
        replica::sync(&from, &to, &options, &Deaf).unwrap()
    };
    sync(false);
    assert_eq!(sync(false).copied, 0);
    let catalogs = || objects(&replica).list(CATALOG_FOLDER).unwrap();
    let extra = format!("{CATALOG_FOLDER}/{:016x}", 1);
    objects(&replica).put(&extra, &[b"merged since"]).unwrap();
    assert_eq!(sync(true).deleted, 1);
    assert!(!catalogs().contains(&extra));
    objects(&replica).delete("replica").unwrap();
    let machine = Machine::new(&replica, 3);
    let session = machine.repository.session(SessionKind::Backup).unwrap();
    assert_eq!(machine.known(), (0, stored), "hooks, and no descriptors");
    session.finish().unwrap();
}
