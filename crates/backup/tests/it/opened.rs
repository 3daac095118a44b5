//! Tests of which files a walk opens instead of only looking at them.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

use onefold_backup::exclude::{Excludes, Patterns};
use onefold_backup::walk::{self, Walk};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use crate::scene::bytes;

/// Walks `folder`. Returns the files that the walk gives, open ones first, and those that were opened meanwhile, as the
/// kernel tells.
fn walked(folder: &Path, open_files: usize) -> ([BTreeSet<String>; 2], BTreeSet<String>) {
    let events = inotify::init(CreateFlags::NONBLOCK).expect("inotify");
    inotify::add_watch(&events, folder, WatchFlags::OPEN).expect("watch");
    let excludes = Excludes {
        patterns: Patterns::new(["*.left"]).expect("patterns"),
        ..Excludes::default()
    };
    let options = walk::Options {
        threads: 2,
        excludes: Arc::new(excludes),
        one_file_system: false,
        open_files,
        read_special: false,
        failing: walk::SOUND,
    };
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).expect("text");
    let (mut open, mut closed) = (BTreeSet::new(), BTreeSet::new());
    for piece in Walk::start(&[bytes(folder)], &options).expect("start") {
        if *piece.folder != bytes(folder)[..] {
            continue;
        }
        for found in piece.found {
            let set = match found.opened {
                Some(_) => &mut open,
                None => &mut closed,
            };
            set.insert(text(&found.name));
        }
    }
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(&events, &mut buffer);
    let mut opened = BTreeSet::new();
    loop {
        match reader.next() {
            Ok(event) => opened.extend(event.file_name().map(|name| text(name.to_bytes()))),
            Err(Errno::AGAIN) => return ([open, closed], opened),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn small_files_are_opened_where_that_is_asked_for_and_what_is_left_out_is_not() {
    let dir = tempfile::tempdir().expect("tempdir");
    for name in ["a", "b", "c.left"] {
        fs::write(dir.path().join(name), name).expect("write");
    }
    let large = fs::File::create(dir.path().join("large")).expect("create");
    large.set_len(8 << 20).expect("grow");
    std::os::unix::fs::symlink("a", dir.path().join("link")).expect("symlink");
    drop(large);
    let set = |names: &[&str]| names.iter().map(|name| String::from(*name)).collect();
    let all: BTreeSet<String> = set(&["a", "b", "large", "link"]);

    let (found, opened) = walked(dir.path(), 10);
    assert_eq!(found, [set(&["a", "b"]), set(&["large", "link"])]);
    assert_eq!(opened, set(&["a", "b", "large"]));
    assert_eq!(walked(dir.path(), 0), ([set(&[]), all], set(&[])));
}
