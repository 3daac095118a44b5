//! Files of each format version, byte for byte: today's files are as stored, and yesterday's are still read, or refused
//! as damage, upon which an index is built anew.
//!
//! After a wanted change of the format: `cargo xtask golden --bless`, and a new version number.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Error, Location, Strata};
use onefold_io::{Dir, MemDir};

use crate::conformance::options;
use crate::history::key;

const FILES: [&str; 3] = [
    "log-00000000000000aa-00000000",
    "manifest",
    "run-00000000000000aa-00000001",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/strata-6")
}

/// Fills an index with a run and a loose page behind those of the run.
fn fill(dir: &MemDir) {
    let mut index = Strata::open(Arc::new(dir.clone()), options(0xaa, 1 << 20)).expect("open");
    // more records than may be loose
    for number in 1000..2025 {
        let location = location(0x0123_4567_89ab_cdee).expect("some");
        index.insert(&[(key(number), location)]).expect("insert");
    }
    index.checkpoint().expect("checkpoint");
    for number in 0..5 {
        index
            .insert(&[(
                key(number),
                Location {
                    container: ContainerId(0x0123_4567_89ab_cdef + number / 3),
                },
            )])
            .expect("insert");
    }
    index.remove(&[key(1), key(77)]).expect("remove");
    index.retire(&[ContainerId(0x99)]).expect("retire");
    index.checkpoint().expect("checkpoint");
}

fn location(container: u64) -> Option<Location> {
    let container = ContainerId(container);
    Some(Location { container })
}

fn read(dir: &dyn Dir, name: &str) -> Vec<u8> {
    let disk = dir.open(name).expect("open");
    let mut bytes = vec![0; disk.len().expect("len") as usize];
    disk.read_at(&mut bytes, 0).expect("read");
    bytes
}

#[test]
fn golden_files_are_still_written_so() {
    let dir = MemDir::new();
    fill(&dir);
    for name in FILES {
        let written = read(&dir, name);
        if std::env::var_os("ONEFOLD_BLESS").is_some() {
            std::fs::create_dir_all(folder()).expect("create");
            std::fs::write(folder().join(name), &written).expect("write");
        }
        assert!(
            written == std::fs::read(folder().join(name)).expect("golden file"),
            "{name} differs"
        );
    }
}

#[test]
fn earlier_formats_are_refused_as_damage_and_can_be_deleted() {
    for (version, number) in [
        ("strata-1", 1),
        ("strata-2", 1),
        ("strata-3", 2),
        ("strata-4", 2),
        ("strata-5", 3),
    ] {
        let told = format!("an earlier version of onefold: format version {number}");
        let dir = MemDir::new();
        for name in FILES {
            let golden = folder().with_file_name(version).join(name);
            let golden = std::fs::read(golden).expect("golden file");
            let disk = dir.create(name).expect("create");
            disk.write_at(&golden, 0).expect("write");
        }
        let open = || Strata::open(Arc::new(dir.clone()), options(0xbb, 1 << 20));
        let refused = open().map(drop).expect_err(version);
        assert!(
            matches!(&refused, Error::Damaged { what, .. } if what.contains(&told)),
            "{version}: {refused}"
        );
        Strata::delete(&dir).expect("delete");
        assert_eq!(open().expect("an empty one").stats().entries, 0);
        let left = dir.list().expect("list");
        assert!(
            !left.iter().any(|entry| entry.name.ends_with("00000000")),
            "{left:?}"
        );
    }
}

#[test]
fn golden_files_are_still_read() {
    let dir = MemDir::new();
    for name in FILES {
        dir.create(name)
            .expect("create")
            .write_at(&std::fs::read(folder().join(name)).expect("golden file"), 0)
            .expect("write");
    }
    let index = Strata::open(Arc::new(dir), options(0xbb, 1 << 20)).expect("open");
    let numbers = [0, 1, 2, 3, 4, 77, 1000, 2024];
    let mut found = [None; 8];
    index.lookup(&numbers.map(key), &mut found).expect("lookup");
    let containers =
        found.map(|found| found.map(|location| location.container.0 - 0x0123_4567_89ab_cdee));
    let (first, second, third) = (Some(0), Some(1), Some(2));
    assert_eq!(
        containers,
        [second, None, second, third, third, None, first, first]
    );
}

/// The page has the right number and content, but belongs to a file of other keys.
#[test]
fn a_page_of_another_run_or_log_is_damage() {
    let fill = |dir: &MemDir, unique, container, keys: std::ops::Range<u64>| {
        let mut index =
            Strata::open(Arc::new(dir.clone()), options(unique, 1 << 20)).expect("open");
        let entry = |number| (key(number), location(container).expect("some"));
        let entries: Vec<_> = keys.map(entry).collect();
        index.insert(&entries).expect("insert");
        index.checkpoint().expect("checkpoint");
    };
    let names = |number: u32| {
        ["aa", "bb"].map(|unique| match number {
            0 => format!("log-00000000000000{unique}-{number:08x}"),
            _ => format!("run-00000000000000{unique}-{number:08x}"),
        })
    };
    // few keys are loose, many are in a run
    for (number, only_a_page, keys) in [
        (0, true, 100),
        (0, false, 100),
        (0, true, 1040),
        (0, false, 1040),
        (1, true, 1040),
        (1, false, 1040),
    ] {
        let dir = MemDir::new();
        fill(&dir, 0xaa, 7, 0..keys);
        fill(&dir, 0xbb, 8, keys..2 * keys);
        let names = names(number);
        let bytes = names.each_ref().map(|name| read(&dir, name));
        for (name, other) in names.iter().zip(bytes.iter().rev()) {
            let end = if only_a_page { 4096 } else { other.len() };
            let disk = dir.open_write(name).expect("open");
            disk.write_at(&other[..end], 0).expect("write");
        }
        let index = Strata::open(Arc::new(dir.clone()), options(0xcc, 1 << 20));
        // Records in RAM are not read again: iterate reads all.
        let looked = index.and_then(|mut index| {
            index.lookup(&[key(3), key(keys + 3)], &mut [None; 2])?;
            index.iterate(&mut |_, _| Ok(()))
        });
        assert!(
            matches!(looked, Err(Error::Damaged { .. })),
            "{names:?}, {keys} keys, only a page: {only_a_page}: {looked:?}"
        );
    }
}
