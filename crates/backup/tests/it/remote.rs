//! Backup, tag, forget, prune and restore over simulated object storage, with sessions and locks as registers: whatever
//! request a process dies at, and whatever requests fail, come late or come twice, each acknowledged snapshot restores
//! completely.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use onefold_backup::roots::SnapshotRoots;
use onefold_backup::snapshots::Retag;
use onefold_backup::{Error, Progress, backup, snapshots};
use onefold_io::{Dir, MemDir};
use onefold_store::simulated::{RequestFaults, SimStore};
use onefold_store::{
    CheckDepth, Encryption, Entropy, Error as StoreError, InitOptions, KdfCost, OpenOptions,
    PinInfo, Repository, RootId, Secret, SweepObserver, SweepOptions,
};

use crate::crash::{Kept, name_now};
use crate::scale::{apart, scale};
use crate::scene::{Log, bytes, look, noise, options, restore_folder};

/// Longer than a registry waits for a process that shows no life, in milliseconds.
const STALE_MS: u64 = 16 * 60 * 1000;
const ROUNDS: u64 = 4;
/// Times that a step is tried while its requests fail.
const TRIES: u64 = 300;

/// A machine that works on the store: its processes come and go, its own folder stays.
struct Machine {
    store: SimStore,
    own: Arc<dyn Dir>,
    processes: u64,
    /// The password of the repository; `None` where it is not encrypted.
    secret: Option<Secret>,
    source: std::path::PathBuf,
    kept: Kept,
    compacted_containers: u64,
}

/// Waits of a sweep: simulated time passes.
struct Waits<'a>(&'a SimStore);

impl SweepObserver for Waits<'_> {
    fn progress(&mut self, _: onefold_store::StageProgress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        self.0.advance_ms(STALE_MS);
        true
    }
}

impl Machine {
    fn new(store: SimStore, source: &Path) -> Self {
        Self {
            store,
            own: Arc::new(MemDir::new()),
            processes: 0,
            secret: Some(Secret::new("open sesame")),
            source: source.to_path_buf(),
            kept: Kept::new(),
            compacted_containers: 0,
        }
    }

    /// Opens the repository in a new process.
    fn open(&mut self) -> onefold_store::Result<Repository> {
        self.processes += 1;
        let options = OpenOptions {
            threads: 1,
            container_bytes: 16 << 10,
            block_bytes: Some(4 << 10),
            index_ram_bytes: 1 << 20,
            entropy: Entropy::seeded(100 + self.processes),
            ..OpenOptions::default()
        };
        let place = self
            .store
            .connect()
            .place(Arc::clone(&self.own), &options.entropy);
        Repository::open(place, options, self.secret.as_ref())
    }

    fn init(&mut self) -> onefold_store::Result<()> {
        self.processes += 1;
        let mut init = InitOptions::new("test", 1);
        init.kdf_cost = KdfCost::LEAST;
        init.entropy = Entropy::seeded(100 + self.processes);
        let place = self
            .store
            .connect()
            .place(Arc::clone(&self.own), &init.entropy);
        if self.secret.is_none() {
            init.encryption = Encryption::None;
        }
        Repository::init(place, &init, self.secret.as_ref())
    }

    fn back_up(&mut self, secs: i64) -> onefold_backup::Result<()> {
        let repository = self.open()?;
        let one = backup::Options {
            walkers: 1,
            readers: 1,
            hashers: 1,
            ..options(secs)
        };
        let paths = backup::Input::Paths(vec![bytes(&self.source)]);
        let outcome = backup::run(
            &repository,
            paths,
            &one,
            &Progress::default(),
            &Log::default(),
        )?;
        let looks = Arc::new(look(&self.source));
        self.kept.push((outcome.id.expect("id"), outcome, looks));
        Ok(())
    }

    /// Gives the oldest snapshot a tag.
    fn tag(&mut self, round: u64) -> onefold_backup::Result<()> {
        let repository = self.open()?;
        let add = Retag {
            add: vec![format!("round {round}")],
            ..Retag::default()
        };
        let (id, outcome, _) = &self.kept[0];
        let now = name_now(&repository, *id, outcome)?;
        let new = snapshots::retag(&repository, now, &add)?.unwrap_or(now);
        self.kept[0].0 = new;
        Ok(())
    }

    /// Forgets all but the oldest and the newest.
    fn forget(&mut self) -> onefold_backup::Result<()> {
        let repository = self.open()?;
        let newest = self.kept.len() - 1;
        let gone: Vec<RootId> = self.kept[1..newest].iter().map(|(id, ..)| *id).collect();
        let lock = repository.lock_roots()?;
        // From here on these snapshots may be gone.
        self.kept.drain(1..newest);
        lock.replace(None, &[], &gone)?;
        Ok(())
    }

    fn sweep(&mut self) -> onefold_backup::Result<()> {
        let repository = self.open()?;
        let mut waits = Waits(&self.store);
        let swept = repository.sweep(&SnapshotRoots, &SweepOptions::default(), &mut waits)?;
        self.compacted_containers += swept.compacted_containers;
        Ok(())
    }

    /// Takes one step of the story. Steps are numbered from 0; returns false behind the last.
    fn step(&mut self, step: u64) -> onefold_backup::Result<bool> {
        let (round, part) = (step / 4, step % 4);
        match (round < ROUNDS, part) {
            (false, _) => return Ok(false),
            (_, 0) => {
                change(&self.source, round);
                self.back_up(1 + round as i64)?;
            }
            (_, _) if round % 2 == 0 => {}
            (_, 1) => self.tag(round)?,
            (_, 2) => self.forget()?,
            _ => self.sweep()?,
        }
        Ok(true)
    }

    /// Takes all steps of the story, until one fails.
    fn work(&mut self) -> onefold_backup::Result<()> {
        self.init()?;
        (0..)
            .try_for_each(|step| match self.step(step) {
                Ok(true) => Ok(()),
                Ok(false) => Err(None),
                Err(error) => Err(Some(error)),
            })
            .or_else(|ended| ended.map_or(Ok(()), Err))
    }

    /// Repeats a step until it succeeds, each time in a new process: requests fail, and locks of dead processes become
    /// stale.
    fn insist(
        &mut self,
        what: &str,
        mut step: impl FnMut(&mut Self) -> onefold_backup::Result<()>,
    ) {
        for _ in 0..TRIES {
            match step(self) {
                Ok(()) => return,
                Err(Error::Store(StoreError::Locked { .. })) => self.outwait_locks(),
                Err(error) if is_to_be_run_again(&error) => {}
                Err(error) => panic!("{what}: {error}"),
            }
        }
        panic!("{what}: {TRIES} tries were not enough");
    }

    /// Lets time pass, until a process that held a lock and shows no life is known to be stale.
    fn outwait_locks(&mut self) {
        let Ok(repository) = self.open() else {
            return;
        };
        for _ in 0..2 {
            let _ = repository.lock_roots();
            let _ = repository.sweep(
                &SnapshotRoots,
                &SweepOptions::default(),
                &mut Waits(&self.store),
            );
            self.store.advance_ms(STALE_MS);
        }
    }

    /// Checks that everything acknowledged restores, also after another backup and a sweep; a check finds no fault.
    fn recovers(&mut self, dir: &Path, context: &str) {
        self.restores(dir, context);
        self.insist(context, |machine| machine.back_up(77));
        self.insist(context, Self::sweep);
        self.restores(dir, context);
        let repository = self.open().unwrap_or_else(|e| panic!("{context}: {e}"));
        let structure = CheckDepth::Structure;
        let report = repository.check(&SnapshotRoots, structure, &mut |_| {}, &mut |_| {});
        let report = report.unwrap_or_else(|e| panic!("{context}: check: {e}"));
        assert!(report.damage.is_empty(), "{context}: {:?}", report.damage);
    }

    fn restores(&mut self, dir: &Path, context: &str) {
        let repository = self.open().unwrap_or_else(|e| panic!("{context}: {e}"));
        let target = dir.join("target");
        for (id, outcome, looks) in &self.kept {
            let now = name_now(&repository, *id, outcome);
            let outcome = backup::Outcome {
                id: Some(now.unwrap_or_else(|e| panic!("{context}: {e}"))),
                ..outcome.clone()
            };
            restore_folder(&repository, &outcome, &self.source, &target);
            assert!(look(&target) == **looks, "{context}");
            fs::remove_dir_all(&target).expect("remove");
        }
    }
}

/// Whether the user is told to run the command again.
fn is_to_be_run_again(error: &Error) -> bool {
    let Error::Store(error) = error else {
        return false;
    };
    let is_revoked = matches!(
        error,
        StoreError::PinLost { .. } | StoreError::Overtaken { .. }
    );
    is_revoked || error.is_unavailable()
}

/// Changes every second small file, and some others: a part of the containers that this fills outlives its snapshot.
fn change(source: &Path, round: u64) {
    fs::create_dir_all(source.join("sub")).expect("dirs");
    if round == 0 {
        fs::write(source.join("stays"), noise(99, 30_000)).expect("write");
    }
    let stays = |number: u64| !number.is_multiple_of(2) && number / 2 % 3 != round % 3;
    for number in (0..24).filter(|number| !stays(*number)) {
        let name = source.join("sub").join(format!("small-{number:02}"));
        fs::write(name, noise(100 * round + number, 2_500)).expect("write");
    }
}

#[test]
fn every_acknowledged_snapshot_restores_whatever_request_a_process_dies_at() {
    let dir = tempfile::tempdir().expect("tempdir");
    let run = |name: String, dies_at| {
        let store = SimStore::new(1);
        store.inject(RequestFaults {
            dies_at,
            ..RequestFaults::default()
        });
        let mut machine = Machine::new(store, &dir.path().join(name));
        let ended = machine.work().err();
        (machine, ended)
    };
    let (mut whole, ended) = run("whole".into(), None);
    assert!(ended.is_none(), "{ended:?}");
    assert!(whole.compacted_containers > 0);
    let requests = whole.store.requests();
    whole.recovers(dir.path(), "nothing went wrong");
    println!(
        "{requests} requests, {} containers compacted",
        whole.compacted_containers
    );
    let mut interrupted = 0;
    for point in (1..requests).step_by(apart(8) as usize) {
        let (mut machine, ended) = run(format!("at-{point}"), Some(point));
        let context = format!("request {point} of {requests} ({ended:?})");
        assert!(machine.store.requests() >= point, "{context}");
        interrupted += u64::from(ended.is_some());
        if machine.kept.is_empty() {
            continue; // perhaps there is no repository yet
        }
        machine.recovers(dir.path(), &context);
    }
    assert!(interrupted > 10, "only {interrupted} deaths");
}

#[test]
fn every_acknowledged_snapshot_restores_whatever_answers_are_lost_or_late() {
    for seed in 0..6 * scale().max(1) {
        let dir = tempfile::tempdir().expect("tempdir");
        let store = SimStore::new(seed);
        let mut machine = Machine::new(store.clone(), &dir.path().join("source"));
        let context = format!("seed {seed}");
        machine.init().expect("init");
        store.inject(RequestFaults {
            refused: 60,
            answer_lost: 60,
            late: 40,
            doubled: 60,
            short: 30,
            ..RequestFaults::default()
        });
        for step in 0..4 * ROUNDS {
            let named = format!("{context}, step {step}");
            machine.insist(&named, |machine| machine.step(step).map(drop));
        }
        store.inject(RequestFaults::default());
        store.settle();
        machine.recovers(dir.path(), &context);
    }
}

/// Without encryption a snapshot's name is the hash of what it says, and a name that was forgotten counts for nothing.
#[test]
fn a_tag_that_is_added_removed_and_added_again_keeps_the_snapshot() {
    let dir = tempfile::tempdir().expect("tempdir");
    let source = dir.path().join("source");
    fs::create_dir(&source).expect("folder");
    change(&source, 0);
    let mut machine = Machine::new(SimStore::new(1), &source);
    machine.secret = None;
    machine.init().expect("init");
    machine.back_up(1).expect("backup");
    for is_added in [true, false, true, false, true] {
        let tags = vec!["x".to_owned()];
        let retag = if is_added {
            Retag {
                add: tags,
                ..Retag::default()
            }
        } else {
            Retag {
                remove: tags,
                ..Retag::default()
            }
        };
        let repository = machine.open().expect("open");
        let new = snapshots::retag(&repository, machine.kept[0].0, &retag).expect("retag");
        machine.kept[0].0 = new.expect("the tags change");
        machine.sweep().expect("sweep");
    }
    machine.recovers(dir.path(), "after five changes of a tag");
}
