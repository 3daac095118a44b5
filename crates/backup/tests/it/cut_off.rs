//! A folder whose listing fails after its own entry was written: the snapshot says so, and no command takes the missing
//! names for removed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::diff::{Mark, diff};
use onefold_backup::tree::Tree;
use onefold_backup::{Flags, Progress, list, path, snapshots, walk};
use onefold_store::{Repository, SessionKind};

use crate::scene::{self, Log, bytes, options};

/// Fills a folder with too many names for one leaf, among them two folders whose listing will fail.
fn fill(source: &Path) {
    fs::create_dir(source.join("many")).expect("mkdir");
    for n in 0..2500 {
        fs::write(source.join(format!("many/file {n:04}")), "").expect("write");
    }
    for folder in ["early", "many/file 1200 and cut", "whole"] {
        fs::create_dir(source.join(folder)).expect("mkdir");
        for n in 0..4 {
            let content = scene::noise(n, 3000);
            fs::write(source.join(folder).join(n.to_string()), content).expect("write");
        }
    }
}

/// Makes the listings of these two folders fail after one name.
fn two_fail(folder: &[u8]) -> Option<usize> {
    (folder.ends_with(b"/early") || folder.ends_with(b" and cut")).then_some(1)
}

fn back_up(
    repository: &Repository,
    source: &Path,
    secs: i64,
    failing: walk::Failing,
) -> (Outcome, usize) {
    let log = Log::default();
    let options = backup::Options {
        failing,
        ..options(secs)
    };
    let input = Input::Paths(vec![bytes(source)]);
    let outcome = backup::run(repository, input, &options, &Progress::default(), &log);
    let errors = log.errors.lock().len();
    (outcome.expect("backup"), errors)
}

/// Returns the entries below the source by path, with their flags.
fn entries(repository: &Repository, outcome: &Outcome, source: &Path) -> BTreeMap<String, u8> {
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let named = snapshots::load(repository, outcome.id.expect("id")).expect("load");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("open");
    let mut entries = BTreeMap::new();
    let visit = &mut |folder: &[u8], entry: &onefold_backup::Entry| {
        let full = path::join(folder, &entry.name);
        let name = String::from_utf8_lossy(&full[bytes(source).len() + 1..]).into_owned();
        entries.insert(name, entry.flags.0);
        Ok(true)
    };
    list::list(&tree, &mut reader, &bytes(source), true, visit).expect("list");
    entries
}

/// Returns the marks of all paths below the source that differ.
fn marks(repository: &Repository, from: &Outcome, to: &Outcome) -> Vec<(char, String)> {
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let mut open = |outcome: &Outcome| {
        let named = snapshots::load(repository, outcome.id.expect("id")).expect("load");
        Tree::open(&named.snapshot, &mut reader).expect("open")
    };
    let trees = (open(from), open(to));
    let mut marks = Vec::new();
    diff(
        (&trees.0, &trees.1),
        &mut reader,
        b"",
        false,
        &mut |mark: Mark, path, _, _| {
            let (above, name) = path::split(path);
            let above = String::from_utf8_lossy(path::split(above).1).into_owned();
            marks.push((
                mark.letter(),
                format!("{above}/{}", String::from_utf8_lossy(name)),
            ));
        },
    )
    .expect("diff");
    marks
}

#[test]
fn a_folder_cut_off_by_a_failing_disk_is_marked_unlisted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let source = dir.path();
    fill(source);
    let repository = scene::repository();
    let (whole, errors) = back_up(&repository, source, 1, walk::SOUND);
    assert_eq!(errors, 0);
    let (cut, errors) = back_up(&repository, source, 2, two_fail);
    assert_eq!((errors, cut.snapshot.summary.errors), (2, 2));

    let (before, after) = (
        entries(&repository, &whole, source),
        entries(&repository, &cut, source),
    );
    assert!(before.values().all(|flags| *flags == 0));
    let flagged: Vec<_> = after.iter().filter(|(_, flags)| **flags != 0).collect();
    let unlisted = &Flags::UNLISTED.0;
    assert_eq!(
        flagged,
        [
            (&"early".to_owned(), unlisted),
            (&"many/file 1200 and cut".to_owned(), unlisted)
        ]
    );
    // Names that were listed before the failure are kept, and everything else is there.
    assert_eq!(after.len(), before.len() - 6);
    assert!(after.keys().all(|path| before.contains_key(path)));

    for marks in [
        marks(&repository, &whole, &cut),
        marks(&repository, &cut, &whole),
    ] {
        assert_eq!(marks.len(), 6, "{marks:?}");
        assert!(marks.iter().all(|(mark, _)| *mark == '?'), "{marks:?}");
    }

    // The next backup has everything again, without flags.
    let (again, errors) = back_up(&repository, source, 3, walk::SOUND);
    assert_eq!(errors, 0);
    assert_eq!(entries(&repository, &again, source), before);
    assert_eq!(marks(&repository, &whole, &again), []);
}
