//! Properties of real files alone: locks between handles, names, permissions.

use std::os::fd::AsFd;

use onefold_io::{Dir, ErrorKind, FileDir, LockKind};

use crate::untested::not_tested;

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
    std::os::unix::net::UnixListener::bind(temp.path().join("a/b/socket")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, temp.path().join("a/b/pipe"), mode).unwrap();
    for (name, what) in [
        ("link", "a symbolic link"),
        ("sub", "a folder"),
        ("socket", "a socket"),
        ("pipe", "a pipe"),
    ] {
        for opened in [dir.open(name), dir.open_write(name)] {
            let error = opened.err().unwrap();
            assert_eq!(error.kind, ErrorKind::NotAFile, "{name}");
            assert!(error.what.starts_with(what), "{error}");
        }
    }
    // a pipe that may not be written to can only be opened for reading
    for name in ["sub", "pipe"] {
        let held = dir.lock(name, LockKind::Exclusive).unwrap();
        assert!(held.is_some(), "{name}");
        assert!(dir.lock(name, LockKind::Shared).unwrap().is_none());
    }
    for name in ["link", "socket", "pipe", "sub"] {
        onefold_io::remove_if_there(&dir, name).unwrap();
    }
    assert_eq!(dir.list().unwrap(), []);
}

#[test]
fn a_folder_is_opened_through_a_link_only_where_one_was_foreseen() {
    let (temp, dir) = folder();
    std::fs::create_dir(temp.path().join("away")).unwrap();
    for name in ["fast", "other"] {
        std::os::unix::fs::symlink(temp.path().join("away"), temp.path().join("a/b").join(name))
            .unwrap();
        std::os::unix::fs::symlink("..", temp.path().join("away").join(name)).unwrap();
    }
    let dir = dir.linked("fast");
    for refused in [
        dir.open_subdir("other"),
        dir.subdir("other"),
        dir.subdir("fast").unwrap().open_subdir("fast"),
    ] {
        let refused = refused.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::Device);
        assert!(refused.what.contains("symbolic link"), "{refused}");
    }
    dir.open_subdir("fast").unwrap().create("x").unwrap();
    assert!(temp.path().join("away/x").exists());
}

/// Threads write neighbouring pieces, large ones past the page cache and small ones through it, while others read them.
#[test]
fn a_foreseen_link_that_leads_to_no_folder_is_told_as_such() {
    let (temp, dir) = folder();
    let dir = dir.linked("fast");
    std::fs::write(temp.path().join("file"), b"").unwrap();
    for (to, told) in [
        ("away", "leads nowhere"),
        ("fast", "leads back to itself"),
        ("../../file", "no folder"),
    ] {
        let link = temp.path().join("a/b/fast");
        std::os::unix::fs::symlink(to, &link).unwrap();
        for refused in [dir.open_subdir("fast"), dir.subdir("fast")] {
            let refused = refused.err().unwrap();
            assert!(refused.what.contains(told), "{refused}");
        }
        std::fs::remove_file(&link).unwrap();
    }
}

fn mixed_writers(dir: &FileDir) {
    const PIECE: usize = 300_001;
    const ROUNDS: usize = 6;
    let disk = dir.create("mixed").unwrap();
    disk.write_at(&vec![9; PIECE * 8 * ROUNDS], 0).unwrap();
    disk.sync().unwrap();
    let at = |round: usize, thread: usize| (round * 8 + thread) * PIECE;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let disk = &disk;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let small = at(round, thread * 2);
                    for i in 0..PIECE / 10_000 {
                        let bytes = vec![thread as u8; 10_000];
                        disk.write_at(&bytes, (small + i * 10_000) as u64).unwrap();
                    }
                    disk.write_at(&[thread as u8], (small + PIECE - 1) as u64)
                        .unwrap();
                    let bytes = vec![thread as u8 + 100; PIECE];
                    disk.write_at(&bytes, at(round, thread * 2 + 1) as u64)
                        .unwrap();
                    disk.read_at(&mut vec![0; 2 * PIECE], small as u64).unwrap();
                    disk.sync().unwrap();
                }
            });
        }
    });
    for (round, thread) in (0..ROUNDS).flat_map(|round| (0..4).map(move |thread| (round, thread))) {
        let mut bytes = vec![0; 2 * PIECE];
        disk.read_at(&mut bytes, at(round, thread * 2) as u64)
            .unwrap();
        assert!(bytes[..300_000].iter().all(|byte| *byte == thread as u8));
        assert_eq!(bytes[PIECE - 1], thread as u8);
        assert!(
            bytes[PIECE..]
                .iter()
                .all(|byte| *byte == thread as u8 + 100)
        );
    }
    dir.remove("mixed").unwrap();
}

#[test]
fn writers_past_the_cache_and_through_it_do_not_hurt_each_other() {
    let (_temp, dir) = folder();
    mixed_writers(&dir);
    mixed_writers(&dir.direct());
}

/// Long reads of data that is not in the page cache go past the cache: they give the same bytes at any place, and the
/// same error at the end.
#[test]
fn forgotten_bytes_are_read_as_they_were_written() {
    const LEN: usize = 5_000_001;
    let (temp, dir) = folder();
    let bytes: Vec<u8> = (0..LEN).map(|i| ((i * 31) >> 7) as u8).collect();
    let disk = dir.create("cold").unwrap();
    disk.write_at(&bytes, 0).unwrap();
    disk.sync().unwrap();
    let file = std::fs::File::open(temp.path().join("a/b/cold")).unwrap();
    for (from, to) in [
        (0, LEN),
        (1, 4_000_000),
        (4096, 4096 + (2 << 20)),
        (4097, 4096 + (2 << 20)),
        (700_001, 1_300_000),
        (LEN - 600_000, LEN),
    ] {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let before = onefold_io::os::cached_bytes(file.as_fd(), 0, LEN as u64);
        let mut read = vec![0; to - from];
        disk.read_at(&mut read, from as u64).unwrap();
        assert!(read == bytes[from..to], "{from}..{to}");
        // no data was left in the cache, where the file system has direct I/O and the kernel tells
        if before == Some(0) && has_direct(&temp) {
            let after = onefold_io::os::cached_bytes(file.as_fd(), 0, LEN as u64);
            assert_eq!(after, Some(0), "{from}..{to}");
        }
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let beyond = disk.read_at(&mut vec![0; to - from], (LEN - (to - from) + 1) as u64);
        assert_eq!(beyond.unwrap_err().kind, ErrorKind::Short);
    }
}

/// Whether files in this folder can be read past the page cache.
fn has_direct(temp: &tempfile::TempDir) -> bool {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let path = temp.path().join("a/b/cold");
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).is_ok()
}

#[test]
fn what_is_forgotten_is_not_in_the_page_cache() {
    const LEN: usize = 100_000;
    let (temp, dir) = folder();
    let disk = dir.create("cold").unwrap();
    disk.write_at(&[7; LEN], 0).unwrap();
    disk.sync().unwrap();
    let file = std::fs::File::open(temp.path().join("a/b/cold")).unwrap();
    let cached = || onefold_io::os::cached_bytes(file.as_fd(), 0, LEN as u64);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if cached() != Some(0) {
        return not_tested(
            "whether the page cache forgets, which this kernel or file system does not tell or do",
        );
    }
    let mut read = [0; LEN];
    disk.read_at(&mut read, 0).unwrap();
    assert!(cached() > Some(0));
    dir.open("cold").unwrap().forget_cached();
    assert_eq!(cached(), Some(0));
    disk.read_at(&mut read, 0).unwrap();
    assert!(read == [7; LEN]);
}

/// One of them sets a folder in the way aside; the disk that the other puts there meanwhile is no folder.
#[test]
fn two_who_clear_a_folder_away_at_once_set_nothing_else_aside() {
    let (_temp, dir) = folder();
    for round in 0..500 {
        dir.subdir("to").unwrap().create("inner").unwrap();
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let dir = &dir;
                scope.spawn(move || {
                    dir.create(name).unwrap();
                    onefold_io::rename_in_place(dir, name, "to").unwrap();
                });
            }
        });
        let aside = |name: &str| name.starts_with("to.");
        let all = dir.list().unwrap();
        let aside: Vec<_> = all.iter().filter(|entry| aside(&entry.name)).collect();
        assert!(aside.iter().all(|entry| entry.is_dir), "{round}: {aside:?}");
        for entry in aside {
            let set_aside = dir.open_subdir(&entry.name).unwrap();
            set_aside.remove("inner").unwrap();
            dir.remove_subdir(&entry.name).unwrap();
        }
        dir.remove("to").unwrap();
    }
}
