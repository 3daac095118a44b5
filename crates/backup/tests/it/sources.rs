//! Sources inside other sources, missing sources, and excludes that match sources.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use onefold_backup::backup::{self, Input};
use onefold_backup::exclude::{Excludes, Patterns};
use onefold_backup::walk::{self, Walk};
use onefold_backup::{Progress, path};

use crate::scene::{self, Log, bytes, options};

fn write_tree(root: &Path, names: &[&str]) {
    for name in names {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("dirs");
        fs::write(path, name).expect("write");
    }
}

/// Returns all files and links of a walk of these sources, below `root`, and the paths that failed.
fn walked(
    root: &Path,
    sources: &[&str],
    patterns: &[&str],
    threads: usize,
) -> (Vec<String>, Vec<String>) {
    let excludes = Excludes {
        patterns: Patterns::new(patterns).expect("patterns"),
        caches: true,
        ..Excludes::default()
    };
    let options = walk::Options {
        threads,
        excludes: Arc::new(excludes),
        one_file_system: false,
        open_files: 0,
        read_special: false,
        failing: walk::SOUND,
    };
    let sources: Vec<_> = sources.iter().map(|name| bytes(&root.join(name))).collect();
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    let below = |path: &[u8]| {
        let path = path::show(path);
        let inside = path.strip_prefix(root.to_str().expect("a path"));
        inside.map(|path| path.trim_start_matches('/').to_owned())
    };
    for piece in Walk::start(&sources, &options).expect("start") {
        for entry in &piece.found {
            let is_dir = entry.stat.kind == onefold_backup::Kind::Dir;
            let path = below(&path::join(&piece.folder, &entry.name));
            found.extend(path.filter(|_| !is_dir));
        }
        failed.extend(piece.errors.iter().filter_map(|(path, _)| below(path)));
    }
    (found, failed)
}

#[test]
fn a_missing_source_inside_another_is_told() {
    let dir = tempfile::tempdir().expect("tempdir");
    write_tree(dir.path(), &["src/a", "src/sub/b", "src/z"]);
    let sources = [
        "src",
        "src/typo",
        "src/sub/typo",
        "src/no/such",
        "src/a/typo",
    ];
    let (found, failed) = walked(dir.path(), &sources, &[], 2);
    assert_eq!(found, ["src/a", "src/z", "src/sub/b"]);
    assert_eq!(failed, ["src/a", "src/no", "src/typo", "src/sub/typo"]);

    let repository = scene::repository();
    let log = Log::default();
    let sources = ["src", "src/typo"].map(|name| bytes(&dir.path().join(name)));
    let outcome = backup::run(
        &repository,
        Input::Paths(sources.to_vec()),
        &options(1),
        &Progress::default(),
        &log,
    )
    .expect("backup");
    assert_eq!(outcome.snapshot.summary.errors, 1);
    assert_eq!(outcome.snapshot.paths, [path::clean(&sources[0])]);
    assert!(log.errors.lock()[0].0.ends_with("/src/typo"));
}

/// The folder has so many names that several threads look at them.
#[test]
fn a_source_inside_another_is_found_among_many_names() {
    let dir = tempfile::tempdir().expect("tempdir");
    let names: Vec<_> = (0..1500).map(|i| format!("src/{i:04}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    write_tree(dir.path(), &names);
    let sources = ["src", "src/0700", "src/0700x", "src/1499", "src/9"];
    let (found, failed) = walked(dir.path(), &sources, &[], 3);
    assert_eq!(found, names);
    assert_eq!(failed, ["src/0700x", "src/9"]);
}

/// Excludes apply to paths in sources, and not to sources, as with restic.
#[test]
fn a_source_is_kept_whatever_the_excludes_say_of_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let names = [
        "ex/a",
        "ex/ex/b",
        "src/ex/c",
        "src/ex/ex/d",
        "src/ex/deep/e",
        "src/ex/deep/ex/f",
        "src/x.o",
        "src/y.o",
        "src/z",
        "cache/blob",
        "cache/in/g",
    ];
    write_tree(dir.path(), &names);
    fs::write(
        dir.path().join("cache/CACHEDIR.TAG"),
        onefold_backup::exclude::CACHEDIR_SIGNATURE,
    )
    .expect("write");
    let of = |sources: &[&str]| {
        let (mut found, failed) = walked(dir.path(), sources, &["ex", "*.o"], 2);
        assert_eq!(failed, [""; 0], "{sources:?}");
        found.sort();
        found
    };
    assert_eq!(of(&["ex"]), ["ex/a"]);
    assert_eq!(of(&["src"]), ["src/z"]);
    assert_eq!(of(&["src", "src/x.o"]), ["src/x.o", "src/z"]);
    assert_eq!(
        of(&["src", "src/ex"]),
        ["src/ex/c", "src/ex/deep/e", "src/z"]
    );
    // A folder on the way to a source is not itself wanted.
    assert_eq!(of(&["src", "src/ex/deep"]), ["src/ex/deep/e", "src/z"]);
    assert_eq!(of(&["src/ex/deep"]), ["src/ex/deep/e"]);
    assert_eq!(
        of(&["cache", "cache/in"]),
        ["cache/CACHEDIR.TAG", "cache/in/g"]
    );
}

/// Paths behind a link are not wanted, except the source that was named by way of it.
#[test]
fn a_source_behind_a_link_inside_another_is_reached() {
    let dir = tempfile::tempdir().expect("tempdir");
    write_tree(dir.path(), &["src/a", "other/b", "other/sub/c"]);
    std::os::unix::fs::symlink("../other", dir.path().join("src/link")).expect("link");
    let (found, failed) = walked(dir.path(), &["src", "src/link/sub"], &[], 2);
    assert_eq!(found, ["src/a", "src/link/sub/c"]);
    assert_eq!(failed, [""; 0]);
    assert_eq!(
        walked(dir.path(), &["src"], &[], 2).0,
        ["src/a", "src/link"]
    );
}

/// Where the root is the source, its file system is the one to stay on.
#[test]
fn the_root_does_not_lead_to_other_file_systems() {
    let options = walk::Options {
        threads: 2,
        excludes: Arc::new(Excludes {
            patterns: Patterns::new(["/*", "!/proc"]).expect("patterns"),
            ..Excludes::default()
        }),
        one_file_system: true,
        open_files: 0,
        read_special: false,
        failing: walk::SOUND,
    };
    let pieces: Vec<_> = Walk::start(&[b"/".to_vec()], &options)
        .expect("start")
        .collect();
    let folders: Vec<_> = pieces
        .iter()
        .map(|piece| path::show(&piece.folder))
        .collect();
    let names: Vec<_> = pieces[0]
        .found
        .iter()
        .map(|found| &found.name[..])
        .collect();
    assert_eq!(
        (folders.len(), names),
        (1, vec![&b"proc"[..]]),
        "{folders:?}"
    );
}

/// The folder has more names than one pass keeps, none of which is wanted.
#[test]
fn a_marked_folder_of_any_number_of_names_is_passed_over() {
    let dir = tempfile::tempdir().expect("tempdir");
    write_tree(dir.path(), &["many/.skip", "many/named/file", "other"]);
    for n in 0..72_000 {
        let name = format!("{n:0220}");
        std::fs::File::create(dir.path().join("many").join(name)).expect("create");
    }
    let options = walk::Options {
        threads: 2,
        excludes: Arc::new(Excludes {
            if_present: vec![(b".skip".to_vec(), None)],
            ..Excludes::default()
        }),
        one_file_system: false,
        open_files: 0,
        read_special: false,
        failing: walk::SOUND,
    };
    let sources = [bytes(dir.path()), bytes(&dir.path().join("many/named"))];
    let (mut names, mut excluded) = (Vec::new(), 0);
    for piece in Walk::start(&sources, &options).expect("start") {
        excluded += piece.excluded;
        names.extend(piece.found.into_iter().map(|found| found.name));
    }
    for name in [&b".skip"[..], b"named", b"file", b"other"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    assert_eq!(excluded, 72_000);
}
