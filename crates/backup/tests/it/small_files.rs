//! Small files: many in flight at once, and such as are larger than they say.

use std::fs::{self, File};
use std::path::Path;

use onefold_backup::restore;

use crate::scene::{back_up, bytes, repository, restore_folder, restore_with};

/// Files that hold little or nothing to store take room on their way as others do: whoever stores must not wait for more of them while whoever reads waits for room.
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

/// Files of /proc say that they are empty.
#[test]
fn a_file_that_says_it_is_empty_is_read_to_its_end() {
    let source = Path::new("/proc/kallsyms");
    let read = || fs::read(source).unwrap_or_default();
    if read().len() < 1 << 20 {
        crate::untested::not_tested("/proc has no such file here");
        return;
    }
    // What the kernel loads shows there: it may change while it is compared.
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
