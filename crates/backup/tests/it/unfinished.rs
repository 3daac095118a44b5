//! Files with a chunk that could not be had once, or that a restore did not complete: none passes for complete.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use onefold_backup::backup::Outcome;
use onefold_backup::restore::{self, Options, Overwrite};
use onefold_backup::{Change, Error, Events, Progress, snapshots};
use onefold_io::{Dir, Disk, MemDir};
use onefold_store::{Repository, SessionKind};
use parking_lot::Mutex;

use crate::lost::restore_from;
use crate::mount::Mount;
use crate::scene::{self, back_up, noise};

const BYTES: usize = 3_000_000;

struct Scene {
    _place: tempfile::TempDir,
    source: PathBuf,
    target: PathBuf,
    dir: MemDir,
    repository: Repository,
    outcome: Outcome,
}

/// Backs up a folder with one file of noise, `a`, and the files of `fill`.
fn scene(fill: impl FnOnce(&Path)) -> Scene {
    let place = tempfile::tempdir().expect("tempdir");
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir(&source).expect("mkdir");
    fs::create_dir(&target).expect("mkdir");
    fs::write(source.join("a"), noise(1, BYTES)).expect("write");
    fill(&source);
    let dir = MemDir::default();
    let repository = scene::repository_in(&dir);
    let outcome = back_up(&repository, &source, 1);
    Scene {
        _place: place,
        source,
        target,
        dir,
        repository,
        outcome,
    }
}

impl Scene {
    /// Restores with a damaged block in the data's container, and again without; returns the errors of the first time.
    fn restore_twice(&self, overwrite: Overwrite) -> u64 {
        self.restore_twice_and(overwrite, || {})
    }

    /// Restores twice, and calls `look` after each.
    fn restore_twice_and(&self, overwrite: Overwrite, look: impl Fn()) -> u64 {
        let options = Options {
            overwrite,
            ..Options::default()
        };
        self.restore_twice_with(&options, look)
    }

    fn restore_twice_with(&self, options: &Options, look: impl Fn()) -> u64 {
        let restore = || {
            let (from, to) = (&self.source, &self.target);
            restore_from(&self.repository, &self.outcome, from, to, options.clone())
        };
        let disk = self.container();
        let mut byte = [0];
        let at = disk.len().expect("length") / 2;
        disk.read_at(&mut byte, at).expect("read");
        disk.write_at(&[!byte[0]], at).expect("write");
        let first = restore();
        look();
        disk.write_at(&byte, at).expect("write");
        assert_eq!(restore().errors, 0);
        look();
        first.errors
    }

    /// Returns the container with the most chunks of the data.
    fn container(&self) -> std::sync::Arc<dyn Disk> {
        let session = self
            .repository
            .session(onefold_store::SessionKind::Read)
            .expect("session");
        let mut reader = session.reader().expect("reader");
        let content = scene::entry(&self.repository, &self.outcome, &self.source.join("a")).content;
        let mut container = None;
        onefold_backup::tree::visit_items(&content, &mut reader, &mut |visit, _| {
            if let onefold_backup::tree::Visit::Data(slice, _) = visit {
                container = Some(slice.chunk.container);
            }
            Ok(true)
        })
        .expect("visit");
        let name = container.expect("data").to_string();
        let all = self.dir.open_subdir("containers").expect("containers");
        let folder = all.open_subdir(&name[..2]).expect("open");
        folder.open_write(&name).expect("open")
    }

    fn is_whole(&self, name: &str) -> bool {
        fs::read(self.target.join(name)).expect("read") == noise(1, BYTES)
    }
}

fn set_time(path: &Path, since_1970: Duration) {
    let file = File::options().write(true).open(path).expect("open");
    file.set_modified(SystemTime::UNIX_EPOCH + since_1970)
        .expect("set");
}

/// Reproducible builds and some stores of packages set such times.
#[test]
fn a_file_of_1970_that_was_half_restored_is_restored_again() {
    for secs in [0, 1] {
        let rules = [Overwrite::IfChanged, Overwrite::IfNewer, Overwrite::Always];
        for overwrite in rules {
            let scene = scene(|source| set_time(&source.join("a"), Duration::from_secs(secs)));
            assert_eq!(scene.restore_twice(overwrite), 1);
            assert!(scene.is_whole("a"), "{overwrite:?}, {secs} s");
        }
    }
}

/// The first name is the user's, and newer: it stays, so that the other name is a copy.
#[test]
fn a_further_name_that_was_half_copied_is_restored_again() {
    let scene = scene(|source| {
        fs::hard_link(source.join("a"), source.join("b")).expect("link");
        set_time(&source.join("a"), Duration::from_secs(1_000_000));
    });
    fs::write(scene.target.join("a"), "the user's").expect("write");
    assert_eq!(scene.restore_twice(Overwrite::IfNewer), 1);
    assert_eq!(
        fs::read(scene.target.join("a")).expect("read"),
        b"the user's"
    );
    assert!(scene.is_whole("b"));
}

/// Returns the names in the target's folder.
fn names(scene: &Scene) -> Vec<String> {
    let names = fs::read_dir(&scene.target).expect("list");
    let mut names: Vec<_> = names
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn what_was_there_stays_until_the_whole_of_what_replaces_it_is_there() {
    let scene = scene(|source| {
        fs::hard_link(source.join("a"), source.join("b")).expect("link");
    });
    for name in ["a", "b"] {
        fs::write(scene.target.join(name), "the user's").expect("write");
    }
    let seen = std::cell::RefCell::new(Vec::new());
    let look = || {
        let text = |name| fs::read(scene.target.join(name)).expect("read");
        seen.borrow_mut()
            .push((text("a"), text("b"), names(&scene)));
    };
    assert_eq!(scene.restore_twice_and(Overwrite::Always, look), 2);
    let theirs = b"the user's".to_vec();
    let names = vec!["a".to_owned(), "b".to_owned()];
    let whole = noise(1, BYTES);
    assert!(seen.borrow()[0] == (theirs.clone(), theirs, names.clone()));
    assert!(seen.borrow()[1] == (whole.clone(), whole, names));
}

/// The first name only looks as the snapshot says, and cannot be replaced: no further name may be linked to it.
#[test]
fn no_further_name_leads_to_what_stands_in_place_of_a_first_one_that_failed() {
    // Tried with everything in one window, and in many.
    for window_bytes in [64 << 20, 1 << 10] {
        let scene = scene(|source| {
            fs::create_dir(source.join("sub")).expect("mkdir");
            fs::hard_link(source.join("a"), source.join("sub/b")).expect("link");
        });
        let like_it = noise(2, BYTES);
        fs::write(scene.target.join("a"), &like_it).expect("write");
        let file = File::options().write(true).open(scene.target.join("a"));
        let time = scene.source.join("a").metadata().expect("stat").modified();
        file.expect("open")
            .set_modified(time.expect("time"))
            .expect("set");
        let options = Options {
            window_bytes,
            ..Options::default()
        };
        let seen = std::cell::RefCell::new(Vec::new());
        let look = || {
            let is_like_it = |name| fs::read(scene.target.join(name)).is_ok_and(|it| it == like_it);
            seen.borrow_mut()
                .push((is_like_it("a"), is_like_it("sub/b")));
        };
        assert_eq!(scene.restore_twice_with(&options, look), 2);
        assert_eq!(*seen.borrow(), [(true, false), (false, false)]);
        assert!(scene.is_whole("a") && scene.is_whole("sub/b"));
    }
}

/// Runs an action when a restore has begun to write a file.
struct AtBegin<'a>(&'a str, &'a (dyn Fn() + Sync));

impl Events for AtBegin<'_> {
    fn error(&self, path: &[u8], error: &Error) {
        eprintln!("{}: {error}", onefold_backup::path::show(path));
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, path: &[u8], _: Change, _: u64) {
        if path == self.0.as_bytes() {
            (self.1)();
        }
    }
}

impl Scene {
    /// Restores, and runs an action when `path` is begun. Returns whether the restore came to its end.
    fn restore_and(&self, options: &Options, path: &str, at_begin: &(dyn Fn() + Sync)) -> bool {
        self.restore_until(options, &Progress::default(), path, at_begin)
    }

    /// Restores with this progress, as `restore_and` does.
    fn restore_until(
        &self,
        options: &Options,
        progress: &Progress,
        path: &str,
        at_begin: &(dyn Fn() + Sync),
    ) -> bool {
        let id = self.outcome.id.expect("id");
        let named = snapshots::load(&self.repository, id).expect("load");
        let session = self.repository.session(SessionKind::Read);
        let done = restore::run(
            &session.expect("session"),
            &named.snapshot,
            &scene::bytes(&self.target),
            &Options {
                path: onefold_backup::path::clean(&scene::bytes(&self.source)),
                ..options.clone()
            },
            progress,
            &AtBegin(path, at_begin),
        );
        match done {
            Ok(summary) => assert_eq!(summary.errors, 0),
            Err(ref e) => assert!(matches!(e, Error::Cancelled), "{e:?}"),
        }
        done.is_ok()
    }
}

/// The file has many chunks, in one window and in many; or it is copied since it cannot be linked.
#[test]
fn an_interruption_leaves_no_half_of_a_file() {
    for window_bytes in [64 << 20, 1 << 10] {
        for begun in ["/a", "/b"] {
            let scene = scene(|source| {
                fs::write(source.join("a"), scene::uneven(1, BYTES)).expect("write");
                fs::hard_link(source.join("a"), source.join("b")).expect("link");
            });
            if begun == "/b" {
                fs::write(scene.target.join("a"), "the user's").expect("write");
            }
            let options = Options {
                overwrite: Overwrite::Never,
                readers: 1,
                window_bytes,
                ..Options::default()
            };
            let progress = Progress::default();
            let cancel = || progress.cancel();
            assert!(!scene.restore_until(&options, &progress, begun, &cancel));
            let left: &[&str] = if begun == "/b" { &["a"] } else { &[] };
            assert_eq!(names(&scene), left, "{begun}, {window_bytes}");
            assert!(scene.restore_and(&options, "", &|| {}));
            let whole = fs::read(scene.target.join("b")).expect("read");
            assert!(whole == scene::uneven(1, BYTES));
        }
    }
}

/// Another user looks at the target during a restore, which shows what a killed one leaves.
#[test]
fn what_is_not_complete_is_never_seen_under_its_name_or_is_known_by_its_mode() {
    let scene = scene(|source| {
        fs::write(source.join("a"), scene::uneven(1, BYTES)).expect("write");
        fs::write(source.join("small"), "small").expect("write");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, source.join("pipe"), kind, mode, 0).expect("fifo");
    });
    let (seen, options) = (Mutex::new(Vec::new()), Options::default());
    let look = || seen.lock().extend(names(&scene));
    assert!(scene.restore_and(&options, "/a", &look));
    let seen = std::mem::take(&mut *seen.lock());
    assert!(!seen.contains(&"a".into()), "{seen:?}");
    assert!(seen.iter().any(|name| name.starts_with(".onefold-")));
    fs::remove_file(scene.target.join("small")).expect("remove");
    let mode = Mutex::new(None);
    let look = || {
        let small = scene.target.join("small").metadata();
        *mode.lock() = small.map(|there| there.mode() & 0o7777).ok();
    };
    assert!(scene.restore_and(&options, "/small", &look));
    assert_eq!(mode.into_inner(), Some(0o1600));
    fs::remove_file(scene.target.join("pipe")).expect("remove");
    let is_pipe_seen = Mutex::new(false);
    let look = || *is_pipe_seen.lock() |= scene.target.join("pipe").symlink_metadata().is_ok();
    assert!(scene.restore_and(&options, "/pipe", &look));
    assert!(!is_pipe_seen.into_inner());
    assert_eq!(names(&scene), ["a", "pipe", "small"]);
}

#[test]
fn what_a_restore_that_was_killed_has_left_half_written_is_restored_again() {
    let rules = [
        Overwrite::Never,
        Overwrite::IfNewer,
        Overwrite::IfChanged,
        Overwrite::Always,
    ];
    for overwrite in rules {
        let scene = scene(|source| fs::write(source.join("b"), "whole").expect("write"));
        for (name, mode) in [("a", 0o1600), ("b", 0o600)] {
            let path = scene.target.join(name);
            fs::write(&path, "half").expect("write");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
        }
        let run = |dry_run| {
            let options = Options {
                overwrite,
                dry_run,
                ..Options::default()
            };
            let (from, to) = (&scene.source, &scene.target);
            restore_from(&scene.repository, &scene.outcome, from, to, options)
        };
        let dry = run(true);
        assert_eq!(dry, run(false));
        assert!(scene.is_whole("a"), "{overwrite:?}");
        // Its mode shows that the file is the user's.
        let stays = matches!(overwrite, Overwrite::Never | Overwrite::IfNewer);
        let text = fs::read_to_string(scene.target.join("b")).expect("read");
        assert_eq!(text, if stays { "half" } else { "whole" }, "{overwrite:?}");
    }
}

/// Where the snapshot has the mode of the mark itself, the mark says nothing.
#[test]
fn what_the_snapshot_has_with_the_mode_of_an_unfinished_one_is_the_users() {
    let mode = |path: PathBuf, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
    };
    let scene = scene(|source| {
        fs::write(source.join("b"), "whole").expect("write");
        fs::create_dir(source.join("folder")).expect("mkdir");
        mode(source.join("b"), 0o1600);
        mode(source.join("folder"), 0o1700);
    });
    let restore = |overwrite| {
        let options = Options {
            overwrite,
            ..Options::default()
        };
        let (from, to) = (&scene.source, &scene.target);
        restore_from(&scene.repository, &scene.outcome, from, to, options)
    };
    restore(Overwrite::Always);
    let at = |name: &str| scene.target.join(name);
    fs::write(at("b"), "changed since").expect("write");
    fs::write(at("folder/own"), "the user's").expect("write");
    let changed = at("folder").metadata().expect("stat").mtime_nsec();
    restore(Overwrite::Never);
    assert_eq!(fs::read(at("b")).expect("read"), b"changed since");
    assert_eq!(at("folder").metadata().expect("stat").mtime_nsec(), changed);
}

/// Root gives a file and a folder away before their modes are set: the restore is killed in between.
#[test]
fn what_was_given_to_its_owner_and_not_finished_is_restored_again() {
    if !crate::untested::is_root() {
        return;
    }
    for overwrite in [Overwrite::Never, Overwrite::IfNewer] {
        let scene = scene(|source| {
            for name in ["b", "c"] {
                fs::write(source.join(name), "whole").expect("write");
            }
            fs::create_dir(source.join("folder")).expect("mkdir");
            for name in ["b", "c", "folder"] {
                chown(source.join(name), Some(1000), None).expect("chown");
            }
        });
        let at = |name: &str| scene.target.join(name);
        fs::write(at("b"), "whole").expect("write");
        fs::write(at("c"), "the user's").expect("write");
        fs::create_dir(at("folder")).expect("mkdir");
        for (name, mode) in [("b", 0o1600), ("c", 0o1600), ("folder", 0o1700)] {
            fs::set_permissions(at(name), Permissions::from_mode(mode)).expect("chmod");
            chown(at(name), Some(1000), None).expect("chown");
        }
        let options = Options {
            overwrite,
            ..Options::default()
        };
        let (from, to) = (&scene.source, &scene.target);
        let summary = restore_from(&scene.repository, &scene.outcome, from, to, options);
        assert_eq!(summary.skipped, 1, "{overwrite:?}");
        for name in ["b", "folder"] {
            let looks = |path: PathBuf| {
                let there = path.metadata().expect("stat");
                (there.mode(), there.uid(), there.mtime_nsec())
            };
            let wanted = looks(scene.source.join(name));
            assert_eq!(looks(at(name)), wanted, "{overwrite:?} {name}");
        }
        let text = fs::read_to_string(at("c")).expect("read");
        assert_eq!(text, "the user's", "{overwrite:?}");
    }
}

/// The target has room for some of the file, but not for all.
#[test]
fn a_full_target_has_no_half_of_a_file() {
    for (bytes, mib) in [(BYTES, 2), (12 << 20, 9)] {
        let scene = scene(|source| {
            let file = File::create(source.join("a")).expect("create");
            // A file with a hole takes no room beforehand.
            file.set_len(bytes as u64 + (1 << 20)).expect("set_len");
            let content = scene::uneven(1, bytes);
            std::os::unix::fs::FileExt::write_all_at(&file, &content, 0).expect("write");
        });
        let Some(_mount) = Mount::new(&scene.target, mib) else {
            return;
        };
        let (from, to) = (&scene.source, &scene.target);
        let options = Options::default();
        let summary = restore_from(&scene.repository, &scene.outcome, from, to, options);
        assert!(summary.is_full);
        assert_eq!((summary.errors, summary.failed), (1, 1));
        assert_eq!(names(&scene), [""; 0], "{bytes}");
    }
}

/// Holds whatever parts were read before, and whichever thread found the loss first; files in the target stay.
#[test]
fn of_a_file_that_is_hurt_nothing_is_restored() {
    for window_bytes in [64 << 20, 1 << 10] {
        for _ in 0..5 {
            let scene = scene(|source| {
                for name in ["a", "c", "d"] {
                    fs::write(source.join(name), scene::uneven(1, BYTES)).expect("write");
                }
                fs::hard_link(source.join("a"), source.join("b")).expect("link");
                // This file has no chunk, which might be lost.
                fs::write(source.join("whole"), "").expect("write");
            });
            fs::create_dir(scene.target.join("c")).expect("mkdir");
            fs::write(scene.target.join("d"), "the user's").expect("write");
            let options = Options {
                window_bytes,
                ..Options::default()
            };
            let seen = std::cell::RefCell::new(Vec::new());
            let look = || {
                let is_folder = scene.target.join("c").is_dir();
                let text = fs::read(scene.target.join("d")).expect("read");
                seen.borrow_mut().push((names(&scene), is_folder, text));
            };
            // There is one error for each of the names, whatever the windows.
            assert_eq!(scene.restore_twice_with(&options, look), 4);
            let (left, is_folder, text) = seen.borrow_mut().remove(0);
            assert_eq!(left, ["c", "d", "whole"], "{window_bytes}");
            assert!(is_folder && text == b"the user's", "{window_bytes}");
            assert_eq!(names(&scene), ["a", "b", "c", "d", "whole"]);
            for name in ["a", "b", "c", "d"] {
                let whole = fs::read(scene.target.join(name)).expect("read");
                assert!(whole == scene::uneven(1, BYTES), "{name}");
            }
        }
    }
}
