//! Damage to what is not the data itself: the sweep's list, the sketch, the pin of a session, the sweep's working
//! file. Whatever is tried next, no root loses anything, and a repair mends it.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{
    ChunkRef, Encryption, Error, Repository, Result, RootId, Session, SessionKind, StreamKind,
};

use super::action::{ACTIONS, Action, damage, kind, swaps};
use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, check, chunks, encode_root, init, init_as, open, restore,
    sweep,
};

/// A repository with all of these objects, and roots that must stay.
struct Scene {
    encryption: Encryption,
    device: SimDir,
    stranger: SimDir,
    roots: Vec<(RootId, Vec<Vec<u8>>)>,
}

impl Scene {
    fn new(encryption: Encryption) -> Self {
        let (device, stranger) = (SimDir::new(1), SimDir::new(2));
        let roots = leave_much_behind(&device, encryption, 1);
        leave_much_behind(&stranger, encryption, 51);
        Self {
            encryption,
            device,
            stranger,
            roots,
        }
    }
}

/// A sweep condemns, copies what lives of a container, meets a reader, and leaves the rest to a later one; another
/// died in its middle.
fn leave_much_behind(
    device: &SimDir,
    encryption: Encryption,
    seed: u64,
) -> Vec<(RootId, Vec<Vec<u8>>)> {
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init_as(&dir, encryption, "strata", 6 + seed).unwrap();
    let repository = open(&dir, 1, seed).unwrap();
    let (gone, _) = back_up(&repository, &chunks(seed, 60)).unwrap();
    let every_fourth = chunks(seed, 60).into_iter().step_by(4);
    let kept: Vec<_> = every_fourth.chain(chunks(seed + 1, 20)).collect();
    let (root, _) = back_up(&repository, &kept).unwrap();
    repository.put_sketch(b"learnt").unwrap();
    repository.remove_root(&gone).unwrap();
    let reader = open(&dir, 1, seed + 1).unwrap();
    let session = reader.session(SessionKind::Read).unwrap();
    let report = sweep(&repository).unwrap();
    assert!(report.pending_containers > 0, "{report:?}");
    assert!(report.compacted_containers > 0, "{report:?}");
    drop(session);
    leave_marks(&dir, &[[7; 17]; 30].concat());
    vec![(root, kept)]
}

/// Leaves the marks of a sweep that died.
fn leave_marks(dir: &Arc<dyn Dir>, marks: &[u8]) {
    let scratch = dir.subdir("scratch").unwrap();
    let disk = scratch.create("marks").unwrap();
    let sum = onefold_io::frame::crc64(marks).to_le_bytes();
    disk.write_at(&[marks, &sum].concat(), 0).unwrap();
}

/// Command that is tried after the damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Check,
    Restore,
    Backup,
    Prune,
    Repair,
}

const VERBS: [Verb; 5] = [
    Verb::Check,
    Verb::Restore,
    Verb::Backup,
    Verb::Prune,
    Verb::Repair,
];

/// A session of another process that lives on meanwhile, and has stored something.
pub struct Living {
    _repository: Repository,
    session: Session,
    refs: Vec<ChunkRef>,
    data: Vec<Vec<u8>>,
}

impl Living {
    pub fn begin(dir: &Arc<dyn Dir>, data: Vec<Vec<u8>>) -> Self {
        let repository = open(dir, 1, 31).unwrap();
        let session = repository.session(SessionKind::Backup).unwrap();
        let fingerprinter = repository.fingerprinter();
        let named = data
            .iter()
            .map(|data| (fingerprinter.fingerprint(data), &data[..]));
        let mut refs = Vec::new();
        let mut writer = session.writer(StreamKind::Data).unwrap();
        writer.write(&named.collect::<Vec<_>>(), &mut refs).unwrap();
        writer.finish().unwrap();
        Self {
            _repository: repository,
            session,
            refs,
            data,
        }
    }

    /// Ends the session; everything that it acknowledges is there.
    pub fn end(self) -> Result<(RootId, Vec<Vec<u8>>)> {
        let root = self.session.put_root(&encode_root(&self.refs))?;
        self.session.finish()?;
        Ok((root, self.data))
    }
}

/// The path of an object: of a list of the condemned, of the only one.
fn path_of(device: &SimDir, object: &str) -> String {
    let mut paths = device.paths().into_iter();
    let list = paths.find(|path| object == "condemned" && path.starts_with("condemned/"));
    list.unwrap_or_else(|| object.to_owned())
}

/// Returns the commands that damage to an object keeps from working until it is repaired, and whether a check names the
/// damage. Damage that reads well cannot be noticed.
fn hinders(scene: &Scene, object: &str, action: Action, way: usize) -> (&'static [Verb], bool) {
    let is_well = match action {
        Action::Delete => true,
        Action::Swap => {
            let path = path_of(&scene.device, object);
            let (name, _) = &swaps(&scene.device, &scene.stranger, &path)[way];
            let is_its_like = kind(name.rsplit(' ').next().unwrap_or(name)) == object;
            // Nothing but its seal binds a sketch to its repository, and nothing the list.
            is_its_like && (object == "condemned" || scene.encryption == Encryption::None)
        }
        _ => false,
    };
    match object {
        "condemned" => (&[Verb::Backup, Verb::Prune], !is_well),
        "sketch" => (&[], !is_well),
        _ => (&[], false),
    }
}

fn try_verb(scene: &Scene, object: &str, (action, way): (Action, usize), verb: Verb) {
    let encryption = scene.encryption;
    let context = format!("{encryption:?}, {action:?} ({way}) of {object}, {verb:?}");
    let image = scene.device.fork();
    let dir: Arc<dyn Dir> = Arc::new(image.clone());
    let (mut living, mut path) = (None, path_of(&image, object));
    if object == "sessions" {
        living = Some(Living::begin(&dir, chunks(31, 20)));
        let mut pins = image.paths().into_iter();
        path = pins.find(|path| path.starts_with("sessions/")).unwrap();
    }
    let (hindered, is_named) = match living {
        Some(_) => (&[][..], false),
        None => hinders(scene, object, action, way),
    };
    damage(&image, &scene.stranger, &path, (action, way));
    let repository = open(&dir, 1, 5).unwrap();
    let mut roots = scene.roots.clone();
    let done = run(&repository, verb, &mut roots, object, is_named, &context);
    match (hindered.contains(&verb) && is_named, done) {
        (true, Err(error)) => {
            let names_it = error.is_loss() && error.to_string().contains(object);
            assert!(names_it, "{context}: {error}");
        }
        (false, Ok(())) => {}
        (hinders, done) => panic!("{context}: it hinders: {hinders}, yet {done:?}"),
    }
    if let Some(living) = living {
        match (living.end(), action) {
            (Ok(root), action) if !is_away(action) => roots.push(root),
            (Err(Error::PinLost { .. }), action) if is_away(action) => {}
            (ended, _) => panic!("{context}: the session ended with {ended:?}"),
        }
    }
    assert_mended(&repository, roots, &context);
}

/// Whether nothing of the object stands under its name.
fn is_away(action: Action) -> bool {
    matches!(action, Action::Delete | Action::Folder)
}

/// Runs a verb. What it says is what holds.
fn run(
    repository: &Repository,
    verb: Verb,
    roots: &mut Vec<(RootId, Vec<Vec<u8>>)>,
    object: &str,
    is_named: bool,
    context: &str,
) -> Result<()> {
    match verb {
        Verb::Check => {
            let damage = check(repository)?.damage;
            let names_it = damage
                .iter()
                .all(|error| error.to_string().contains(object));
            assert!(names_it, "{context}: {damage:?}");
            assert_eq!(damage.len(), usize::from(is_named), "{context}");
        }
        Verb::Restore => {
            for (root, data) in roots {
                assert!(restore(repository, root)? == *data, "{context}");
            }
        }
        Verb::Backup => {
            let data: Vec<_> = chunks(1, 60).into_iter().chain(chunks(9, 20)).collect();
            roots.push((back_up(repository, &data)?.0, data));
        }
        Verb::Prune => drop(sweep(repository)?),
        Verb::Repair => {
            let removed = repository.repair(&Lists, &mut Hasty)?.removed_objects;
            assert_eq!(
                removed.len(),
                usize::from(is_named),
                "{context}: {removed:?}"
            );
            assert!(
                removed.iter().all(|path| path.starts_with(object)),
                "{context}: {removed:?}"
            );
        }
    }
    Ok(())
}

/// After a repair all is as if nothing had been: what was condemned is not counted on and goes, what is acknowledged
/// stays.
fn assert_mended(repository: &Repository, mut roots: Vec<(RootId, Vec<Vec<u8>>)>, context: &str) {
    repository
        .repair(&Lists, &mut Hasty)
        .unwrap_or_else(|error| panic!("{context}: repair: {error}"));
    assert_sound(repository, &roots, &context);
    let data = chunks(1, 60);
    roots.push((back_up(repository, &data).unwrap().0, data));
    let report = sweep(repository).unwrap();
    assert_eq!(report.pending_containers, 0, "{context}");
    assert_sound(repository, &roots, &context);
    repository.put_sketch(b"again").unwrap();
    assert!(repository.sketch().unwrap().is_some(), "{context}");
}

#[test]
fn damage_to_small_objects_takes_nothing_whatever_is_tried_next() {
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        let scene = Scene::new(encryption);
        for object in ["condemned", "sketch", "sessions", "scratch/marks"] {
            for action in ACTIONS {
                // The stranger's repository has no pin to swap in: it has no living session.
                let ways = match object {
                    "sessions" if action == Action::Swap => 1,
                    "sessions" => action.ways(&scene.device, &scene.stranger, "sketch"),
                    _ => {
                        let path = path_of(&scene.device, object);
                        action.ways(&scene.device, &scene.stranger, &path)
                    }
                };
                for way in 0..ways {
                    for verb in VERBS {
                        try_verb(&scene, object, (action, way), verb);
                    }
                }
            }
        }
    }
}

#[test]
fn the_sketch_outlives_a_sweep_and_has_a_longest_length() {
    for encryption in [Encryption::None, Encryption::Aes256Gcm] {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new(1));
        init(&dir, encryption).unwrap();
        let repository = open(&dir, 1, 5).unwrap();
        let (gone, _) = back_up(&repository, &chunks(1, 60)).unwrap();
        assert_eq!(repository.sketch().unwrap(), None);
        repository.put_sketch(b"one").unwrap();
        repository.put_sketch(b"another").unwrap();
        repository.remove_root(&gone).unwrap();
        sweep(&repository).unwrap();
        let sketch = open(&dir, 1, 6).unwrap().sketch().unwrap();
        assert_eq!(sketch.as_deref(), Some(&b"another"[..]));
        let long = vec![0; onefold_store::sketch::SKETCH_BYTES_MAX + 1];
        assert!(repository.put_sketch(&long).is_err());
    }
}
