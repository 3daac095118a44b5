//! A target that the restore makes itself: users who can enter it, and its metadata at the end.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use onefold_backup::restore::{self, Options, Overwrite};
use onefold_backup::{Change, Error, Events, Progress, snapshots};
use onefold_store::SessionKind;

use crate::restore::{CancelAt, Scene, options, scene};
use crate::scene::{Log, back_up, bytes, restore_with};
use crate::shut::{as_user, give_to_user, mode};

/// Makes a scene whose source folder is closed to other users; the target is missing.
fn private_scene() -> Scene {
    let mut scene = scene();
    mode(&scene.source, 0o700);
    let source = fs::File::open(&scene.source).expect("open");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    source.set_modified(time).expect("set");
    if rustix::process::geteuid().is_root() {
        chown(&scene.source, Some(1234), Some(1235)).expect("chown");
    }
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    fs::remove_dir(&scene.target).expect("remove");
    scene
}

fn bits(folder: &Path) -> u32 {
    folder.metadata().expect("stat").mode() & 0o7777
}

/// Returns mode, time and owner.
fn look(folder: &Path) -> (u32, i64, (u32, u32)) {
    let there = folder.metadata().expect("stat");
    (bits(folder), there.mtime(), (there.uid(), there.gid()))
}

/// Notes the target's mode as files come into it.
struct Watch(PathBuf, AtomicU32);

impl Events for Watch {
    fn error(&self, _: &[u8], error: &Error) {
        panic!("{error}");
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, _: &[u8], _: Change, _: u64) {
        self.1.fetch_or(bits(&self.0), Relaxed);
    }
}

fn run(scene: &Scene, options: &Options, progress: &Progress, events: &dyn Events) -> bool {
    let session = scene.repository.session(SessionKind::Read);
    let named = snapshots::load(&scene.repository, scene.outcome.id.expect("id")).expect("load");
    let result = restore::run(
        session.as_ref().expect("session"),
        &named.snapshot,
        &bytes(&scene.target),
        options,
        progress,
        events,
    );
    assert!(
        matches!(result, Ok(_) | Err(Error::Cancelled)),
        "{result:?}"
    );
    result.is_ok()
}

#[test]
fn it_looks_like_the_folder_it_stands_for_and_lets_nobody_in_before() {
    let scene = private_scene();
    let watch = Watch(scene.target.clone(), AtomicU32::new(0));
    assert!(run(&scene, &options(&scene), &Progress::default(), &watch));
    assert_eq!(watch.1.load(Relaxed) & 0o077, 0);
    assert_eq!(look(&scene.target), look(&scene.source));
}

/// An empty folder makes no window.
#[test]
fn an_empty_one_does_so_too() {
    let mut scene = private_scene();
    fs::remove_dir_all(&scene.source).expect("remove");
    fs::create_dir(&scene.source).expect("mkdir");
    mode(&scene.source, 0o2710);
    scene.outcome = back_up(&scene.repository, &scene.source, 3);
    restore_with(
        &scene.repository,
        &scene.outcome,
        &scene.target,
        &options(&scene),
    );
    assert_eq!(look(&scene.target), look(&scene.source));
}

#[test]
fn one_that_was_interrupted_is_finished_by_the_next() {
    let scene = private_scene();
    let progress = Progress::default();
    let events = CancelAt(b"/sub/inner", &progress, Log::default());
    assert!(!run(&scene, &options(&scene), &progress, &events));
    assert_eq!(bits(&scene.target) & 0o077, 0);
    let again = Options {
        overwrite: Overwrite::Never,
        ..options(&scene)
    };
    restore_with(&scene.repository, &scene.outcome, &scene.target, &again);
    assert_eq!(look(&scene.target), look(&scene.source));
}

#[test]
fn one_that_was_there_keeps_its_own() {
    let scene = private_scene();
    fs::create_dir(&scene.target).expect("mkdir");
    mode(&scene.target, 0o751);
    let (_, _, owner) = look(&scene.target);
    restore_with(
        &scene.repository,
        &scene.outcome,
        &scene.target,
        &options(&scene),
    );
    let (bits, secs, now) = look(&scene.target);
    assert_eq!((bits, now), (0o751, owner));
    assert_ne!(secs, 1_000_000);
}

/// The folders above the target are made, too, though the user did not name them.
#[test]
fn one_that_stands_for_no_folder_is_as_new_folders_are() {
    let mut scene = private_scene();
    let usual = scene.target.with_file_name("usual");
    fs::create_dir(&usual).expect("mkdir");
    let above = scene.target.clone();
    let single_file = Options {
        path: [&options(&scene).path[..], b"/keep"].concat(),
        ..Options::default()
    };
    for (name, options) in [("all", Options::default()), ("file", single_file)] {
        scene.target = above.join(name);
        restore_with(&scene.repository, &scene.outcome, &scene.target, &options);
        assert_eq!(bits(&scene.target), bits(&usual));
        assert_eq!(bits(&above), bits(&usual));
    }
}

/// The first restore has made the target read-only, so that it shuts its owner out.
#[test]
fn a_read_only_one_is_restored_into_again() {
    let mut scene = scene();
    mode(&scene.source, 0o555);
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    give_to_user(&scene.target);
    let target = scene.target.join("made");
    for delete in [false, false, true] {
        let options = Options {
            owners: false,
            delete,
            ..options(&scene)
        };
        let summary =
            as_user(|| restore_with(&scene.repository, &scene.outcome, &target, &options));
        assert_eq!((summary.errors, bits(&target)), (0, 0o555));
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).expect("chmod");
        as_user(|| {
            fs::write(target.join("extra"), "x").expect("write");
            mode(&target, 0o555);
        });
        assert_eq!(summary.deleted, delete.into());
    }
}
