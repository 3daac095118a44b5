//! Folders and files that other programs delete, or hold, while a backup walks.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use onefold_backup::backup::{self, Input};
use onefold_backup::{Progress, walk};

use crate::scene::{self, Log, bytes, options};

/// Called when a folder is about to be listed: deletes the folder that is named in a file `deletes` beside it.
fn delete_meanwhile(folder: &[u8]) -> Option<usize> {
    let folder = Path::new(OsStr::from_bytes(folder));
    let gone = fs::read_to_string(folder.with_extension("deletes")).ok()?;
    fs::remove_dir_all(folder.with_file_name(gone)).expect("it was there");
    None
}

/// Backs up, one folder after another; returns the paths that failed.
fn failed(sources: &[&Path]) -> Vec<String> {
    let repository = scene::repository();
    let log = Log::default();
    let options = backup::Options {
        walkers: 1,
        failing: delete_meanwhile,
        ..options(1)
    };
    let input = Input::Paths(sources.iter().map(|source| bytes(source)).collect());
    let outcome = backup::run(&repository, input, &options, &Progress::default(), &log);
    let failed: Vec<_> = log.errors.lock().iter().map(|e| e.0.clone()).collect();
    let summary = outcome.expect("backup").snapshot.summary;
    assert_eq!(summary.errors as usize, failed.len());
    failed
}

#[test]
fn a_folder_that_is_deleted_before_it_is_opened_or_listed_is_no_error() {
    let dir = tempfile::tempdir().expect("tempdir");
    let make = |deletes: &[(&str, &str)]| {
        for name in ["s/a", "s/b", "s/c"] {
            fs::create_dir_all(dir.path().join(name)).expect("mkdir");
            fs::write(dir.path().join(name).join("file"), name).expect("write");
        }
        for (by, gone) in deletes {
            fs::write(dir.path().join(format!("s/{by}.deletes")), gone).expect("write");
        }
    };
    let source = dir.path().join("s");
    // `b` is deleted between being found and being opened, `c` between being opened and being listed.
    make(&[("a", "b"), ("c", "c")]);
    assert_eq!(failed(&[&source]), [""; 0]);
    assert!(!source.join("b").exists() && !source.join("c").exists());
    // A path that the user named is missed.
    make(&[("a", "b")]);
    let b = source.join("b");
    assert_eq!(failed(&[&source, &b]), [b.to_str().expect("a path")]);
    assert_eq!(delete_meanwhile(b"/no/such"), walk::SOUND(b""));
}
