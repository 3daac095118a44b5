//! Sparse indexing: it may forget and is never wrong, finds repeats with a read a segment, keeps its budget, and its
//! golden file.

use std::path::PathBuf;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Error, Location};
use onefold_io::{Dir, MemDir};
use onefold_papers::{Sparse, SparseOptions};

use crate::history::key;
use crate::suite::is_never_wrong;

const LOG: &str = "sparse-log";

fn options(sample: u32) -> SparseOptions {
    SparseOptions {
        sample,
        ..SparseOptions::new(1 << 20)
    }
}

fn open(dir: &MemDir, options: SparseOptions) -> Sparse {
    Sparse::open(Arc::new(dir.clone()), options).expect("open")
}

fn at(container: u64) -> Location {
    let container = ContainerId(container);
    Location { container }
}

fn found_of(index: &mut Sparse, numbers: std::ops::Range<u64>) -> Vec<Option<Location>> {
    let keys: Vec<Fingerprint> = numbers.map(key).collect();
    let mut found = vec![None; keys.len()];
    for (keys, found) in keys.chunks(512).zip(found.chunks_mut(512)) {
        index.lookup(keys, found).expect("lookup");
    }
    found
}

fn fill(index: &mut Sparse, keys: u64) {
    let entries: Vec<_> = (0..keys)
        .map(|number| (key(number), at(number / 1000)))
        .collect();
    for entries in entries.chunks(512) {
        index.insert(entries).expect("insert");
    }
    index.checkpoint().expect("checkpoint");
}

#[test]
fn it_may_forget_and_is_never_wrong() {
    for seed in 0..12 {
        let options = SparseOptions {
            segment_chunks: 32 + 32 * (seed as usize % 3),
            sample: 1 + seed as u32 % 8,
            hook_bytes: 4096 << (seed % 2),
            cache_bytes: 8 << 10,
            champions: 2,
            repeats: [0, 4, usize::MAX >> 20][seed as usize % 3],
        };
        let dir = MemDir::new();
        is_never_wrong(seed, &mut || Box::new(open(&dir, options)));
    }
}

#[test]
fn a_stream_that_comes_again_is_found_by_one_hook_in_64_at_a_read_a_segment() {
    let dir = MemDir::new();
    fill(&mut open(&dir, options(64)), 50_000);
    let mut index = open(&dir, options(64));
    let lost = found_of(&mut index, 0..50_000)
        .iter()
        .filter(|found| found.is_none())
        .count();
    assert!(lost < 1250, "{lost} of 50,000 were not found");
    let reads = index.stats().lookup_reads;
    assert!(reads < 120, "{reads} reads of about 98 manifests");
    let absent = found_of(&mut index, 60_000..70_000);
    assert!(absent.iter().all(Option::is_none));
    assert_eq!(
        index.stats().lookup_reads,
        reads,
        "absent keys cost no read"
    );
}

#[test]
fn more_keys_than_the_budget_make_the_sample_sparser_and_are_still_found() {
    let dir = MemDir::new();
    let budget = 512 << 10;
    let mut index = open(&dir, SparseOptions::new(budget));
    fill(&mut index, 2000);
    assert_eq!(index.sample(), 1);
    fill(&mut index, 150_000);
    assert!(index.sample() >= 16, "1 in {}", index.sample());
    let ram = index.ram_bytes();
    assert!(ram <= budget, "{ram} bytes of RAM");
    let found = found_of(&mut index, 0..150_000);
    let lost = found.iter().filter(|found| found.is_none()).count();
    assert!(lost < 3000, "{lost} of 150,000 were not found");
}

/// A segment, half of which is known, is one manifest as a whole, so that the next time it costs one champion.
#[test]
fn a_segment_s_duplicates_are_written_beside_its_new_chunks() {
    let reads = |repeats| {
        let options = SparseOptions {
            repeats,
            ..options(64)
        };
        let dir = MemDir::new();
        let mut index = open(&dir, options);
        fill(&mut index, 20_000);
        // every other chunk of the stream is one of a third of the old ones
        let stream: Vec<u64> = (0..10_000)
            .map(|i| if i % 2 == 0 { i * 2 } else { 50_000 + i })
            .collect();
        for numbers in stream.chunks(500) {
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            let mut found = vec![None; keys.len()];
            index.lookup(&keys, &mut found).expect("lookup");
            let new = keys.iter().zip(&found).filter(|(_, found)| found.is_none());
            let new: Vec<_> = new.map(|(key, _)| (*key, at(99))).collect();
            index.insert(&new).expect("insert");
        }
        index.checkpoint().expect("checkpoint");
        drop(index);
        let index = open(&dir, options);
        for numbers in stream.chunks(500) {
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            let mut found = vec![None; keys.len()];
            index.lookup(&keys, &mut found).expect("lookup");
        }
        index.stats().lookup_reads
    };
    let (apart, beside) = (reads(0), reads(4));
    assert!(beside < apart, "{beside} and {apart} reads");
}

#[test]
fn what_is_retired_gives_back_its_space() {
    let dir = MemDir::new();
    let mut index = open(&dir, options(8));
    fill(&mut index, 50_000);
    let before = index.stats().disk_bytes;
    let retired: Vec<ContainerId> = (0..40).map(ContainerId).collect();
    index.retire(&retired).expect("retire");
    index.checkpoint().expect("checkpoint");
    let after = index.stats().disk_bytes;
    assert!(after < before / 4, "{after} of {before} bytes");
    drop(index);
    let mut index = open(&dir, options(8));
    let found = found_of(&mut index, 39_000..41_000);
    assert!(found[..1000].iter().all(Option::is_none));
    assert!(
        found[1000..]
            .iter()
            .filter(|found| **found == Some(at(40)))
            .count()
            > 950
    );
}

#[test]
fn a_damaged_manifest_is_damage_and_a_torn_end_is_cut_off() {
    let filled = || {
        let dir = MemDir::new();
        let mut index = open(&dir, options(1));
        fill(&mut index, 3000);
        index.insert(&[(key(5000), at(9))]).expect("insert");
        index.checkpoint().expect("checkpoint");
        dir
    };
    let dir = filled();
    let disk = dir.open_write(LOG).expect("open");
    disk.write_at(&[0x5a], 5000).expect("write");
    let damaged = Sparse::open(Arc::new(dir.clone()), options(1));
    assert!(matches!(damaged, Err(Error::Damaged { .. })));

    let dir = filled();
    let disk = dir.open_write(LOG).expect("open");
    let len = disk.len().expect("len");
    disk.set_len(len - 1).expect("set_len");
    let mut index = open(&dir, options(1));
    assert_eq!(found_of(&mut index, 2999..3001), [Some(at(2)), None]);
    assert_eq!(found_of(&mut index, 5000..5001), [None]);
}

/// A single part would be larger than a reader accepts.
#[test]
fn a_checkpoint_of_two_million_removals_is_read_again() {
    let dir = MemDir::new();
    let options = SparseOptions {
        // so that the log is not written anew
        hook_bytes: 1 << 30,
        ..options(1)
    };
    let mut index = open(&dir, options);
    fill(&mut index, 6000);
    let absent = (0..2_200_000u64).map(|number| {
        let mut bytes = [0xff; 32];
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        Fingerprint(bytes)
    });
    index.insert(&[(key(9000), at(9))]).expect("insert");
    index.remove(&absent.collect::<Vec<_>>()).expect("remove");
    index.remove(&[key(5)]).expect("remove");
    index.checkpoint().expect("checkpoint");
    drop(index);
    let mut index = open(&dir, options);
    assert_eq!(found_of(&mut index, 4..6), [Some(at(0)), None]);
    assert_eq!(found_of(&mut index, 9000..9001), [Some(at(9))]);
}

#[test]
fn golden_sparse_is_still_written_so_and_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/sparse-1");
    let (made, kept) = (MemDir::new(), MemDir::new());
    let mut index = open(&made, options(1));
    let entries = [(key(0), at(7)), (key(1), at(7)), (key(2), at(8))];
    index.insert(&entries).expect("insert");
    index.checkpoint().expect("checkpoint");
    index.retire(&[ContainerId(8)]).expect("retire");
    index.remove(&[key(1)]).expect("remove");
    index.checkpoint().expect("checkpoint");
    let disk = made.open(LOG).expect("open");
    let mut written = vec![0; disk.len().expect("len") as usize];
    disk.read_at(&mut written, 0).expect("read");
    if std::env::var_os("ONEFOLD_BLESS").is_some() {
        std::fs::create_dir_all(&folder).expect("create");
        std::fs::write(folder.join(LOG), &written).expect("write");
    }
    let golden = std::fs::read(folder.join(LOG)).expect("golden file");
    assert!(written == golden, "{LOG} differs");
    let disk = kept.create(LOG).expect("create");
    disk.write_at(&golden, 0).expect("write");
    let found = found_of(&mut open(&kept, options(1)), 0..4);
    assert_eq!(found, [Some(at(7)), None, None, None]);
}
