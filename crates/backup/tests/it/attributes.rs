//! Files with very many extended attributes.

use std::fs;
use std::path::Path;

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::{Flags, Progress};
use onefold_store::Repository;
use rustix::fs::{XattrFlags, lsetxattr};

use crate::mount::Mount;
use crate::scene::{Log, bytes, entry, noise, options, repository, restore_folder};

/// Gives `path` `count` attributes of 60,000 bytes, no two alike.
fn set_attributes(path: &Path, count: u64) {
    for n in 0..count {
        let value = noise(n, 60_000);
        let name = format!("trusted.{n}");
        lsetxattr(&bytes(path)[..], name, &value, XattrFlags::empty()).expect("setxattr");
    }
}

/// Backs up; returns the names of the paths that failed.
fn back_up(repository: &Repository, source: &Path, secs: i64) -> (Outcome, Vec<String>) {
    let (input, log) = (Input::Paths(vec![bytes(source)]), Log::default());
    let progress = Progress::default();
    let outcome = backup::run(repository, input, &options(secs), &progress, &log);
    let errors = log.errors.lock();
    let name = |(path, _): &(String, String)| path.rsplit('/').next().map(str::to_owned);
    (
        outcome.expect("backup"),
        errors.iter().filter_map(name).collect(),
    )
}

/// Attributes beyond the limit of one entry are reported and left out; the file itself and all else is kept.
#[test]
fn more_attributes_than_are_kept_are_told_and_nothing_else_is_lost() {
    let dir = tempfile::tempdir().expect("tempdir");
    let disk = dir.path().join("disk");
    let Some(_mount) = Mount::xfs(&dir.path().join("image"), &disk) else {
        return;
    };
    let (source, target) = (disk.join("source"), disk.join("target"));
    let at = |name: &str| source.join(name);
    fs::create_dir_all(at("folder")).expect("dir");
    for name in ["folder/inner", "many", "most", "some"] {
        fs::write(at(name), name).expect("write");
    }
    std::os::unix::fs::symlink("many", at("link")).expect("symlink");
    for name in ["folder", "link", "many"] {
        set_attributes(&at(name), 70);
    }
    set_attributes(&at("most"), 69);
    set_attributes(&at("some"), 1);
    let repository = repository();
    for secs in [1, 2] {
        let (outcome, failed) = back_up(&repository, &source, secs);
        assert_eq!(failed, ["folder", "link", "many"]);
        let entry = |name| entry(&repository, &outcome, &at(name));
        for (name, count) in [("folder/inner", 0), ("most", 69), ("some", 1)] {
            let entry = entry(name);
            assert_eq!(entry.xattrs.len(), count);
            assert_eq!(entry.flags, Flags::default());
        }
        for name in ["folder", "link", "many"] {
            let entry = entry(name);
            assert!(!entry.knows_xattrs() && entry.xattrs.is_empty(), "{name}");
        }
        assert_eq!(entry("link").target, b"many");
        let target = target.join(secs.to_string());
        restore_folder(&repository, &outcome, &source, &target);
        for name in ["folder/inner", "many", "most", "some"] {
            assert_eq!(fs::read_to_string(target.join(name)).expect("read"), name);
        }
    }
}
