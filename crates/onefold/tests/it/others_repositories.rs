//! Repositories that belong to somebody else, or that nobody may write.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::rig::{Ran, Rig};
use crate::untested::is_root;

/// Whom every Linux has, and who owns nothing.
const NOBODY: u32 = 65_534;

fn as_nobody(rig: &Rig, args: &[&str]) -> Ran {
    let mut command = rig.command(args);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().expect("runs").into()
}

/// A rig in which nobody made a repository and backed up `s`.
fn rig_of_nobody() -> Rig {
    let rig = Rig::empty();
    rig.write("s/file", b"content");
    if rustix::process::geteuid().is_root() {
        chown(rig.dir.path(), Some(NOBODY), Some(NOBODY)).expect("only root comes here");
    }
    as_nobody(&rig, &["backup", "--init", "--encryption", "none", "s"]).ends(0);
    rig
}

fn each_below(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            each_below(&path, visit);
        }
        visit(&path);
    }
}

#[test]
fn what_root_does_in_anothers_repository_stays_the_owners() {
    if !is_root() {
        return;
    }
    let rig = rig_of_nobody();
    rig.run(["snapshots"]).ends(0);
    rig.write("s/second", b"of root");
    rig.run(["backup", "s"]).ends(0);
    each_below(&rig.repo(), &mut |path| {
        let owner = fs::metadata(path).expect("there").uid();
        assert_eq!(owner, NOBODY, "{}", path.display());
    });
    for verb in ["snapshots", "check", "prune"] {
        as_nobody(&rig, &[verb]).ends(0);
    }
    as_nobody(
        &rig,
        &[
            "dump",
            "latest",
            &rig.path("s/second").display().to_string(),
        ],
    )
    .ends(0);
}

#[test]
fn what_others_put_into_their_repository_leads_root_nowhere() {
    if !is_root() {
        return;
    }
    let rig = rig_of_nobody();
    rig.write("roots/file", b"of root");
    fs::hard_link(
        rig.path("roots/file"),
        rig.repo().join("sessions/deadbeefdeadbeef"),
    )
    .expect("one disk");
    rig.run(["prune"]).ends(0);
    assert_eq!(
        fs::metadata(rig.path("roots/file")).expect("there").uid(),
        0
    );
    fs::remove_dir(rig.repo().join("sessions")).expect("empty again");
    let link = rig.repo().join("sessions");
    std::os::unix::fs::symlink(rig.path("roots"), &link).expect("a link");
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).expect("root");
    rig.run(["prune"]).ends(1);
    assert!(rig.path("roots/file").exists());
}

#[test]
fn a_repository_that_may_not_be_written_can_be_read() {
    let rig = rig_of_nobody();
    let protect = |mode: u32| {
        each_below(&rig.repo(), &mut |path| {
            if path.is_dir() {
                fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
            }
        });
        fs::set_permissions(rig.repo(), Permissions::from_mode(mode)).expect("ours");
    };
    protect(0o555);
    let file = rig.path("s/file").display().to_string();
    for args in [
        &["snapshots"][..],
        &["ls", "latest"],
        &["find", "file"],
        &["stats"],
        &["stats", "--mode", "raw-data"],
        &["prune", "--dry-run"],
        &["forget", "latest", "--dry-run"],
        &["check", "--read-data"],
        &["restore", "latest", "--target", "back"],
    ] {
        let ran = as_nobody(&rig, args).ends(0);
        assert_eq!(ran.err, "", "{args:?}");
    }
    assert_eq!(
        as_nobody(&rig, &["dump", "latest", &file]).ends(0).out,
        "content"
    );
    let ran = as_nobody(&rig, &["backup", "s"]).ends(1);
    assert!(ran.err.contains("Permission denied"), "{}", ran.err);
    protect(0o700);
}
