//! Restore: what it leaves alone, what it replaces, what it removes, and that nothing leads outside of the target.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use onefold_backup::backup::Outcome;
use onefold_backup::exclude::Patterns;
use onefold_backup::restore::{Options, Overwrite};
use onefold_backup::{Error, Progress, Silent, path, restore, snapshots};
use onefold_store::Repository;

use crate::scene::{self, back_up, bytes, restore_with};

struct Scene {
    _dir: tempfile::TempDir,
    source: PathBuf,
    target: PathBuf,
    repository: Repository,
    outcome: Outcome,
}

/// `source/{keep,sub/inner,sub/more}` backed up, an empty target.
fn scene() -> Scene {
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

fn options(scene: &Scene) -> Options {
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
        let result = restore::run(
            &scene.repository,
            &named.snapshot,
            &bytes(&scene.target),
            &options,
            &Progress::default(),
            &Silent,
        );
        assert!(matches!(result, Err(Error::Usage(_))));
        assert!(scene.target.join("precious").exists());
    }
}
