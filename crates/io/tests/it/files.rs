//! What only real files show: locks between handles, names, permissions.

use onefold_io::{Dir, ErrorKind, FileDir, LockKind};

fn folder() -> (tempfile::TempDir, FileDir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = FileDir::create(temp.path().join("a/b")).unwrap();
    (temp, dir)
}

#[test]
fn a_lock_conflicts_between_two_handles_of_one_process() {
    let (temp, dir) = folder();
    let other = FileDir::open(temp.path().join("a/b")).unwrap();
    let held = dir.lock("l", LockKind::Exclusive).unwrap().unwrap();
    assert!(other.lock("l", LockKind::Shared).unwrap().is_none());
    assert!(dir.lock("l", LockKind::Exclusive).unwrap().is_none());
    drop(held);
    let shared = other.lock("l", LockKind::Shared).unwrap().unwrap();
    let second = dir.lock("l", LockKind::Shared).unwrap().unwrap();
    assert!(dir.lock("l", LockKind::Exclusive).unwrap().is_none());
    drop((shared, second));
    assert!(dir.lock("l", LockKind::Exclusive).unwrap().is_some());
}

#[test]
fn a_folder_stays_the_same_when_its_parent_is_renamed() {
    let (temp, dir) = folder();
    std::fs::rename(temp.path().join("a"), temp.path().join("c")).unwrap();
    dir.create("x").unwrap().write_at(b"hi", 0).unwrap();
    assert_eq!(std::fs::read(temp.path().join("c/b/x")).unwrap(), b"hi");
}

#[test]
fn links_and_folders_are_not_opened_as_disks() {
    let (temp, dir) = folder();
    std::os::unix::fs::symlink("/etc/passwd", temp.path().join("a/b/link")).unwrap();
    std::fs::create_dir(temp.path().join("a/b/sub")).unwrap();
    assert_eq!(dir.open("link").err().unwrap().kind, ErrorKind::Device);
    assert_eq!(dir.open("sub").err().unwrap().kind, ErrorKind::Device);
}
