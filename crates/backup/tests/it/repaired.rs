//! A backup after a repair: counts of files that were not touched, and the chunks that it stores of them.

use std::fs;
use std::path::Path;

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::repair::{Repaired, repair};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::{NoEvents, Progress, snapshots};
use onefold_io::sim::SimDir;
use onefold_store::{CheckDepth, Repository, container};

use crate::crash::{NoWait, init, open};
use crate::scene::{back_up, bytes, entry, look, noise, options, restore_folder, uneven};

const FILES: u64 = 30;
const FILE_BYTES: u64 = 3_000;
/// Length of a file that has recipe chunks of its own, in bytes.
const LARGE_BYTES: u64 = 3_000_000;
/// Length of a file of long chunks, in bytes.
const LONG_BYTES: u64 = 6_000_000;

fn write_source(root: &Path) {
    for n in 0..FILES {
        let path = root.join(format!("file-{n:02}"));
        fs::write(path, noise(n + 1, FILE_BYTES as usize)).expect("write");
    }
    fs::write(root.join("large"), uneven(99, LARGE_BYTES as usize)).expect("write");
    fs::write(root.join("long"), noise(98, LONG_BYTES as usize)).expect("write");
}

/// Backs up, changes a byte in the container of `file`, and repairs.
fn damaged_and_repaired(source: &Path, file: &str) -> (Repository, Outcome) {
    let device = SimDir::new(1);
    init(&device);
    let repository = open(&device, 1).expect("open");
    let first = back_up(&repository, source, 1);
    let mut content = entry(&repository, &first, &source.join(file)).content;
    let chunk = *content.items.remove(0).chunk().expect("a chunk");
    let flip = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    let object = container::object_name(chunk.container);
    device.damage(&object, flip).expect("a container");
    let repository = open(&device, 2).expect("open");
    let report = repository.repair(&SnapshotRoots, &mut NoWait);
    let report = report.expect("a repair");
    let mut hurt = report.replaced_containers.clone();
    hurt.extend(report.set_aside.iter().map(|aside| aside.id));
    assert_eq!(hurt, [chunk.container], "{report:?}");
    assert_eq!(report.saved_chunks > 0, file != "long", "{report:?}");
    (repository, first)
}

/// Returns the numbers of new, changed and unchanged files.
fn counts(outcome: &Outcome) -> [u64; 3] {
    let summary = &outcome.snapshot.summary;
    [
        summary.files_new,
        summary.files_changed,
        summary.files_unmodified,
    ]
}

fn is_whole(repository: &Repository) -> bool {
    let depth = CheckDepth::Data { part: 1, of: 1 };
    let report = repository.check(&SnapshotRoots, depth, &mut |_| {}, &mut |_| {});
    let report = report.expect("a check");
    report.damage.is_empty() && report.hurt.is_empty()
}

#[test]
fn after_a_repair_files_that_nobody_touched_are_unchanged_and_what_was_lost_is_stored_again() {
    for file in ["file-07", "large", "long"] {
        let (source, target) = (tempfile::tempdir(), tempfile::tempdir());
        let (source, target) = (source.expect("tempdir"), target.expect("tempdir"));
        let source = source.path();
        write_source(source);
        let (repository, _) = damaged_and_repaired(source, file);
        let second = back_up(&repository, source, 2);
        assert_eq!(counts(&second), [0, 0, FILES + 2], "{file}");
        let read = second.snapshot.summary.bytes_read;
        let all = FILES * FILE_BYTES + LARGE_BYTES + LONG_BYTES;
        assert!(read > 0 && read < all, "{file}: {read} of {all} bytes");
        assert!(is_whole(&repository), "{file}");
        restore_folder(&repository, &second, source, target.path());
        assert_eq!(look(source), look(target.path()));
        // Now all chunks are where the parent says.
        let third = back_up(&repository, source, 3);
        assert_eq!(counts(&third), [0, 0, FILES + 2]);
        assert_eq!(third.snapshot.summary.bytes_read, 0);
    }
}

/// The new places of chunks do not make a file changed. A file with recipe chunks of its own has other ones then, since
/// these contain the places.
#[test]
fn after_a_repair_files_that_are_read_again_and_are_the_same_are_unchanged() {
    for file in ["file-07", "long"] {
        let source = tempfile::tempdir().expect("tempdir");
        let source = source.path();
        write_source(source);
        let (repository, _) = damaged_and_repaired(source, file);
        let options = backup::Options {
            force_reread: true,
            ..options(2)
        };
        let sources = Input::Paths(vec![bytes(source)]);
        let progress = Progress::default();
        let second = backup::run(&repository, sources, &options, &progress, &NoEvents);
        let [new, changed, unchanged] = counts(&second.expect("backup"));
        assert_eq!((new, changed + unchanged), (0, FILES + 2), "{file}");
        assert!(changed <= 1, "{file}: {changed} changed");
        assert!(is_whole(&repository), "{file}");
    }
}

#[test]
fn after_a_repair_of_snapshots_only_what_they_lost_is_changed() {
    let source = tempfile::tempdir().expect("tempdir");
    let source = source.path();
    write_source(source);
    let (repository, first) = damaged_and_repaired(source, "file-07");
    let depth = CheckDepth::Structure;
    let report = repository.check(&SnapshotRoots, depth, &mut |_| {}, &mut |_| {});
    let hurt = report.expect("a check").hurt;
    let named = snapshots::load(&repository, first.id.expect("an id")).expect("load");
    let repaired = repair(&repository, &named, &|chunk| hurt.hurts(chunk), false);
    let Repaired::Anew(lost, Some(_)) = repaired.expect("a repair") else {
        panic!("nothing was lost");
    };
    repository.remove_root(&named.id).expect("forgotten");
    let second = back_up(&repository, source, 2);
    let lost = lost.len() as u64;
    assert!(lost > 0 && lost < FILES);
    assert_eq!(counts(&second), [0, lost, FILES + 2 - lost]);
    assert!(is_whole(&repository));
}
