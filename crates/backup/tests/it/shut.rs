//! Folders that shut their owner out, restored by a user who is not root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use onefold_backup::restore::Options;
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::restore::{options, scene};
use crate::scene::{back_up, restore_with};

const USER: u32 = 61_234;

/// Runs `run` as a user who is not root: as this user, or, where that is root, in a thread of another user.
pub fn as_user<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    if !rustix::process::geteuid().is_root() {
        return run();
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_thread_groups(&[]).expect("groups");
            set_thread_res_gid(group, group, group).expect("group");
            set_thread_res_uid(user, user, user).expect("user");
            run()
        });
        thread.join().expect("ends")
    })
}

/// Sets a mode.
pub fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

/// Opens the target to that user, as its owner.
pub fn give_to_user(target: &Path) {
    if rustix::process::geteuid().is_root() {
        mode(target.parent().expect("a folder"), 0o755);
        lchown(target, Some(USER), Some(USER)).expect("chown");
    }
}

#[test]
fn what_is_in_shut_folders_is_restored_again_and_deleted() {
    let mut scene = scene();
    fs::create_dir_all(scene.source.join("readonly/deeper")).expect("dirs");
    fs::create_dir_all(scene.source.join("hidden")).expect("dirs");
    for name in ["readonly/file", "readonly/deeper/file", "hidden/file"] {
        fs::write(scene.source.join(name), name).expect("write");
    }
    let folders = [
        ("readonly/deeper", 0o555),
        ("readonly", 0o555),
        ("hidden", 0o300),
    ];
    if rustix::process::geteuid().is_root() {
        // A user who is not root backs up only files that the owner may read.
        for (name, bits) in folders {
            mode(&scene.source.join(name), bits);
        }
        let parent = scene.target.parent().expect("a folder");
        mode(parent, 0o755);
        lchown(&scene.target, Some(USER), Some(USER)).expect("chown");
    } else {
        for (name, bits) in &folders[..2] {
            mode(&scene.source.join(name), *bits);
        }
    }
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    let run = |delete| {
        as_user(|| {
            let options = Options {
                owners: false,
                delete,
                ..options(&scene)
            };
            restore_with(&scene.repository, &scene.outcome, &scene.target, &options)
        })
    };
    run(false);
    // Made by the superuser or the owner: a folder in a shut folder that the snapshot does not have, and a shut folder
    // that it does not have.
    let extra = scene.target.join("readonly/extra");
    as_user(|| {
        mode(&scene.target.join("readonly"), 0o755);
        fs::create_dir(&extra).expect("dir");
        fs::write(extra.join("file"), "x").expect("write");
        mode(&extra, 0o555);
        mode(&scene.target.join("readonly"), 0o555);
    });
    assert_eq!(run(false).errors, 0);
    assert_eq!(run(true).deleted, 2);
    assert!(!extra.exists());
    for (name, _) in folders {
        let bits = |root: &Path| root.join(name).metadata().expect("stat").mode() & 0o7777;
        assert_eq!(bits(&scene.target), bits(&scene.source), "{name}");
    }
    for (name, _) in folders {
        mode(&scene.source.join(name), 0o755);
        mode(&scene.target.join(name), 0o755);
    }
    let text = fs::read_to_string(scene.target.join("readonly/deeper/file")).expect("read");
    assert_eq!(text, "readonly/deeper/file");
}

/// The shut folder is the restored one, or one below it: not even the owner may enter.
#[test]
fn a_dry_run_of_a_restore_that_deletes_fails_nowhere_that_the_run_does_not() {
    let mut scene = scene();
    fs::create_dir_all(scene.source.join("shut/deeper")).expect("dirs");
    fs::write(scene.source.join("shut/deeper/file"), "x").expect("write");
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    give_to_user(&scene.target);
    let run = |dry_run, delete| {
        as_user(|| {
            let options = Options {
                owners: false,
                dry_run,
                delete,
                ..options(&scene)
            };
            restore_with(&scene.repository, &scene.outcome, &scene.target, &options)
        })
    };
    run(false, false);
    let extra = scene.target.join("sub/extra");
    as_user(|| {
        fs::create_dir(&extra).expect("dir");
        for folder in ["shut/deeper", "shut", "sub/extra"] {
            mode(&scene.target.join(folder), 0);
        }
    });
    let dry = run(true, true);
    assert_eq!(dry, run(false, true));
    assert_eq!((dry.errors, dry.deleted), (0, 1));
    assert!(!extra.exists());
}
