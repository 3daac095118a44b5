//! The conformance suite of every `Dir`, and of every `Disk` in it.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

use onefold_io::{
    Dir, DirEntry, Disk, Error, ErrorKind, LockKind, remove_if_there, rename_in_place, set_aside,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use super::{contents, disk, kind, pattern};

/// Checks a folder. `make` returns a new, empty one each time, and a value that keeps it alive.
pub fn dir<K>(make: impl Fn() -> (Arc<dyn Dir>, K)) {
    let (folder, keep) = make();
    edges_of_a_dir(&*folder);
    drop((folder, keep));
    let (folder, keep) = make();
    locks(&*folder);
    drop((folder, keep));
    disk(|| {
        // The folder may be deleted while its disk is open.
        let (folder, keep) = make();
        let disk = folder.create("disk").unwrap();
        drop((folder, keep));
        disk
    });
    let mut runner = TestRunner::new(Config {
        cases: 32,
        failure_persistence: None,
        ..Config::default()
    });
    let run = |ops: Vec<DirOp>| {
        let (folder, keep) = make();
        let mut twin = Twin::default();
        for op in &ops {
            op.run(&folder, &mut twin);
            assert_eq!(folder.list().unwrap(), twin.list(), "after {op:?}");
            twin.compare_lens(&*folder);
        }
        for (disk, bytes) in &twin.handles {
            assert!(
                contents(&**disk) == *bytes.borrow(),
                "a handle stays readable"
            );
        }
        drop(keep);
        Ok(())
    };
    if let Err(e) = runner.run(&proptest::collection::vec(dir_op(), 0..40), run) {
        panic!("{e}");
    }
}

fn edges_of_a_dir(dir: &dyn Dir) {
    assert_eq!(dir.list().unwrap(), []);
    for name in ["", ".", "..", "a/b", "/", "a\0", &"x".repeat(256)] {
        assert_eq!(kind(dir.create(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(kind(dir.open(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(kind(dir.subdir(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(kind(dir.len_of(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(
            kind(dir.rename(name, "x")),
            Some(ErrorKind::Denied),
            "{name:?}"
        );
        assert_eq!(
            kind(dir.rename_new("x", name)),
            Some(ErrorKind::Denied),
            "{name:?}"
        );
        assert_eq!(kind(dir.remove(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(
            kind(dir.lock(name, LockKind::Shared)),
            Some(ErrorKind::Denied),
            "{name:?}"
        );
    }
    dir.create(&"x".repeat(255)).unwrap();
    dir.remove(&"x".repeat(255)).unwrap();

    dir.create("only-read")
        .unwrap()
        .write_at(b"abc", 0)
        .unwrap();
    let read_only = dir.open("only-read").unwrap();
    assert_eq!(contents(&*read_only), b"abc");
    let is_denied = Some(ErrorKind::Denied);
    assert_eq!(kind(read_only.write_at(b"x", 0)), is_denied);
    assert_eq!(kind(read_only.set_len(1)), is_denied);
    assert_eq!(kind(read_only.discard(0, 1)), is_denied);
    assert_eq!(contents(&*read_only), b"abc");

    let sub = dir.subdir("sub").unwrap();
    sub.create("inner").unwrap();
    assert_eq!(kind(dir.create("sub")), Some(ErrorKind::Exists));
    assert!(dir.open("sub").is_err() && dir.remove("sub").is_err());
    assert!(dir.subdir("only-read").is_err() && dir.open_subdir("only-read").is_err());
    assert!(dir.remove_subdir("sub").is_err(), "not empty");
    assert_eq!(
        dir.subdir("sub").unwrap().list().unwrap().len(),
        1,
        "made once"
    );
    a_folder_in_the_way(dir);
    sub.remove("inner").unwrap();
    sub.sync().unwrap();
    dir.remove_subdir("sub").unwrap();
    let is_of_reading = |error: Option<Error>| error.unwrap().is_of_reading();
    assert!(is_of_reading(dir.open("sub").err()));
    assert!(is_of_reading(dir.len_of("sub").err()));
    assert!(is_of_reading(dir.open_subdir("sub").err()));
    assert!(!is_of_reading(dir.remove("sub").err()));
    assert!(!is_of_reading(dir.rename("sub", "x").err()));
    assert!(!is_of_reading(dir.remove_subdir("sub").err()));
    assert_eq!(kind(dir.open_subdir("sub")), Some(ErrorKind::NotFound));
    assert_eq!(kind(dir.remove_subdir("sub")), Some(ErrorKind::NotFound));
    dir.sync().unwrap();
    uses(dir);
}

/// A folder that tells times of use tells that the disk that was marked last was used last.
fn uses(dir: &dyn Dir) {
    for name in ["marked", "other"] {
        dir.create(name).unwrap();
    }
    dir.mark_used("marked");
    assert!(dir.used_ns("marked").unwrap() >= dir.used_ns("other").unwrap());
    dir.mark_used("nothing");
    dir.mark_used("a/b");
    for name in ["marked", "other"] {
        dir.remove(name).unwrap();
    }
}

/// Tests with the folder `sub`, which has a disk within, beside the disk `only-read`.
fn a_folder_in_the_way(dir: &dyn Dir) {
    let is_no_file = Some(ErrorKind::NotAFile);
    assert_eq!(kind(dir.open("sub")), is_no_file);
    assert_eq!(kind(dir.open_write("sub")), is_no_file);
    assert_eq!(kind(dir.remove("sub")), is_no_file);
    assert_eq!(kind(dir.rename("only-read", "sub")), is_no_file);
    let taken = Some(ErrorKind::Exists);
    assert_eq!(kind(dir.rename_new("only-read", "sub")), taken);
    assert!(dir.rename("sub", "only-read").is_err());
    assert!(dir.lock("sub", LockKind::Exclusive).unwrap().is_some());

    dir.create("sub.unreadable").unwrap();
    assert_eq!(set_aside(dir, "sub").unwrap(), "sub.unreadable-2");
    assert_eq!(kind(dir.open_subdir("sub")), Some(ErrorKind::NotFound));
    dir.remove("sub.unreadable").unwrap();
    dir.rename("sub.unreadable-2", "sub").unwrap();
    remove_if_there(dir, "sub").unwrap();
    dir.subdir("sub").unwrap();
    rename_in_place(dir, "only-read", "sub").unwrap();
    dir.rename_new("sub", "only-read").unwrap();
    let sub = dir.open_subdir("sub.unreadable").unwrap();
    assert_eq!(sub.list().unwrap().len(), 1, "what is somebody's stays");
    dir.rename("sub.unreadable", "sub").unwrap();
}

fn locks(dir: &dyn Dir) {
    let held = dir.lock("l", LockKind::Exclusive).unwrap().unwrap();
    assert!(dir.lock("l", LockKind::Exclusive).unwrap().is_none());
    assert!(dir.lock("l", LockKind::Shared).unwrap().is_none());
    assert!(dir.lock("other", LockKind::Exclusive).unwrap().is_some());
    drop(held);
    let shared = [
        dir.lock("l", LockKind::Shared).unwrap(),
        dir.lock("l", LockKind::Shared).unwrap(),
    ];
    assert!(shared.iter().all(Option::is_some));
    assert!(dir.lock("l", LockKind::Exclusive).unwrap().is_none());
    drop(shared);
    let old = dir.lock("l", LockKind::Exclusive).unwrap().unwrap();
    dir.remove("l").unwrap();
    let new = dir.lock("l", LockKind::Exclusive).unwrap();
    assert!(new.is_some(), "a lock belongs to the file, not to its name");
    drop((old, new));
    let names: Vec<String> = dir
        .list()
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, ["l", "other"], "a lock never removes its file");
}

#[derive(Clone, Debug)]
enum DirOp {
    Create(&'static str),
    Write(&'static str, usize),
    Read(&'static str),
    Rename(&'static str, &'static str),
    RenameNew(&'static str, &'static str),
    Remove(&'static str),
    Subdir(&'static str),
    RemoveSubdir(&'static str),
    Sync,
}

fn dir_op() -> impl Strategy<Value = DirOp> {
    let name = || proptest::sample::select(vec!["a", "b", "c", "d"]);
    prop_oneof![
        4 => name().prop_map(DirOp::Create),
        3 => (name(), 0..9000usize).prop_map(|(name, len)| DirOp::Write(name, len)),
        2 => name().prop_map(DirOp::Read),
        2 => (name(), name()).prop_map(|(from, to)| DirOp::Rename(from, to)),
        2 => (name(), name()).prop_map(|(from, to)| DirOp::RenameNew(from, to)),
        2 => name().prop_map(DirOp::Remove),
        1 => name().prop_map(DirOp::Subdir),
        1 => name().prop_map(DirOp::RemoveSubdir),
        1 => Just(DirOp::Sync),
    ]
}

type Bytes = Rc<RefCell<Vec<u8>>>;

/// The naive folder: names with bytes, `None` for a folder; and every handle that was opened.
#[derive(Default)]
struct Twin {
    names: BTreeMap<&'static str, Option<Bytes>>,
    handles: Vec<(Arc<dyn Disk>, Bytes)>,
}

impl Twin {
    fn list(&self) -> Vec<DirEntry> {
        let entries = self.names.iter().map(|(name, bytes)| DirEntry {
            name: (*name).to_owned(),
            is_dir: bytes.is_none(),
        });
        entries.collect()
    }

    fn compare_lens(&self, dir: &dyn Dir) {
        for (name, bytes) in &self.names {
            if let Some(bytes) = bytes {
                let len = bytes.borrow().len() as u64;
                assert_eq!(dir.len_of(name).unwrap(), len, "{name}");
            }
        }
        assert_eq!(kind(dir.len_of("e")), Some(ErrorKind::NotFound));
    }

    /// The expected error of renaming a disk.
    fn rename(&mut self, from: &'static str, to: &'static str, replace: bool) -> Option<ErrorKind> {
        match (self.names.get(from), self.names.get(to)) {
            (None, _) => return Some(ErrorKind::NotFound),
            (Some(_), Some(_)) if !replace => return Some(ErrorKind::Exists),
            _ => {}
        }
        let bytes = self.names.remove(from).unwrap();
        self.names.insert(to, bytes);
        None
    }

    fn is_folder(&self, name: &str) -> bool {
        matches!(self.names.get(name), Some(None))
    }
}

impl DirOp {
    fn run(&self, dir: &Arc<dyn Dir>, twin: &mut Twin) {
        match *self {
            Self::Create(name) => {
                let made = dir.create(name);
                if twin.names.contains_key(name) {
                    assert_eq!(kind(made), Some(ErrorKind::Exists));
                } else {
                    let bytes = Bytes::default();
                    twin.names.insert(name, Some(bytes.clone()));
                    twin.handles.push((made.unwrap(), bytes));
                }
            }
            Self::Write(name, len) => match twin.names.get(name) {
                None => assert_eq!(kind(dir.open_write(name)), Some(ErrorKind::NotFound)),
                Some(None) => assert!(dir.open_write(name).is_err()),
                Some(Some(bytes)) => {
                    let disk = dir.open_write(name).unwrap();
                    let at = bytes.borrow().len() / 2;
                    disk.write_at(&pattern(len, 7), at as u64).unwrap();
                    let mut bytes = bytes.borrow_mut();
                    let end = at + len;
                    let longer = bytes.len().max(end);
                    bytes.resize(longer, 0);
                    bytes[at..end].copy_from_slice(&pattern(len, 7));
                }
            },
            Self::Read(name) => match twin.names.get(name) {
                None => assert_eq!(kind(dir.open(name)), Some(ErrorKind::NotFound)),
                Some(None) => assert!(dir.open(name).is_err()),
                Some(Some(bytes)) => {
                    let disk = dir.open(name).unwrap();
                    assert!(contents(&*disk) == *bytes.borrow());
                    twin.handles.push((disk, bytes.clone()));
                }
            },
            Self::Rename(from, to) => {
                if !twin.is_folder(from) && !twin.is_folder(to) {
                    assert_eq!(kind(dir.rename(from, to)), twin.rename(from, to, true));
                }
            }
            Self::RenameNew(from, to) => {
                if !twin.is_folder(from) {
                    assert_eq!(kind(dir.rename_new(from, to)), twin.rename(from, to, false));
                }
            }
            Self::Remove(name) => match twin.names.get(name) {
                None => assert_eq!(kind(dir.remove(name)), Some(ErrorKind::NotFound)),
                Some(None) => assert!(dir.remove(name).is_err()),
                Some(Some(_)) => {
                    dir.remove(name).unwrap();
                    twin.names.remove(name);
                }
            },
            Self::Subdir(name) => match twin.names.get(name) {
                Some(Some(_)) => assert!(dir.subdir(name).is_err()),
                _ => {
                    dir.subdir(name).unwrap();
                    twin.names.insert(name, None);
                }
            },
            Self::RemoveSubdir(name) => match twin.names.get(name) {
                None => assert_eq!(kind(dir.remove_subdir(name)), Some(ErrorKind::NotFound)),
                Some(Some(_)) => assert!(dir.remove_subdir(name).is_err()),
                Some(None) => {
                    dir.remove_subdir(name).unwrap();
                    twin.names.remove(name);
                }
            },
            Self::Sync => dir.sync().unwrap(),
        }
    }
}
