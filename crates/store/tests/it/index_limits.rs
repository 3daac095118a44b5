//! Repositories whose index is full, or cannot be opened: backup, sweep and repair go on, and nothing is lost.

use std::sync::Arc;

use onefold_io::sim::SimDir;
use onefold_io::{Dir, LockKind, MemDir};
use onefold_store::{Encryption, Entropy, Error, OpenOptions, Repository, SessionKind};

use crate::fixture::{Hasty, Lists, assert_sound, back_up, chunks, init_with, sweep};

/// With an index of `ram` bytes.
fn open_with(dir: &Arc<dyn Dir>, ram: usize, seed: u64) -> Repository {
    let options = OpenOptions {
        threads: 1,
        container_bytes: 16 << 10,
        block_bytes: Some(4 << 10),
        index_ram_bytes: ram,
        entropy: Entropy::seeded(seed),
        indexes: onefold_papers::KINDS,
        ..OpenOptions::default()
    };
    Repository::open(Arc::clone(dir), options, None).expect("open")
}

/// ChunkStash has 133 slots, the others next to nothing, for 600 chunks.
#[test]
fn a_full_index_loses_duplicates_at_most() {
    for index in ["chunkstash", "skimpystash", "bufferhash", "bloomstore"] {
        let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
        init_with(&dir, Encryption::None, index).unwrap();
        let first = chunks(1, 300);
        let second: Vec<_> = chunks(1, 150).into_iter().chain(chunks(2, 300)).collect();
        let repository = open_with(&dir, 1 << 10, 1);
        let (gone, _) = back_up(&repository, &first).expect(index);
        let (kept, _) = back_up(&repository, &second).expect(index);
        drop(repository);
        let repository = open_with(&dir, 1 << 10, 2);
        repository.remove_root(&gone).unwrap();
        sweep(&repository).expect(index);
        let report = repository.repair(&Lists, &mut Hasty).expect(index);
        assert!(report.left.damage.is_empty(), "{:?}", report.left.damage);
        assert_sound(&repository, &[(kept, second)], &index);
    }
}

/// A folder that holds something stands in the place of its log. What is thrown away is not opened first.
#[test]
fn an_index_whose_log_is_no_file_is_rebuilt_when_asked_and_by_itself() {
    for is_asked in [true, false] {
        let device = SimDir::new(1);
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        init_with(&dir, Encryption::None, "bloomstore").unwrap();
        let data = chunks(1, 100);
        let (root, _) = back_up(&open_with(&dir, 1 << 16, 1), &data).unwrap();
        device.lose("index/bloom-log").unwrap();
        let folder = dir.open_subdir("index").unwrap();
        folder.subdir("bloom-log").unwrap().create("ours").unwrap();
        let repository = open_with(&dir, 1 << 16, 2);
        if is_asked {
            repository.rebuild_index().unwrap();
        }
        let (again, stats) = back_up(&repository, &data).unwrap();
        assert_eq!(stats.new_chunks, 0);
        let sound = [(root, data.clone()), (again, data)];
        assert_sound(&repository, &sound, &"rebuilt");
        let aside = folder.open_subdir("bloom-log.unreadable").unwrap();
        assert_eq!(aside.list().unwrap().len(), 1);
    }
}

/// Also while it is thrown away and begun anew: the lock stays with its file.
#[test]
fn an_index_that_is_rebuilt_stays_with_its_opener() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init_with(&dir, Encryption::None, "chunkstash").unwrap();
    let (first, second) = (open_with(&dir, 1 << 16, 1), open_with(&dir, 1 << 16, 2));
    let folder = dir.open_subdir("index").unwrap();
    let session = first.session(SessionKind::Backup).unwrap();
    first.rebuild_index().unwrap();
    let lock = folder.lock("opener.lock", LockKind::Exclusive).unwrap();
    assert!(lock.is_none(), "it is free");
    for refused in [
        second.rebuild_index(),
        second.session(SessionKind::Backup).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    }
    session.finish().unwrap();
    drop(first);
    second.rebuild_index().unwrap();
}
