//! The files of the papers' indexes, byte for byte: today's are as stored, and yesterday's are still read.
//!
//! After a wanted change of the format: `cargo xtask golden --bless`, and a new version number.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Error, Location, OpenIndex};
use onefold_io::{Dir, MemDir};
use onefold_papers::workload::{TraceReader, TraceWriter};
use onefold_papers::{
    BLOOMSTORE, BloomStore, BloomStoreOptions, BufferHash, BufferHashOptions, ChunkStash,
    ChunkStashOptions, SkimpyStash, SkimpyStashOptions,
};

use crate::history::key;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
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

/// Compares (or blesses) the files `names` of `made` with the golden ones in `testdata/<folder>`, and returns a folder
/// with the golden ones.
fn kept(name: &str, names: &[&str], made: &MemDir) -> MemDir {
    let (folder, kept) = (folder().join(name), MemDir::new());
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
    let kept = kept("bloomstore-2", &names, &made);
    let index = BloomStore::open(Arc::new(kept), options()).expect("open");
    let mut found = [None; 4];
    index
        .lookup(&[key(0), key(1), key(65), key(66)], &mut found)
        .expect("lookup");
    assert_eq!(found, [location(7), None, location(8), None]);
}

#[test]
fn an_earlier_bloomstore_is_refused_as_damage_and_can_be_deleted() {
    let dir = MemDir::new();
    for name in ["bloom-chains", "bloom-journal", "bloom-log", "bloom-shape"] {
        let golden = std::fs::read(folder().join("bloomstore-1").join(name)).expect("golden file");
        let disk = dir.create(name).expect("create");
        disk.write_at(&golden, 0).expect("write");
    }
    let open = || (BLOOMSTORE.open)(OpenIndex::new(Arc::new(dir.clone()), 1 << 20, 1));
    let refused = open().map(drop).expect_err("of version 1");
    assert!(
        matches!(&refused, Error::Damaged { path, what, .. } if path == "bloom-shape" && what.contains("version 1")),
        "{refused}"
    );
    (BLOOMSTORE.delete)(&dir).expect("delete");
    assert_eq!(open().expect("an empty one").stats().entries, 0);
}

/// Writes a page of records and two more, with one removed and one retired: in the log and in the journal.
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

fn bufferhash(dir: &MemDir) -> BufferHash {
    let options = BufferHashOptions {
        table_pages: 2,
        ..BufferHashOptions::new(512)
    };
    BufferHash::open(Arc::new(dir.clone()), options).expect("open")
}

/// The keys are so numerous that some have to make room for others, and that a table is full.
#[test]
fn golden_bufferhash_is_still_written_so_and_read() {
    let made = MemDir::new();
    let mut index = bufferhash(&made);
    let entries: Vec<_> = (0..100)
        .map(|number| (key(number), location(7 + number / 64).expect("some")))
        .collect();
    index.retire(&[ContainerId(0x99)]).expect("retire");
    index.insert(&entries).expect("insert");
    index.remove(&[key(1)]).expect("remove");
    index.checkpoint().expect("checkpoint");
    let names = ["bufferhash-journal", "bufferhash-log", "bufferhash-shape"];
    let index = bufferhash(&kept("bufferhash-1-cuckoo", &names, &made));
    let mut found = [None; 4];
    index
        .lookup(&[key(0), key(1), key(99), key(100)], &mut found)
        .expect("lookup");
    assert_eq!(found, [location(7), None, location(8), None]);
}

/// The store is of a version in which keys did not make room for others: the format is the same.
#[test]
fn a_bufferhash_that_moved_no_key_is_still_read() {
    let kept = MemDir::new();
    for name in ["bufferhash-journal", "bufferhash-log", "bufferhash-shape"] {
        let golden = std::fs::read(folder().join("bufferhash-1").join(name)).expect("golden file");
        let disk = kept.create(name).expect("create");
        disk.write_at(&golden, 0).expect("write");
    }
    let mut found = [None; 4];
    let asked = [key(0), key(1), key(65), key(66)];
    bufferhash(&kept)
        .lookup(&asked, &mut found)
        .expect("lookup");
    assert_eq!(found, [location(7), None, location(8), None]);
}

#[test]
fn golden_trace_is_still_written_so_and_read() {
    let path = folder().join("trace-1");
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
