//! Files with several names, with and without RAM to remember them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::restore::Overwrite;
use onefold_backup::{Entry, Progress, path, restore, snapshots, tree::Tree};
use onefold_store::{Repository, SessionKind};

use crate::scene::{self, Log, bytes, options, repository, restore_with};

const FILES: usize = 200;

/// Makes `first/<n>`, each with further names in `second` and, for every other one, in `third`, as copies by `cp -al`
/// have them.
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

const NAMES: [&str; 3] = ["a", "m/b", "z"];
const FURTHER_KINDS: [&str; 4] = ["link", "link-again", "pipe", "pipe-again"];

/// Makes a file with three names, and a link and a pipe with two.
fn few(source: &Path) {
    let at = |name: &str| source.join(name);
    fs::create_dir_all(at("m")).expect("dirs");
    fs::write(at("a"), "the snapshot's").expect("write");
    std::os::unix::fs::symlink("a", at("link")).expect("symlink");
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), fifo, mode, 0).expect("fifo");
    let linked = [
        ("a", "m/b"),
        ("a", "z"),
        ("link", "link-again"),
        ("pipe", "pipe-again"),
    ];
    for (name, again) in linked {
        fs::hard_link(at(name), at(again)).expect("link");
    }
}

fn inode(path: &Path) -> u64 {
    path.symlink_metadata().expect("it is there").ino()
}

/// Names that are there stay, and missing ones are linked to them, whichever names these are.
#[test]
fn a_name_that_is_missing_is_linked_to_any_that_stays() {
    let dir = tempfile::tempdir().expect("tempdir");
    let source = dir.path().join("source");
    few(&source);
    let repository = repository();
    let outcome = scene::back_up(&repository, &source, 1);
    let ways = [Overwrite::Never, Overwrite::IfChanged, Overwrite::IfNewer];
    for (overwrite, missing) in ways
        .into_iter()
        .flat_map(|way| (1..7).map(move |m| (way, m)))
    {
        for ram in [18 << 20, 0] {
            let target = dir.path().join(format!("{overwrite:?}-{missing}-{ram}"));
            scene::restore_folder(&repository, &outcome, &source, &target);
            let at = |name: &str| target.join(name);
            let is_missing = |n: usize| missing & 1 << n != 0;
            let kept = (0..3).find(|n| !is_missing(*n)).expect("one stays");
            let (file, link, pipe) = (at(NAMES[kept]), at("link-again"), at("pipe-again"));
            let before = [&file, &link, &pipe].map(|path| inode(path));
            for n in (0..3).filter(|n| is_missing(*n)) {
                fs::remove_file(at(NAMES[n])).expect("remove");
            }
            fs::remove_file(at("link")).expect("remove");
            fs::remove_file(at("pipe")).expect("remove");
            let how = restore::Options {
                overwrite,
                verify: true,
                path: path::clean(&bytes(&source)),
                hard_links_bytes: ram,
                ..restore::Options::default()
            };
            let summary = restore_with(&repository, &outcome, &target, &how);
            let says = format!("{overwrite:?}, missing {missing:b}");
            // The file that was there is read once, however many names are linked to it.
            assert_eq!(summary.verified, 1, "{says}");
            let [file, link, pipe] = before;
            assert_eq!(NAMES.map(|name| inode(&at(name))), [file; 3], "{says}");
            let further = FURTHER_KINDS.map(|name| inode(&at(name)));
            match overwrite {
                // This option keeps only files.
                Overwrite::IfChanged => {
                    assert_eq!([further[0], further[2]], [further[1], further[3]]);
                }
                _ => assert_eq!(further, [link, link, pipe, pipe], "{says}"),
            }
            let text = fs::read_to_string(at("z")).expect("read");
            assert_eq!(text, "the snapshot's");
        }
    }
}

/// A file that the user has changed is not the snapshot's file any more.
#[test]
fn nothing_is_linked_to_what_stays_and_is_another() {
    let dir = tempfile::tempdir().expect("tempdir");
    let source = dir.path().join("source");
    few(&source);
    let repository = repository();
    let outcome = scene::back_up(&repository, &source, 1);
    let run = |overwrite, target: &Path| {
        let how = restore::Options {
            overwrite,
            path: path::clean(&bytes(&source)),
            ..restore::Options::default()
        };
        restore_with(&repository, &outcome, target, &how);
    };
    // The first name is changed, or a further one, where others are missing or there.
    for (changed, missing, other) in [("a", "z", "m/b"), ("m/b", "a", "z")] {
        let target = dir.path().join(format!("changed-{}", changed.len()));
        let at = |name: &str| target.join(name);
        let text = |name: &str| fs::read_to_string(at(name)).expect("read");
        run(Overwrite::Always, &target);
        fs::remove_file(at(changed)).expect("remove");
        fs::remove_file(at(missing)).expect("remove");
        fs::write(at(changed), "the user's").expect("write");
        run(Overwrite::Never, &target);
        assert_eq!(text(changed), "the user's");
        assert_eq!(text(missing), "the snapshot's");
        assert_eq!(inode(&at(missing)), inode(&at(other)));
        assert_ne!(inode(&at(missing)), inode(&at(changed)));
        // The changed file has another size: now it is replaced, and linked with the others again.
        run(Overwrite::IfChanged, &target);
        assert_eq!(NAMES.map(|name| inode(&at(name))), [inode(&at(other)); 3]);
        assert_eq!(text(changed), "the snapshot's");
    }
}

/// A file that stays may be another by its bytes or its mode alone. What is missing is written anew, as one file.
#[test]
fn a_missing_name_never_becomes_a_name_of_a_file_with_other_bytes_or_another_mode() {
    let dir = tempfile::tempdir().expect("tempdir");
    let source = dir.path().join("source");
    few(&source);
    let repository = repository();
    let outcome = scene::back_up(&repository, &source, 1);
    let time = fs::metadata(source.join("z")).expect("stat").modified();
    let time = time.expect("a time");
    let change = |what, path: &Path| {
        if what == "mode" {
            let mode = Permissions::from_mode(0o4777);
            return fs::set_permissions(path, mode).expect("chmod");
        }
        fs::write(path, "somebody else").expect("write");
        let file = fs::File::options().append(true).open(path).expect("open");
        file.set_len("the snapshot's".len() as u64).expect("length");
        file.set_modified(time).expect("time");
    };
    let ways = [Overwrite::Never, Overwrite::IfChanged, Overwrite::IfNewer];
    // The name that stays is the first, or the last one.
    let names = [("z", "a", "m/b"), ("a", "m/b", "z")];
    let cases = ways.iter().flat_map(|way| [(way, "bytes"), (way, "mode")]);
    for (overwrite, what) in cases {
        for (stays, missing, further) in names {
            let says = format!("{overwrite:?}, other {what} of {stays}");
            let target = dir.path().join(&says).join("target");
            scene::restore_folder(&repository, &outcome, &source, &target);
            let at = |name: &str| target.join(name);
            for name in [missing, further] {
                fs::remove_file(at(name)).expect("remove");
            }
            change(what, &at(stays));
            let before = fs::read(at(stays)).expect("read");
            let how = restore::Options {
                overwrite: *overwrite,
                verify: true,
                path: path::clean(&bytes(&source)),
                ..restore::Options::default()
            };
            let summary = restore_with(&repository, &outcome, &target, &how);
            assert_eq!(summary.verified, 1, "{says}");
            assert_eq!(fs::read(at(stays)).expect("read"), before, "{says}");
            let text = fs::read_to_string(at(missing)).expect("read");
            assert_eq!(text, "the snapshot's", "{says}");
            let mode = |path: &Path| fs::metadata(path).expect("stat").mode();
            assert_eq!(mode(&at(missing)), mode(&source.join("a")), "{says}");
            assert_eq!(inode(&at(missing)), inode(&at(further)), "{says}");
            assert_ne!(inode(&at(missing)), inode(&at(stays)), "{says}");
        }
    }
}

/// Programs that replace files by links and renames (package managers, editors that keep a copy) run beside backups. A
/// name gets the content of the file that it was a name of, or an error is reported.
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

/// Returns the entries of the files `a` and `b` of a snapshot.
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
