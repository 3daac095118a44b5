//! Restores that delete: tests of what they remove, and what they never remove.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use onefold_backup::exclude::Patterns;
use onefold_backup::restore::{Options, Overwrite, RestoreSummary};
use onefold_backup::{Error, NoEvents, Progress, Result, path, restore, snapshots};
use onefold_store::SessionKind;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::mount::Mount;
use crate::restore::{Scene, options, scene};
use crate::scene::{self, Log, bytes, restore_with};
use crate::untested::not_tested;

/// Restores into `target` with deletion; returns the result, and the events.
fn delete(scene: &Scene, target: &Path, options: Options) -> (Result<RestoreSummary>, Log) {
    let named = snapshots::load(&scene.repository, scene.outcome.id.expect("id")).expect("load");
    let session = scene.repository.session(SessionKind::Read);
    let log = Log::default();
    let result = restore::run(
        &session.expect("session"),
        &named.snapshot,
        &bytes(target),
        &Options {
            delete: true,
            ..options
        },
        &Progress::default(),
        &log,
    );
    (result, log)
}

/// Returns the paths of events.
fn places(told: &parking_lot::Mutex<Vec<(String, String)>>) -> Vec<String> {
    told.lock().iter().map(|(path, _)| path.clone()).collect()
}

#[test]
fn delete_removes_what_the_snapshot_does_not_have() {
    let scene = scene();
    fs::create_dir_all(scene.target.join("sub/extra/deep")).expect("dirs");
    fs::write(scene.target.join("sub/extra/deep/file"), "x").expect("write");
    fs::write(scene.target.join("extra"), "x").expect("write");
    let summary = restore_with(
        &scene.repository,
        &scene.outcome,
        &scene.target,
        &Options {
            delete: true,
            ..options(&scene)
        },
    );
    assert_eq!(summary.deleted, 4);
    assert_eq!(
        scene::look(&scene.source).len(),
        scene::look(&scene.target).len()
    );
}

#[test]
fn delete_with_a_part_or_a_single_file_is_refused() {
    let scene = scene();
    fs::write(scene.target.join("precious"), "x").expect("write");
    let named = snapshots::load(&scene.repository, scene.outcome.id.expect("id")).expect("load");
    let include = Patterns::new(["inner"]).expect("pattern");
    let single = path::clean(&bytes(&scene.source.join("keep")));
    for options in [
        Options {
            delete: true,
            include,
            ..options(&scene)
        },
        Options {
            delete: true,
            path: single,
            ..Options::default()
        },
    ] {
        let session = scene.repository.session(SessionKind::Read);
        let result = restore::run(
            &session.expect("session"),
            &named.snapshot,
            &bytes(&scene.target),
            &options,
            &Progress::default(),
            &NoEvents,
        );
        assert!(matches!(result, Err(Error::Usage(_))));
        assert!(scene.target.join("precious").exists());
    }
}

#[test]
fn nothing_is_deleted_in_the_root_however_it_is_called() {
    let scene = scene();
    symlink("/", scene.target.join("link")).expect("symlink");
    let link = bytes(&scene.target.join("link"));
    // A dry run does no harm if the test fails.
    for root in [&b"/"[..], b"//", b"/tmp/..", &link] {
        let options = Options {
            dry_run: true,
            ..options(&scene)
        };
        let root = Path::new(std::str::from_utf8(root).expect("text"));
        let (result, _) = delete(&scene, root, options);
        assert!(matches!(result, Err(Error::Usage(_))), "{root:?}");
    }
}

/// A file system is mounted where the snapshot has an empty folder, as a backup of one file system has, and another
/// where it has nothing.
#[test]
fn what_is_mounted_in_the_target_is_not_emptied() {
    let mut scene = scene();
    fs::create_dir(scene.source.join("disk")).expect("dir");
    scene.outcome = scene::back_up(&scene.repository, &scene.source, 2);
    let (disk, new) = (scene.target.join("disk"), scene.target.join("new/disk"));
    let Some(_mounts) = Mount::new(&disk, 1).zip(Mount::new(&new, 1)) else {
        return;
    };
    for path in [&disk, &new] {
        fs::write(path.join("precious"), "x").expect("write");
    }
    fs::write(scene.target.join("new/other"), "x").expect("write");
    for dry_run in [true, false] {
        let options = Options {
            dry_run,
            ..options(&scene)
        };
        let (result, log) = delete(&scene, &scene.target, options);
        let summary = result.expect("restore");
        assert_eq!((summary.deleted, summary.errors), (1, 0));
        let mut told = places(&log.warnings);
        told.sort();
        assert_eq!(told, ["/disk", "/new/disk"]);
    }
    assert!(disk.join("precious").exists() && new.join("precious").exists());
    assert!(!scene.target.join("new/other").exists());
}

/// A folder of the same file system is seen at two places: its device number does not tell them apart.
#[test]
fn what_is_bound_into_the_target_is_not_emptied() {
    let scene = scene();
    let (real, seen) = (scene.source.join("sub"), scene.target.join("sub-too"));
    fs::create_dir(&seen).expect("dir");
    let Some(_mount) = Mount::bind(&real, &seen) else {
        return;
    };
    let (result, log) = delete(&scene, &scene.target, options(&scene));
    assert_eq!(result.expect("restore").deleted, 0);
    assert_eq!(places(&log.warnings), ["/sub-too"]);
    assert!(real.join("inner").exists());
}

#[test]
fn a_folder_that_is_kept_stays_with_what_holds_it() {
    let scene = scene();
    let kept = scene.target.join("new/repo");
    fs::create_dir_all(kept.join("containers")).expect("dirs");
    fs::write(scene.target.join("new/other"), "x").expect("write");
    let stat = kept.metadata().expect("stat");
    for dry_run in [true, false] {
        let options = Options {
            dry_run,
            kept: vec![(stat.dev(), stat.ino())],
            ..options(&scene)
        };
        let (result, log) = delete(&scene, &scene.target, options);
        assert_eq!(result.expect("restore").deleted, 1);
        assert_eq!(places(&log.warnings), ["/new/repo"]);
    }
    assert!(kept.join("containers").exists() && !scene.target.join("new/other").exists());
}

#[test]
fn what_cannot_be_removed_is_told_and_the_rest_goes() {
    let scene = scene();
    let names = ["sub/a", "sub/b", "sub/folder/c", "sub/folder/d", "sub/z"];
    fs::create_dir_all(scene.target.join("sub/folder")).expect("dirs");
    for name in names {
        fs::write(scene.target.join(name), "x").expect("write");
    }
    let stuck = ["sub/b", "sub/folder/c"].map(|name| scene.target.join(name));
    let Some(_stuck) = stuck
        .iter()
        .map(|path| Immutable::new(path))
        .collect::<Option<Vec<_>>>()
    else {
        not_tested("no file can be made immutable here");
        return;
    };
    let (result, log) = delete(&scene, &scene.target, options(&scene));
    let summary = result.expect("restore");
    assert_eq!((summary.deleted, summary.errors), (3, 2));
    let mut told = places(&log.errors);
    told.sort();
    assert_eq!(told, ["/sub/b", "/sub/folder/c"]);
    let place = scene.target.join("sub/b").display().to_string();
    let errors = log.errors.lock();
    assert!(errors.iter().any(|it| it.1.contains(&place)), "{errors:?}");
    let left = names.map(|name| scene.target.join(name).exists());
    assert_eq!(left, [false, true, true, false, false]);
}

/// A file that even root cannot remove, until this is dropped.
struct Immutable(fs::File);

impl Immutable {
    fn new(path: &Path) -> Option<Self> {
        let file = fs::File::open(path).expect("open");
        let flags = ioctl_getflags(&file).ok()?;
        ioctl_setflags(&file, flags | IFlags::IMMUTABLE).ok()?;
        Some(Self(file))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let flags = ioctl_getflags(&self.0).expect("flags");
        ioctl_setflags(&self.0, flags - IFlags::IMMUTABLE).expect("flags");
    }
}

/// From the folders above its sources a backup takes only the way to the sources.
#[test]
fn nothing_is_deleted_above_what_was_backed_up() {
    let mut scene = scene();
    scene.outcome = scene::back_up(&scene.repository, &scene.source.join("sub"), 2);
    let above = scene.source.parent().expect("a folder");
    fs::create_dir_all(scene.target.join("source/sub/gone")).expect("dirs");
    fs::create_dir_all(scene.target.join("source/precious")).expect("dirs");
    fs::write(scene.target.join("source/precious/file"), "x").expect("write");
    fs::write(scene.target.join("precious"), "x").expect("write");
    let from_above = Options {
        path: path::clean(&bytes(above)),
        ..Options::default()
    };
    let target = scene.target.clone();
    let (summary, _) = delete(&scene, &target, from_above);
    assert_eq!(summary.expect("restore").deleted, 1);
    assert!(target.join("precious").exists() && target.join("source/precious/file").exists());
    assert!(target.join("source/sub/inner").exists() && !target.join("source/sub/gone").exists());
}

/// The target has folders where the snapshot has a file, a link and a folder.
#[test]
fn a_folder_goes_with_what_is_in_it_where_the_snapshot_has_a_file() {
    let mut scene = scene();
    symlink("keep", scene.source.join("link")).expect("symlink");
    scene.outcome = scene::back_up(&scene.repository, &scene.source, 2);
    let fill = || {
        for name in ["keep", "link"] {
            fs::create_dir_all(scene.target.join(name).join("in the way")).expect("dirs");
        }
        fs::create_dir_all(scene.target.join("sub")).expect("dirs");
    };
    fill();
    let run = |options| delete(&scene, &scene.target, options).0.expect("restore");
    let stays = Options {
        overwrite: Overwrite::Never,
        ..options(&scene)
    };
    let summary = run(stays);
    assert_eq!((summary.deleted, summary.errors), (0, 0));
    assert!(scene.target.join("keep/in the way").exists());
    for dry_run in [true, false] {
        let summary = run(Options {
            dry_run,
            ..options(&scene)
        });
        assert_eq!((summary.deleted, summary.errors), (4, 0), "{dry_run}");
    }
    let text = fs::read_to_string(scene.target.join("keep")).expect("read");
    assert_eq!(text, "snapshot's keep");
    assert!(scene.target.join("link").is_symlink());
}
