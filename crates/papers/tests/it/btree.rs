//! The B-tree: the reads that a filter and prefetch save, damage, a full device, and a file of an earlier version.

use std::path::PathBuf;
use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Error, Location, Result};
use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{Dir, MemDir};
use onefold_papers::{BTree, BTreeOptions};

use crate::history::key;

const KEYS: u64 = 40_000;

fn options(filter_bytes: usize, prefetch_bytes: usize) -> BTreeOptions {
    BTreeOptions {
        cache_bytes: 256 << 10,
        filter_bytes,
        keys_expected: KEYS,
        prefetch_bytes,
        ..BTreeOptions::new(KEYS, 0)
    }
}

fn fill(index: &mut BTree, keys: std::ops::Range<u64>) -> Result<()> {
    for number in keys {
        let container = ContainerId(number / 1000);
        index.insert(&[(key(number), Location { container })])?;
    }
    index.checkpoint()
}

/// Page reads for a key of a stream that comes again, and for an absent key.
fn reads(index: &mut BTree) -> (f64, f64) {
    let ask = |numbers: std::ops::Range<u64>, is_there: bool| {
        let before = index.stats().lookup_reads;
        for start in numbers.step_by(500) {
            let keys: Vec<_> = (start..start + 500).map(key).collect();
            let mut found = vec![None; keys.len()];
            index.lookup(&keys, &mut found).expect("lookup");
            assert!(found.iter().all(|found| found.is_some() == is_there));
        }
        (index.stats().lookup_reads - before) as f64 / KEYS as f64
    };
    (ask(0..KEYS, true), ask(KEYS..2 * KEYS, false))
}

#[test]
fn a_filter_spares_reads_for_absent_keys_and_prefetch_for_a_repeated_stream() {
    let made = |options| {
        let mut index = BTree::open(Arc::new(MemDir::new()), options).expect("open");
        fill(&mut index, 0..KEYS).expect("fill");
        index
    };
    let (present, absent) = reads(&mut made(options(0, 0)));
    assert!(present > 0.8 && absent > 0.8, "plain: {present}, {absent}");
    let (present, absent) = reads(&mut made(options(KEYS as usize, 1 << 20)));
    // for each container, the first key's leaf and some parts of neighbours
    assert!(present < 0.01, "prefetch: {present} reads a key");
    assert!(absent < 0.05, "filter: {absent} reads an absent key");
}

#[test]
fn a_damaged_tree_is_an_error_and_no_answer() {
    let dir = MemDir::new();
    let mut index = BTree::open(Arc::new(dir.clone()), options(0, 0)).expect("open");
    fill(&mut index, 0..3000).expect("fill");
    drop(index);
    let disk = dir.open_write("btree").expect("open");
    let len = disk.len().expect("len");
    for at in (0..len).step_by(4096) {
        disk.write_at(&[0x5a; 64], at).expect("write");
    }
    let damaged = BTree::open(Arc::new(dir), options(0, 0)).err();
    assert!(
        matches!(damaged, Some(Error::Damaged { .. } | Error::Io(_))),
        "{damaged:?}"
    );
}

#[test]
fn a_full_device_is_said_and_what_was_durable_stays() {
    let dir = SimDir::new(1);
    let mut index = BTree::open(Arc::new(dir.clone()), options(0, 64 << 10)).expect("open");
    fill(&mut index, 0..2000).expect("fill");
    dir.inject(Faults {
        no_space: When::From(0),
        ..Faults::default()
    });
    assert!(fill(&mut index, 2000..20_000).is_err());
    dir.inject(Faults::default());
    drop(index);
    let index = BTree::open(Arc::new(dir), options(0, 64 << 10)).expect("open again");
    let mut found = [None];
    index.lookup(&[key(1999)], &mut found).expect("lookup");
    let container = ContainerId(1);
    assert_eq!(found, [Some(Location { container })]);
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/btree-1/btree")
}

/// The library decides how its pages lie, so the file is read and not compared. The golden file has pages with their
/// numbers, without pages of zeros.
#[test]
fn golden_btree_is_still_read() {
    const PAGE: usize = 4096;
    const FILE_BYTES: u64 = 258 * PAGE as u64;
    let options = options(0, 64 << 10);
    if std::env::var_os("ONEFOLD_BLESS").is_some() {
        let dir = MemDir::new();
        let mut index = BTree::open(Arc::new(dir.clone()), options).expect("open");
        fill(&mut index, 998..1002).expect("fill");
        index.remove(&[key(1001)]).expect("remove");
        index.checkpoint().expect("checkpoint");
        drop(index);
        let disk = dir.open("btree").expect("open");
        let mut bytes = vec![0; disk.len().expect("len") as usize];
        assert_eq!(bytes.len() as u64, FILE_BYTES);
        disk.read_at(&mut bytes, 0).expect("read");
        let mut kept = Vec::new();
        for (number, page) in (0u32..).zip(bytes.chunks_exact(PAGE)) {
            if page.iter().any(|byte| *byte != 0) {
                kept.extend_from_slice(&number.to_le_bytes());
                kept.extend_from_slice(page);
            }
        }
        std::fs::create_dir_all(golden().parent().expect("folder")).expect("create");
        std::fs::write(golden(), &kept).expect("write");
    }
    let dir = MemDir::new();
    let disk = dir.create("btree").expect("create");
    let kept = std::fs::read(golden()).expect("golden file");
    disk.set_len(FILE_BYTES).expect("extend");
    for page in kept.chunks_exact(4 + PAGE) {
        let number = u32::from_le_bytes(page[..4].try_into().expect("four bytes"));
        disk.write_at(&page[4..], u64::from(number) * PAGE as u64)
            .expect("write");
    }
    let index = BTree::open(Arc::new(dir), options).expect("open");
    let mut found = [None; 3];
    let keys = [key(999), key(1000), key(1001)];
    index.lookup(&keys, &mut found).expect("lookup");
    let at = |container| {
        let container = ContainerId(container);
        Some(Location { container })
    };
    assert_eq!(found, [at(0), at(1), None]);
}
