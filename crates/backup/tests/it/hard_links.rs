//! Files with several names, with and without RAM to remember them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::{Entry, Progress, path, restore, snapshots, tree::Tree};
use onefold_store::{Repository, SessionKind};

use crate::scene::{self, Log, bytes, options, repository, restore_with};

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

/// Programs that replace files by links and renames (package managers, editors that keep a copy) run beside backups.
/// What a name gets is the content of the file that it was a name of, or an error is told.
#[test]
fn names_that_come_and_go_never_get_another_files_content() {
    let dir = tempfile::tempdir().expect("tempdir");
    let source = dir.path().join("source");
    fs::create_dir(&source).expect("dir");
    let name = |name: &str| source.join(name);
    fs::write(name("a"), "generation 0").expect("write");
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = scene::Raised(over);
        scope.spawn(|| {
            for generation in 1.. {
                fs::hard_link(name("a"), name("b")).expect("link");
                if generation % 2 == 0 {
                    fs::remove_file(name("a")).expect("unlink");
                }
                std::thread::yield_now();
                fs::write(name("new"), format!("generation {generation}")).expect("write");
                fs::rename(name("new"), name("a")).expect("rename");
                std::thread::yield_now();
                fs::remove_file(name("b")).expect("unlink");
                if over.load(Relaxed) {
                    return;
                }
            }
        });
        for round in 1..200 {
            let (repository, log) = (repository(), Log::default());
            let input = Input::Paths(vec![bytes(&source)]);
            let outcome = backup::run(
                &repository,
                input,
                &options(round),
                &Progress::default(),
                &log,
            );
            let outcome = outcome.expect("backup");
            let entries = entries(&repository, &outcome);
            let unread = entries.iter().any(|entry| entry.is_unreadable());
            assert!(!unread || !log.errors.lock().is_empty());
            for entry in entries.iter().filter(|entry| !entry.is_unreadable()) {
                assert!(entry.size >= "generation 0".len() as u64, "{entry:?}");
                let same = |other: &&Entry| other.content == entry.content;
                let mut inodes = entries.iter().filter(same).map(|other| other.inode);
                assert!(inodes.all(|inode| inode == entry.inode), "{entries:#?}");
            }
        }
    });
}

/// The files `a` and `b` of a snapshot.
fn entries(repository: &Repository, outcome: &Outcome) -> Vec<Entry> {
    let session = repository.session(SessionKind::Read).expect("session");
    let named = snapshots::load(repository, outcome.id.expect("id")).expect("load");
    let mut reader = session.reader().expect("reader");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("open");
    let mut entries = Vec::new();
    let mut cursor = tree.cursor();
    while let Some((_, entry)) = cursor.next(&mut reader).expect("next") {
        if [&b"a"[..], b"b"].contains(&&entry.name[..]) {
            entries.push(entry);
        }
    }
    entries
}
