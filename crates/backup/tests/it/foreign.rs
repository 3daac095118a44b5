//! Attributes and ACLs that the snapshot does not have: inherited, there before, or not readable in the backup.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use onefold_backup::backup::{self, Input};
use onefold_backup::exclude::Patterns;
use onefold_backup::restore::{AttributeChoice, Options};
use onefold_backup::{Progress, path};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::mount::Mount;
use crate::scene::{Log, back_up, bytes, look, options, repository, restore_with};
use crate::untested::not_tested;

/// Returns an ACL by which others of the same group may write, as attributes have it: version 2, then tag, permissions
/// and user of each entry.
fn acl() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [
        (1u16, 7u16, NOBODY),
        (2, 7, 65_534),
        (4, 5, NOBODY),
        (16, 7, NOBODY),
        (32, 0, NOBODY),
    ];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}

fn set(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::setxattr(&bytes(path)[..], name, value, XattrFlags::empty())
}

#[test]
fn what_is_restored_has_no_attributes_but_the_snapshots() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    for folder in ["new", "old"] {
        fs::create_dir_all(source.join(folder)).expect("mkdir");
        let file = source.join(folder).join("file");
        fs::write(&file, "secret").expect("write");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("chmod");
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &bytes(&source.join("new/pipe"))[..],
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("mkfifo");
    set(&source.join("old"), "user.kept", b"1").expect("set");
    fs::create_dir_all(target.join("old")).expect("mkdir");
    if set(&target, "system.posix_acl_default", &acl()).is_err() {
        return not_tested("ACLs, which the file system of the temporary folder does not have");
    }
    set(&target.join("old"), "system.posix_acl_default", &acl()).expect("set");
    set(&target.join("old"), "user.foreign", b"1").expect("set");
    let repository = repository();
    let outcome = back_up(&repository, &source, 1);
    let options = |xattrs| Options {
        path: path::clean(&bytes(&source)),
        xattrs,
        ..Options::default()
    };
    // Attributes that the user excludes are left as they are.
    let exclude = Patterns::new(["user.*"]).expect("pattern");
    let some = AttributeChoice {
        exclude,
        ..AttributeChoice::default()
    };
    restore_with(&repository, &outcome, &target, &options(some));
    let mut value = [0; 8];
    let foreign = rustix::fs::getxattr(&bytes(&target.join("old"))[..], "user.foreign", &mut value);
    assert_eq!(foreign, Ok(1));
    restore_with(
        &repository,
        &outcome,
        &target,
        &options(AttributeChoice::default()),
    );
    assert_eq!(look(&source), look(&target));
}

/// The file has more names of attributes than the kernel gives at once: its content is as good as any.
#[test]
fn a_file_whose_attributes_cannot_be_listed_is_backed_up_without_them() {
    let dir = tempfile::tempdir().expect("tempdir");
    let source = dir.path().join("source");
    let Some(_mount) = Mount::new(&source, 16) else {
        return;
    };
    let file = source.join("file");
    fs::write(&file, "precious").expect("write");
    let many = (0..400).try_for_each(|n| set(&file, &format!("user.{}{n}", "x".repeat(240)), b""));
    // A file system that takes fewer attributes returns this error instead.
    let mut names = [0; 64 << 10];
    let listed = rustix::fs::listxattr(&bytes(&file)[..], &mut names);
    if many.is_err() || listed != Err(Errno::TOOBIG) {
        return not_tested("more attributes than can be listed, which tmpfs here does not take");
    }
    let (repository, target) = (repository(), dir.path().join("target"));
    for secs in [1, 2] {
        let log = Log::default();
        let input = Input::Paths(vec![bytes(&source)]);
        let outcome = backup::run(
            &repository,
            input,
            &options(secs),
            &Progress::default(),
            &log,
        );
        let outcome = outcome.expect("backup");
        // The failure is reported each time, not only for a new file.
        assert!(matches!(&log.errors.lock()[..], [(_, why)] if why.contains("attributes")));
        assert_eq!(outcome.snapshot.summary.errors, 1);
        let how = Options {
            path: path::clean(&bytes(&source)),
            ..Options::default()
        };
        restore_with(&repository, &outcome, &target, &how);
        assert_eq!(fs::read(target.join("file")).expect("read"), b"precious");
    }
}
