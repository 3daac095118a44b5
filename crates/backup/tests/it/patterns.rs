//! Patterns: their meaning letter by letter, and lines that are no patterns.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use onefold_backup::backup::{self, Input};
use onefold_backup::exclude::{Excludes, IgnoreFile, Patterns, PatternsBuilder, pattern_lines};
use onefold_backup::{Progress, list, snapshots, tree::Tree};
use onefold_store::SessionKind;

use crate::scene::{Log, bytes, options, repository};

fn excludes(patterns: &Patterns, path: &str) -> bool {
    patterns.covers(path.as_bytes(), false)
}

#[test]
fn braces_stand_for_themselves() {
    let patterns = Patterns::new(["{guid}", "x{y", "[{}]z"]).expect("patterns");
    for path in ["/a/{guid}", "/x{y", "/{z", "/}z"] {
        assert!(excludes(&patterns, path), "{path}");
    }
    for path in ["/a/guid", "/xy", "/z"] {
        assert!(!excludes(&patterns, path), "{path}");
    }
}

#[test]
fn letters_of_any_alphabet_match_in_either_case_where_that_is_asked_for() {
    let mut builder = PatternsBuilder::default();
    builder.add(b"*.log", false).expect("pattern");
    builder.add("!ÄPFEL*".as_bytes(), true).expect("pattern");
    builder.add("äpfel.tmp".as_bytes(), true).expect("pattern");
    let patterns = builder.build().expect("patterns");
    assert_eq!(patterns.decide("/Äpfel.log".as_bytes(), false), Some(false));
    assert_eq!(patterns.decide("/ÄPFEL.tmp".as_bytes(), false), Some(true));
    assert_eq!(patterns.decide(b"/a.log", false), Some(true));
    assert_eq!(patterns.decide(b"/a.LOG", false), None);
}

/// A byte that is not UTF-8 matches itself only: neither U+FFFD, nor the character that it becomes inside.
#[test]
fn bytes_of_any_encoding_match_themselves_and_nothing_else() {
    let lost = "/a\u{fffd}".as_bytes();
    let stand_in = "/a\u{10ffff}".as_bytes();
    let paths: [&[u8]; 5] = [b"/a\xff", b"/a\xfe", lost, stand_in, b"/A\xff"];
    for (ignore_case, expected) in [
        (false, [true, false, false, false, false]),
        (true, [true, false, false, false, true]),
    ] {
        let mut builder = PatternsBuilder::default();
        builder.add(b"a\xff", ignore_case).expect("pattern");
        let patterns = builder.build().expect("patterns");
        let out = paths.map(|path| patterns.covers(path, false));
        assert_eq!(out, expected);
    }
    for pattern in [&lost[1..], &stand_in[1..]] {
        let patterns = Patterns::new([pattern]).expect("patterns");
        let out = paths.map(|path| patterns.covers(path, false));
        let expected = paths.map(|path| &path[1..] == pattern);
        assert_eq!(out, expected);
    }
    let patterns = Patterns::new([b"*\xff*", &b"!x\xffy*"[..]]).expect("patterns");
    let decide = |path: &[u8]| patterns.decide(path, false);
    assert_eq!(decide(b"/d/ab\xffcd"), Some(true));
    assert_eq!(decide(b"/d/x\xffy\xfe"), Some(false));
    assert_eq!(decide(b"/d/ab\xfecd"), None);
    let (ignore, _) = IgnoreFile::new(None, b"/d\xff", b"\xe4\n/b\n").expect("lines");
    let ignored = [
        &b"/d\xff/\xe4"[..],
        b"/d\xff/\xe5",
        b"/d\xff/b",
        b"/d\xff/b/b",
    ];
    let out = ignored.map(|path| ignore.excludes(path, false));
    assert_eq!(out, [true, false, true, false]);
}

#[test]
fn files_of_patterns_may_begin_with_a_mark_of_their_encoding_and_indent_comments() {
    let text = "\u{feff}*.o\r\n  # *.c\n\n  *.a  \n \n#*.d".as_bytes();
    let lines: Vec<_> = pattern_lines(text).collect();
    assert_eq!(lines, [(1, &b"*.o"[..]), (4, b"*.a")]);
}

/// Git reads patterns in the same way: blanks at the end of a line do not count, unless they are escaped.
#[test]
fn a_name_that_ends_with_a_blank_is_left_out_where_the_blank_is_escaped() {
    let dir = tempfile::tempdir().expect("tempdir");
    let text = "trail\\ \nplain   \ntwo\\ \\   \r\nnot\\\\ \nwide\u{3000}\n";
    fs::write(dir.path().join(".ignore"), text).expect("write");
    let all = [
        "not ",
        "not\\",
        "plain",
        "plain ",
        "trail",
        "trail ",
        "two",
        "two  ",
        "wide",
        "wide\u{3000}",
    ];
    for name in all {
        fs::write(dir.path().join(name), name).expect("write");
    }
    let (names, warnings) = names_with_ignore_file(dir.path());
    assert_eq!(warnings, []);
    let left = [".ignore", "not ", "plain ", "trail", "two", "wide"];
    assert_eq!(names, left);
    let lines: Vec<_> = pattern_lines(text.as_bytes())
        .map(|(_, line)| line)
        .collect();
    let wide = "wide\u{3000}".as_bytes();
    assert_eq!(
        lines,
        [b"trail\\ ", &b"plain"[..], b"two\\ \\ ", b"not\\\\", wide]
    );
}

/// The rest of the file counts, and the backup has no errors: everything could be read.
#[test]
fn a_line_of_an_ignore_file_that_is_no_pattern_is_passed_over() {
    let dir = tempfile::tempdir().expect("tempdir");
    for (name, text) in [
        (".ignore", "*.o\n[bad\n*.a\n"),
        ("x.o", ""),
        ("x.a", ""),
        ("x.c", ""),
    ] {
        fs::write(dir.path().join(name), text).expect("write");
    }
    let (names, warnings) = names_with_ignore_file(dir.path());
    assert!(matches!(&warnings[..], [(_, what)] if what.contains("[bad")));
    assert_eq!(names, [".ignore", "x.c"]);
}

/// The line at the end, cut in two, would leave out `precious` with everything in it.
#[test]
fn an_ignore_file_that_is_too_long_leaves_out_no_more_than_its_whole_lines() {
    let dir = tempfile::tempdir().expect("tempdir");
    let comment = format!("#{}\n", "-".repeat(62));
    let mut text = format!("*.o\n{}", comment.repeat((1 << 14) - 1));
    // up to the last eight bytes that are read
    let rest = (1 << 20) - 8 - text.len();
    text += &format!("{}\nprecious/cache/tmp\nx.c\n", "#".repeat(rest - 1));
    assert_eq!(&text.as_bytes()[(1 << 20) - 8..1 << 20], b"precious");
    for (name, text) in [
        (".ignore", &text[..]),
        ("precious", ""),
        ("x.c", ""),
        ("x.o", ""),
    ] {
        fs::write(dir.path().join(name), text).expect("write");
    }
    let (names, warnings) = names_with_ignore_file(dir.path());
    assert_eq!(names, [".ignore", "precious", "x.c"]);
    assert!(matches!(&warnings[..], [(_, what)] if what.contains("1048576 bytes")));
}

/// Backs up `source` with ignore files called `.ignore`; returns the names in the snapshot, and the warnings.
fn names_with_ignore_file(source: &Path) -> (Vec<String>, Vec<(String, String)>) {
    let how = backup::Options {
        excludes: Arc::new(Excludes {
            ignore_files: vec![b".ignore".to_vec()],
            ..Excludes::default()
        }),
        ..options(1)
    };
    let (repository, log) = (repository(), Log::default());
    let input = Input::Paths(vec![bytes(source)]);
    let outcome = backup::run(&repository, input, &how, &Progress::default(), &log);
    let outcome = outcome.expect("backup");
    assert_eq!(*log.errors.lock(), []);
    let session = repository.session(SessionKind::Read).expect("session");
    let named = snapshots::load(&repository, outcome.id.expect("id")).expect("load");
    let mut reader = session.reader().expect("reader");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("open");
    let mut names = Vec::new();
    let visit = &mut |_: &[u8], entry: &onefold_backup::Entry| {
        names.push(String::from_utf8_lossy(&entry.name).into_owned());
        Ok(true)
    };
    list::list(&tree, &mut reader, &bytes(source), true, visit).expect("list");
    (names, log.warnings.into_inner())
}

#[test]
fn brackets_that_others_read_in_another_way_are_refused() {
    for pattern in ["[!a]*", "/x/[!a]", "!b[!a]", "x[\\]]y", "x[a\\-z]y"] {
        assert!(Patterns::new([pattern]).is_err(), "{pattern}");
    }
    for pattern in ["[^a]*", "[a!]", "\\[!a]", "[]!a]", "[]]", "x[a-z]y"] {
        assert!(Patterns::new([pattern]).is_ok(), "{pattern}");
    }
    let not_a = Patterns::new(["[^a]*"]).expect("patterns");
    assert!(excludes(&not_a, "/b") && !excludes(&not_a, "/a"));
    // No brackets match the `/` between components.
    let three = Patterns::new(["a[^b]c", "x[]^]y"]).expect("patterns");
    assert!(excludes(&three, "/axc") && excludes(&three, "/x]y"));
    assert!(!excludes(&three, "/a/c") && !excludes(&three, "/abc"));
}

#[test]
fn empty_components_of_a_pattern_count_for_nothing() {
    for pattern in ["foo//bar", "/top//foo/bar", "//top/foo/bar", "foo/bar//"] {
        let patterns = Patterns::new([pattern]).expect("patterns");
        assert_eq!(
            patterns.decide(b"/top/foo/bar", true),
            Some(true),
            "{pattern}"
        );
    }
    assert!(Patterns::new(["//", "/"]).expect("patterns").is_empty());
}

#[test]
fn what_an_include_takes_back_is_not_restored() {
    let scene = crate::restore::scene();
    for name in ["sub/not/x", "sub/not/but/y", "sub/z.tmp"] {
        let path = scene.source.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("dirs");
        std::fs::write(path, name).expect("write");
    }
    let outcome = crate::scene::back_up(&scene.repository, &scene.source, 2);
    let patterns = ["/sub", "!/sub/not", "!*.tmp", "/sub/not/but"];
    let options = onefold_backup::restore::Options {
        include: Patterns::new(patterns).expect("patterns"),
        ..crate::restore::options(&scene)
    };
    crate::scene::restore_with(&scene.repository, &outcome, &scene.target, &options);
    let names = [
        "sub/inner",
        "sub/not/x",
        "sub/not/but/y",
        "sub/z.tmp",
        "keep",
    ];
    let is_there = names.map(|name| scene.target.join(name).exists());
    assert_eq!(is_there, [true, false, true, false, false]);
}
