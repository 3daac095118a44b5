//! Files that another program writes while they are read: the user is warned, the snapshot says so, and the next backup
//! reads them again. Files whose mode or names alone change are not among them.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use onefold_backup::backup::{self, Input};
use onefold_backup::{Flags, Progress, path};
use onefold_store::Repository;

use crate::scene::{self, Log, Raised, bytes, noise, options, restore_folder};

/// The scheduler may leave the writer no time between a reader's two looks at any file: then the test tries again.
const ATTEMPTS: u32 = 100;

/// Files of one length that a writer changes.
struct Written {
    paths: Vec<PathBuf>,
    len: u64,
}

impl Written {
    fn new(folder: &Path, files: u64, len: usize) -> Self {
        let paths = (0..files).map(|n| folder.join(n.to_string()));
        let paths: Vec<_> = paths.collect();
        for (path, n) in paths.iter().zip(1..) {
            fs::write(path, noise(n, len)).expect("write");
        }
        let len = len as u64;
        Self { paths, len }
    }

    /// Changes bytes, lengths and so times of the files, again and again; at the end they have their first length.
    fn write_on(&self, begun: &AtomicBool, ends: &AtomicBool) {
        let open = |path| File::options().write(true).open(path).expect("open");
        let files: Vec<_> = self.paths.iter().map(open).collect();
        for round in (0u64..).take_while(|_| !ends.load(Relaxed)) {
            for file in &files {
                file.set_len(self.len - round % 1009).expect("cut short");
                file.write_all_at(&round.to_le_bytes(), round % 4096)
                    .expect("write");
            }
            begun.store(true, Relaxed);
        }
        let whole = |file: &File| file.set_len(self.len).expect("as long as it was");
        files.iter().for_each(whole);
    }

    /// Backs up while the files are written. Returns the files that were found to change, which are reported and
    /// marked.
    fn back_up(&self, repository: &Repository, folder: &Path, secs: i64) -> BTreeSet<String> {
        let (begun, ends) = (AtomicBool::new(false), AtomicBool::new(false));
        let log = Log::default();
        let outcome = std::thread::scope(|scope| {
            let _raised = Raised(&ends);
            scope.spawn(|| self.write_on(&begun, &ends));
            while !begun.load(Relaxed) {
                std::thread::yield_now();
            }
            let input = Input::Paths(vec![bytes(folder)]);
            backup::run(
                repository,
                input,
                &options(secs),
                &Progress::default(),
                &log,
            )
        });
        let outcome = outcome.expect("backup");
        assert_eq!(*log.errors.lock(), []);
        let mut told = BTreeSet::new();
        for (whose, what) in log.warnings.lock().drain(..) {
            assert!(what.contains("changed while it was read"), "{what}");
            assert!(told.insert(whose), "{told:?}");
        }
        let is_marked = |path: &&PathBuf| {
            let entry = scene::entry(repository, &outcome, path);
            entry.flags.has(Flags::CHANGED_WHILE_READ)
        };
        let marked = self.paths.iter().filter(is_marked);
        let marked: BTreeSet<_> = marked.map(|path| path::show(&bytes(path))).collect();
        assert_eq!(told, marked);
        told
    }
}

#[test]
fn files_that_change_while_they_are_read_are_told_and_marked_and_read_again() {
    let dir = tempfile::tempdir().expect("tempdir");
    // Some files are read as a whole, and some in segments.
    for (name, files, len) in [("small", 40, 400_000), ("large", 2, 6_000_000)] {
        let (source, target) = (dir.path().join(name), dir.path().join("target"));
        fs::create_dir(&source).expect("mkdir");
        let written = Written::new(&source, files, len);
        let repository = scene::repository();
        let mut attempts = 1..=ATTEMPTS;
        let changed = |attempt: u32| {
            !written
                .back_up(&repository, &source, attempt.into())
                .is_empty()
        };
        assert!(attempts.any(changed), "{name} were never found to change");

        let quiet = scene::back_up(&repository, &source, 1000);
        assert_eq!(quiet.snapshot.summary.bytes_read, files * len as u64);
        for path in &written.paths {
            let entry = scene::entry(&repository, &quiet, path);
            assert!(!entry.flags.has(Flags::CHANGED_WHILE_READ));
        }
        restore_folder(&repository, &quiet, &source, &target);
        assert!(scene::look(&source) == scene::look(&target), "{name}");
        fs::remove_dir_all(&target).expect("remove");
    }
}

/// Modes and names change all the time; no content does.
#[test]
fn files_whose_mode_or_names_change_while_they_are_read_are_read_once_and_not_warned_of() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, aside) = (dir.path().join("source"), dir.path().join("aside"));
    fs::create_dir(&source).expect("mkdir");
    let lens = [400_000, 400_000, 400_000, 6_000_000, 6_000_000];
    let paths: Vec<PathBuf> = (0..lens.len())
        .map(|n| source.join(n.to_string()))
        .collect();
    for ((path, len), n) in paths.iter().zip(lens).zip(1..) {
        fs::write(path, noise(n, len)).expect("write");
    }
    let touch = |round: u32| {
        for path in &paths {
            let mode = Permissions::from_mode(0o600 + round % 64);
            fs::set_permissions(path, mode).expect("chmod");
            fs::hard_link(path, &aside).expect("link");
            fs::remove_file(&aside).expect("unlink");
        }
    };
    let ends = AtomicBool::new(false);
    let repository = scene::repository();
    std::thread::scope(|scope| {
        let _raised = Raised(&ends);
        scope.spawn(|| (0..).take_while(|_| !ends.load(Relaxed)).for_each(touch));
        for secs in 1..=20 {
            let log = Log::default();
            let input = Input::Paths(vec![bytes(&source)]);
            let again = backup::Options {
                force_reread: true,
                ..options(secs)
            };
            let progress = Progress::default();
            let outcome = backup::run(&repository, input, &again, &progress, &log);
            let summary = outcome.expect("backup").snapshot.summary;
            assert_eq!(*log.errors.lock(), []);
            assert_eq!(*log.warnings.lock(), []);
            assert_eq!(summary.bytes_read, lens.iter().sum::<usize>() as u64);
        }
    });
}
