//! Tests that compare tables and lists of globs with each glob by itself.

use proptest::prelude::*;

use super::globs::{Globs, compiled};

/// Returns the last rule that matches, by trying each glob.
fn last_of_each(globs: &[(String, bool)], path: &[u8], is_dir: bool) -> Option<u32> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
    let matching = globs
        .iter()
        .enumerate()
        .filter(|(_, (glob, folders_only))| {
            let glob = compiled(glob).expect("a glob").compile_matcher();
            (is_dir || !folders_only) && glob.is_match(path)
        });
    matching.map(|(rule, _)| rule as u32).next_back()
}

fn glob() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ab./]{1,3}",
        3 => Just("*".to_owned()),
        1 => Just("**".to_owned()),
        2 => Just("/**/".to_owned()),
        1 => Just("/**".to_owned()),
        1 => Just("?".to_owned()),
        1 => "\\[[!^]?[]a-]?[ab]?-?[bcäü]?\\]",
        1 => "\\\\[a*/\\[]",
        1 => "[äü{},-]",
    ];
    let start = prop_oneof![
        Just("**/"),
        Just("/"),
        Just(""),
        Just("**/*"),
        Just("**/*.")
    ];
    (start, prop::collection::vec(piece, 0..6))
        .prop_map(|(start, pieces)| format!("{start}{}", pieces.concat()))
}

/// Makes paths as walks give them: no name is `.` or `..`.
fn path() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        5 => Just(b'a'),
        5 => Just(b'b'),
        5 => Just(b'/'),
        2 => Just(b'.'),
        1 => prop::sample::select("cäü*[{-\n".as_bytes()),
        1 => any::<u8>(),
    ];
    let path = prop::collection::vec(byte, 0..14).prop_map(|bytes| [b"/", &bytes[..]].concat());
    path.prop_filter("a name", |path| {
        let mut names = path.split(|b| *b == b'/');
        !names.any(|name| matches!(name, b"." | b".."))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn lists_of_globs_match_as_each_of_them_does(
        given in prop::collection::vec((glob(), any::<bool>()), 1..8),
        paths in prop::collection::vec(path(), 1..12),
    ) {
        let mut globs = Globs::default();
        let mut kept = Vec::new();
        for (glob, folders_only) in given {
            let added = globs.add(&glob, kept.len() as u32, folders_only, true);
            prop_assert_eq!(added.is_ok(), compiled(&glob).is_ok(), "{:?}", glob);
            if added.is_ok() {
                kept.push((glob, folders_only));
            }
        }
        globs.finish().expect("few");
        for path in paths {
            for is_dir in [false, true] {
                prop_assert_eq!(
                    globs.last(&path, is_dir),
                    last_of_each(&kept, &path, is_dir),
                    "{:?} of {:?}", String::from_utf8_lossy(&path), kept
                );
            }
        }
    }
}

/// A hundred thousand lines are two megabytes; compiled globs would take nearly two hundred.
#[test]
fn many_names_and_paths_take_little_more_than_their_text() {
    let mut globs = Globs::default();
    let mut text_bytes = 0;
    for n in 0..100_000 {
        let glob = match n % 3 {
            0 => format!("**/some-name-{n}.dat"),
            1 => format!("/home/me/folder/{n}"),
            _ => format!("**/*.extension-{n}"),
        };
        text_bytes += glob.len();
        globs.add(&glob, n, false, false).expect("a glob");
    }
    globs.finish().expect("nothing is compiled");
    assert!(globs.heap_bytes() < 2 * text_bytes);
    let last = |path: &[u8]| globs.last(path, false);
    assert_eq!(last(b"/d/some-name-99.dat"), Some(99));
    assert_eq!(last(b"/home/me/folder/100"), Some(100));
    assert_eq!(last(b"/d/a.extension-101"), Some(101));
    assert_eq!(last(b"/d/home/me/folder/100"), None);
}
