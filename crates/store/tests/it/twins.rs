//! Two backups that run at once may store the same chunks twice: a sweep stores them once, and no copy goes while the
//! other cannot be read.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_papers::KINDS;
use onefold_store::{
    ChunkRef, ChunkToWrite, Encryption, Packing, PinInfo, Repository, RootId, Session, SessionKind,
    StageProgress, StreamKind, SweepObserver, SweepOptions, Unused, Written,
};

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, chunks, containers, decode_root, encode_root, init_with,
    open, restore, sweep,
};

/// Two roots of the same chunks, each with copies of its own.
struct Scene {
    device: SimDir,
    repository: Repository,
    roots: Vec<(RootId, Vec<Vec<u8>>)>,
}

impl Scene {
    fn new(index: &str) -> Self {
        let device = SimDir::new(1);
        device.keep_history();
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        init_with(&dir, Encryption::Aes256Gcm, index).unwrap();
        let repository = open(&dir, 1, 1).unwrap();
        let data = chunks(1, 200);
        let roots = in_lockstep::<2>(&repository, &data).map(|root| (root, data.clone()));
        Self {
            device,
            repository,
            roots: roots.to_vec(),
        }
    }

    fn open(&self, seed: u64) -> Repository {
        open(&(Arc::new(self.device.clone()) as Arc<dyn Dir>), 1, seed).unwrap()
    }

    fn stored_bytes(&self) -> u64 {
        let dry = SweepOptions {
            dry_run: true,
            ..SweepOptions::default()
        };
        let report = self.repository.sweep(&Lists, &dry, &mut Hasty).unwrap();
        report.stored_bytes
    }

    fn assert_sound(&self, context: &str) {
        assert_sound(&self.open(9), &self.roots, &context);
    }
}

/// All sessions write a batch before any can see that of the others.
fn in_lockstep<const N: usize>(repository: &Repository, data: &[Vec<u8>]) -> [RootId; N] {
    let sessions = [(); N].map(|()| repository.session(SessionKind::Backup).unwrap());
    let mut refs = [const { Vec::new() }; N];
    let mut writers = sessions
        .each_ref()
        .map(|session| session.writer(StreamKind::Data).unwrap());
    for batch in data.chunks(8) {
        let given = batch.iter().map(|data| ChunkToWrite {
            fingerprint: repository.fingerprinter().fingerprint(data),
            data,
            packing: Packing::Compress,
            is_steady: true,
        });
        let given: Vec<_> = given.collect();
        for (writer, refs) in writers.iter_mut().zip(&mut refs) {
            let mut written = Vec::new();
            writer.write_given(&given, &mut written).unwrap();
            refs.extend(written.iter().filter_map(Written::chunk));
        }
    }
    for writer in writers {
        writer.finish().unwrap();
    }
    let mut refs = refs.into_iter();
    sessions.map(|session| end(session, &refs.next().expect("of each session")))
}

fn end(session: Session, refs: &[ChunkRef]) -> RootId {
    let root = session.put_root(&encode_root(refs)).unwrap();
    session.finish().unwrap();
    root
}

#[test]
fn what_two_backups_stored_at_once_is_stored_once_after_a_sweep() {
    let names = KINDS.iter().map(|kind| kind.name);
    for index in names.chain(["ram"]) {
        let scene = Scene::new(index);
        let twice = scene.stored_bytes();
        let once: u64 = {
            let device = SimDir::new(1);
            let dir: Arc<dyn Dir> = Arc::new(device.clone());
            init_with(&dir, Encryption::Aes256Gcm, index).unwrap();
            let repository = open(&dir, 1, 1).unwrap();
            back_up(&repository, &scene.roots[0].1).unwrap();
            let dry = SweepOptions {
                dry_run: true,
                ..SweepOptions::default()
            };
            let report = repository.sweep(&Lists, &dry, &mut Hasty).unwrap();
            report.stored_bytes
        };
        assert!(twice > once * 3 / 2, "{index}: {twice} and {once} bytes");
        let all = SweepOptions {
            unused_max: Some(Unused::Bytes(0)),
            ..SweepOptions::default()
        };
        for (options, percent) in [(SweepOptions::default(), 130), (all, 105)] {
            let swept = scene.repository.sweep(&Lists, &options, &mut Hasty);
            let (report, left) = (swept.unwrap(), scene.stored_bytes());
            let most = once * percent / 100;
            assert!(left <= most, "{index}: {left} of {most} bytes: {report:?}");
        }
        assert_sound(&scene.repository, &scene.roots, &index);
        let again = sweep(&scene.repository).unwrap();
        assert_eq!(again.deleted_containers, 0, "{index}: {again:?}");
        // Whoever comes later knows where it is.
        let (_, stats) = back_up(&scene.repository, &scene.roots[0].1).unwrap();
        assert_eq!(stats.new_chunks, 0, "{index}");
    }
}

#[test]
fn no_copy_goes_while_the_other_cannot_be_read() {
    let paths = containers(&Scene::new("strata").device);
    for path in &paths {
        for place in [64, 2_000, 9_000] {
            let scene = Scene::new("strata");
            flip_at(&scene.device, path, place);
            let context = format!("{path} at {place}");
            sweep(&scene.open(2)).unwrap_or_else(|error| panic!("{context}: {error}"));
            let repository = scene.open(3);
            repository.repair(&Lists, &mut Hasty).unwrap();
            scene.assert_sound(&context);
        }
    }
}

/// Returns the paths of the containers that a root names.
fn named(repository: &Repository, root: &RootId) -> Vec<String> {
    let refs = decode_root(&repository.root(root).unwrap());
    let mut ids: Vec<_> = refs.iter().map(|chunk| chunk.container).collect();
    ids.dedup();
    ids.into_iter()
        .map(onefold_store::container::object_name)
        .collect()
}

#[test]
fn a_copy_that_nothing_refers_to_stays_while_the_one_that_is_referred_to_cannot_be_read() {
    let all = SweepOptions {
        unused_max: Some(Unused::Bytes(0)),
        ..SweepOptions::default()
    };
    for (forgotten, part) in [(0, false), (1, false), (0, true), (1, true)] {
        for place in [64, 2_000, 9_000] {
            let mut scene = Scene::new("strata");
            let context = format!("root {forgotten}, {part}, at {place}");
            let (gone, data) = scene.roots.remove(forgotten);
            let refs = decode_root(&scene.repository.root(&gone).unwrap());
            if part {
                let third: Vec<_> = refs.iter().copied().step_by(3).collect();
                let session = scene.repository.session(SessionKind::Backup).unwrap();
                let data = data.into_iter().step_by(3).collect();
                scene.roots.push((end(session, &third), data));
            }
            scene.repository.remove_root(&gone).unwrap();
            for path in named(&scene.repository, &scene.roots[0].0) {
                flip_at(&scene.device, &path, place);
            }
            scene
                .open(2)
                .sweep(&Lists, &all, &mut Hasty)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            scene.open(3).repair(&Lists, &mut Hasty).unwrap();
            scene.assert_sound(&context);
            // A mended container needs no other copy any more.
            let swept = scene.open(4).sweep(&Lists, &all, &mut Hasty).unwrap();
            scene.assert_sound(&context);
            let again = scene.open(5).sweep(&Lists, &all, &mut Hasty).unwrap();
            assert_eq!(again.dead_containers, 0, "{context}: {swept:?}, {again:?}");
        }
    }
}

#[test]
fn a_chunk_is_read_where_any_of_its_copies_is_good() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init_with(&dir, Encryption::Aes256Gcm, "strata").unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    // The chunks are so few that nobody has sealed a container when the last backup begins.
    let data = chunks(1, 8);
    let roots = in_lockstep::<3>(&repository, &data);
    let copies = roots.map(|root| named(&repository, &root));
    assert!(copies.iter().all(|paths| paths.len() == 1), "{copies:?}");
    for good in 0..roots.len() {
        let flip_others = || {
            let others = (0..).zip(&copies).filter(|(number, _)| *number != good);
            others.for_each(|(_, paths)| flip_at(&device, &paths[0], 300));
        };
        flip_others();
        let reading = open(&dir, 1, 2).unwrap();
        for root in &roots {
            assert_eq!(restore(&reading, root).unwrap(), data, "{good}, {root}");
        }
        flip_others();
    }
}

/// Gives up waiting.
struct Impatient;

impl SweepObserver for Impatient {
    fn progress(&mut self, _: StageProgress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        false
    }
}

impl Scene {
    /// Leaves a list of condemned containers: a sweep that does not wait for a reader.
    fn condemn(&self) {
        let reading = self.open(4);
        let session = reading.session(SessionKind::Read).unwrap();
        let options = SweepOptions::default();
        let swept = self
            .repository
            .sweep(&Lists, &options, &mut Impatient)
            .unwrap();
        assert!(swept.pending_containers > 0, "{swept:?}");
        session.finish().unwrap();
    }
}

fn flip_at(device: &SimDir, path: &str, place: usize) {
    let flip = |bytes: &mut Vec<u8>| {
        let at = place.min(bytes.len() - 1);
        bytes[at] ^= 1;
    };
    device.damage(path, flip).unwrap();
}

#[test]
fn what_was_condemned_stays_while_the_copy_that_is_to_stay_cannot_be_read() {
    let paths = containers(&Scene::new("strata").device);
    for path in &paths {
        for place in [64, 2_000, 9_000] {
            let scene = Scene::new("strata");
            scene.condemn();
            flip_at(&scene.device, path, place);
            let context = format!("{path} at {place}");
            sweep(&scene.open(2)).unwrap_or_else(|error| panic!("{context}: {error}"));
            let repository = scene.open(3);
            repository.repair(&Lists, &mut Hasty).unwrap();
            scene.assert_sound(&context);
            // A list that was left is no reason to keep it for ever.
            sweep(&scene.open(5)).unwrap();
            scene.assert_sound(&context);
        }
    }
}

#[test]
fn what_was_condemned_goes_where_the_copy_that_stays_can_be_read() {
    let scene = Scene::new("strata");
    let twice = scene.stored_bytes();
    scene.condemn();
    assert!(scene.stored_bytes() >= twice);
    let report = sweep(&scene.open(2)).unwrap();
    assert!(report.deleted_containers > 0, "{report:?}");
    let left = scene.stored_bytes();
    assert!(left < twice * 2 / 3, "{left} of {twice} bytes: {report:?}");
    scene.assert_sound("swept");
}

/// Gives a root another name while the sweep waits for the session that does.
struct Renaming<'a> {
    repository: &'a Repository,
    root: RootId,
    session: Option<Session>,
}

impl SweepObserver for Renaming<'_> {
    fn progress(&mut self, _: StageProgress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        if let Some(session) = self.session.take() {
            let refs = decode_root(&self.repository.root(&self.root).unwrap());
            let renamed = end(session, &refs);
            self.repository.remove_root(&self.root).unwrap();
            self.root = renamed;
        }
        true
    }
}

#[test]
fn a_root_that_comes_up_while_a_sweep_waits_keeps_the_copies_that_it_names() {
    for number in [0, 1] {
        let mut scene = Scene::new("strata");
        let before = containers(&scene.device);
        let other = scene.open(2);
        let mut observer = Renaming {
            repository: &other,
            root: scene.roots[number].0,
            session: Some(other.session(SessionKind::Pinned).unwrap()),
        };
        let options = SweepOptions::default();
        let swept = scene.repository.sweep(&Lists, &options, &mut observer);
        let report = swept.unwrap();
        assert!(observer.session.is_none(), "nobody was waited for");
        scene.roots[number].0 = observer.root;
        let left = containers(&scene.device);
        let named = decode_root(&scene.repository.root(&observer.root).unwrap());
        for chunk in named {
            let path = onefold_store::container::object_name(chunk.container);
            assert!(left.contains(&path), "{path}: {report:?}, {before:?}");
        }
        scene.assert_sound("renamed");
    }
}

#[test]
fn a_crash_anywhere_in_a_sweep_of_what_is_stored_twice_loses_nothing() {
    let scene = Scene::new("strata");
    let first = scene.device.counts().points;
    let report = sweep(&scene.repository).unwrap();
    assert!(report.deleted_containers > 0, "{report:?}");
    let points = first..scene.device.counts().points;
    assert!(points.clone().count() > 20, "{points:?}");
    for point in points {
        for seed in [0, 1, point + 2] {
            let image = scene.device.crash_image_at(point, seed).unwrap();
            let dir: Arc<dyn Dir> = Arc::new(image);
            let repository = open(&dir, 1, 3).unwrap();
            let context = format!("point {point}, seed {seed}");
            assert_sound(&repository, &scene.roots, &context);
            sweep(&repository).unwrap();
            assert_sound(&repository, &scene.roots, &format!("{context}, swept"));
        }
    }
}

#[test]
fn a_dry_run_tells_what_a_sweep_of_what_is_stored_twice_does() {
    let scene = Scene::new("strata");
    let dry = SweepOptions {
        dry_run: true,
        ..SweepOptions::default()
    };
    let told = scene.repository.sweep(&Lists, &dry, &mut Hasty).unwrap();
    let done = sweep(&scene.repository).unwrap();
    assert!(
        told.dead_containers + told.compacted_containers > 0,
        "{told:?}"
    );
    let of = |report: &onefold_store::SweepReport| {
        [
            report.dead_containers,
            report.dead_bytes,
            report.compacted_containers,
            report.compacted_bytes,
        ]
    };
    assert_eq!(of(&told), of(&done));
    assert!(restore(&scene.open(2), &scene.roots[0].0).is_ok());
}
