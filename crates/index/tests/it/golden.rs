//! The files of each format version, byte for byte: what is written today, and that yesterday's are still read, or
//! refused as damage, upon which an index is built anew.
//!
//! After a wanted change of the format: `cargo xtask golden --bless`, and a new version number.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_index::workload::{TraceReader, TraceWriter};
use onefold_index::{
    BloomStore, BloomStoreOptions, BufferHash, BufferHashOptions, ChunkIndex, ChunkStash,
    ChunkStashOptions, ContainerId, Error, Location, SkimpyStash, SkimpyStashOptions, Strata,
};
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

/// A run, and behind its pages one that is loose.
fn fill(dir: &MemDir) {
    let mut index = Strata::open(Arc::new(dir.clone()), options(0xaa, 1 << 20)).expect("open");
    // too many to be loose
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

fn stash(dir: &MemDir) -> ChunkStash {
    let options = ChunkStashOptions {
        ram_budget_bytes: 1 << 20,
        cache_bytes: None,
        sample: 1,
    };
    ChunkStash::open(Arc::new(dir.clone()), options).expect("open")
}

fn location(container: u64) -> Option<Location> {
    let container = ContainerId(container);
    Some(Location { container })
}

#[test]
fn golden_chunkstash_is_still_written_so_and_read() {
    let made = MemDir::new();
    let mut index = stash(&made);
    for (number, container) in [(0, 7), (1, 7), (2, 8)] {
        let location = location(container).expect("some");
        index.insert(&[(key(number), location)]).expect("insert");
    }
    index
        .retire(&[ContainerId(7), ContainerId(3)])
        .expect("retire");
    index.checkpoint().expect("checkpoint");
    let kept = kept("chunkstash-1", &["stash-log", "stash-retired"], &made);
    let mut found = [None; 3];
    stash(&kept)
        .lookup(&[key(0), key(2), key(9)], &mut found)
        .expect("lookup");
    assert_eq!(found, [None, location(8), None]);
}

/// Compares (or blesses) the files `names` of `made` with the golden ones in `testdata/<folder>`, and gives a folder
/// with the golden ones.
fn kept(name: &str, names: &[&str], made: &MemDir) -> MemDir {
    let (folder, kept) = (folder().with_file_name(name), MemDir::new());
    for name in names {
        let written = read(made, name);
        if std::env::var_os("ONEFOLD_BLESS").is_some() {
            std::fs::create_dir_all(&folder).expect("create");
            std::fs::write(folder.join(name), &written).expect("write");
        }
        let golden = std::fs::read(folder.join(name)).expect("golden file");
        assert!(written == golden, "{name} differs");
        let disk = kept.create(name).expect("create");
        disk.write_at(&golden, 0).expect("write");
    }
    kept
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
    let mut index = Strata::open(Arc::new(dir), options(0xbb, 1 << 20)).expect("open");
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

#[test]
fn golden_bloomstore_is_still_written_so_and_read() {
    let options = || BloomStoreOptions {
        chain_max: 8,
        ..BloomStoreOptions::new(512, 0)
    };
    let made = MemDir::new();
    let mut index = BloomStore::open(Arc::new(made.clone()), options()).expect("open");
    let entries: Vec<_> = (0..66)
        .map(|number| (key(number), location(7 + number / 64).expect("some")))
        .collect();
    index.retire(&[ContainerId(0x99)]).expect("retire");
    index.insert(&entries).expect("insert");
    index.remove(&[key(1)]).expect("remove");
    index.checkpoint().expect("checkpoint");
    let names = ["bloom-chains", "bloom-journal", "bloom-log", "bloom-shape"];
    let kept = kept("bloomstore-1", &names, &made);
    let mut index = BloomStore::open(Arc::new(kept), options()).expect("open");
    let mut found = [None; 4];
    index
        .lookup(&[key(0), key(1), key(65), key(66)], &mut found)
        .expect("lookup");
    assert_eq!(found, [location(7), None, location(8), None]);
}

/// A page of records and two more, one removed, one retired: in the log, in the journal and, for BufferHash, in a
/// table.
fn few_records(open: &dyn Fn(&MemDir) -> Box<dyn ChunkIndex>, folder: &str, names: &[&str]) {
    let made = MemDir::new();
    let mut index = open(&made);
    let entries: Vec<_> = (0..66)
        .map(|number| (key(number), location(7 + number / 64).expect("some")))
        .collect();
    index.retire(&[ContainerId(0x99)]).expect("retire");
    index.insert(&entries).expect("insert");
    index.remove(&[key(1)]).expect("remove");
    index.checkpoint().expect("checkpoint");
    drop(index);
    let mut found = [None; 4];
    open(&kept(folder, names, &made))
        .lookup(&[key(0), key(1), key(65), key(66)], &mut found)
        .expect("lookup");
    assert_eq!(found, [location(7), None, location(8), None]);
}

#[test]
fn golden_skimpystash_is_still_written_so_and_read() {
    let options = SkimpyStashOptions {
        keys_expected: 64,
        bucket_keys: 8,
    };
    let open = |dir: &MemDir| -> Box<dyn ChunkIndex> {
        Box::new(SkimpyStash::open(Arc::new(dir.clone()), options).expect("open"))
    };
    few_records(&open, "skimpystash-1", &["skimpy-journal", "skimpy-log"]);
}

#[test]
fn golden_bufferhash_is_still_written_so_and_read() {
    let options = BufferHashOptions {
        table_pages: 2,
        ..BufferHashOptions::new(512)
    };
    let open = |dir: &MemDir| -> Box<dyn ChunkIndex> {
        Box::new(BufferHash::open(Arc::new(dir.clone()), options).expect("open"))
    };
    let names = ["bufferhash-journal", "bufferhash-log", "bufferhash-shape"];
    few_records(&open, "bufferhash-1", &names);
}

#[test]
fn golden_trace_is_still_written_so_and_read() {
    let path = folder().with_file_name("trace-1");
    let made = MemDir::new();
    let mut writer = TraceWriter::new(made.create("trace").expect("create"));
    let keys: Vec<_> = (0..3).map(key).collect();
    keys.iter().for_each(|key| writer.push(key).expect("push"));
    writer.finish().expect("finish");
    let written = read(&made, "trace");
    if std::env::var_os("ONEFOLD_BLESS").is_some() {
        std::fs::write(&path, &written).expect("write");
    }
    assert_eq!(written, std::fs::read(&path).expect("golden file"));
    let mut reader = TraceReader::new(made.open("trace").expect("open"), "trace");
    assert_eq!(reader.read().expect("read"), keys);
    assert!(reader.read().expect("read").is_empty());
}

/// Its place in its file and its content are right, and it knows of other keys.
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
    // few keys are loose, many in a run
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
        // What lies in RAM is not read: all records are.
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
