//! Restores of snapshots whose metadata cannot be read any more.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use onefold_backup::backup::Outcome;
use onefold_backup::restore::{Options, Overwrite, RestoreSummary};
use onefold_backup::tree::{Tree, read_leaf};
use onefold_backup::{Item, Kind, Progress, path, restore, snapshots};
use onefold_io::{Dir, MemDir};
use onefold_store::{Repository, SessionKind};

use crate::scene::{self, Log, back_up, bytes, noise, uneven};

/// Returns all containers, as (folder, name).
fn containers(dir: &MemDir) -> BTreeSet<(String, String)> {
    let all = dir.open_subdir("containers").expect("containers");
    let folders = all.list().expect("list").into_iter();
    folders
        .flat_map(|folder| {
            let inner = all.open_subdir(&folder.name).expect("open").list();
            let names = inner.expect("list").into_iter();
            names.map(move |entry| (folder.name.clone(), entry.name))
        })
        .collect()
}

#[test]
fn lost_leaves_cost_their_files_and_no_others() {
    // The folder's random name decides the cuts: now and then no leaf of the first snapshot is in the second.
    let is_of_use = |left: &u64| (1..11_000).contains(left);
    let left = (0..6).map(|_| restored_without_new_leaves());
    assert!(left.into_iter().any(|left| is_of_use(&left)));
}

/// Returns how many files are in leaves outside of this container.
fn files_elsewhere(repository: &Repository, outcome: &Outcome, lost: &str) -> u64 {
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let named = snapshots::load(repository, outcome.id.expect("id")).expect("load");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
    let mut files = 0;
    for leaf in tree.leaves() {
        let entries = read_leaf(leaf, &mut reader).expect("leaf");
        let is_lost = leaf.chunk.container.to_string() == lost;
        let of_files = entries.iter().filter(|(_, entry)| entry.kind == Kind::File);
        files += of_files.filter(|_| !is_lost).count() as u64;
    }
    files
}

/// Restores a snapshot after some of its leaves are lost; returns how many files are left, all of which come back.
fn restored_without_new_leaves() -> u64 {
    let source = tempfile::tempdir().expect("tempdir");
    let dir = MemDir::default();
    let repository = scene::repository_in(&dir);
    let fill = |folder: &str, files: u32| {
        fs::create_dir(source.path().join(folder)).expect("mkdir");
        for n in 0..files {
            let path = source
                .path()
                .join(format!("{folder}/a file with a long name {n}"));
            fs::write(path, "").expect("write");
        }
    };
    fill("a", 9000);
    back_up(&repository, source.path(), 1);
    let before = containers(&dir);
    fill("z", 2000);
    let outcome = back_up(&repository, source.path(), 2);
    let added = containers(&dir);
    // Empty files have no data: everything new is metadata.
    let mut lost = added.difference(&before);
    let (folder, name) = lost.next().expect("new leaves are in a container");
    let left = files_elsewhere(&repository, &outcome, name);
    let all = dir.open_subdir("containers").expect("containers");
    let folder = all.open_subdir(folder).expect("open");
    folder.remove(name).expect("remove");

    let target = tempfile::tempdir().expect("tempdir");
    let session = repository.session(SessionKind::Read).expect("session");
    let named = snapshots::load(&repository, outcome.id.expect("id")).expect("load");
    let log = Log::default();
    let options = restore::Options::default();
    let summary = restore::run(
        &session,
        &named.snapshot,
        &bytes(target.path()),
        &options,
        &Progress::default(),
        &log,
    )
    .expect("the rest is restored");
    assert!(summary.errors > 0, "{summary:?}");
    assert_eq!(log.errors.lock().len() as u64, summary.errors);
    assert_eq!(summary.files, left, "{summary:?}");
    let there = scene::look(target.path());
    let is_file = |path: &&Vec<u8>| path.windows(8).any(|part| part == b"/a file ");
    assert_eq!(there.keys().filter(is_file).count() as u64, left);
    left
}

/// Removes the container of the first item of a file's content.
fn lose_first_item(dir: &MemDir, repository: &Repository, outcome: &Outcome, file: &Path) {
    let items = scene::entry(repository, outcome, file).content.items;
    let Item::Chunk { chunk, .. } = items[0] else {
        panic!("a hole")
    };
    let name = chunk.container.to_string();
    let all = dir.open_subdir("containers").expect("containers");
    let folder = all.open_subdir(&name[..2]).expect("open");
    folder.remove(&name).expect("remove");
}

/// Restores a folder; some paths may fail.
pub fn restore_from(
    repository: &Repository,
    outcome: &Outcome,
    source: &Path,
    target: &Path,
    options: Options,
) -> RestoreSummary {
    let session = repository.session(SessionKind::Read).expect("session");
    let named = snapshots::load(repository, outcome.id.expect("id")).expect("load");
    let log = Log::default();
    let options = Options {
        path: path::clean(&bytes(source)),
        ..options
    };
    let (snapshot, to) = (&named.snapshot, bytes(target));
    let progress = Progress::default();
    let summary = restore::run(&session, snapshot, &to, &options, &progress, &log);
    let summary = summary.expect("the rest is restored");
    let errors = log.errors.lock();
    assert_eq!(errors.len() as u64, summary.errors);
    let place = target.display().to_string();
    assert!(errors.iter().all(|it| it.1.contains(&place)), "{errors:?}");
    summary
}

#[test]
fn a_file_whose_recipe_is_lost_is_counted_as_lost_and_not_as_restored() {
    let place = tempfile::tempdir().expect("tempdir");
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir(&source).expect("mkdir");
    let dir = MemDir::default();
    let repository = scene::repository_in(&dir);
    fs::write(source.join("large"), uneven(1, 3_000_000)).expect("write");
    back_up(&repository, &source, 1);
    // This makes another leaf, in another container than the recipe's.
    fs::write(source.join("other"), "x").expect("write");
    let outcome = back_up(&repository, &source, 2);
    let large = source.join("large");
    assert!(scene::entry(&repository, &outcome, &large).content.depth > 0);
    lose_first_item(&dir, &repository, &outcome, &large);
    let options = Options::default();
    let summary = restore_from(&repository, &outcome, &source, &target, options);
    let counted = (summary.errors, summary.lost, summary.failed);
    assert_eq!(counted, (1, 1, 1));
    let left_bytes = (summary.failed_bytes, summary.skipped_bytes);
    assert_eq!(left_bytes, (3_000_000, 0));
    assert!(target.join("other").exists());
}

/// Some of its chunks come before the lost one is known to be lost, some after.
#[test]
fn a_file_that_stays_loses_nothing_with_its_chunks() {
    let place = tempfile::tempdir().expect("tempdir");
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir(&source).expect("mkdir");
    let dir = MemDir::default();
    let repository = scene::repository_in(&dir);
    for name in ["a", "b", "c"] {
        let seed = u64::from(name.as_bytes()[0]);
        fs::write(source.join(name), noise(seed, 300_000)).expect("write");
    }
    let outcome = back_up(&repository, &source, 1);
    lose_first_item(&dir, &repository, &outcome, &source.join("b"));
    fs::create_dir(&target).expect("mkdir");
    for name in ["a", "b", "c"] {
        fs::write(target.join(name), "the user's").expect("write");
    }
    let options = Options {
        overwrite: Overwrite::Never,
        ..Options::default()
    };
    let summary = restore_from(&repository, &outcome, &source, &target, options);
    let counted = (summary.errors, summary.skipped, summary.failed);
    assert_eq!(counted, (0, 3, 0));
    let left_bytes = (summary.failed_bytes, summary.skipped_bytes);
    assert_eq!(left_bytes, (0, 900_000));
}
