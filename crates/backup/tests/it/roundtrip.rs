//! Back up a tree with every kind of file, restore it, compare everything.

use onefold_backup::{Progress, backup, path, restore};

use crate::scene::{self, back_up, every_kind, look, restore_folder, restore_with};

#[test]
fn every_kind_of_file_comes_back() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    every_kind(&source);
    let repository = scene::repository();
    let outcome = back_up(&repository, &source, 1);
    restore_folder(&repository, &outcome, &source, &target);
    compare(&source, &target);
}

fn compare(source: &std::path::Path, target: &std::path::Path) {
    let (a, b) = (look(source), look(target));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (path, look) in &a {
        assert!(
            look == &b[path],
            "{}: {look:?}\n{:?}",
            onefold_backup::path::show(path),
            b[path]
        );
    }
}

/// Restores with times of access, in windows of some files each, into an empty target and over the same files.
#[test]
fn what_is_as_the_snapshot_says_is_no_loss_when_it_is_read_back() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    every_kind(&source);
    let repository = scene::repository();
    let how = backup::Options {
        with_atime: true,
        ..scene::options(1)
    };
    let input = backup::Input::Paths(vec![scene::bytes(&source)]);
    let (progress, log) = (Progress::default(), scene::Log::default());
    let outcome = backup::run(&repository, input, &how, &progress, &log).expect("backup");
    for window_bytes in [16 << 10, 64 << 20] {
        let how = restore::Options {
            path: path::clean(&scene::bytes(&source)),
            verify: true,
            window_bytes,
            ..restore::Options::default()
        };
        let summary = restore_with(&repository, &outcome, &target, &how);
        assert_eq!((summary.lacking, summary.errors), (0, 0));
        compare(&source, &target);
    }
}
