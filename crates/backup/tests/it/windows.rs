//! Restores in many small windows: the result is the same as in one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use onefold_backup::exclude::Patterns;
use onefold_backup::restore::{self, Options, Overwrite, RestoreSummary};
use onefold_backup::tree::{Visit, visit_items_from};
use onefold_backup::{Change, Content, Error, Events, Item, Progress};
use onefold_backup::{backup::Outcome, path, snapshots};
use onefold_chunk::Fingerprint;
use onefold_store::{ChunkRef, ContainerId, Repository, SessionKind};

use crate::scene::{back_up, bytes, every_kind, look, noise, repository, restore_with};

/// A folder that is backed up, and restored in small windows.
pub struct Scene {
    _dir: tempfile::TempDir,
    pub source: PathBuf,
    pub target: PathBuf,
    repository: Repository,
    outcome: Outcome,
}

impl Scene {
    /// Makes a scene with every kind of file, among them one that takes some windows.
    fn new() -> Self {
        Self::with(|source| {
            every_kind(source);
            let file = fs::File::create(source.join("long")).expect("create");
            // The first window of this file ends behind a hole.
            let write =
                |bytes: &[u8], at| std::os::unix::fs::FileExt::write_all_at(&file, bytes, at);
            write(&noise(5, 1_000_000), 0).expect("write");
            write(&noise(6, 9_000_000), 20 << 20).expect("write");
        })
    }

    /// Backs up the files that `fill` makes.
    pub fn with(fill: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let (source, target) = (dir.path().join("source"), dir.path().join("target"));
        fs::create_dir(&source).expect("mkdir");
        fill(&source);
        let repository = repository();
        let outcome = back_up(&repository, &source, 1);
        Self {
            _dir: dir,
            source,
            target,
            repository,
            outcome,
        }
    }

    pub fn restore(&self, options: Options) -> RestoreSummary {
        self.restore_in(16 << 10, options)
    }

    pub fn restore_in(&self, window_bytes: usize, options: Options) -> RestoreSummary {
        let options = Options {
            path: path::clean(&bytes(&self.source)),
            window_bytes,
            verify: true,
            ..options
        };
        restore_with(&self.repository, &self.outcome, &self.target, &options)
    }
}

#[test]
fn files_that_take_many_windows_come_back_and_are_counted_once() {
    let scene = Scene::new();
    // The second restore replaces the files of the first.
    for _ in 0..2 {
        let summary = scene.restore(Options::default());
        assert_eq!(look(&scene.source), look(&scene.target));
        // Two of the files are further names of others.
        assert_eq!(summary.verified, summary.files - 2);
    }
}

#[test]
fn a_file_that_takes_many_windows_and_stays_is_counted_once() {
    let scene = Scene::new();
    scene.restore(Options::default());
    let summary = scene.restore(Options {
        overwrite: Overwrite::Never,
        ..Options::default()
    });
    assert_eq!(
        (summary.skipped_bytes, summary.verified),
        (summary.bytes, 0)
    );
}

#[test]
fn a_dry_run_counts_a_file_that_takes_many_windows_once() {
    let scene = Scene::new();
    scene.restore(Options::default());
    let run = |dry_run| {
        scene.restore(Options {
            overwrite: Overwrite::Never,
            dry_run,
            ..Options::default()
        })
    };
    let dry = run(true);
    assert_eq!((dry.skipped, dry.skipped_bytes), (dry.files, dry.bytes));
    assert_eq!(dry, run(false));
}

/// Lets the first window go on when everything is counted.
struct UntilCounted<'a>(&'a Progress);

impl Events for UntilCounted<'_> {
    fn error(&self, path: &[u8], error: &Error) {
        panic!("{}: {error}", path::show(path));
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, _: &[u8], _: Change, _: u64) {
        let is_known = || self.0.expected_known.load(Relaxed);
        while !is_known() && !self.0.totals_known.load(Relaxed) {
            std::thread::yield_now();
        }
    }
}

/// Percentage and remaining time relate to everything that the user has asked for.
#[test]
fn what_is_to_come_is_known_while_the_first_window_is_restored() {
    let scene = Scene::with(every_kind);
    let session = scene.repository.session(SessionKind::Read);
    let session = session.expect("session");
    let id = scene.outcome.id.expect("id");
    let named = snapshots::load(&scene.repository, id).expect("load");
    let patterns = |patterns: &[&str]| Patterns::new(patterns).expect("patterns");
    let mut counted = 0;
    for (n, (include, exclude)) in [
        (&[][..], &[][..]),
        (&["many-*", "!many-00*", "middle"], &[]),
        (&["/a"], &["/a/b/c/many-*"]),
        (&["/a/b", "/a-"], &["/a/b/c", "large"]),
        (&[], &["b", "!middle"]),
    ]
    .into_iter()
    .enumerate()
    {
        let progress = Progress::default();
        let options = Options {
            path: path::clean(&bytes(&scene.source)),
            include: patterns(include),
            exclude: patterns(exclude),
            window_bytes: 2 << 10,
            count: true,
            ..Options::default()
        };
        let target = bytes(&scene.target.join(n.to_string()));
        let events = UntilCounted(&progress);
        let summary = restore::run(
            &session,
            &named.snapshot,
            &target,
            &options,
            &progress,
            &events,
        );
        let summary = summary.expect("restore");
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let (files, bytes) = (&progress.files_expected, &progress.bytes_expected);
        let expected = (load(files), load(bytes));
        // The plan knows all totals where everything is in the first window: then there is nothing to count.
        if !progress.expected_known.load(Relaxed) {
            continue;
        }
        counted += 1;
        assert_eq!(
            expected,
            (summary.files, summary.bytes),
            "{include:?} {exclude:?}"
        );
        assert!(summary.files > 1, "{include:?} {exclude:?}");
    }
    assert!(counted > 2, "{counted}");
}

/// Parts that an earlier window has restored are not read again: a huge file would be read through once for each
/// window.
#[test]
fn recipes_of_what_is_done_are_not_read() {
    let repository = repository();
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let lost = ChunkRef {
        fingerprint: Fingerprint([7; 32]),
        container: ContainerId(7),
        len: 100,
    };
    let recipe = |span| Item::Chunk { chunk: lost, span };
    let content = Content {
        depth: 1,
        items: vec![recipe(1000), Item::Hole { len: 500 }, recipe(2000)],
        ..Content::default()
    };
    let mut met = |from: u64| {
        let mut met = Vec::new();
        let visited = visit_items_from(&content, from, &mut reader, &mut |visit, _| {
            met.push(match visit {
                Visit::Recipe(_) => "recipe",
                Visit::Hole(1000, 500) => "hole",
                _ => "another",
            });
            Ok(met.len() < 2 && from != 1400)
        });
        (visited.is_ok(), met)
    };
    assert_eq!(met(3500), (true, vec![]));
    assert_eq!(met(1400), (true, vec!["hole"]));
    assert_eq!(met(999), (false, vec!["recipe"]));
    assert_eq!(met(1500), (false, vec!["recipe"]));
}
