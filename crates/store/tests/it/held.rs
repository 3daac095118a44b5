//! Roots that a reader holds: forgotten or not, they stay readable while sweeps go on, which do not wait for it.

use std::sync::Arc;

use onefold_io::{Dir, MemDir};
use onefold_store::simulated::SimStore;
use onefold_store::{
    Encryption, Entropy, InitOptions, OpenOptions, PinInfo, Repository, RootId, SessionKind,
    StageProgress, SweepObserver, SweepOptions,
};

use crate::fixture::{Lists, assert_sound, back_up, chunks, decode_root, init, open};

/// Would wait for ever.
struct Patient;

impl SweepObserver for Patient {
    fn progress(&mut self, _: StageProgress) {}

    fn wait_for(&mut self, sessions: &[PinInfo]) -> bool {
        panic!("a sweep waits for {sessions:?}");
    }
}

fn sweep(repository: &Repository) -> u64 {
    let options = SweepOptions {
        compact_below: 0.9,
        ..SweepOptions::default()
    };
    let swept = repository.sweep(&Lists, &options, &mut Patient);
    swept.unwrap().deleted_containers
}

fn forget(repository: &Repository, roots: &[RootId]) {
    let lock = repository.lock_roots().unwrap();
    lock.replace(None, &[], roots).unwrap();
}

/// Reads the chunks of a root that the reader holds.
fn read_held(repository: &Repository, root: &RootId) -> onefold_store::Result<Vec<Vec<u8>>> {
    let refs = decode_root(&repository.held_root(root)?);
    let session = repository.session(SessionKind::Held)?;
    let mut reader = session.reader()?;
    let read = |chunk| Ok(reader.read(chunk)?.to_vec());
    refs.iter().map(read).collect()
}

/// A reader and, in another process, who backs up, forgets and sweeps.
type Processes = (Repository, Repository);

fn of_a_folder() -> Processes {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    (open(&dir, 1, 1).unwrap(), open(&dir, 1, 2).unwrap())
}

fn of_object_storage() -> Processes {
    let store = SimStore::new(1);
    let mut init = InitOptions::new("test", 1);
    init.encryption = Encryption::None;
    init.entropy = Entropy::seeded(7);
    let place = store.place(Arc::new(MemDir::new()), &init.entropy);
    Repository::init(place, &init, None).unwrap();
    let open = |seed| {
        let options = OpenOptions {
            threads: 1,
            container_bytes: 16 << 10,
            block_bytes: Some(4 << 10),
            entropy: Entropy::seeded(seed),
            ..OpenOptions::default()
        };
        let place = store
            .connect()
            .place(Arc::new(MemDir::new()), &options.entropy);
        Repository::open(place, options, None).unwrap()
    };
    (open(1), open(2))
}

const ALL: [fn() -> Processes; 2] = [of_a_folder, of_object_storage];

#[test]
fn a_forgotten_root_is_read_while_it_is_held_and_goes_afterwards() {
    for processes in ALL {
        let (reader, sweeper) = processes();
        let (data, others) = (chunks(1, 60), chunks(2, 60));
        let (root, _) = back_up(&sweeper, &data).unwrap();
        let (other, _) = back_up(&sweeper, &others).unwrap();
        let hold = reader.hold(&[root, RootId([9; 32])], None).unwrap();
        assert_eq!(hold.roots(), [root]);
        forget(&sweeper, &[root]);
        assert_eq!(sweeper.roots().unwrap(), [other]);
        for _ in 0..2 {
            assert_eq!(sweep(&sweeper), 0);
            assert!(read_held(&reader, &root).unwrap() == data);
        }
        // The next hold takes it over, and nobody else can have it.
        let next = reader.hold(&[root, other], Some(&hold)).unwrap();
        assert_eq!(next.roots().len(), 2);
        drop(hold);
        assert_eq!(sweep(&sweeper), 0);
        assert!(sweeper.hold(&[root], None).unwrap().roots().is_empty());
        assert!(read_held(&reader, &root).unwrap() == data);
        drop(next);
        assert!(sweep(&sweeper) > 0);
        assert!(reader.held_root(&root).unwrap_err().is_not_found());
        assert_sound(&sweeper, &[(other, others)], &"swept");
    }
}

#[test]
fn what_is_held_is_found_where_a_sweep_has_moved_it() {
    for processes in ALL {
        let (reader, sweeper) = processes();
        let (data, others) = (chunks(1, 60), chunks(2, 60));
        let mixed: Vec<_> = data.iter().chain(&others).cloned().collect();
        let (mixed, _) = back_up(&sweeper, &mixed).unwrap();
        let (root, _) = back_up(&sweeper, &data[..30]).unwrap();
        let hold = reader.hold(&[root], None).unwrap();
        forget(&sweeper, &[mixed, root]);
        assert!(sweep(&sweeper) > 0, "a container is rewritten");
        assert!(read_held(&reader, &root).unwrap() == data[..30]);
        hold.confirm().unwrap();
    }
}

#[test]
fn a_root_that_comes_and_is_held_and_forgotten_during_a_sweep_stays() {
    /// Backs up, holds and forgets while the sweep waits.
    struct Meanwhile<'a> {
        reader: &'a Repository,
        writer: &'a Repository,
        session: Option<onefold_store::Session>,
        held: Option<(onefold_store::Hold, RootId)>,
    }

    impl SweepObserver for Meanwhile<'_> {
        fn progress(&mut self, _: StageProgress) {}

        fn wait_for(&mut self, _: &[PinInfo]) -> bool {
            let session = self.session.take().expect("waited for once");
            let refs = decode_root(&self.writer.root(&self.writer.roots().unwrap()[0]).unwrap());
            let root = session
                .put_root(&crate::fixture::encode_root(&refs[1..]))
                .unwrap();
            session.finish().unwrap();
            let hold = self.reader.hold(&[root], None).unwrap();
            assert_eq!(hold.roots(), [root]);
            forget(self.writer, &self.writer.roots().unwrap());
            self.held = Some((hold, root));
            true
        }
    }

    let (reader, sweeper) = of_a_folder();
    let data = chunks(1, 60);
    back_up(&sweeper, &data).unwrap();
    let (gone, _) = back_up(&sweeper, &chunks(3, 60)).unwrap();
    forget(&sweeper, &[gone]);
    let mut meanwhile = Meanwhile {
        session: Some(reader.session(SessionKind::Pinned).unwrap()),
        reader: &reader,
        writer: &reader,
        held: None,
    };
    let swept = sweeper.sweep(&Lists, &SweepOptions::default(), &mut meanwhile);
    assert!(swept.unwrap().deleted_containers > 0);
    let (_hold, root) = meanwhile.held.expect("it waited");
    assert!(read_held(&reader, &root).unwrap() == data[1..]);
    assert_eq!(sweep(&sweeper), 0);
    assert!(read_held(&reader, &root).unwrap() == data[1..]);
}
