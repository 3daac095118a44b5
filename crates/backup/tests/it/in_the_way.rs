//! Restores where the target has things of another kind than the snapshot.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::time::{Duration, SystemTime};

use onefold_backup::restore::{self, Options, Overwrite, RestoreSummary};
use onefold_backup::{Error, Progress, snapshots};
use onefold_store::SessionKind;

use crate::restore::{CancelAt, Scene, options, scene};
use crate::scene::{self, Log, bytes};

/// Restores; returns the summary, and the paths that failed.
fn restore(scene: &Scene, options: &Options) -> (RestoreSummary, Vec<String>) {
    let (summary, told) = restore_and_hear(scene, options);
    (summary, told.into_iter().map(|(path, _)| path).collect())
}

/// Restores; returns the summary, and the paths that failed with their errors.
fn restore_and_hear(scene: &Scene, options: &Options) -> (RestoreSummary, Vec<(String, String)>) {
    let session = scene.repository.session(SessionKind::Read);
    let named = snapshots::load(&scene.repository, scene.outcome.id.expect("id")).expect("load");
    let log = Log::default();
    let progress = Progress::default();
    let (session, target) = (session.expect("session"), bytes(&scene.target));
    let summary = restore::run(&session, &named.snapshot, &target, options, &progress, &log);
    (summary.expect("restore"), log.errors.into_inner())
}

/// Restores after a dry run, which must report the same.
fn restore_and_before_dry(scene: &Scene, options: Options) -> (RestoreSummary, Vec<String>) {
    let before = scene::look(&scene.target);
    let dry = Options {
        dry_run: true,
        ..options.clone()
    };
    let dry = restore(scene, &dry);
    assert_eq!(before, scene::look(&scene.target));
    let real = restore(scene, &options);
    assert_eq!(dry, real);
    real
}

/// Puts a file in place of the folder `sub`, newer or older than the folder.
fn file_in_place_of_a_folder(scene: &Scene, is_newer: bool) {
    fs::write(scene.target.join("sub"), "the user's").expect("write");
    let file = fs::File::options()
        .write(true)
        .open(scene.target.join("sub"))
        .expect("open");
    let ages = Duration::from_secs(86_400);
    let time = if is_newer {
        SystemTime::now() + ages
    } else {
        SystemTime::now() - ages
    };
    file.set_modified(time).expect("set");
}

#[test]
fn a_newer_file_stays_where_the_snapshot_has_a_folder() {
    let stays = [
        (Overwrite::Never, true, true),
        (Overwrite::Never, false, true),
        (Overwrite::IfNewer, true, true),
        (Overwrite::IfNewer, false, false),
        (Overwrite::IfChanged, true, false),
        (Overwrite::Always, true, false),
    ];
    for (overwrite, is_newer, stays) in stays {
        let mut scene = scene();
        fs::create_dir(scene.source.join("sub/deeper")).expect("dir");
        fs::write(scene.source.join("sub/deeper/file"), "x").expect("write");
        symlink("inner", scene.source.join("sub/link")).expect("symlink");
        fs::hard_link(scene.source.join("keep"), scene.source.join("sub/keep")).expect("link");
        scene.outcome = scene::back_up(&scene.repository, &scene.source, 2);
        file_in_place_of_a_folder(&scene, is_newer);
        let options = Options {
            overwrite,
            ..options(&scene)
        };
        let (summary, failed) = restore_and_before_dry(&scene, options);
        let text = fs::read_to_string(scene.target.join("sub"));
        assert_eq!(text.is_ok_and(|text| text == "the user's"), stays);
        // The file is reported once; the things in the folder are skipped.
        let expected: &[&str] = if stays { &["/sub"] } else { &[] };
        assert_eq!(failed, expected, "{overwrite:?}");
        let left = (summary.skipped, summary.skipped_others);
        assert_eq!(left, if stays { (4, 1) } else { (0, 0) });
        assert_eq!(summary.failed_dirs, if stays { 2 } else { 0 });
        let keep = fs::read_to_string(scene.target.join("keep")).expect("read");
        assert_eq!(keep, "snapshot's keep");
    }
}

#[test]
fn a_newer_link_stays_where_the_snapshot_has_a_folder() {
    let scene = scene();
    let elsewhere = scene.target.with_file_name("elsewhere");
    fs::create_dir(&elsewhere).expect("dir");
    symlink(&elsewhere, scene.target.join("sub")).expect("symlink");
    let options = Options {
        overwrite: Overwrite::IfNewer,
        ..options(&scene)
    };
    let (summary, failed) = restore_and_before_dry(&scene, options);
    assert_eq!((summary.skipped, summary.failed_dirs), (2, 1));
    assert_eq!(failed, ["/sub"]);
    assert!(scene.target.join("sub").is_symlink());
    assert_eq!(fs::read_dir(&elsewhere).expect("list").count(), 0);
}

#[test]
fn a_dry_run_tells_of_a_folder_that_will_be_in_the_way_of_a_file() {
    let scene = scene();
    fs::create_dir(scene.target.join("keep")).expect("dir");
    fs::create_dir_all(scene.target.join("sub/inner/full")).expect("dirs");
    let (summary, failed) = restore_and_before_dry(&scene, options(&scene));
    assert_eq!((summary.errors, summary.failed), (1, 1));
    assert_eq!(failed, ["/sub/inner"]);
    assert!(scene.target.join("keep").is_file());
    let (_, told) = restore_and_hear(&scene, &options(&scene));
    let why = "a folder that is not empty has its place, and stays";
    assert!(told[0].1.ends_with(why), "{told:?}");
}

/// The restore is interrupted in the first file of three, which is to replace a thing of another kind.
#[test]
fn an_interruption_leaves_what_was_there_and_nothing_beside_it() {
    let mut scene = scene();
    fs::write(scene.source.join("keep"), scene::uneven(1, 5_000_000)).expect("write");
    scene.outcome = scene::back_up(&scene.repository, &scene.source, 2);
    symlink("elsewhere", scene.target.join("keep")).expect("symlink");
    let session = scene.repository.session(SessionKind::Read);
    let named = snapshots::load(&scene.repository, scene.outcome.id.expect("id")).expect("load");
    // Tried in one window, and in many.
    for window_bytes in [64 << 20, 16 << 10] {
        let progress = Progress::default();
        let events = CancelAt(b"/keep", &progress, Log::default());
        let options = Options {
            window_bytes,
            readers: 1,
            ..options(&scene)
        };
        let result = restore::run(
            session.as_ref().expect("session"),
            &named.snapshot,
            &bytes(&scene.target),
            &options,
            &progress,
            &events,
        );
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        let names = fs::read_dir(&scene.target).expect("list");
        let names = names.map(|it| it.expect("entry").file_name());
        let mut beside = names.filter(|name| name != "keep" && name != "sub");
        assert!(scene.target.join("keep").is_symlink(), "{window_bytes}");
        assert_eq!(beside.next(), None, "{window_bytes}");
    }
}

/// Another user's file looks like the snapshot's, where the snapshot has the first name of a file of root.
#[test]
fn no_further_name_leads_to_a_file_of_another_owner() {
    if !crate::untested::is_root() {
        return;
    }
    let mut scene = scene();
    fs::hard_link(scene.source.join("keep"), scene.source.join("sub/keep")).expect("link");
    scene.outcome = scene::back_up(&scene.repository, &scene.source, 2);
    let fake = scene.target.join("keep");
    fs::write(&fake, "somebody's k...").expect("write");
    let time = scene.source.join("keep").metadata().expect("stat");
    let file = fs::File::options().write(true).open(&fake).expect("open");
    file.set_modified(time.modified().expect("time"))
        .expect("set");
    chown(&fake, Some(1234), None).expect("chown");
    assert_eq!(fake.metadata().expect("stat").len(), time.len());
    let options = Options {
        overwrite: Overwrite::Never,
        ..options(&scene)
    };
    let (summary, failed) = restore(&scene, &options);
    assert_eq!((summary.skipped, failed), (1, vec![]));
    let text = fs::read_to_string(scene.target.join("sub/keep")).expect("read");
    assert_eq!(text, "snapshot's keep");
}

/// A backup follows links on the way to its sources. A restore to the same place would otherwise replace a link that
/// leads to many files by a folder that holds only the sources.
#[test]
fn a_link_that_led_to_the_source_stays_and_is_told() {
    let scene = scene();
    let above = scene.source.parent().expect("a folder");
    let elsewhere = above.join("elsewhere");
    fs::create_dir(&elsewhere).expect("dir");
    fs::write(elsewhere.join("others"), "not in the snapshot").expect("write");
    let led = scene::bytes(above);
    let led = std::path::Path::new(std::str::from_utf8(&led[1..]).expect("text"));
    let link = scene.target.join(led);
    fs::create_dir_all(link.parent().expect("a folder")).expect("dirs");
    symlink(&elsewhere, &link).expect("symlink");
    for overwrite in [Overwrite::Always, Overwrite::IfChanged, Overwrite::IfNewer] {
        let options = Options {
            overwrite,
            ..Options::default()
        };
        let (summary, _) = restore_and_before_dry(&scene, options.clone());
        assert_eq!(summary.skipped, summary.files);
        let (_, told) = restore_and_hear(&scene, &options);
        assert!(
            matches!(&told[..], [(_, why)] if why.contains("and stays")),
            "{told:?}"
        );
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(&elsewhere).expect("list").count(), 1);
    }
    // A link that leads nowhere hides no files.
    fs::remove_dir_all(&elsewhere).expect("remove");
    let (_, failed) = restore_and_before_dry(&scene, Options::default());
    assert_eq!(failed, [""; 0]);
    assert!(link.join("source/sub/inner").is_file());
}
