//! Restores into file systems that can do less than the one of the backup.

use std::fs;
use std::os::unix::fs::MetadataExt;

use onefold_backup::restore::{self, Options, Overwrite, RestoreSummary};
use onefold_backup::{Progress, snapshots};
use onefold_store::SessionKind;

use crate::mount::Mount;
use crate::restore::{Scene, options, scene};
use crate::scene::{Log, back_up, bytes, noise, restore_with};

/// Restores; some paths may fail.
fn restore_some(scene: &Scene) -> (RestoreSummary, Log) {
    restore_some_with(scene, Overwrite::Always)
}

/// Restores with one writer: a file that is just being given room that it does not have may keep others out for a
/// moment.
fn restore_some_with(scene: &Scene, overwrite: Overwrite) -> (RestoreSummary, Log) {
    restore_some_by(scene, overwrite, 1)
}

fn restore_some_by(scene: &Scene, overwrite: Overwrite, writers: usize) -> (RestoreSummary, Log) {
    let session = scene.repository.session(SessionKind::Read);
    let named = snapshots::load(&scene.repository, scene.outcome.id.expect("id")).expect("load");
    let log = Log::default();
    let summary = restore::run(
        &session.expect("session"),
        &named.snapshot,
        &bytes(&scene.target),
        &Options {
            overwrite,
            writers,
            ..options(scene)
        },
        &Progress::default(),
        &log,
    );
    (summary.expect("restore"), log)
}

#[test]
fn further_names_in_another_file_system_are_copies() {
    let mut scene = scene();
    for name in ["again", "sub/again", "sub/once-more"] {
        fs::hard_link(scene.source.join("keep"), scene.source.join(name)).expect("link");
    }
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    let Some(_mount) = Mount::new(&scene.target.join("sub"), 1) else {
        return;
    };
    let options = Options {
        verify: true,
        ..options(&scene)
    };
    let summary = restore_with(&scene.repository, &scene.outcome, &scene.target, &options);
    for name in ["keep", "again", "sub/again", "sub/once-more"] {
        let content = fs::read_to_string(scene.target.join(name)).expect("read");
        assert_eq!(content, "snapshot's keep");
    }
    // Three files and the two copies are verified; `again` is a link.
    assert_eq!(summary.verified, 5);
    let again = scene.target.join("again").metadata().expect("stat");
    assert_eq!(again.nlink(), 2);
}

/// Inodes of 128 bytes have room for whole seconds only.
#[test]
fn a_file_system_with_coarse_times_has_links_and_is_not_written_again() {
    let mut scene = scene();
    fs::hard_link(scene.source.join("keep"), scene.source.join("again")).expect("link");
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    let image = scene.target.with_file_name("image");
    let Some(_mount) = Mount::ext4(&image, 8, &["-I", "128"], &scene.target) else {
        return;
    };
    let run = |overwrite| {
        let options = Options {
            overwrite,
            ..options(&scene)
        };
        restore_with(&scene.repository, &scene.outcome, &scene.target, &options)
    };
    run(Overwrite::Always);
    let keep = scene.target.join("keep").metadata().expect("stat");
    assert_eq!(keep.mtime_nsec(), 0);
    assert_eq!(keep.nlink(), 2);
    for overwrite in [Overwrite::IfChanged, Overwrite::IfNewer] {
        assert_eq!(run(overwrite).skipped, 4, "{overwrite:?}");
    }
}

/// Backs up a file of 40 MiB, and mounts a target of 16 MiB.
fn with_a_file_too_large() -> Option<(Scene, Mount)> {
    let mut scene = scene();
    fs::write(scene.source.join("a-large"), noise(1, 40 << 20)).expect("write");
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    let image = scene.target.with_file_name("image");
    let mount = Mount::ext4(&image, 16, &[], &scene.target)?;
    Some((scene, mount))
}

#[test]
fn a_file_that_is_too_large_for_the_target_keeps_no_others_out() {
    let Some((scene, _mount)) = with_a_file_too_large() else {
        return;
    };
    let (summary, log) = restore_some(&scene);
    let failed: Vec<_> = log.errors.lock().iter().map(|it| it.0.clone()).collect();
    assert_eq!(failed, ["/a-large"]);
    assert!(summary.is_full);
    for name in ["keep", "sub/inner", "sub/more"] {
        let content = fs::read_to_string(scene.target.join(name)).expect("read");
        assert_eq!(content, format!("snapshot's {name}"));
    }
}

/// Many threads write the file; the thread that does not find it any more must not be the one that reports the error.
#[test]
fn whoever_is_first_at_a_file_that_does_not_fit_says_so() {
    let Some((scene, _mount)) = with_a_file_too_large() else {
        return;
    };
    for round in 0..24 {
        let (summary, log) = restore_some_by(&scene, Overwrite::Always, 4);
        let errors = log.errors.lock();
        assert!(summary.is_full, "round {round}: {errors:?}");
        assert_eq!(errors.len(), 1, "round {round}: {errors:?}");
    }
}

/// A file that was made and could not be filled does not count as having been there before.
#[test]
fn a_file_that_does_not_fit_stays_for_no_rule_about_what_is_there() {
    let Some((scene, _mount)) = with_a_file_too_large() else {
        return;
    };
    // Each restore runs twice: the first must leave nothing that the second takes for a whole file.
    for overwrite in [Overwrite::IfNewer, Overwrite::Never, Overwrite::IfChanged] {
        for _ in 0..2 {
            let (summary, log) = restore_some_with(&scene, overwrite);
            let failed: Vec<_> = log.errors.lock().iter().map(|it| it.0.clone()).collect();
            assert_eq!(failed, ["/a-large"], "{overwrite:?}");
            assert!(summary.is_full && summary.failed == 1);
        }
    }
}

/// A disk that takes less than it promises: writes fail when the system brings them to the disk, after the file was
/// closed.
#[test]
fn what_does_not_reach_the_disk_is_an_error_in_what_is_mounted_in_the_target_too() {
    for folder in ["", "sub"] {
        let mut scene = scene();
        for n in 0..4 {
            let file = scene.source.join(folder).join(format!("file {n}"));
            fs::write(file, noise(n, 4 << 20)).expect("write");
        }
        scene.outcome = back_up(&scene.repository, &scene.source, 2);
        let disk = scene.target.with_file_name("disk");
        let Some(_disk) = Mount::new(&disk, 8) else {
            return;
        };
        let how = ["-O", "^has_journal"];
        let at = scene.target.join(folder);
        let Some(_mount) = Mount::ext4(&disk.join("image"), 64, &how, &at) else {
            return;
        };
        let (summary, log) = restore_some(&scene);
        let errors = log.errors.lock();
        assert_eq!(summary.errors, 1, "{folder}: {errors:?}");
        assert!(errors[0].1.contains("to the disk"), "{errors:?}");
    }
}

/// A file system without inodes for large attributes keeps some KiB of attributes for each file.
#[test]
fn an_attribute_for_which_there_is_no_room_is_no_full_target() {
    let mut scene = scene();
    let image = scene.target.with_file_name("source-image");
    let Some(_source) = Mount::ext4(&image, 16, &["-O", "ea_inode"], &scene.source) else {
        return;
    };
    fs::write(scene.source.join("keep"), "snapshot's keep").expect("write");
    let file = fs::File::open(scene.source.join("keep")).expect("open");
    let flags = rustix::fs::XattrFlags::empty();
    for name in ["user.large", "user.as-large"] {
        rustix::fs::fsetxattr(&file, name, &noise(1, 6000), flags).expect("set");
    }
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    let image = scene.target.with_file_name("image");
    let Some(_mount) = Mount::ext4(&image, 16, &["-O", "^ea_inode"], &scene.target) else {
        return;
    };
    let (summary, log) = restore_some(&scene);
    let errors = log.errors.lock();
    assert!(!summary.is_full, "{errors:?}");
    // Neither attribute has room, which is reported for each; the file counts once.
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!((summary.errors, summary.lacking), (1, 1));
    let text = fs::read_to_string(scene.target.join("keep")).expect("read");
    assert_eq!(text, "snapshot's keep");
}

#[test]
fn what_was_there_stays_where_there_is_no_room_for_what_replaces_it() {
    let Some((scene, _mount)) = with_a_file_too_large() else {
        return;
    };
    fs::write(scene.target.join("a-large"), "the user's").expect("write");
    let (summary, log) = restore_some(&scene);
    let failed: Vec<_> = log.errors.lock().iter().map(|it| it.0.clone()).collect();
    assert_eq!(failed, ["/a-large"]);
    assert!(summary.is_full);
    let text = fs::read_to_string(scene.target.join("a-large")).expect("read");
    assert_eq!(text, "the user's");
    let names = fs::read_dir(&scene.target).expect("list").count();
    // The fourth name is lost+found.
    assert_eq!(names, 4, "nothing is left beside it");
}
