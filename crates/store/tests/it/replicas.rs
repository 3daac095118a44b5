//! Replicas between a folder and object storage: whole, gone on with where they were interrupted, and written by nobody
//! else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use onefold_io::{Dir, MemDir};
use onefold_store::replica::{self, SyncObserver, SyncOptions, SyncReport};
use onefold_store::simulated::SimStore;
use onefold_store::{Encryption, Entropy, PinInfo, Place, Repository, Result, SessionKind};

use crate::fixture::{assert_sound, back_up, chunks, init, open, secret, sweep};

/// Ends after so many objects.
struct Ends(AtomicU64);

impl SyncObserver for Ends {
    fn begin(&self, _: u64, _: u64) {}

    fn done(&self, _: u64) -> bool {
        self.0
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}

fn sync(from: &Place, to: &Place, delete: bool, objects: u64) -> Result<SyncReport> {
    let options = SyncOptions {
        delete,
        info: PinInfo::default(),
    };
    replica::sync(from, to, &options, &Ends(objects.into()))
}

fn folder(seed: u64) -> (Arc<dyn Dir>, Place) {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    let place = Place::local(Arc::clone(&dir), &Entropy::seeded(seed));
    (dir, place)
}

fn bucket(seed: u64) -> Place {
    let store = SimStore::new(seed);
    store.place(Arc::new(MemDir::new()), &Entropy::seeded(seed))
}

fn open_at(place: &Place) -> Repository {
    let options = onefold_store::OpenOptions {
        threads: 1,
        container_bytes: 16 << 10,
        block_bytes: Some(4 << 10),
        entropy: Entropy::seeded(77),
        ..onefold_store::OpenOptions::default()
    };
    Repository::open(place, options, Some(&secret())).unwrap()
}

#[test]
fn a_replica_in_a_folder_or_a_bucket_is_the_repository() {
    for to in [folder(9).1, bucket(9)] {
        let (dir, from) = folder(1);
        init(&dir, Encryption::Aes256Gcm).unwrap();
        let repository = open(&dir, 1, 1).unwrap();
        let (data, more) = (chunks(1, 60), chunks(2, 60));
        let (first, _) = back_up(&repository, &data).unwrap();
        // Interrupted after each object, it goes on.
        while sync(&from, &to, false, 1).is_err() {}
        assert_sound(&open_at(&to), &[(first, data.clone())], &"a replica");
        assert_eq!(sync(&from, &to, false, 0).unwrap().copied, 0);
        let (second, _) = back_up(&repository, &more).unwrap();
        let lock = repository.lock_roots().unwrap();
        lock.replace(None, &[], &[first]).unwrap();
        drop(lock);
        sweep(&repository).unwrap();
        let kept = sync(&from, &to, false, u64::MAX).unwrap();
        assert_eq!((kept.snapshots, kept.deleted), (2, 0));
        assert_sound(
            &open_at(&to),
            &[(first, data.clone()), (second, more.clone())],
            &"with what the source lost",
        );
        let exact = sync(&from, &to, true, u64::MAX).unwrap();
        assert!(exact.snapshots == 1 && exact.deleted > 0);
        let replica = open_at(&to);
        assert_sound(&replica, &[(second, more)], &"exact");
        for refused in [
            replica.session(SessionKind::Backup).err(),
            replica.session(SessionKind::Pinned).err(),
            replica.lock_roots().err(),
        ] {
            let told = refused.expect("a replica").to_string();
            assert!(told.contains("replica"), "{told}");
        }
        // And back into a folder, as after a fire.
        let (_, again) = folder(5);
        sync(&to, &again, false, u64::MAX).unwrap();
        assert_eq!(open_at(&again).roots().unwrap(), [second]);
    }
}
