//! Tests of what a second backup reads, what it leaves out, and what it cannot read.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::exclude::{CACHEDIR_SIGNATURE, Excludes, Patterns};
use onefold_backup::{Progress, Time, diff, list, roots, snapshots, tree::Tree};
use onefold_store::{Repository, Roots, Seen, SessionKind};

use crate::scene::{self, Log, back_up, bytes, every_kind, options};

fn tree_of(repository: &Repository, outcome: &Outcome) -> Tree {
    let session = repository.session(SessionKind::Read).expect("session");
    let named = snapshots::load(repository, outcome.id.expect("id")).expect("load");
    Tree::open(&named.snapshot, &mut session.reader().expect("reader")).expect("open")
}

fn names(repository: &Repository, outcome: &Outcome, below: &Path) -> Vec<String> {
    let session = repository.session(SessionKind::Read).expect("session");
    let mut names = Vec::new();
    let visit = &mut |folder: &[u8], entry: &onefold_backup::Entry| {
        let full = onefold_backup::path::join(folder, &entry.name);
        names.push(String::from_utf8_lossy(&full[bytes(below).len() + 1..]).into_owned());
        Ok(true)
    };
    list::list(
        &tree_of(repository, outcome),
        &mut session.reader().expect("reader"),
        &bytes(below),
        true,
        visit,
    )
    .expect("list");
    names
}

#[test]
fn an_unchanged_tree_is_not_read_and_adds_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    every_kind(dir.path());
    let repository = scene::repository();
    let first = back_up(&repository, dir.path(), 1);
    let second = back_up(&repository, dir.path(), 2);
    let summary = second.snapshot.summary;
    assert_eq!(
        (
            summary.bytes_read,
            summary.files_new,
            summary.files_changed,
            summary.data_chunks
        ),
        (0, 0, 0, 0)
    );
    // Other tests share the folder above: its times may change, and one leaf with it.
    assert!(summary.tree_chunks <= 1);
    assert_eq!(summary.files_unmodified, first.snapshot.summary.files_new);
    assert_eq!(second.snapshot.parent, first.id.map(|id| id.0));
    let again = backup::Options {
        force_reread: true,
        ..options(3)
    };
    let third = backup::run(
        &repository,
        Input::Paths(vec![bytes(dir.path())]),
        &again,
        &Progress::default(),
        &Log::default(),
    )
    .expect("backup");
    let summary = third.snapshot.summary;
    assert_eq!((summary.data_chunks, summary.files_changed), (0, 0));
    assert_eq!(summary.files_unmodified, first.snapshot.summary.files_new);
    assert!(summary.bytes_read > 3_000_000);
}

#[test]
fn a_changed_file_is_read_and_told_by_diff() {
    let dir = tempfile::tempdir().expect("tempdir");
    every_kind(dir.path());
    let repository = scene::repository();
    let first = back_up(&repository, dir.path(), 1);
    fs::write(dir.path().join("a/b/c/many-0007"), b"other").expect("write");
    fs::remove_file(dir.path().join("a/zero")).expect("remove");
    fs::create_dir(dir.path().join("a/zero")).expect("dir");
    fs::remove_file(dir.path().join("a/b/c/many-0008")).expect("remove");
    fs::write(dir.path().join("a/b/fresh"), b"fresh").expect("write");
    let second = back_up(&repository, dir.path(), 2);
    assert_eq!(
        (
            second.snapshot.summary.files_changed,
            second.snapshot.summary.files_new
        ),
        (1, 1)
    );
    assert_eq!(second.snapshot.summary.bytes_read, 10);
    let session = repository.session(SessionKind::Read).expect("session");
    let mut marks = Vec::new();
    let tell = &mut |mark: diff::Mark,
                     path: &[u8],
                     _: Option<&onefold_backup::Entry>,
                     _: Option<&onefold_backup::Entry>| {
        marks.push(format!(
            "{}{}",
            mark.letter(),
            String::from_utf8_lossy(&path[bytes(dir.path()).len()..])
        ));
    };
    let trees = (
        &tree_of(&repository, &first),
        &tree_of(&repository, &second),
    );
    diff::diff(
        trees,
        &mut session.reader().expect("reader"),
        b"",
        false,
        tell,
    )
    .expect("diff");
    assert_eq!(
        marks,
        [
            "T/a/zero",
            "+/a/b/fresh",
            "M/a/b/c/many-0007",
            "-/a/b/c/many-0008"
        ]
    );
    let (mut reader, nowhere) = (session.reader().expect("reader"), b"/no\xffwhere\n");
    let error = diff::diff(trees, &mut reader, nowhere, false, &mut |_, _, _, _| {});
    let told = error.expect_err("not there").to_string();
    assert!(
        told.starts_with(&onefold_backup::path::show(nowhere)),
        "{told}"
    );
}

#[test]
fn roots_give_every_chunk_that_a_snapshot_needs_and_seen_ones_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    every_kind(dir.path());
    let repository = scene::repository();
    let outcomes = [
        back_up(&repository, dir.path(), 1),
        back_up(&repository, dir.path(), 2),
    ];
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let mut seen = Seen::default();
    let mut counts = Vec::new();
    for outcome in &outcomes {
        let id = outcome.id.expect("id");
        let root = repository.root(&id).expect("root");
        let mut refs = std::collections::HashSet::new();
        let visit = &mut |chunk: &onefold_store::ChunkRef| {
            refs.insert(*chunk);
            Ok(())
        };
        roots::SnapshotRoots
            .for_each_ref(&id, &root, &mut reader, &mut seen, visit)
            .expect("refs");
        counts.push(refs.len());
    }
    let stored = outcomes[0].snapshot.summary;
    assert_eq!(counts[0] as u64, stored.data_chunks + stored.tree_chunks);
    assert!(counts[1] < counts[0] / 10, "{counts:?}");
}

#[test]
fn what_is_excluded_is_left_out() {
    let dir = tempfile::tempdir().expect("tempdir");
    let root = dir.path();
    for folder in ["src", "target/debug", "cache", "kept", "marked"] {
        fs::create_dir_all(root.join(folder)).expect("dirs");
    }
    for name in [
        "src/a.rs",
        "src/a.o",
        "src/keep.o",
        "target/debug/x",
        "cache/blob",
        "kept/.ignored",
        "kept/b.tmp",
        "kept/c",
        "marked/d",
        "big",
    ] {
        fs::write(root.join(name), name).expect("write");
    }
    fs::write(root.join("big"), vec![0; 5000]).expect("write");
    fs::write(root.join("cache/CACHEDIR.TAG"), CACHEDIR_SIGNATURE).expect("write");
    fs::write(root.join("marked/.nobackup"), "").expect("write");
    fs::write(
        root.join("kept/.onefoldignore"),
        "# comment\n*.tmp\n/.ignored\n",
    )
    .expect("write");
    let excludes = Excludes {
        patterns: Patterns::new(["*.o", "!keep.o", "target/"]).expect("patterns"),
        caches: true,
        if_present: vec![(b".nobackup".to_vec(), None)],
        ignore_files: vec![b".onefoldignore".to_vec()],
        larger_than: Some(4096),
        ..Excludes::default()
    };
    let repository = scene::repository();
    let options = backup::Options {
        excludes: Arc::new(excludes),
        ..options(1)
    };
    let outcome = backup::run(
        &repository,
        Input::Paths(vec![bytes(root)]),
        &options,
        &Progress::default(),
        &Log::default(),
    )
    .expect("backup");
    assert_eq!(
        names(&repository, &outcome, root),
        [
            "cache",
            "kept",
            "marked",
            "src",
            "cache/CACHEDIR.TAG",
            "kept/.onefoldignore",
            "kept/c",
            "marked/.nobackup",
            "src/a.rs",
            "src/keep.o"
        ]
    );
}

#[test]
fn a_source_that_is_missing_is_told_and_the_rest_is_kept() {
    let dir = tempfile::tempdir().expect("tempdir");
    fs::write(dir.path().join("here"), "here").expect("write");
    let repository = scene::repository();
    let log = Log::default();
    let sources = ["here", "missing"]
        .map(|name| bytes(&dir.path().join(name)))
        .to_vec();
    let outcome = backup::run(
        &repository,
        Input::Paths(sources),
        &options(1),
        &Progress::default(),
        &log,
    )
    .expect("backup");
    assert_eq!(
        (
            outcome.snapshot.summary.errors,
            outcome.snapshot.summary.files_new
        ),
        (1, 1)
    );
    assert!(log.errors.lock()[0].0.ends_with("/missing"));
    let none = backup::run(
        &repository,
        Input::Paths(vec![bytes(&dir.path().join("nowhere"))]),
        &options(2),
        &Progress::default(),
        &log,
    );
    assert!(none.is_err());
}

#[test]
fn a_stream_becomes_a_file() {
    let dir = tempfile::tempdir().expect("tempdir");
    let content = scene::noise(9, 3_000_000);
    let file = dir.path().join("stream");
    fs::write(&file, &content).expect("write");
    let repository = scene::repository();
    let input = Input::Stream(
        fs::File::open(&file).expect("open").into(),
        b"/dumps/db.sql".to_vec(),
    );
    let outcome = backup::run(
        &repository,
        input,
        &options(1),
        &Progress::default(),
        &Log::default(),
    )
    .expect("backup");
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let entry = tree_of(&repository, &outcome)
        .entry(b"/dumps/db.sql", &mut reader)
        .expect("entry")
        .expect("there");
    let mut out = Vec::new();
    onefold_backup::dump::file(b"/in", &entry, &mut reader, &mut out, &mut ()).expect("dump");
    assert!(out == content);

    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let full = onefold_backup::dump::file(b"/in", &entry, &mut reader, &mut Full, &mut ())
        .expect_err("full");
    assert_eq!(full.to_string(), "write the output");
}

#[test]
fn a_cold_large_file_is_read_past_the_page_cache_and_cut_alike() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("large");
    fs::write(&path, scene::noise(5, (5 << 20) + 1234)).expect("write");
    let file = fs::File::open(&path).expect("open");
    file.sync_all().expect("sync");
    let cached = || onefold_io::os::cached_bytes(file.as_fd(), 0, 5 << 20);
    let repository = scene::repository();
    back_up(&repository, dir.path(), 1);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("drop");
    let was_dropped = cached() == Some(0);
    let again = backup::Options {
        force_reread: true,
        ..options(2)
    };
    let input = Input::Paths(vec![bytes(dir.path())]);
    let second = backup::run(
        &repository,
        input,
        &again,
        &Progress::default(),
        &Log::default(),
    )
    .expect("backup");
    assert_eq!(second.snapshot.summary.data_chunks, 0);
    assert_eq!(second.snapshot.summary.bytes_read, (5 << 20) + 1234);
    // This holds where the file system has reads past the cache, and the kernel tells what is cached.
    if was_dropped {
        assert_eq!(cached(), Some(0));
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("now");
    let secs = i64::try_from(since.as_secs()).expect("this century");
    Time {
        secs,
        nanos: since.subsec_nanos(),
    }
}

/// A change within the same step of the file system's clock leaves size and times as they were. Here the time that
/// counts is set ahead, and alone decides.
#[test]
fn a_change_that_no_time_shows_is_noticed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("file");
    let ahead = SystemTime::now() + Duration::from_secs(1000);
    let write = |text: &str| {
        fs::write(&path, text).expect("write");
        let file = fs::File::options().write(true).open(&path).expect("open");
        file.set_modified(ahead).expect("touch");
    };
    let repository = scene::repository();
    let back_up = |secs| {
        let options = backup::Options {
            ignore_ctime: true,
            clock: now,
            ..options(secs)
        };
        let input = Input::Paths(vec![bytes(&path)]);
        let done = backup::run(
            &repository,
            input,
            &options,
            &Progress::default(),
            &Log::default(),
        );
        done.expect("backup").snapshot.summary
    };
    write("one");
    back_up(1);
    write("two");
    let summary = back_up(2);
    assert_eq!((summary.files_changed, summary.data_chunks), (1, 1));
    // The file is read once more, and found to be unchanged.
    let summary = back_up(3);
    assert_eq!((summary.files_unmodified, summary.bytes_read), (1, 3));
}
