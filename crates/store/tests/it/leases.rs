//! Sessions and locks as registers, on simulated object storage: who sleeps, dies or is revoked loses nothing for
//! anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use onefold_io::MemDir;
use onefold_store::registry::lease::LeaseRegistry;
use onefold_store::registry::record::{NewRoot, Record, RecordState};
use onefold_store::registry::registers::{Expect, Register, Registers, Version};
use onefold_store::registry::{Lock, Registry, Revoked};
use onefold_store::simulated::{RequestFaults, SimStore};
use onefold_store::{
    ChunkToWrite, Entropy, Error, InitOptions, OpenOptions, Packing, PinInfo, Repository, RootId,
    Session, SessionKind, StageProgress, StreamKind, SweepObserver, SweepOptions, Written,
};

use crate::fixture::{Lists, assert_sound, back_up, check, chunks, encode_root, restore};

/// Longer than a registry waits for who shows no life, in milliseconds.
const STALE_MS: u64 = 16 * 60 * 1000;

struct Waits<'a>(&'a SimStore);

impl SweepObserver for Waits<'_> {
    fn progress(&mut self, _: StageProgress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        self.0.advance_ms(STALE_MS);
        true
    }
}

fn made() -> SimStore {
    let store = SimStore::new(1);
    let mut init = InitOptions::new("test", 1);
    init.encryption = onefold_store::Encryption::None;
    init.entropy = Entropy::seeded(7);
    let place = store.place(Arc::new(MemDir::new()), &init.entropy);
    Repository::init(place, &init, None).unwrap();
    store
}

/// Another machine's process.
fn open(store: &SimStore, seed: u64) -> (SimStore, Repository) {
    let process = store.connect();
    let options = OpenOptions {
        threads: 1,
        container_bytes: 16 << 10,
        block_bytes: Some(4 << 10),
        entropy: Entropy::seeded(seed),
        ..OpenOptions::default()
    };
    let place = process.place(Arc::new(MemDir::new()), &options.entropy);
    let repository = Repository::open(place, options, None).unwrap();
    (process, repository)
}

fn sweep(store: &SimStore, repository: &Repository) -> onefold_store::Result<()> {
    let swept = repository.sweep(&Lists, &SweepOptions::default(), &mut Waits(store));
    swept.map(drop)
}

/// Lets time pass until whoever died and held a lock is known to be stale.
fn outwait(store: &SimStore, repository: &Repository) {
    for _ in 0..2 {
        let _ = repository.lock_roots();
        let _ = sweep(store, repository);
        store.advance_ms(STALE_MS);
    }
}

/// Stores chunks in a session of its own; gives the session and the root's bytes.
fn stored(repository: &Repository, data: &[Vec<u8>]) -> (Session, Vec<u8>) {
    let session = repository.session(SessionKind::Backup).unwrap();
    let mut writer = session.writer(StreamKind::Data).unwrap();
    let given = data.iter().map(|data| ChunkToWrite {
        fingerprint: repository.fingerprinter().fingerprint(data),
        data,
        packing: Packing::Compress,
        is_steady: true,
    });
    let mut written = Vec::new();
    let given: Vec<_> = given.collect();
    writer.write_given(&given, &mut written).unwrap();
    let refs: Vec<_> = written.iter().filter_map(Written::chunk).collect();
    writer.finish().unwrap();
    (session, encode_root(&refs))
}

#[test]
fn who_sleeps_and_is_not_missed_goes_on() {
    let store = made();
    let (_, repository) = open(&store, 1);
    let data = chunks(1, 20);
    let (session, root) = stored(&repository, &data);
    store.advance_ms(100 * STALE_MS);
    let id = session.put_root(&root).unwrap();
    session.finish().unwrap();
    assert_sound(&repository, &[(id, data)], &"slept");
}

#[test]
fn whom_a_sweep_revoked_stores_no_snapshot_and_the_next_backup_does() {
    let store = made();
    let ((_, sleeping), (_, sweeping)) = (open(&store, 1), open(&store, 2));
    let kept = chunks(9, 20);
    let (first, _) = back_up(&sweeping, &kept).unwrap();
    let data = chunks(1, 20);
    let (session, root) = stored(&sleeping, &data);
    sweep(&store, &sweeping).unwrap();
    let refused = session.put_root(&root);
    assert!(matches!(refused, Err(Error::PinLost { .. })), "{refused:?}");
    drop(session);
    assert_eq!(sweeping.roots().unwrap(), [first]);
    let (id, _) = back_up(&sleeping, &data).unwrap();
    assert_sound(&sleeping, &[(first, kept), (id, data)], &"revoked");
}

/// Wherever a process dies that puts a root: the root is there and all that it refers to, or it is not there.
#[test]
fn a_root_of_a_process_that_dies_is_there_whole_or_not_at_all() {
    let (mut outcomes, mut helped) = ([0, 0], 0);
    for dies_in in 1..12 {
        let store = made();
        let ((_, dying), (_, other)) = (open(&store, 1), open(&store, 2));
        let data = chunks(1, 20);
        let (session, root) = stored(&dying, &data);
        store.inject(RequestFaults {
            dies_at: Some(store.requests() + dies_in),
            ..RequestFaults::default()
        });
        let put = session.put_root(&root);
        store.inject(RequestFaults::default());
        let context = format!("request {dies_in}: {put:?}");
        let decided = decided(&store);
        // The root of a session that has committed is put by others, and the registers of dead processes go.
        sweep(&store, &other).unwrap();
        sweep(&store, &other).unwrap();
        let roots = other.roots().unwrap();
        assert!(decided.is_none_or(|id| roots == [id]), "{context}");
        helped += u64::from(decided.is_some());
        outcomes[usize::from(!roots.is_empty())] += 1;
        assert!(put.is_err() || roots == [put.unwrap()], "{context}");
        for id in &roots {
            assert_eq!(restore(&other, id).unwrap(), data, "{context}");
        }
        assert!(check(&other).unwrap().damage.is_empty(), "{context}");
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
    assert!(helped > 0);
}

/// The root that a session has decided to put, if its register says so.
fn decided(store: &SimStore) -> Option<RootId> {
    let process = store.connect();
    let state = |name: String| {
        let register = process.read(&name).unwrap()?;
        Some(Record::decode(&register.bytes, &name).unwrap().state)
    };
    let names = Registers::list(&process, "sessions").unwrap();
    names
        .into_iter()
        .filter_map(state)
        .find_map(|state| match state {
            RecordState::Committing(root, _) => Some(root.id),
            _ => None,
        })
}

/// Wherever a process dies that puts a root in the place of another: one of the two is there.
#[test]
fn a_change_of_roots_is_done_whole_or_not_at_all() {
    let mut outcomes = [0, 0];
    for dies_in in 1..16 {
        let store = made();
        let ((_, dying), (_, other)) = (open(&store, 1), open(&store, 2));
        let data = chunks(1, 20);
        let (old, _) = back_up(&dying, &data).unwrap();
        let refs = dying.root(&old).unwrap();
        // The same references once more: another root.
        let twice = [&refs[..], &refs[..]].concat();
        store.inject(RequestFaults {
            dies_at: Some(store.requests() + dies_in),
            ..RequestFaults::default()
        });
        let changed = change(&dying, old, &twice);
        store.inject(RequestFaults::default());
        let context = format!("request {dies_in}: {changed:?}");
        outwait(&store, &other);
        let roots = other.roots().unwrap();
        assert_eq!(roots.len(), 1, "{context}");
        outcomes[usize::from(roots[0] != old)] += 1;
        if let Ok(new) = changed {
            assert_eq!(roots, [new], "{context}");
        }
        assert!(check(&other).unwrap().damage.is_empty(), "{context}");
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

fn change(repository: &Repository, old: RootId, new: &[u8]) -> onefold_store::Result<RootId> {
    let lock = repository.lock_roots()?;
    let session = repository.session(SessionKind::Pinned)?;
    let names = lock.replace(Some(&session), &[new], &[old])?;
    session.finish()?;
    Ok(names[0])
}

/// A request to put the root may be carried out after the root was forgotten: it does not count any more.
#[test]
fn a_root_that_is_forgotten_does_not_come_back_with_a_late_request() {
    for seed in 0..20 {
        let store = made();
        let (_, repository) = open(&store, seed);
        let (session, root) = stored(&repository, &chunks(seed, 20));
        store.inject(RequestFaults {
            doubled: 10_000,
            ..RequestFaults::default()
        });
        let id = session.put_root(&root).unwrap();
        session.finish().unwrap();
        store.inject(RequestFaults::default());
        let lock = repository.lock_roots().unwrap();
        lock.replace(None, &[], &[id]).unwrap();
        drop(lock);
        sweep(&store, &repository).unwrap();
        store.settle();
        assert!(repository.roots().unwrap().is_empty(), "seed {seed}");
        assert!(check(&repository).unwrap().damage.is_empty(), "seed {seed}");
    }
}

/// Whoever waits for a session or a lock that shows its life does so for as long as that goes on, and no longer.
#[test]
fn who_beats_lives_and_who_stops_is_stale_a_quarter_of_an_hour_later() {
    const MINUTE_MS: u64 = 60 * 1000;
    let store = made();
    let minutes = Arc::new(AtomicU64::new(0));
    let registry = |seed| {
        let (minutes, process) = (Arc::clone(&minutes), store.connect());
        let clock = Arc::new(move || minutes.load(Relaxed) * MINUTE_MS);
        let registers = Arc::new(process.clone());
        LeaseRegistry::new(registers, Arc::new(process), Entropy::seeded(seed), clock)
    };
    let (beating, looking) = (registry(1), registry(2));
    let pin = beating.begin(&PinInfo::default(), &[]).unwrap();
    let held = beating.lock(Lock::Sweep).unwrap();
    let is_stale = || looking.living().unwrap()[0].is_stale;
    for _ in 0..100 {
        minutes.fetch_add(1, Relaxed);
        beating.beat();
        assert!(!is_stale() && looking.lock(Lock::Sweep).is_err());
    }
    minutes.fetch_add(14, Relaxed);
    assert!(!is_stale() && looking.lock(Lock::Sweep).is_err());
    minutes.fetch_add(1, Relaxed);
    assert!(is_stale());
    drop(looking.lock(Lock::Sweep).unwrap());
    // One that was revoked beats no more, and does not come back.
    looking.revoke(pin.name()).unwrap();
    beating.beat();
    assert!(matches!(pin.confirm(), Err(Error::PinLost { .. })));
    assert!(matches!(held.confirm(), Err(Error::Overtaken { .. })));
    assert!(looking.living().unwrap().is_empty());
    drop((pin, held));
    beating.beat();
    drop(looking.lock(Lock::Sweep).unwrap());
}

/// Registers of a session that writes its next record right after another has read the one before.
struct GoesOn {
    store: SimStore,
    next: parking_lot::Mutex<Option<Record>>,
}

impl Registers for GoesOn {
    fn read(&self, name: &str) -> onefold_store::Result<Option<Register>> {
        let read = self.store.read(name)?;
        if let (Some(read), Some(next)) = (&read, self.next.lock().take()) {
            let expect = Expect::Version(read.version.clone());
            self.store.write(name, &expect, &next.encode())?;
        }
        Ok(read)
    }

    fn write(&self, name: &str, expect: &Expect, bytes: &[u8]) -> onefold_store::Result<Version> {
        self.store.write(name, expect, bytes)
    }

    fn list(&self, folder: &str) -> onefold_store::Result<Vec<String>> {
        Registers::list(&self.store, folder)
    }

    fn remove(&self, name: &str) -> onefold_store::Result<()> {
        self.store.remove(name)
    }
}

/// A session that put its root and goes on, while another helps with that root, is not taken for one that has ended.
#[test]
fn who_helps_with_a_root_does_not_end_a_session_that_went_on() {
    let store = made();
    let (_, repository) = open(&store, 1);
    let (session, root) = stored(&repository, &chunks(1, 20));
    let names = Registers::list(&store, "sessions").unwrap();
    let name = &names[0];
    let active = store.read(name).unwrap().unwrap();
    let mut record = Record::decode(&active.bytes, name).unwrap();
    let RecordState::Active(info) = record.state.clone() else {
        panic!("{:?}", record.state);
    };
    let id = RootId(*blake3::hash(&root).as_bytes());
    let new = NewRoot { id, stored: root };
    record.state = RecordState::Committing(new, info.clone());
    record.beat += 1;
    let expect = Expect::Version(active.version);
    store.write(name, &expect, &record.encode()).unwrap();
    record.state = RecordState::Active(info);
    record.beat += 1;
    let registers = GoesOn {
        store: store.clone(),
        next: parking_lot::Mutex::new(Some(record)),
    };
    let (objects, clock) = (Arc::new(store.connect()), Arc::new(|| 0));
    let other = LeaseRegistry::new(Arc::new(registers), objects, Entropy::seeded(9), clock);
    let revoked = other.revoke(name.rsplit('/').next().unwrap()).unwrap();
    // Taken for ended, it would put its next root unseen, which may count on what is swept meanwhile.
    assert_eq!(revoked, Revoked::Revoked);
    drop(session);
}
