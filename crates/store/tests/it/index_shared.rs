//! One index, several processes: what one told it the others know, whoever holds its locks or throws it away.

use std::sync::Arc;

use onefold_io::sim::{Faults, SimDir};
use onefold_io::{Dir, ErrorKind, LockKind, MemDir};
use onefold_store::{
    Encryption, PinInfo, Repository, SessionKind, StageProgress, SweepObserver, SweepOptions,
};

use crate::fixture::{Lists, assert_sound, back_up, chunks, init, open, restore, sweep};
use crate::guarded::{Failing, Guarded};

fn fresh() -> Arc<dyn Dir> {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::None).unwrap();
    dir
}

#[test]
fn a_session_knows_what_others_told_the_index_since_it_was_opened() {
    let dir = fresh();
    let (one, other) = (open(&dir, 1, 1).unwrap(), open(&dir, 1, 2).unwrap());
    for seed in 1..4 {
        let data = chunks(seed, 60);
        back_up(&one, &data).unwrap();
        let (root, stats) = back_up(&other, &data).unwrap();
        assert_eq!(stats.new_chunks, 0, "{seed}");
        assert_sound(&other, &[(root, data)], &seed);
    }
}

/// Its holder may be stopped.
#[test]
fn who_reads_does_not_wait_for_the_indexs_lock_and_who_writes_does() {
    let dir = fresh();
    let data = chunks(1, 60);
    let (root, _) = back_up(&open(&dir, 1, 1).unwrap(), &data).unwrap();
    let index = dir.open_subdir("index").unwrap();
    let held = index.lock("lock", LockKind::Exclusive).unwrap();
    let repository = open(&dir, 1, 2).unwrap();
    assert!(restore(&repository, &root).unwrap() == data);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| back_up(&repository, &data).unwrap());
        // The backup has begun once its session can be seen.
        let sessions = dir.open_subdir("sessions").unwrap();
        while sessions.list().unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert!(!writing.is_finished());
        drop(held);
        let (_, stats) = writing.join().unwrap();
        assert_eq!(stats.new_chunks, 0);
    });
}

/// Rebuilds the index, as another process would, while a sweep copies.
struct Rebuilding {
    by: Repository,
    times: u32,
}

impl SweepObserver for Rebuilding {
    fn progress(&mut self, progress: StageProgress) {
        // Late: what was told first is no longer in RAM.
        if progress.stage == "compacting" && progress.done + 1 == progress.total {
            self.by.rebuild_index().unwrap();
            self.times += 1;
        }
    }

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        false
    }
}

#[test]
fn what_a_sweep_moves_is_known_there_though_the_index_is_rebuilt_meanwhile() {
    for seed in 0..2 {
        let dir = fresh();
        let repository = open(&dir, 1, 10 * seed).unwrap();
        let all = chunks(1, 4000);
        let (whole, _) = back_up(&repository, &all).unwrap();
        let data: Vec<_> = all.into_iter().step_by(2).collect();
        let (root, _) = back_up(&repository, &data).unwrap();
        repository.remove_root(&whole).unwrap();
        let mut observer = Rebuilding {
            by: open(&dir, 1, 10 * seed + 1).unwrap(),
            times: 0,
        };
        let report = repository
            .sweep(&Lists, &SweepOptions::default(), &mut observer)
            .unwrap();
        assert!(report.deleted_containers > 0 && observer.times > 0);
        let repository = open(&dir, 1, 10 * seed + 2).unwrap();
        let (again, stats) = back_up(&repository, &data).unwrap();
        assert_eq!(stats.new_chunks, 0, "{seed}");
        let sound = [(root, data.clone()), (again, data)];
        assert_sound(&repository, &sound, &seed);
    }
}

#[test]
fn a_list_of_what_the_index_was_told_that_cannot_be_opened_costs_a_rebuild() {
    let dir = fresh();
    let data = chunks(1, 60);
    back_up(&open(&dir, 1, 1).unwrap(), &data).unwrap();
    let failing = Failing::default();
    failing.set("/index/ingested", ErrorKind::Medium);
    let repository = open(&Guarded::writable(&dir, &failing), 1, 2).unwrap();
    let (root, stats) = back_up(&repository, &data).unwrap();
    assert_eq!(stats.new_chunks, 0);
    assert_sound(&repository, &[(root, data)], &"rebuilt");
}

/// Whoever did it has died since, say.
#[test]
fn an_index_that_is_thrown_away_while_it_is_told_of_containers_is_told_of_all() {
    let dir = fresh();
    let data = chunks(1, 4000);
    let (root, _) = back_up(&open(&dir, 1, 1).unwrap(), &data).unwrap();
    let index = dir.open_subdir("index").unwrap();
    let throw_away = |index: &dyn Dir| {
        ["ingested", "manifest"]
            .into_iter()
            .for_each(|name| drop(index.remove(name)));
    };
    throw_away(&*index);
    let containers = dir.open_subdir("containers").unwrap();
    let mut names: Vec<String> = Vec::new();
    for folder in containers.list().unwrap() {
        let listed = containers
            .open_subdir(&folder.name)
            .unwrap()
            .list()
            .unwrap();
        names.extend(listed.into_iter().map(|entry| entry.name));
    }
    names.sort();
    assert!(names.len() > 2);
    let failing = Failing::default();
    failing.once_opened(names.last().unwrap(), move || throw_away(&*index));
    let repository = open(&Guarded::writable(&dir, &failing), 1, 2).unwrap();
    repository
        .session(SessionKind::Backup)
        .unwrap()
        .finish()
        .unwrap();
    let repository = open(&dir, 1, 3).unwrap();
    let (again, stats) = back_up(&repository, &data).unwrap();
    assert_eq!(stats.new_chunks, 0);
    assert_sound(&repository, &[(root, data.clone()), (again, data)], &"told");
}

/// Readers do without, and leave it to others who can open it; who writes makes one of few files.
#[test]
fn an_index_of_more_files_than_can_be_opened_fails_nobody() {
    let dir = fresh();
    let data = chunks(1, 60);
    let (root, _) = back_up(&open(&dir, 1, 1).unwrap(), &data).unwrap();
    let logs = || -> Vec<String> {
        let names = dir.subdir("index").unwrap().list().unwrap().into_iter();
        names
            .map(|entry| entry.name)
            .filter(|name| name.starts_with("log-"))
            .collect()
    };
    let before = logs();
    let failing = Failing::default();
    failing.set(&format!("/index/{}", before[0]), ErrorKind::TooManyOpen);
    let repository = open(&Guarded::writable(&dir, &failing), 1, 2).unwrap();
    repository
        .session(SessionKind::Read)
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(logs(), before);
    let (again, stats) = back_up(&repository, &data).unwrap();
    assert_eq!(stats.new_chunks, 0);
    assert!(!logs().contains(&before[0]));
    assert_sound(
        &repository,
        &[(root, data.clone()), (again, data)],
        &"rebuilt",
    );
}

/// There is no index, and no room for one.
#[test]
fn a_sweep_on_a_full_disk_needs_no_index() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::None).unwrap();
    let (kept, gone) = (chunks(1, 300), chunks(2, 300));
    let repository = open(&dir, 1, 1).unwrap();
    let (kept_root, _) = back_up(&repository, &kept).unwrap();
    let (gone_root, _) = back_up(&repository, &gone).unwrap();
    repository.remove_root(&gone_root).unwrap();
    drop(repository);
    for path in device.paths() {
        if path.starts_with("index/") {
            device.lose(&path).unwrap();
        }
    }
    let mut used = 0;
    for path in device.paths() {
        device.damage(&path, |bytes| used += bytes.len()).ok();
    }
    device.inject(Faults {
        capacity_bytes: Some(used as u64 + (8 << 10)),
        ..Faults::default()
    });
    let repository = open(&dir, 1, 2).unwrap();
    let report = sweep(&repository).unwrap();
    assert!(report.deleted_containers > 0, "{report:?}");
    let session = repository.session(SessionKind::Backup).unwrap();
    session.finish().unwrap();
    assert_sound(&repository, &[(kept_root, kept)], &"swept");
}
