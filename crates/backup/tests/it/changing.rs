//! A file that somebody writes while it is read: the user is told, the snapshot says so, and the next backup reads it again.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use onefold_backup::backup::{self, Input};
use onefold_backup::{Flags, Progress};

use crate::scene::{self, Log, Raised, bytes, noise, options, restore_folder};

/// The scheduler may leave the writer no time between a reader's two looks: then it is tried again.
const ATTEMPTS: u32 = 100;

/// Changes its bytes, its length and so its times, again and again.
fn write_on(file: &File, len: u64, (begun, ends): (&AtomicBool, &AtomicBool)) {
    for round in (0u64..).take_while(|_| !ends.load(Relaxed)) {
        file.set_len(len - round % 1009).expect("cut short");
        file.write_all_at(&round.to_le_bytes(), round % 4096)
            .expect("write");
        begun.store(true, Relaxed);
    }
}

/// What warnings there were of a backup beside a writer, and whether the snapshot has the flag.
fn back_up_beside_a_writer(
    repository: &onefold_store::Repository,
    (source, path): (&Path, &Path),
    secs: i64,
) -> (Vec<(String, String)>, bool) {
    let len = fs::metadata(path).expect("stat").len();
    let file = File::options().write(true).open(path).expect("open");
    let (begun, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let log = Log::default();
    let outcome = std::thread::scope(|scope| {
        let _raised = Raised(&ends);
        scope.spawn(|| write_on(&file, len, (&begun, &ends)));
        while !begun.load(Relaxed) {
            std::thread::yield_now();
        }
        let input = Input::Paths(vec![bytes(source)]);
        backup::run(
            repository,
            input,
            &options(secs),
            &Progress::default(),
            &log,
        )
    });
    let outcome = outcome.expect("backup");
    file.set_len(len).expect("as long as it was");
    assert_eq!(*log.errors.lock(), []);
    let entry = scene::entry(repository, &outcome, path);
    let warnings = log.warnings.lock().clone();
    (warnings, entry.flags.has(Flags::CHANGED_WHILE_READ))
}

#[test]
fn a_file_that_changes_while_it_is_read_is_told_and_marked_and_read_again() {
    let dir = tempfile::tempdir().expect("tempdir");
    // One that is read at once, and one that is read in segments.
    for (name, len) in [("small", 400_000), ("large", 6_000_000)] {
        let source = dir.path().join(name);
        fs::create_dir(&source).expect("mkdir");
        let path = source.join(name);
        fs::write(&path, noise(1, len)).expect("write");
        let repository = scene::repository();
        let mut was_told = false;
        for attempt in 1..=ATTEMPTS {
            let (warnings, is_marked) =
                back_up_beside_a_writer(&repository, (&source, &path), attempt.into());
            assert_eq!(warnings.len(), usize::from(is_marked), "{warnings:?}");
            if let Some((whose, what)) = warnings.first() {
                assert!(whose.ends_with(name), "{whose}");
                assert!(what.contains("changed while it was read"), "{what}");
                was_told = true;
                break;
            }
        }
        assert!(was_told, "{name} was never found to change");

        let quiet = scene::back_up(&repository, &source, 1000);
        let entry = scene::entry(&repository, &quiet, &path);
        assert!(!entry.flags.has(Flags::CHANGED_WHILE_READ));
        assert_eq!(quiet.snapshot.summary.bytes_read, len as u64);
        let target = dir.path().join("target");
        restore_folder(&repository, &quiet, &source, &target);
        let read = |folder: &Path| fs::read(folder.join(name)).expect("read");
        assert!(read(&source) == read(&target), "{name}");
        fs::remove_dir_all(&target).expect("remove");
    }
}
