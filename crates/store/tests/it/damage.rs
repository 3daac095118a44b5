//! The damage matrix: what is done to an object × which object × what is tried next.
//!
//! Wherever damage lies: nothing panics, a check names the object, a restore gives the right bytes or an error, and a repair leaves a
//! repository that is sound but for what the damage took, of which it says exactly what.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{ChunkRef, Encryption, Repository, RootId, SessionKind, StreamKind};

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, check, chunks, decode_root, encode_root, init, open,
    restore, sweep,
};

/// What is done to the bytes.
#[derive(Clone, Copy, Debug)]
enum Action {
    Flip,
    Truncate,
    Empty,
    Zero,
    Delete,
    Swap,
    /// The device does not give a byte: nobody reads anything that it is part of.
    Unreadable,
}

const ACTIONS: [Action; 7] = [
    Action::Flip,
    Action::Truncate,
    Action::Empty,
    Action::Zero,
    Action::Delete,
    Action::Swap,
    Action::Unreadable,
];

struct Stored {
    device: SimDir,
    roots: Vec<(RootId, Vec<Vec<u8>>)>,
}

/// Two roots that share chunks, in several containers.
fn stored(encryption: Encryption) -> Stored {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, encryption).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let first = chunks(1, 60);
    let second: Vec<_> = chunks(1, 30).into_iter().chain(chunks(2, 30)).collect();
    let roots = [first, second].map(|data| (back_up(&repository, &data).unwrap().0, data));
    Stored {
        device,
        roots: roots.to_vec(),
    }
}

/// Damages `path` at a place that `place` in 0..4 chooses: front, early, middle, end. Swap puts another object of the same folder there.
fn damage(device: &SimDir, path: &str, action: Action, place: usize) {
    let other = || {
        let (folder, _) = path.split_once('/')?;
        device
            .paths()
            .into_iter()
            .find(|other| other != path && other.starts_with(folder))
    };
    if let Action::Delete = action {
        return device.lose(path).unwrap();
    }
    if let Action::Unreadable = action {
        return spoil(device, path, place);
    }
    let foreign = match (action, other()) {
        (Action::Swap, Some(other)) => {
            let mut bytes = Vec::new();
            device
                .damage(&other, |found| bytes.clone_from(found))
                .unwrap();
            bytes
        }
        _ => b"something else altogether".to_vec(),
    };
    let edit = |bytes: &mut Vec<u8>| {
        if bytes.is_empty() {
            return;
        }
        let at = place_in(bytes.len(), place);
        match action {
            Action::Flip => bytes[at] ^= 0x10,
            Action::Truncate => bytes.truncate(at),
            Action::Empty => bytes.clear(),
            Action::Zero => {
                let end = bytes.len().min(at + 64);
                bytes[at..end].fill(0);
                // What was zero before is no damage.
                bytes[at] ^= 1;
            }
            Action::Swap => *bytes = foreign.clone(),
            Action::Delete | Action::Unreadable => unreachable!("handled above"),
        }
    };
    device.damage(path, edit).unwrap();
}

/// Where damage lies in an object.
fn place_in(len: usize, place: usize) -> usize {
    [0, len / 8, len / 2, len.saturating_sub(1)][place]
}

fn spoil(device: &SimDir, path: &str, place: usize) {
    let mut at = 0;
    device
        .damage(path, |bytes| at = place_in(bytes.len(), place) as u64)
        .unwrap();
    device.spoil(path, at..at + 1).unwrap();
}

/// Objects worth damaging; locks and the like hold nothing.
fn objects(device: &SimDir) -> Vec<String> {
    let wanted = ["config", "keys/", "containers/", "snapshots/", "index/"];
    let all = device.paths().into_iter();
    all.filter(|path| {
        wanted.iter().any(|start| path.starts_with(start))
            && !path.contains("lock")
            && !path.contains("owner")
    })
    .collect()
}

/// A root that can be read gives its chunks or an error, never other bytes. Returns whether all of it came.
fn restores(repository: &Repository, root: &RootId, data: &[Vec<u8>], context: &str) -> bool {
    match restore(repository, root) {
        Ok(found) => {
            assert!(found == data, "{context}: {root} reads otherwise");
            true
        }
        Err(_) => false,
    }
}

fn try_everything(
    stored: &Stored,
    encryption: Encryption,
    path: &str,
    action: Action,
    place: usize,
) {
    let context = format!("{encryption:?}, {action:?} at place {place} of {path}");
    let image = stored.device.crash_image(1);
    damage(&image, path, action, place);
    let dir: Arc<dyn Dir> = Arc::new(image.clone());
    let is_advice = path.starts_with("index/") || path == "config.copy";
    let repository = match open(&dir, 1, 5) {
        Ok(repository) => repository,
        Err(error) => {
            // Without the only key slot nothing opens; a damaged root or container never keeps it shut.
            assert!(path.starts_with("keys/"), "{context}: {error}");
            return;
        }
    };
    let whole: Vec<bool> = stored
        .roots
        .iter()
        .map(|(root, data)| restores(&repository, root, data, &context))
        .collect();
    if is_advice || path == "config" || path.starts_with("keys/") {
        assert_eq!(whole, [true, true], "{context}");
    }
    let report = check(&repository).unwrap_or_else(|error| panic!("{context}: check: {error}"));
    // A root that was deleted cannot be told from one that was forgotten.
    let is_forgotten = matches!(action, Action::Delete) && path.starts_with("snapshots/");
    if !is_advice && !is_forgotten {
        assert!(
            !report.damage.is_empty(),
            "{context}: the check saw nothing"
        );
    }
    let all_came = whole.iter().all(|whole| *whole);
    assert!(
        all_came || is_forgotten || !report.damage.is_empty(),
        "{context}: a restore failed, the check saw nothing"
    );
    assert_backs_up_beside(&image, stored, &context);
    let repaired = repository
        .repair(&Lists, &mut Hasty)
        .unwrap_or_else(|error| panic!("{context}: repair: {error}"));
    assert_hurt_is_exact(&repository, stored, &repaired.left.hurt, &context);
    assert_works_on(&repository, stored, &context);
}

/// A backup before any repair ends with an error, or with a root that gives its chunks or an error; chunks that were never stored come back.
fn assert_backs_up_beside(image: &SimDir, stored: &Stored, context: &str) {
    let dir: Arc<dyn Dir> = Arc::new(image.crash_image(1));
    let new = chunks(7, 10);
    let known = &stored.roots[0].1;
    let data: Vec<_> = known.iter().chain(&new).cloned().collect();
    for data in [data, new] {
        let Ok(repository) = open(&dir, 1, 6) else {
            return;
        };
        match back_up(&repository, &data) {
            Ok((root, _)) => {
                let whole = restores(&repository, &root, &data, context);
                assert!(whole || data.len() > 10, "{context}: new chunks are lost");
            }
            Err(error) => assert!(error.is_loss(), "{context}: backup: {error}"),
        }
    }
}

/// A root can be restored if and only if none of its references is said to be hurt.
fn assert_hurt_is_exact(
    repository: &Repository,
    stored: &Stored,
    hurt: &onefold_store::Hurt,
    context: &str,
) {
    for (root, data) in &stored.roots {
        let Ok(bytes) = repository.root(root) else {
            continue;
        };
        let refs: Vec<ChunkRef> = decode_root(&bytes);
        let said = refs.iter().any(|chunk| hurt.hurts(chunk));
        let whole = restores(repository, root, data, context);
        assert_eq!(
            whole, !said,
            "{context}: {root} restores: {whole}, said to be hurt: {said}"
        );
    }
}

/// After a repair the same data can be backed up again, which heals, and swept; damaged roots must be forgotten first.
fn assert_works_on(repository: &Repository, stored: &Stored, context: &str) {
    for (root, data) in &stored.roots {
        let (again, _) =
            back_up(repository, data).unwrap_or_else(|error| panic!("{context}: backup: {error}"));
        assert!(
            restores(repository, &again, data, context),
            "{context}: what was just stored"
        );
        if repository.root(root).is_err() {
            repository.remove_root(root).unwrap();
        } else {
            assert!(
                restores(repository, root, data, context),
                "{context}: the same data was stored again, yet {root} is still hurt"
            );
        }
    }
    sweep(repository).unwrap_or_else(|error| panic!("{context}: sweep: {error}"));
    let left = check(repository).unwrap();
    assert!(
        left.damage.is_empty(),
        "{context}: after everything: {:?}",
        left.damage
    );
}

#[test]
fn damage_is_found_named_and_mended_where_it_can_be() {
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        let stored = stored(encryption);
        for path in objects(&stored.device) {
            for action in ACTIONS {
                let places = if matches!(
                    action,
                    Action::Flip | Action::Truncate | Action::Zero | Action::Unreadable
                ) {
                    0..4
                } else {
                    0..1
                };
                for place in places {
                    try_everything(&stored, encryption, &path, action, place);
                }
            }
        }
    }
}

#[test]
fn every_byte_of_a_container_is_watched() {
    let stored = stored(Encryption::None);
    let path = objects(&stored.device)
        .into_iter()
        .find(|path| path.starts_with("containers/"))
        .unwrap();
    let mut len = 0;
    stored
        .device
        .damage(&path, |bytes| len = bytes.len())
        .unwrap();
    for at in (0..len).step_by(13) {
        let image = stored.device.crash_image(1);
        image.damage(&path, |bytes| bytes[at] ^= 1).unwrap();
        let dir: Arc<dyn Dir> = Arc::new(image);
        let report = check(&open(&dir, 1, 5).unwrap()).unwrap();
        assert!(
            !report.damage.is_empty(),
            "a flip at byte {at} of {len} was not seen"
        );
    }
}

#[test]
fn a_damaged_sweep_list_is_named_and_mended() {
    let stored = stored(Encryption::Aes256Gcm);
    let dir: Arc<dyn Dir> = Arc::new(stored.device.clone());
    dir.create("condemned")
        .unwrap()
        .write_at(b"no list", 0)
        .unwrap();
    let repository = open(&dir, 1, 5).unwrap();
    assert!(back_up(&repository, &chunks(9, 5)).is_err_and(|error| error.is_damage()));
    repository.repair(&Lists, &mut Hasty).unwrap();
    back_up(&repository, &chunks(9, 5)).unwrap();
}

/// Five backups, so that the next one merges runs of the index.
fn five_backups() -> (SimDir, Vec<Vec<u8>>) {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::None).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let known: Vec<_> = (1..=5).flat_map(|seed| chunks(seed, 20)).collect();
    for data in known.chunks(20) {
        back_up(&repository, data).unwrap();
    }
    (device, known)
}

/// What a backup of `data` stores, where `path` is damaged before it or in its middle; everything is sound afterwards, and the index is whole.
fn back_up_beside_damage(
    device: &SimDir,
    path: &str,
    (action, place): (Action, usize),
    in_the_middle: bool,
    known: &[Vec<u8>],
) {
    let context = format!("{action:?} at place {place} of {path}, in the middle: {in_the_middle}");
    let image = device.crash_image(1);
    let dir: Arc<dyn Dir> = Arc::new(image.clone());
    let data: Vec<_> = known.iter().cloned().chain(chunks(9, 20)).collect();
    let refs = {
        if !in_the_middle {
            damage(&image, path, action, place);
        }
        let repository = open(&dir, 1, 5).unwrap_or_else(|error| panic!("{context}: {error}"));
        let session = repository
            .session(SessionKind::Backup)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        if in_the_middle {
            damage(&image, path, action, place);
        }
        let mut writer = session.writer(StreamKind::Data).unwrap();
        let mut refs = Vec::new();
        for data in &data {
            let named = [(repository.fingerprinter().fingerprint(data), &data[..])];
            writer
                .write(&named, &mut refs)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        let stats = writer
            .finish()
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(stats.new_chunks, 20, "{context}: what was known is known");
        let root = session.put_root(&encode_root(&refs)).unwrap();
        session
            .finish()
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_sound(&repository, &[(root, data.clone())], &context);
        refs
    };
    let repository = open(&dir, 1, 6).unwrap();
    let (root, stats) = back_up(&repository, &data).unwrap();
    assert_eq!(stats.new_chunks, 0, "{context}: the index is whole again");
    assert_eq!(
        decode_root(&repository.root(&root).unwrap()).len(),
        refs.len()
    );
}

#[test]
fn damage_to_the_index_costs_time_only_in_the_middle_of_a_backup_too() {
    let (device, known) = five_backups();
    let files = objects(&device);
    let files: Vec<_> = files
        .iter()
        .filter(|path| path.starts_with("index/"))
        .collect();
    for kind in ["manifest", "run-", "log-", "ingested"] {
        assert!(files.iter().any(|path| path.contains(kind)), "{files:?}");
    }
    let actions = [(Action::Truncate, 2), (Action::Empty, 0)];
    for path in files {
        let places = |action| (0..4).map(move |place| (action, place));
        let flips = places(Action::Flip).chain(places(Action::Unreadable));
        for action in flips.chain(actions) {
            back_up_beside_damage(&device, path, action, true, &known);
            back_up_beside_damage(&device, path, action, false, &known);
        }
        back_up_beside_damage(&device, path, (Action::Delete, 0), false, &known);
    }
}

#[test]
fn the_sketch_outlives_a_sweep_and_a_damaged_one_is_named_and_removed() {
    for encryption in [Encryption::None, Encryption::Aes256Gcm] {
        let stored = stored(encryption);
        let dir: Arc<dyn Dir> = Arc::new(stored.device.clone());
        let repository = open(&dir, 1, 5).unwrap();
        assert_eq!(repository.sketch().unwrap(), None);
        repository.put_sketch(b"one").unwrap();
        repository.put_sketch(b"another").unwrap();
        repository.remove_root(&stored.roots[0].0).unwrap();
        sweep(&repository).unwrap();
        let sketch = open(&dir, 1, 6).unwrap().sketch().unwrap();
        assert_eq!(sketch.as_deref(), Some(&b"another"[..]));
        assert!(check(&repository).unwrap().damage.is_empty());
        for action in ACTIONS {
            if matches!(action, Action::Delete | Action::Swap) {
                continue;
            }
            damage(&stored.device, "sketch", action, 2);
            let found = check(&repository).unwrap().damage;
            assert!(
                found.len() == 1 && found[0].to_string().contains("sketch"),
                "{action:?}: {found:?}"
            );
            let repaired = repository.repair(&Lists, &mut Hasty).unwrap();
            assert!(repaired.removed_objects == ["sketch"]);
            assert_eq!(repository.sketch().unwrap(), None);
            repository.put_sketch(b"again").unwrap();
        }
        let long = vec![0; onefold_store::sketch::SKETCH_BYTES_MAX + 1];
        assert!(repository.put_sketch(&long).is_err());
    }
}

/// Blocks are bound to their container, not to their place in it: what slid behind a hole longer than all that repair looks at at once is saved.
#[test]
fn what_lies_behind_a_long_hole_is_saved() {
    const HOLE_BYTES: u64 = 5 << 20;
    let dir: Arc<dyn Dir> = Arc::new(onefold_io::MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let data = chunks(1, 12);
    let (root, _) = back_up(&open(&dir, 1, 1).unwrap(), &data).unwrap();
    let containers = dir.open_subdir("containers").unwrap();
    let folder = containers.list().unwrap().remove(0);
    let folder = containers.open_subdir(&folder.name).unwrap();
    let file = folder.list().unwrap().remove(0);
    let disk = folder.open_write(&file.name).unwrap();
    let mut bytes = vec![0; disk.len().unwrap() as usize];
    disk.read_at(&mut bytes, 0).unwrap();
    let header = onefold_store::container::HEADER_BYTES;
    disk.write_at(&vec![0; bytes.len() - header], header as u64)
        .unwrap();
    disk.write_at(&bytes[header..], header as u64 + HOLE_BYTES)
        .unwrap();
    let repository = open(&dir, 1, 2).unwrap();
    let report = repository.repair(&Lists, &mut Hasty).unwrap();
    assert_eq!(report.saved_chunks, data.len() as u64);
    assert_sound(&repository, &[(root, data)], &"after the repair");
}
