//! Small files: many in flight at once, and files that are larger than they claim.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_backup::backup::{self, Input};
use onefold_backup::exclude::Excludes;
use onefold_backup::{Error, Events, Progress, restore};

use crate::scene::{back_up, bytes, noise, options, repository, restore_folder, restore_with};

/// Files with little or nothing to store take room on their way as others do: the store must not wait for more files
/// while the readers wait for room.
#[test]
fn any_number_of_files_with_nothing_to_store_pass() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fs::create_dir(&source).expect("dir");
    for n in 0..200 {
        let file = File::create(source.join(n.to_string())).expect("create");
        file.set_len(200 << 10).expect("hole");
    }
    let repository = repository();
    let outcome = back_up(&repository, &source, 1);
    assert_eq!(outcome.snapshot.summary.bytes_read, 0);
    restore_folder(&repository, &outcome, &source, &target);
    let restored = fs::read(target.join("199")).expect("read");
    assert_eq!(restored, vec![0; 200 << 10]);
}

/// Files of /proc claim to be empty.
#[test]
fn a_file_that_says_it_is_empty_is_read_to_its_end() {
    let source = Path::new("/proc/kallsyms");
    let read = || fs::read(source).unwrap_or_default();
    if read().len() < 1 << 20 {
        crate::untested::not_tested("/proc has no such file here");
        return;
    }
    // Modules that the kernel loads show there: the file may change while it is compared.
    for _ in 0..20 {
        let (before, restored, after) = (read(), backed_up_and_restored(source), read());
        if before == after {
            assert!(
                restored == before,
                "{} of {} bytes",
                restored.len(),
                before.len()
            );
            return;
        }
    }
}

fn backed_up_and_restored(file: &Path) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("tempdir");
    let repository = repository();
    let outcome = back_up(&repository, file, 1);
    let options = restore::Options {
        path: bytes(file),
        ..restore::Options::default()
    };
    restore_with(&repository, &outcome, dir.path(), &options);
    fs::read(dir.path().join(file.file_name().expect("a name"))).expect("read")
}

/// Writes to files when it is told of a line that is no pattern: then the walk has looked at the files, and no reader
/// has opened them.
struct Writer(PathBuf);

impl Events for Writer {
    fn error(&self, path: &[u8], error: &Error) {
        panic!("{}: {error}", String::from_utf8_lossy(path));
    }

    fn warning(&self, _: &[u8], what: &str) {
        assert!(what.starts_with("a line is passed over"), "{what}");
        for (name, len) in [("03", 200_000), ("04", 3_000_000), ("60", 700_000)] {
            fs::write(self.0.join(name), noise(len as u64, len)).expect("write");
        }
        fs::remove_file(self.0.join("05")).expect("remove");
        File::create(self.0.join("06")).expect("empty");
    }
}

#[test]
fn files_that_grow_before_they_are_read_are_read_whole() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fs::create_dir(&source).expect("dir");
    fs::write(source.join(".ignore"), "[z-a]\n").expect("write");
    for n in 0..100 {
        fs::write(source.join(format!("{n:02}")), noise(n, 2000)).expect("write");
    }
    let mut how = options(1);
    how.excludes = Arc::new(Excludes {
        ignore_files: vec![b".ignore".to_vec()],
        ..Excludes::default()
    });
    let (repository, input) = (repository(), Input::Paths(vec![bytes(&source)]));
    let events = Writer(source.clone());
    let outcome = backup::run(&repository, input, &how, &Progress::default(), &events);
    let outcome = outcome.expect("backup");
    let restored = restore_folder(&repository, &outcome, &source, &target);
    assert_eq!(restored.files, 100);
    for file in fs::read_dir(&source).expect("list") {
        let name = file.expect("entry").file_name();
        let read = |folder: &Path| fs::read(folder.join(&name)).expect("read");
        assert!(read(&source) == read(&target), "{name:?}");
    }
}
