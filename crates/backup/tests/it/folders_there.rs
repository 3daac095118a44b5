//! Folders that are in the target before a restore: which of them keep their own mode, owner, attributes and times.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use onefold_backup::exclude::Patterns;
use onefold_backup::restore::{self, Options, Overwrite, RestoreSummary};
use onefold_backup::{Error, Progress, snapshots};
use onefold_store::SessionKind;

use crate::restore::{CancelAt, Scene, options, scene};
use crate::scene::{Log, back_up, bytes, restore_with};
use crate::shut::{as_user, give_to_user, mode};

const RULES: [Overwrite; 4] = [
    Overwrite::Always,
    Overwrite::IfChanged,
    Overwrite::IfNewer,
    Overwrite::Never,
];

/// Time of the last change of the snapshot's folders, in seconds.
const SECS: u64 = 1_000_000;

fn set_time(folder: &Path, secs: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
    let folder = File::open(folder).expect("open");
    folder.set_modified(time).expect("set");
}

/// Returns the mode and the time (in seconds) of a folder.
fn look(folder: &Path) -> (u32, i64) {
    let there = folder.metadata().expect("stat");
    (there.mode() & 0o7777, there.mtime())
}

/// Backs up a scene in which `sub` has a mode and time of its own.
fn scene_with_time() -> Scene {
    let mut scene = scene();
    let sub = scene.source.join("sub");
    mode(&sub, 0o750);
    set_time(&sub, SECS);
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    scene
}

/// Makes `sub` in the target, as a user may have it, with a file that stays.
fn in_target(scene: &Scene, secs: u64) {
    let sub = scene.target.join("sub");
    fs::create_dir(&sub).expect("mkdir");
    fs::copy(scene.source.join("sub/inner"), sub.join("inner")).expect("copy");
    mode(&sub, 0o711);
    set_time(&sub, secs);
}

fn restore(scene: &Scene, options: &Options) -> RestoreSummary {
    restore_with(&scene.repository, &scene.outcome, &scene.target, options)
}

/// Restores after a dry run, which must report the same.
fn restore_and_dry(scene: &Scene, options: Options) -> RestoreSummary {
    let dry = Options {
        dry_run: true,
        ..options.clone()
    };
    let dry = restore(scene, &dry);
    let real = restore(scene, &options);
    assert_eq!(dry, real);
    real
}

#[test]
fn a_folder_that_only_leads_to_what_is_restored_keeps_its_own() {
    for overwrite in RULES {
        for is_there in [true, false] {
            let scene = scene_with_time();
            if is_there {
                in_target(&scene, SECS / 2);
                let inner = scene.target.join("sub/inner");
                fs::remove_file(inner).expect("remove");
            }
            let summary = restore_and_dry(
                &scene,
                Options {
                    include: Patterns::new(["inner"]).expect("pattern"),
                    overwrite,
                    ..options(&scene)
                },
            );
            assert_eq!((summary.files, summary.dirs), (1, 0));
            assert_eq!((summary.skipped, summary.skipped_dirs), (0, 0));
            let (bits, secs) = look(&scene.target.join("sub"));
            if is_there {
                assert_eq!(bits, 0o711, "{overwrite:?}")
            } else {
                assert_eq!((bits, secs), (0o750, SECS as i64), "{overwrite:?}")
            }
        }
    }
}

#[test]
fn a_folder_that_was_asked_for_is_overwritten_as_a_file_is() {
    // The folder's metadata does not depend on the pattern that chose it.
    for include in [&[][..], &["sub"][..]] {
        for (overwrite, secs, is_kept) in [
            (Overwrite::Always, 2 * SECS, false),
            (Overwrite::IfChanged, SECS, false),
            (Overwrite::IfNewer, SECS / 2, false),
            (Overwrite::IfNewer, SECS, true),
            (Overwrite::IfNewer, 2 * SECS, true),
            (Overwrite::Never, SECS / 2, true),
        ] {
            let scene = scene_with_time();
            in_target(&scene, secs);
            let summary = restore_and_dry(
                &scene,
                Options {
                    include: Patterns::new(include).expect("pattern"),
                    overwrite,
                    ..options(&scene)
                },
            );
            assert_eq!((summary.dirs, summary.skipped_dirs), (1, is_kept.into()));
            let (bits, time) = look(&scene.target.join("sub"));
            if is_kept {
                assert_eq!(bits, 0o711, "{overwrite:?}, {secs}")
            } else {
                assert_eq!((bits, time), (0o750, SECS as i64), "{overwrite:?}, {secs}")
            }
        }
    }
}

/// A folder that earlier windows have put something into counts as an old one only if it was there before these.
#[test]
fn folders_of_many_windows_are_known_for_those_that_were_made() {
    for is_there in [true, false] {
        let mut scene = scene();
        let sub = scene.source.join("sub");
        for n in 0..500 {
            fs::create_dir(sub.join(format!("{n}"))).expect("mkdir");
            fs::write(sub.join(format!("{n}/file")), format!("{n}")).expect("write");
        }
        mode(&sub, 0o750);
        set_time(&sub, SECS);
        scene.outcome = back_up(&scene.repository, &scene.source, 2);
        if is_there {
            in_target(&scene, SECS / 2);
        }
        let summary = restore(
            &scene,
            &Options {
                overwrite: Overwrite::Never,
                window_bytes: 16 << 10,
                ..options(&scene)
            },
        );
        assert_eq!((summary.dirs, summary.skipped_dirs), (501, is_there.into()));
        let (bits, secs) = look(&scene.target.join("sub"));
        if is_there {
            assert_eq!(bits, 0o711)
        } else {
            assert_eq!((bits, secs), (0o750, SECS as i64))
        }
        let (bits, _) = look(&scene.target.join("sub/0"));
        assert_eq!(bits, look(&sub.join("0")).0);
    }
}

/// A second run treats folders of an interrupted first run as if that had come to its end.
#[test]
fn folders_of_a_restore_that_was_interrupted_get_the_snapshots_from_the_next() {
    for window_bytes in [64 << 20, 1 << 10] {
        for (overwrite, include) in [
            (Overwrite::Never, &[][..]),
            (Overwrite::IfNewer, &[][..]),
            (Overwrite::Always, &["more"][..]),
        ] {
            let mut scene = scene_with_time();
            // In many windows the first run ends before the folder's last window; in one window it ends where links are
            // made.
            for n in 0..50 {
                fs::write(scene.source.join(format!("sub/z{n}")), "x").expect("write");
            }
            set_time(&scene.source.join("sub"), SECS);
            fs::hard_link(scene.source.join("keep"), scene.source.join("link")).expect("link");
            scene.outcome = back_up(&scene.repository, &scene.source, 3);
            let progress = Progress::default();
            let events = CancelAt(b"/sub/inner", &progress, Log::default());
            let id = scene.outcome.id.expect("id");
            let named = snapshots::load(&scene.repository, id).expect("load");
            let session = scene.repository.session(SessionKind::Read);
            let first = restore::run(
                session.as_ref().expect("session"),
                &named.snapshot,
                &bytes(&scene.target),
                &Options {
                    window_bytes,
                    ..options(&scene)
                },
                &progress,
                &events,
            );
            assert!(matches!(first, Err(Error::Cancelled)), "{first:?}");
            let sub = scene.target.join("sub");
            assert_ne!(look(&sub).0, 0o750);
            let again = Options {
                overwrite,
                include: Patterns::new(include).expect("pattern"),
                ..options(&scene)
            };
            let summary = restore_and_dry(&scene, again);
            assert_eq!(summary.skipped_dirs, 0);
            assert_eq!(look(&sub), (0o750, SECS as i64), "{overwrite:?}");
        }
    }
}

/// The folder is opened to its owner for the restore.
#[test]
fn what_is_restored_into_a_shut_folder_leaves_it_shut() {
    for delete in [false, true] {
        let scene = scene();
        give_to_user(&scene.target);
        let folders = ["sub", "sub/deep", "sub/deep/er"].map(|name| scene.target.join(name));
        let bits = [0o500, 0, 0o1300];
        as_user(|| {
            fs::create_dir_all(&folders[2]).expect("dirs");
            for (folder, bits) in folders.iter().zip(bits).rev() {
                fs::write(folder.join("extra"), "x").expect("write");
                mode(folder, bits);
            }
        });
        fs::create_dir_all(scene.source.join("sub/deep/er")).expect("dirs");
        fs::write(scene.source.join("sub/deep/er/file"), "x").expect("write");
        let outcome = back_up(&scene.repository, &scene.source, 2);
        let run = |dry_run| {
            let options = Options {
                owners: false,
                overwrite: Overwrite::Never,
                delete,
                dry_run,
                ..options(&scene)
            };
            let restore = || restore_with(&scene.repository, &outcome, &scene.target, &options);
            as_user(restore)
        };
        if !delete {
            assert_eq!(run(true).skipped_dirs, 3 - 1, "one cannot be looked for");
        }
        let summary = run(false);
        assert_eq!((summary.dirs, summary.skipped_dirs), (3, 3));
        assert_eq!(summary.deleted, if delete { 3 } else { 0 });
        as_user(|| {
            for (folder, bits) in folders.iter().zip(bits) {
                assert_eq!(look(folder).0, bits, "{}", folder.display());
                fs::set_permissions(folder, Permissions::from_mode(0o700)).expect("chmod");
            }
            let text = fs::read_to_string(folders[2].join("file")).expect("read");
            assert_eq!(text, "x");
        });
    }
}
