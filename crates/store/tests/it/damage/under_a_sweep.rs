//! Damage to what a sweep goes by while it is under way: it deletes nothing then.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{
    ChunkReader, ChunkRef, Encryption, Error, PinInfo, Result, RootId, Roots, Seen, SessionKind,
    StageProgress, SweepObserver, SweepOptions,
};

use super::action::{ACTIONS, Action, bytes, damage};
use super::small_objects::Living;
use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, chunks, containers, decode_root, init, open, sweep,
};

/// Does something once when a sweep waits, and lets it wait on.
struct WhenItWaits<F>(Option<F>);

impl<F: FnOnce()> SweepObserver for WhenItWaits<F> {
    fn progress(&mut self, _: StageProgress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        if let Some(happens) = self.0.take() {
            happens();
        }
        true
    }
}

fn list_paths(device: &SimDir) -> Vec<String> {
    let mut paths = device.paths();
    paths.retain(|path| path.starts_with("condemned/"));
    paths
}

/// A session that begins then does not know the condemned containers, and counts on them.
#[test]
fn a_list_that_goes_while_a_sweep_waits_lets_it_delete_nothing() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::None).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let data = chunks(1, 60);
    let (gone, _) = back_up(&repository, &data).unwrap();
    repository.remove_root(&gone).unwrap();
    let reader = open(&dir, 1, 2).unwrap();
    let session = reader.session(SessionKind::Read).unwrap();
    let mut living = None;
    let mut observer = WhenItWaits(Some(|| {
        for list in list_paths(&device) {
            device.lose(&list).unwrap();
        }
        living = Some(Living::begin(&dir, data));
        drop(session);
    }));
    let swept = repository.sweep(&Lists, &SweepOptions::default(), &mut observer);
    let root = living.expect("it waited").end().unwrap();
    assert_sound(&repository, &[root], &"the list went");
    assert!(matches!(swept, Err(Error::Overtaken { .. })), "{swept:?}");
    sweep(&repository).unwrap();
}

/// Roots that refer to very much besides, so that marks spill; when all that was told, something happens.
struct Many<'a>(&'a dyn Fn());

/// More than the marks that stand in RAM.
const MANY: u64 = (1 << 20) + 100_000;

impl Roots for Many<'_> {
    fn for_each_ref(
        &self,
        _id: &RootId,
        root: &[u8],
        _reader: &mut ChunkReader,
        _seen: &mut Seen,
        visit: &mut dyn FnMut(&ChunkRef) -> Result<()>,
    ) -> Result<()> {
        let refs = decode_root(root);
        refs.iter().try_for_each(&mut *visit)?;
        for i in 0..MANY {
            let mut fingerprint = [0; 32];
            let scattered = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            fingerprint[..8].copy_from_slice(&scattered.to_be_bytes());
            visit(&ChunkRef {
                fingerprint: Fingerprint(fingerprint),
                ..refs[0]
            })?;
        }
        (self.0)();
        Ok(())
    }
}

/// The contents of all containers.
fn stored(device: &SimDir) -> BTreeMap<String, Vec<u8>> {
    let paths = containers(device).into_iter();
    paths
        .map(|path| (path.clone(), bytes(device, &path)))
        .collect()
}

#[test]
fn a_sweep_whose_marks_come_back_otherwise_deletes_nothing() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::None).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let kept = chunks(1, 60);
    let (root, _) = back_up(&repository, &kept).unwrap();
    let (gone, _) = back_up(&repository, &chunks(2, 60)).unwrap();
    repository.remove_root(&gone).unwrap();
    drop(repository);
    let before = stored(&device);
    for action in ACTIONS {
        let image = device.fork();
        let dir: Arc<dyn Dir> = Arc::new(image.clone());
        let repository = open(&dir, 1, 2).unwrap();
        let was_damaged = Cell::new(false);
        let roots = Many(&|| {
            damage(&image, &device, "scratch/marks", (action, 0));
            was_damaged.set(true);
        });
        let swept = repository.sweep(&roots, &SweepOptions::default(), &mut Hasty);
        let is_away = [Action::Delete, Action::Folder].contains(&action);
        assert!(was_damaged.get(), "{action:?}");
        match swept {
            // A process that has it open goes on reading it.
            Ok(report) => assert!(
                is_away && report.deleted_containers > 0,
                "{action:?}: {report:?}"
            ),
            Err(error) => {
                let is_told = error.is_loss() && error.to_string().contains("scratch/marks");
                assert!(is_told && !is_away, "{action:?}: {error}");
                assert!(stored(&image) == before, "{action:?}");
            }
        }
        image.heal();
        assert!(
            repository
                .sweep(&Lists, &SweepOptions::default(), &mut Hasty)
                .is_ok()
        );
        assert!(stored(&image).len() < before.len(), "{action:?}");
        assert_sound(&repository, &[(root, kept.clone())], &"swept");
    }
}
