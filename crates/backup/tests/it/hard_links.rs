//! Files with several names, with and without RAM to remember them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use onefold_backup::backup::{self, Input};
use onefold_backup::{Progress, path, restore};

use crate::scene::{Log, bytes, options, repository, restore_with};

const FILES: usize = 200;

/// `first/<n>`, each with further names in `second` and, every other one, in `third`, as copies by `cp -al` have them.
fn make(source: &Path) {
    for folder in ["first", "second", "third"] {
        fs::create_dir_all(source.join(folder)).expect("dirs");
    }
    for n in 0..FILES {
        let name = |folder: &str| source.join(folder).join(format!("name {n}"));
        fs::write(name("first"), format!("content of {n}").repeat(n % 7)).expect("write");
        fs::hard_link(name("first"), name("second")).expect("link");
        if n % 2 == 0 {
            fs::hard_link(name("first"), name("third")).expect("link");
        }
    }
}

#[test]
fn without_ram_to_remember_them_each_is_read_once_and_linked_again() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    make(&source);
    for ram in [18 << 20, 0] {
        let (repository, log, target) =
            (repository(), Log::default(), target.join(ram.to_string()));
        let how = backup::Options {
            hard_links_bytes: ram,
            ..options(1)
        };
        let input = Input::Paths(vec![bytes(&source)]);
        let outcome = backup::run(&repository, input, &how, &Progress::default(), &log);
        let outcome = outcome.expect("backup");
        assert_eq!(
            (&*log.errors.lock(), &*log.warnings.lock()),
            (&vec![], &vec![])
        );
        let content: u64 = (0..FILES)
            .map(|n| (format!("content of {n}").len() * (n % 7)) as u64)
            .sum();
        assert_eq!(outcome.snapshot.summary.bytes_read, content);
        let how = restore::Options {
            path: path::clean(&bytes(&source)),
            hard_links_bytes: ram,
            ..restore::Options::default()
        };
        restore_with(&repository, &outcome, &target, &how);
        assert_linked(&source, &target);
    }
}

fn assert_linked(source: &Path, target: &Path) {
    for n in 0..FILES {
        let name = |folder: &str| target.join(folder).join(format!("name {n}"));
        let first = fs::metadata(name("first")).expect("first");
        assert_eq!(first.nlink(), 2 + u64::from(n % 2 == 0));
        assert_eq!(
            fs::metadata(name("second")).expect("second").ino(),
            first.ino()
        );
        let content = fs::read(source.join("first").join(format!("name {n}"))).expect("read");
        assert_eq!(fs::read(name("second")).expect("read"), content);
    }
}
