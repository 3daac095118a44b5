//! Back up a tree with every kind of file, restore it, compare everything.

use crate::scene::{self, back_up, every_kind, look, restore_folder};

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
