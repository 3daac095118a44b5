//! A session or a sweep that sleeps at any step, loses all its locks, is taken for dead, and wakes up when others have
//! gone on: nothing that counts is lost. As when a network file system frees the locks of a machine that sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use onefold_io::{Dir, DirEntry, Disk, LockGuard, LockKind, MemDir, Result};
use onefold_store::{Encryption, Repository, RootId, SessionKind, StreamKind, SweepOptions};
use parking_lot::Mutex;

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, chunks, encode_root, init, open, restore, sweep,
};
use crate::scale::apart;

type Meanwhile = Box<dyn FnOnce() + Send>;

/// How many steps are left until it sleeps, and what happens then.
#[derive(Clone)]
struct Steps(Arc<(AtomicUsize, Mutex<Option<Meanwhile>>)>);

impl Steps {
    fn new(until: usize, meanwhile: impl FnOnce() + Send + 'static) -> Self {
        let meanwhile: Meanwhile = Box::new(meanwhile);
        Self(Arc::new((
            AtomicUsize::new(until),
            Mutex::new(Some(meanwhile)),
        )))
    }

    fn step(&self) {
        if self.0.0.fetch_sub(1, Relaxed) == 0 {
            let meanwhile = self.0.1.lock().take();
            meanwhile.expect("it sleeps once")();
        }
    }

    fn has_slept(&self) -> bool {
        self.0.1.lock().is_none()
    }
}

/// A lock that its holder believes in, and nobody else.
struct Believed;

impl LockGuard for Believed {}

/// A folder as a machine sees it that sleeps at one step, and whose locks others do not see.
struct Asleep {
    inner: Arc<dyn Dir>,
    steps: Steps,
}

impl Asleep {
    fn over(inner: &Arc<dyn Dir>, steps: &Steps) -> Arc<dyn Dir> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            steps: steps.clone(),
        })
    }
}

impl Dir for Asleep {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.steps.step();
        self.inner.open(name)
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.steps.step();
        self.inner.open_write(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.steps.step();
        self.inner.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.steps.step();
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.steps.step();
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.steps.step();
        self.inner.remove(name)
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        self.steps.step();
        self.inner.list()
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        self.inner.len_of(name)
    }

    fn sync(&self) -> Result<()> {
        self.steps.step();
        self.inner.sync()
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Self::over(&self.inner.subdir(name)?, &self.steps))
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Self::over(&self.inner.open_subdir(name)?, &self.steps))
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        self.inner.remove_subdir(name)
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        self.steps.step();
        // The file is made; the lock on it is gone at once.
        let lock = self.inner.lock(name, kind)?;
        Ok(lock.map(|_| Box::new(Believed) as Box<dyn LockGuard>))
    }
}

type Roots = Vec<(RootId, Vec<Vec<u8>>)>;

/// Stores a root that refers to half of the chunks in its containers; no root refers to the others any more.
fn stored() -> (Arc<dyn Dir>, Roots) {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::None).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let (whole, _) = back_up(&repository, &chunks(1, 60)).unwrap();
    let half: Vec<_> = chunks(1, 60).into_iter().step_by(2).collect();
    let (root, _) = back_up(&repository, &half).unwrap();
    let (gone, _) = back_up(&repository, &chunks(2, 40)).unwrap();
    repository.remove_root(&whole).unwrap();
    repository.remove_root(&gone).unwrap();
    (dir, vec![(root, half)])
}

/// Others sweep, store what was dead or is moving, and sweep again. They rewrite what the sleeper rewrites, too, or
/// take its copies for unused.
fn go_on(dir: &Arc<dyn Dir>, roots: &Arc<Mutex<Roots>>, rewrites: bool) {
    let repository = open(dir, 1, 20).unwrap();
    let sweep = |repository: &Repository| {
        let whole_only = SweepOptions {
            compact_below: 0.0,
            ..SweepOptions::default()
        };
        if rewrites {
            sweep(repository)
        } else {
            repository.sweep(&Lists, &whole_only, &mut Hasty)
        }
    };
    sweep(&repository).unwrap();
    // The chunks that live are referred to by more roots, or are not.
    let more = if rewrites { 20 } else { 0 };
    let data: Vec<_> = chunks(2, 40).into_iter().chain(chunks(1, more)).collect();
    let (root, _) = back_up(&repository, &data).unwrap();
    roots.lock().push((root, data));
    let (passing, _) = back_up(&repository, &chunks(4, 30)).unwrap();
    repository.remove_root(&passing).unwrap();
    sweep(&repository).unwrap();
}

fn assert_all_sound(dir: &Arc<dyn Dir>, roots: &Roots, context: &str) {
    let repository = open(dir, 1, 30).unwrap();
    assert_sound(&repository, roots, &context);
    for root in repository.roots().unwrap() {
        restore(&repository, &root).unwrap_or_else(|error| panic!("{context}: {root}: {error}"));
    }
    for seed in [31, 32] {
        sweep(&open(dir, 1, seed).unwrap()).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_sound(
            &open(dir, 1, seed + 5).unwrap(),
            roots,
            &format!("{context}, swept"),
        );
    }
}

/// Has `work` done by one who sleeps, at each step once.
fn at_each_step(work: impl Fn(&Repository, &Mutex<Roots>) -> bool) {
    let mut succeeded = 0;
    for (step, rewrites) in (0..)
        .step_by(apart(3) as usize)
        .flat_map(|step| [(step, true), (step, false)])
    {
        let (dir, roots) = stored();
        let roots = Arc::new(Mutex::new(roots));
        let others = {
            let (dir, roots) = (Arc::clone(&dir), Arc::clone(&roots));
            Steps::new(step, move || go_on(&dir, &roots, rewrites))
        };
        let Ok(repository) = open(&Asleep::over(&dir, &others), 1, 10) else {
            continue;
        };
        succeeded += usize::from(work(&repository, &roots));
        drop(repository);
        if !others.has_slept() {
            assert!(step > 20, "{step} steps");
            break;
        }
        assert_all_sound(&dir, &roots.lock(), &format!("step {step}, {rewrites}"));
    }
    assert!(succeeded > 0);
}

#[test]
fn a_sweep_that_sleeps_at_any_step_loses_nothing() {
    at_each_step(|repository, _| sweep(repository).is_ok());
}

#[test]
fn a_backup_that_sleeps_at_any_step_acknowledges_nothing_that_is_lost() {
    at_each_step(|repository, roots| {
        let data: Vec<_> = chunks(1, 60).into_iter().step_by(3).collect();
        let done = || -> onefold_store::Result<RootId> {
            let session = repository.session(SessionKind::Backup)?;
            let mut writer = session.writer(StreamKind::Data)?;
            let fingerprinter = repository.fingerprinter();
            let named = data
                .iter()
                .map(|data| (fingerprinter.fingerprint(data), &data[..]));
            let mut refs = Vec::new();
            writer.write(&named.collect::<Vec<_>>(), &mut refs)?;
            writer.finish()?;
            let root = session.put_root(&encode_root(&refs))?;
            session.finish()?;
            Ok(root)
        };
        let acknowledged = done();
        let is_done = acknowledged.is_ok();
        roots.lock().extend(acknowledged.map(|root| (root, data)));
        is_done
    });
}
