//! Restores: things in the target that stay, are replaced or removed, and paths that must not lead outside of the
//! target.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use onefold_backup::backup::Outcome;
use onefold_backup::exclude::Patterns;
use onefold_backup::restore::{Options, Overwrite};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::snapshots::SnapshotFilter;
use onefold_backup::{Change, Error, Events, NoEvents, Progress, path, restore, snapshots};
use onefold_store::{PinInfo, Repository, SessionKind, SweepObserver, SweepOptions};

use crate::scene::{self, back_up, bytes, restore_with};

pub struct Scene {
    _dir: tempfile::TempDir,
    pub source: PathBuf,
    pub target: PathBuf,
    pub repository: Repository,
    pub outcome: Outcome,
}

/// Backs up `source/{keep,sub/inner,sub/more}`, and makes an empty target.
pub fn scene() -> Scene {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fs::create_dir_all(source.join("sub")).expect("dirs");
    fs::create_dir_all(&target).expect("dirs");
    for name in ["keep", "sub/inner", "sub/more"] {
        fs::write(source.join(name), format!("snapshot's {name}")).expect("write");
    }
    let repository = scene::repository();
    let outcome = back_up(&repository, &source, 1);
    Scene {
        _dir: dir,
        source,
        target,
        repository,
        outcome,
    }
}

pub fn options(scene: &Scene) -> Options {
    Options {
        path: path::clean(&bytes(&scene.source)),
        ..Options::default()
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("read")
}

#[test]
fn symbolic_links_in_the_target_are_replaced_and_not_followed() {
    let scene = scene();
    let outside = scene.target.with_file_name("outside");
    fs::create_dir_all(&outside).expect("dirs");
    fs::write(outside.join("inner"), "outside").expect("write");
    symlink(&outside, scene.target.join("sub")).expect("symlink");
    symlink(outside.join("inner"), scene.target.join("keep")).expect("symlink");
    restore_with(
        &scene.repository,
        &scene.outcome,
        &scene.target,
        &options(&scene),
    );
    assert_eq!(read(&outside.join("inner")), "outside");
    assert_eq!(fs::read_dir(&outside).expect("read_dir").count(), 1);
    assert_eq!(
        read(&scene.target.join("sub/inner")),
        "snapshot's sub/inner"
    );
    assert!(
        scene
            .target
            .join("sub")
            .symlink_metadata()
            .expect("stat")
            .is_dir()
    );
    assert!(
        scene
            .target
            .join("keep")
            .symlink_metadata()
            .expect("stat")
            .is_file()
    );
}

#[test]
fn what_is_there_stays_or_goes_as_asked() {
    for (overwrite, stays) in [
        (Overwrite::Never, true),
        (Overwrite::IfNewer, true),
        (Overwrite::IfChanged, false),
        (Overwrite::Always, false),
    ] {
        let scene = scene();
        let there = scene.target.join("keep");
        fs::write(&there, "newer, and longer than what the snapshot has").expect("write");
        let summary = restore_with(
            &scene.repository,
            &scene.outcome,
            &scene.target,
            &Options {
                overwrite,
                ..options(&scene)
            },
        );
        assert_eq!(read(&there) != "snapshot's keep", stays, "{overwrite:?}");
        assert_eq!(summary.skipped, u64::from(stays));
        assert_eq!(read(&scene.target.join("sub/more")), "snapshot's sub/more");
    }
}

#[test]
fn other_names_of_a_replaced_file_keep_their_content() {
    let scene = scene();
    fs::write(scene.target.join("elsewhere"), "mine").expect("write");
    fs::hard_link(scene.target.join("elsewhere"), scene.target.join("keep")).expect("link");
    restore_with(
        &scene.repository,
        &scene.outcome,
        &scene.target,
        &options(&scene),
    );
    assert_eq!(read(&scene.target.join("elsewhere")), "mine");
}

#[test]
fn a_part_is_restored_with_the_folders_that_lead_to_it() {
    let scene = scene();
    let include = Patterns::new(["sub/inner"]).expect("pattern");
    let summary = restore_with(
        &scene.repository,
        &scene.outcome,
        &scene.target,
        &Options {
            include,
            ..options(&scene)
        },
    );
    assert_eq!((summary.files, summary.dirs), (1, 0));
    assert_eq!(
        read(&scene.target.join("sub/inner")),
        "snapshot's sub/inner"
    );
    assert!(!scene.target.join("keep").exists());
    assert_eq!(
        scene
            .source
            .join("sub")
            .metadata()
            .expect("stat")
            .mtime_nsec(),
        scene
            .target
            .join("sub")
            .metadata()
            .expect("stat")
            .mtime_nsec()
    );

    let exclude = Patterns::new(["inner"]).expect("pattern");
    let other = scene.target.join("other");
    restore_with(
        &scene.repository,
        &scene.outcome,
        &other,
        &Options {
            exclude,
            ..options(&scene)
        },
    );
    assert!(other.join("sub/more").exists() && !other.join("sub/inner").exists());

    let one = Options {
        path: path::clean(&bytes(&scene.source.join("sub/more"))),
        ..Options::default()
    };
    let single = scene.target.join("single");
    restore_with(&scene.repository, &scene.outcome, &single, &one);
    assert_eq!(read(&single.join("more")), "snapshot's sub/more");
    assert_eq!(fs::read_dir(&single).expect("read_dir").count(), 1);
}

#[test]
fn a_dry_run_touches_nothing() {
    let scene = scene();
    let target = scene.target.join("new");
    let summary = restore_with(
        &scene.repository,
        &scene.outcome,
        &target,
        &Options {
            dry_run: true,
            delete: true,
            ..options(&scene)
        },
    );
    assert_eq!(summary.files, 3);
    assert!(!target.exists());
}

/// `a` and `b` are one file in the source; `a` is the user's own in the target.
#[test]
fn another_name_of_a_file_that_stayed_gets_its_own_content() {
    for overwrite in [Overwrite::Never, Overwrite::IfNewer] {
        let scene = scene();
        fs::write(scene.source.join("a"), "snapshot's a").expect("write");
        fs::hard_link(scene.source.join("a"), scene.source.join("b")).expect("link");
        fs::hard_link(scene.source.join("a"), scene.source.join("sub/c")).expect("link");
        let outcome = back_up(&scene.repository, &scene.source, 2);
        fs::write(scene.target.join("a"), "the user's, which stays").expect("write");
        let options = Options {
            overwrite,
            ..options(&scene)
        };
        let summary = restore_with(&scene.repository, &outcome, &scene.target, &options);
        assert_eq!(summary.skipped, 1);
        assert_eq!(read(&scene.target.join("a")), "the user's, which stays");
        for name in ["b", "sub/c"] {
            assert_eq!(read(&scene.target.join(name)), "snapshot's a", "{name}");
            let time = |root: &Path| root.join(name).metadata().expect("stat").mtime_nsec();
            assert_eq!(time(&scene.source), time(&scene.target));
        }
    }
}

#[test]
fn a_dry_run_tells_what_the_real_one_would_do() {
    for overwrite in [
        Overwrite::Never,
        Overwrite::IfNewer,
        Overwrite::IfChanged,
        Overwrite::Always,
    ] {
        let scene = scene();
        symlink("keep", scene.source.join("link")).expect("symlink");
        let outcome = back_up(&scene.repository, &scene.source, 2);
        fs::create_dir_all(scene.target.join("sub/extra/deep")).expect("dirs");
        fs::write(scene.target.join("keep"), "newer").expect("write");
        fs::write(scene.target.join("link"), "newer").expect("write");
        fs::copy(scene.source.join("sub/more"), scene.target.join("sub/more")).expect("copy");
        let before = scene::look(&scene.target);
        let run = |dry_run| {
            let options = Options {
                overwrite,
                dry_run,
                delete: true,
                ..options(&scene)
            };
            restore_with(&scene.repository, &outcome, &scene.target, &options)
        };
        let dry = run(true);
        assert_eq!(before, scene::look(&scene.target), "{overwrite:?}");
        assert_eq!(dry, run(false), "{overwrite:?}");
        assert_eq!((dry.files, dry.deleted), (3, 2));
    }
}

#[test]
fn links_that_stay_are_no_files_that_stay() {
    let scene = scene();
    let links: Vec<_> = (0..5).map(|number| format!("link-{number}")).collect();
    for name in &links {
        symlink("keep", scene.source.join(name)).expect("symlink");
    }
    let outcome = back_up(&scene.repository, &scene.source, 2);
    for name in &links {
        symlink("elsewhere", scene.target.join(name)).expect("symlink");
    }
    for dry_run in [true, false] {
        let options = Options {
            overwrite: Overwrite::Never,
            dry_run,
            ..options(&scene)
        };
        let summary = restore_with(&scene.repository, &outcome, &scene.target, &options);
        assert_eq!((summary.files, summary.others), (3, 5));
        assert_eq!((summary.skipped, summary.skipped_others), (0, 5));
    }
}

struct Hasty;

impl SweepObserver for Hasty {
    fn progress(&mut self, _: onefold_store::StageProgress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        false
    }
}

/// The snapshot is forgotten and swept between being chosen and being restored: chunks that a session has seen stay
/// until it ends.
#[test]
fn what_was_chosen_in_a_session_can_be_restored_whatever_is_forgotten() {
    let scene = scene();
    let sweep = || {
        let options = SweepOptions::default();
        scene
            .repository
            .sweep(&SnapshotRoots, &options, &mut Hasty)
            .expect("sweep")
    };
    let id = scene.outcome.id.expect("id");
    let session = scene
        .repository
        .session(SessionKind::Read)
        .expect("session");
    let named =
        snapshots::resolve(&scene.repository, "latest", &SnapshotFilter::default()).expect("one");
    scene.repository.remove_root(&id).expect("forget");
    assert!(sweep().pending_containers > 0);
    let summary = restore::run(
        &session,
        &named.snapshot,
        &bytes(&scene.target),
        &options(&scene),
        &Progress::default(),
        &NoEvents,
    )
    .expect("restore");
    assert_eq!((summary.files, summary.errors), (3, 0));
    assert_eq!(scene::look(&scene.source), scene::look(&scene.target));
    session.finish().expect("finish");
    assert!(sweep().deleted_containers > 0);
    assert!(snapshots::resolve(&scene.repository, "latest", &SnapshotFilter::default()).is_err());
}

/// The progress bar relies on this: all of the totals is done at the end, whatever stayed as it was.
#[test]
fn progress_ends_where_the_totals_are() {
    let scene = scene();
    fs::write(scene.target.join("keep"), "the user's").expect("write");
    for overwrite in [Overwrite::Never, Overwrite::Always] {
        let session = scene
            .repository
            .session(SessionKind::Read)
            .expect("session");
        let options = Options {
            overwrite,
            ..options(&scene)
        };
        let id = scene.outcome.id.expect("a snapshot");
        let named = snapshots::load(&scene.repository, id).expect("load");
        let (snapshot, target) = (&named.snapshot, bytes(&scene.target));
        let progress = Progress::default();
        let summary = restore::run(&session, snapshot, &target, &options, &progress, &NoEvents);
        let summary = summary.expect("restored");
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        assert!(progress.totals_known.load(Relaxed));
        assert_eq!(
            (of(&progress.files_done), of(&progress.bytes_done)),
            (3, summary.bytes)
        );
        assert_eq!(
            (of(&progress.files_total), of(&progress.bytes_total)),
            (3, summary.bytes)
        );
        let written = summary.bytes - summary.skipped_bytes;
        assert_eq!(of(&progress.bytes_moved), written, "{overwrite:?}");
        session.finish().expect("finished");
    }
}

/// A file whose chunks arrive while readers are still being started must not count as one without chunks, and be
/// completed twice.
#[test]
fn each_file_is_completed_once() {
    let scene = scene();
    let id = scene.outcome.id.expect("a snapshot");
    let named = snapshots::load(&scene.repository, id).expect("load");
    let session = scene.repository.session(SessionKind::Read);
    let session = session.expect("session");
    let done = |round: usize| {
        let target = bytes(&scene.target.join(round.to_string()));
        let progress = Progress::default();
        let options = options(&scene);
        restore::run(
            &session,
            &named.snapshot,
            &target,
            &options,
            &progress,
            &NoEvents,
        )
        .expect("restored");
        progress.files_done.load(Relaxed)
    };
    assert!((0..300).all(|round| done(round) == 3));
    session.finish().expect("finished");
}

/// Cancels the run at an entry with this path.
pub struct CancelAt<'a>(pub &'a [u8], pub &'a Progress, pub scene::Log);

impl Events for CancelAt<'_> {
    fn error(&self, path: &[u8], error: &Error) {
        self.2.error(path, error);
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, path: &[u8], _: Change, _: u64) {
        if path == self.0 {
            self.1.cancel();
        }
    }
}

/// `keep` is the user's own and stays, so that `zz`, another name of it, is a copy.
#[test]
fn an_interruption_is_no_error_of_the_file_that_is_being_copied() {
    let mut scene = scene();
    fs::hard_link(scene.source.join("keep"), scene.source.join("zz")).expect("link");
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    fs::write(scene.target.join("keep"), "the user's").expect("write");
    let session = scene.repository.session(SessionKind::Read);
    let named = snapshots::load(&scene.repository, scene.outcome.id.expect("id")).expect("load");
    let progress = Progress::default();
    let events = CancelAt(b"/zz", &progress, scene::Log::default());
    let options = Options {
        overwrite: Overwrite::Never,
        ..options(&scene)
    };
    let result = restore::run(
        &session.expect("session"),
        &named.snapshot,
        &bytes(&scene.target),
        &options,
        &progress,
        &events,
    );
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    assert_eq!(*events.2.errors.lock(), []);
}

#[test]
fn a_program_does_not_run_as_an_owner_that_the_snapshot_does_not_say() {
    if !crate::untested::is_root() {
        return;
    }
    let mut scene = scene();
    let at = |name: &str| scene.source.join(name);
    chown(at("sub/inner"), Some(1234), None).expect("chown");
    chown(at("sub/more"), None, Some(1234)).expect("chown");
    for name in ["keep", "sub/inner", "sub/more"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o6755)).expect("chmod");
    }
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    for (owners, modes) in [
        (true, [0o6755, 0o6755, 0o6755]),
        (false, [0o6755, 0o2755, 0o4755]),
    ] {
        let options = Options {
            owners,
            ..options(&scene)
        };
        restore_with(&scene.repository, &scene.outcome, &scene.target, &options);
        let mode = |name: &str| scene.target.join(name).metadata().expect("stat").mode();
        let found = ["keep", "sub/inner", "sub/more"].map(|name| mode(name) & 0o7777);
        assert_eq!(found, modes);
    }
}
