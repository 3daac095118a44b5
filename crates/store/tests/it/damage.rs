//! The damage matrix: what is done to an object × which object × what is tried next.
//!
//! Wherever damage lies: nothing panics, a check names the object, a restore gives the right bytes or an error, a
//! backup and a sweep take nothing that could be had before, and a repair leaves a repository that is sound but for
//! what the damage took, of which it says exactly what.

mod action;
mod crashed;
mod index;
mod small_objects;
mod under_a_sweep;

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{
    ChunkRef, Encryption, KdfCost, LostChunks, Repository, Result, RootId, Secret,
};

use action::{ACTIONS, Action, SOMEBODYS, damage, objects, swaps};

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, check, chunks, decode_root, init, init_as, open, open_as,
    restore, say_much, secret, sweep,
};

/// Two roots that share chunks, in several containers; and another repository, of which objects get lost among these.
struct Stored {
    encryption: Encryption,
    device: SimDir,
    stranger: SimDir,
    roots: Vec<(RootId, Vec<Vec<u8>>)>,
}

/// Password of the second key slot.
fn another_secret() -> Secret {
    Secret::new("another")
}

fn stored(encryption: Encryption, index: &str) -> Stored {
    let (device, stranger) = (SimDir::new(1), SimDir::new(2));
    let roots = fill(&device, encryption, index, 1);
    fill(&stranger, encryption, index, 51);
    Stored {
        encryption,
        device,
        stranger,
        roots,
    }
}

/// A new repository. Each backup opens it anew, so that of every kind the index has several files where it keeps
/// several; of the last one `strata` has no run.
fn fill(
    device: &SimDir,
    encryption: Encryption,
    index: &str,
    seed: u64,
) -> Vec<(RootId, Vec<Vec<u8>>)> {
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init_as(&dir, encryption, index, 6 + seed).unwrap();
    let first = chunks(seed, 60);
    let half = chunks(seed, 30).into_iter();
    let second: Vec<_> = half.chain(chunks(seed + 1, 30)).collect();
    let all = (seed..).zip([first, second]);
    let roots = all.map(|(seed, data)| {
        if index == "strata" {
            drop(open(&dir, 1, seed).unwrap());
            say_much(&dir, 1030, seed);
        }
        let repository = open(&dir, 1, seed).unwrap();
        (back_up(&repository, &data).unwrap().0, data)
    });
    let roots = roots.collect();
    if encryption != Encryption::None {
        let repository = open(&dir, 1, seed).unwrap();
        let added = repository.add_key(&another_secret(), "test", KdfCost::LEAST, 2);
        added.unwrap();
    }
    roots
}

/// Opened by whatever means there are: the one password, the other, and of an encrypted one the configuration of a
/// key slot.
fn open_somehow(dir: &Arc<dyn Dir>, seed: u64) -> Result<Repository> {
    let secrets = [secret(), another_secret()];
    let opened = Repository::config_at(dir).and_then(|config| {
        let open = |secret| open_as(dir, config.clone(), 1, seed, secret);
        open(&secrets[0]).or_else(|_| open(&secrets[1]))
    });
    opened.or_else(|error| {
        let mut sealed = secrets.iter().map(|secret| {
            let config = Repository::config_in_slots(dir, secret)?;
            open_as(dir, config, 1, seed, secret)
        });
        sealed.find_map(Result::ok).ok_or(error)
    })
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

fn try_everything(stored: &Stored, path: &str, (action, way): (Action, usize)) {
    let encryption = stored.encryption;
    let mut context = format!("{encryption:?}, {action:?} ({way}) of {path}");
    let image = stored.device.crash_image(1);
    if action == Action::Swap {
        let (name, _) = &swaps(&image, &stored.stranger, path)[way];
        context += &format!(": {name}");
    }
    damage(&image, &stored.stranger, path, (action, way));
    let dir: Arc<dyn Dir> = Arc::new(image.clone());
    let repository =
        open_somehow(&dir, 5).unwrap_or_else(|error| panic!("{context}: open: {error}"));
    let restored = |(root, data): &(RootId, Vec<_>)| restores(&repository, root, data, &context);
    let whole: Vec<bool> = stored.roots.iter().map(restored).collect();
    if !path.starts_with("containers/") && !path.starts_with("snapshots/") {
        assert_eq!(whole, [true, true], "{context}");
    }
    assert_is_told(&repository, path, action, &whole, &context);
    assert_backs_up_beside(&image, stored, path, &context);
    let is_to_be_whole = whole[1] || action == Action::Unreadable;
    assert_sweeps_beside(&image, stored, path, is_to_be_whole, &context);
    let repaired = repository
        .repair(&Lists, &mut Hasty)
        .unwrap_or_else(|error| panic!("{context}: repair: {error}"));
    assert_hurt_is_exact(&repository, stored, &repaired.left.hurt, &context);
    assert_works_on(&repository, stored, path, &context);
    if (action, way) == (Action::Folder, 1) {
        let mut left = image.paths().into_iter();
        assert!(
            left.any(|path| path.ends_with(SOMEBODYS)),
            "{context}: somebody's file went"
        );
    }
}

/// A check names what is damaged, unless it costs time only or nobody can tell it from what somebody wanted.
fn assert_is_told(
    repository: &Repository,
    path: &str,
    action: Action,
    whole: &[bool],
    context: &str,
) {
    let report = check(repository).unwrap_or_else(|error| panic!("{context}: check: {error}"));
    // A root that was deleted cannot be told from one that was forgotten, nor a key from one that was removed.
    let is_gone = |folder: &str| action == Action::Delete && path.starts_with(folder);
    let is_forgotten = is_gone("snapshots/");
    // The file may have a copy of another slot of the same repository: that is a good slot.
    let is_a_key = path.starts_with("keys/") && matches!(action, Action::Delete | Action::Swap);
    let is_untold = path.starts_with("index/") || is_forgotten || is_a_key;
    if is_gone("config.copy") {
        assert!(report.has_no_copy, "{context}");
    } else {
        let is_told = !report.damage.is_empty();
        assert!(is_told || is_untold, "{context}: the check saw nothing");
    }
    let all_came = whole.iter().all(|whole| *whole);
    assert!(
        all_came || is_forgotten || !report.damage.is_empty(),
        "{context}: a restore failed, the check saw nothing"
    );
}

/// A backup before any repair ends with an error only where a container is damaged, or with a root that gives its
/// chunks or an error; chunks that were never stored come back.
fn assert_backs_up_beside(image: &SimDir, stored: &Stored, path: &str, context: &str) {
    let dir: Arc<dyn Dir> = Arc::new(image.crash_image(1));
    let new = chunks(7, 10);
    let known = &stored.roots[0].1;
    let data: Vec<_> = known.iter().chain(&new).cloned().collect();
    for data in [data, new] {
        let repository = open_somehow(&dir, 6).unwrap();
        match back_up(&repository, &data) {
            Ok((root, _)) => {
                let whole = restores(&repository, &root, &data, context);
                assert!(whole || data.len() > 10, "{context}: new chunks are lost");
            }
            Err(error) => {
                let may_fail = path.starts_with("containers/") && error.is_loss();
                assert!(may_fail, "{context}: backup: {error}");
            }
        }
    }
}

/// A sweep before any repair, with one root forgotten, ends with an error only where a container or a root is
/// damaged. It takes nothing of the other root, nor what the device will give again.
fn assert_sweeps_beside(
    image: &SimDir,
    stored: &Stored,
    path: &str,
    is_to_be_whole: bool,
    context: &str,
) {
    let device = image.crash_image(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    let repository = open_somehow(&dir, 7).unwrap();
    repository.remove_root(&stored.roots[0].0).unwrap();
    if let Err(error) = sweep(&repository) {
        let of_data = ["containers/", "snapshots/"];
        let may_fail = of_data.iter().any(|folder| path.starts_with(folder)) && error.is_loss();
        assert!(may_fail, "{context}: sweep: {error}");
    }
    device.heal();
    let (root, data) = &stored.roots[1];
    let is_whole = restores(&repository, root, data, context);
    assert!(
        is_whole || !is_to_be_whole,
        "{context}: the sweep took of {root}"
    );
}

/// A root can be restored if and only if none of its references is said to be hurt.
fn assert_hurt_is_exact(
    repository: &Repository,
    stored: &Stored,
    hurt: &LostChunks,
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

/// After a repair the same data can be backed up again, which heals, and swept; damaged roots must be forgotten
/// first, and a damaged key removed.
fn assert_works_on(repository: &Repository, stored: &Stored, path: &str, context: &str) {
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
    let mut left = check(repository).unwrap().damage;
    if let (Some(id), false) = (path.strip_prefix("keys/"), left.is_empty()) {
        let is_named = left.iter().all(|error| error.to_string().contains(path));
        assert!(is_named, "{context}: {left:?}");
        repository.remove_key(id).unwrap();
        left = check(repository).unwrap().damage;
    }
    assert!(left.is_empty(), "{context}: after everything: {left:?}");
}

fn try_all(stored: &Stored, paths: &[String]) {
    for path in paths {
        for action in ACTIONS {
            for way in 0..action.ways(&stored.device, &stored.stranger, path) {
                try_everything(stored, path, (action, way));
            }
        }
    }
}

fn damage_everything(encryption: Encryption) {
    let stored = stored(encryption, "strata");
    let paths = objects(&stored.device);
    let several: &[&str] = match encryption {
        Encryption::None => &["index/run", "index/log", "containers", "snapshots"],
        Encryption::Aes256Gcm => &["index/run", "index/log", "containers", "snapshots", "keys"],
    };
    for kind in several {
        let alike = paths.iter().filter(|path| action::kind(path) == *kind);
        assert!(alike.count() > 1, "{kind} of {paths:?}");
    }
    try_all(&stored, &paths);
}

#[test]
fn damage_is_found_named_and_mended_where_it_can_be() {
    damage_everything(Encryption::Aes256Gcm);
}

#[test]
fn damage_is_found_named_and_mended_without_encryption_too() {
    damage_everything(Encryption::None);
}

#[test]
fn every_byte_of_a_container_is_watched() {
    let stored = stored(Encryption::None, "strata");
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

/// Blocks are bound to their container, not to their place in it: what slid behind a hole longer than all that repair
/// looks at at once is saved.
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
