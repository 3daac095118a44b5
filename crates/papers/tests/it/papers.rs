//! The papers' indexes: conformance, crashes at every point, and their promises about RAM and reads.

use std::collections::HashSet;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{
    ChunkIndex, ContainerId, Error, Location, OpenIndex, Result, Strata, StrataOptions, kind_of,
};
use onefold_io::frame::{FrameKind, crc64, encode_frame};
use onefold_io::{Dir, MemDir, SimDir};
use onefold_papers::{
    BLOOMSTORE, BTree, BTreeOptions, BUFFERHASH, BloomStore, BloomStoreOptions, BufferHash,
    BufferHashOptions, ChunkStash, ChunkStashOptions, KINDS, SKIMPYSTASH, Search, SkimpyStash,
    SkimpyStashOptions, Sparse, SparseOptions, Tablets, TabletsOptions,
};

use crate::history::{History, Random, key};
use crate::scale::scale;
use crate::suite::conforms;

pub type Open = fn(Arc<dyn Dir>) -> Result<Box<dyn ChunkIndex>>;

/// Small indexes, so that some thousand keys fill all their structures.
pub const INDEXES: [(&str, Open); 13] = [
    ("chunkstash", |dir| {
        let options = ChunkStashOptions {
            ram_budget_bytes: 64 << 10,
            cache_bytes: None,
            sample: 1,
        };
        Ok(Box::new(ChunkStash::open(dir, options)?))
    }),
    ("skimpystash", |dir| {
        let options = SkimpyStashOptions {
            keys_expected: 1000,
            bucket_keys: 10,
        };
        Ok(Box::new(SkimpyStash::open(dir, options)?))
    }),
    ("bufferhash", |dir| {
        let options = BufferHashOptions {
            table_pages: 3,
            ..BufferHashOptions::new(3000)
        };
        Ok(Box::new(BufferHash::open(dir, options)?))
    }),
    ("bloomstore", |dir| {
        Ok(Box::new(BloomStore::open(dir, bloomstore(2000, 1 << 10))?))
    }),
    ("bloomstore with a pre-filter and sub-partitions", |dir| {
        let options = BloomStoreOptions {
            prefilter_bytes: 1000,
            sub_partitions: 3,
            garbage_max: 0.1,
            ..bloomstore(300, 0)
        };
        Ok(Box::new(BloomStore::open(dir, options)?))
    }),
    ("bloomstore that reads whole chains", |dir| {
        let options = BloomStoreOptions {
            sub_partitions: 3,
            reads_whole_chains: true,
            ..bloomstore(700, 0)
        };
        Ok(Box::new(BloomStore::open(dir, options)?))
    }),
    ("btree", |dir| {
        let options = BTreeOptions {
            cache_bytes: 64 << 10,
            filter_bytes: 0,
            keys_expected: 0,
            prefetch_bytes: 0,
            ..BTreeOptions::new(0, 0)
        };
        Ok(Box::new(BTree::open(dir, options)?))
    }),
    ("btree with a filter and prefetch", |dir| {
        let options = BTreeOptions {
            cache_bytes: 64 << 10,
            filter_bytes: 600,
            keys_expected: 1000,
            prefetch_bytes: 40 << 10,
            ..BTreeOptions::new(0, 0)
        };
        Ok(Box::new(BTree::open(dir, options)?))
    }),
    ("btree that writes late", |dir| {
        let options = BTreeOptions {
            prefetch_bytes: 40 << 10,
            buffer_records: 100,
            writes_late: true,
            ..BTreeOptions::new(1000, 128 << 10)
        };
        Ok(Box::new(BTree::open(dir, options)?))
    }),
    ("linear tablets", |dir| tablets(dir, Search::Linear)),
    ("LRU tablets", |dir| tablets(dir, Search::Lru)),
    ("LRU tablets with prefetch", |dir| {
        tablets(dir, Search::LruPrefetch)
    }),
    // exact, with all fingerprints as hooks and all champions read
    ("sparse, with every key a hook", |dir| {
        let options = SparseOptions {
            segment_chunks: 100,
            sample: 1,
            hook_bytes: 128 << 10,
            cache_bytes: 4 << 20,
            champions: usize::MAX,
            repeats: 4,
        };
        Ok(Box::new(Sparse::open(dir, options)?))
    }),
];

fn tablets(dir: Arc<dyn Dir>, search: Search) -> Result<Box<dyn ChunkIndex>> {
    let options = TabletsOptions {
        search,
        tablet_bytes: 2 * 4096,
        cache_tablets: 2,
        filter_bits: 6,
    };
    Ok(Box::new(Tablets::open(dir, options)?))
}

fn bloomstore(keys_expected: u64, pool_bytes: usize) -> BloomStoreOptions {
    BloomStoreOptions {
        chain_max: 8,
        pool_bytes,
        prefilter_bytes: 0,
        ..BloomStoreOptions::new(keys_expected, 0)
    }
}

#[test]
fn they_conform() {
    for (name, open) in INDEXES {
        for seed in 400..400 + 3 * scale() {
            println!("{name}, seed {seed}");
            let dir = MemDir::new();
            conforms(seed, 1200, 50, true, &mut |_| {
                vec![open(Arc::new(dir.clone())).expect("open")]
            });
        }
    }
}

/// A checkpoint that has begun, or is done: the history, and the keys that the round changed.
#[derive(Clone, Default)]
struct Told {
    history: History,
    touched: HashSet<u64>,
}

/// Rounds of insertions, removals and retirements; passes the history to `told` around each checkpoint.
fn work(index: &mut dyn ChunkIndex, seed: u64, told: &mut dyn FnMut(Told)) {
    let (mut random, mut history) = (Random(seed), History::default());
    for round in 0..6 {
        let container = ContainerId(round);
        let start = random.below(600);
        let numbers: Vec<u64> = (start..start + 200).collect();
        let mut touched: HashSet<u64> = numbers.iter().copied().collect();
        let entries: Vec<_> = numbers
            .iter()
            .map(|number| (key(*number), Location { container }))
            .collect();
        index.insert(&entries).expect("insert");
        numbers
            .iter()
            .for_each(|number| history.insert(*number, container));
        if round % 2 == 1 {
            let numbers: Vec<u64> = (0..60).map(|_| random.below(800)).collect();
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            index.remove(&keys).expect("remove");
            numbers.iter().for_each(|number| history.remove(*number));
            touched.extend(numbers);
        }
        if round == 4 {
            index.retire(&[ContainerId(1)]).expect("retire");
            history.retire(ContainerId(1));
            touched.extend(0..800);
        }
        let now = Told {
            history: history.clone(),
            touched,
        };
        told(now.clone());
        index.checkpoint().expect("checkpoint");
        told(now);
    }
}

fn all(index: &mut dyn ChunkIndex) -> Vec<Option<Location>> {
    let keys: Vec<Fingerprint> = (0..800).map(key).collect();
    let mut found = vec![None; keys.len()];
    index.lookup(&keys, &mut found).expect("lookup");
    found
}

/// Finds a key with a wrong answer. A key without changes since the last checkpoint must answer as then. Any other may
/// answer as at any time before: pages that filled in between may have survived.
fn wrong(acked: &Told, later: &Told, found: &[Option<Location>]) -> Option<u64> {
    (0..800)
        .zip(found)
        .find(|(number, found)| {
            !acked.history.agrees(*number, **found) && !later.touched.contains(number)
        })
        .map(|(number, _)| number)
}

#[test]
fn a_crash_at_any_point_keeps_what_was_acknowledged() {
    for (name, open) in INDEXES {
        for seed in 0..scale() {
            let dir = SimDir::new(seed);
            let mut index = open(Arc::new(dir.clone())).expect("open");
            dir.keep_history();
            let mut said = vec![(0, Told::default())];
            work(&mut *index, seed, &mut |told| {
                said.push((dir.counts().points, told));
            });
            let points = dir.counts().points;
            for point in 0..points {
                let image_seed = [0, 1, 2 + point][point as usize % 3];
                let image = dir.crash_image_at(point, image_seed).expect("history");
                let mut index = open(Arc::new(image.clone())).expect("open");
                // entry 2i is from after checkpoint i, entry 2i + 1 from before checkpoint i + 1
                let acked = said
                    .iter()
                    .enumerate()
                    .rev()
                    .find(|(i, (until, _))| i % 2 == 0 && *until <= point)
                    .map_or(0, |(i, _)| i);
                let later = &said[(acked + 1).min(said.len() - 1)].1;
                let check = |index: &mut dyn ChunkIndex| {
                    let wrong = wrong(&said[acked].1, later, &all(index));
                    assert_eq!(
                        wrong, None,
                        "{name}, seed {seed}, point {point} of {points}"
                    );
                };
                check(&mut *index);
                if point % 16 == 0 {
                    index.checkpoint().expect("checkpoint");
                    drop(index);
                    let mut again = open(Arc::new(image.crash_image(0))).expect("open again");
                    check(&mut *again);
                }
            }
        }
    }
}

#[test]
fn every_name_opens_an_index_that_keeps_its_entries_and_its_budget() {
    assert!(kind_of(KINDS, "tree").is_err());
    for kind in KINDS {
        let name = kind.name;
        let dir = MemDir::new();
        let budget = 2 << 20;
        let at = || OpenIndex::new(Arc::new(dir.clone()), budget, 1);
        let open = || (kind.open)(at()).expect("open");
        let container = ContainerId(5);
        let entries: Vec<_> = (0..50_000)
            .map(|number| (key(number), Location { container }))
            .collect();
        let mut first = open();
        first.insert(&entries).expect("insert");
        first.checkpoint().expect("checkpoint");
        let ram = first.ram_bytes();
        assert!(ram <= budget * 11 / 10, "{name}: {ram} bytes of RAM");
        drop(first);
        // with its neighbours, for a sampling index
        let keys: Vec<Fingerprint> = (49_700..=50_000).map(key).collect();
        let mut found = vec![None; keys.len()];
        open().lookup(&keys, &mut found).expect("lookup");
        assert_eq!(found[299..], [Some(Location { container }), None], "{name}");
    }
}

#[test]
fn a_second_opener_is_told_that_another_has_the_index() {
    for (name, open) in INDEXES {
        let dir = MemDir::new();
        let _first = open(Arc::new(dir.clone())).expect("open");
        let second = open(Arc::new(dir.clone()));
        assert!(matches!(second, Err(Error::Held { .. })), "{name}");
    }
}

/// Found by the fuzz targets of the stores' shapes: an overflow, and 200 MB for a file of 40 bytes.
#[test]
fn a_forged_shape_is_damage_and_takes_no_memory() {
    for (index, file, magic, shape) in [
        (
            BLOOMSTORE,
            "bloom-shape",
            b"OFBLOOMS",
            &[1, u32::MAX, 64, 1, 4][..],
        ),
        (
            BLOOMSTORE,
            "bloom-shape",
            b"OFBLOOMS",
            &[1 << 22, 96, 64, 8, 4],
        ),
        (
            BUFFERHASH,
            "bufferhash-shape",
            b"OFBUFFRS",
            &[1 << 19, 1 << 15],
        ),
    ] {
        let dir = Arc::new(MemDir::new());
        drop((index.open)(OpenIndex::new(dir.clone(), 64 << 10, 1)).expect("a new one"));
        let payload: Vec<u8> = shape.iter().flat_map(|field| field.to_le_bytes()).collect();
        let kind = FrameKind {
            magic: *magic,
            version: if file == "bloom-shape" { 2 } else { 1 },
        };
        let bytes = encode_frame(kind, &payload);
        let disk = dir.open_write(file).expect("it was made");
        disk.set_len(0)
            .and_then(|()| disk.write_at(&bytes, 0))
            .expect("RAM");
        let refused = (index.open)(OpenIndex::new(dir, 64 << 10, 2)).err();
        assert!(
            matches!(&refused, Some(Error::Damaged { path, .. }) if path == file),
            "{refused:?}"
        );
    }
}

/// Found by the fuzz targets of journals whose pages are sealed again: both overflowed.
#[test]
fn a_sealed_journal_that_says_what_cannot_be_is_damage() {
    for (index, file) in [
        (BLOOMSTORE, "bloom-journal"),
        (SKIMPYSTASH, "skimpy-journal"),
        (BUFFERHASH, "bufferhash-journal"),
    ] {
        // the head behind all durable pages; the highest number of a record
        for (at, forged) in [(16, &7u32.to_le_bytes()[..]), (28, &[0xff; 8])] {
            let dir = Arc::new(MemDir::new());
            let mut made =
                (index.open)(OpenIndex::new(dir.clone(), 64 << 10, 1)).expect("a new one");
            let container = ContainerId(1);
            let entries = [(key(1), Location { container })];
            made.insert(&entries).expect("RAM");
            made.checkpoint().expect("RAM");
            drop(made);
            let disk = dir.open_write(file).expect("it was made");
            let mut page = vec![0; 4096];
            disk.read_at(&mut page, 0).expect("a page");
            page[at..at + forged.len()].copy_from_slice(forged);
            let check = crc64(&page[8..]) ^ 0x9e37_79b9_7f4a_7c15;
            page[..8].copy_from_slice(&check.to_le_bytes());
            disk.write_at(&page, 0).expect("RAM");
            let refused = (index.open)(OpenIndex::new(dir, 64 << 10, 2)).err();
            let is_damage = matches!(refused, Some(Error::Damaged { .. }));
            assert!(is_damage, "{file} at {at}: {refused:?}");
        }
    }
}

/// The container is retired twice before a checkpoint, or forgotten in between because no record speaks of it.
#[test]
fn a_container_that_comes_and_goes_is_there_or_not_as_was_said_last() {
    let at = |container| Location {
        container: ContainerId(container),
    };
    let both = [("strata", open_strata as Open)];
    for (name, open) in INDEXES.iter().chain(&both) {
        let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
        let mut index = open(Arc::clone(&dir)).expect("open");
        let told = [(key(1), at(7)), (key(2), at(8)), (key(3), at(9))];
        index.insert(&told).expect("insert");
        index.checkpoint().expect("checkpoint");
        index.retire(&[ContainerId(7)]).expect("retire");
        index.insert(&[(key(4), at(7))]).expect("insert");
        index.retire(&[ContainerId(7)]).expect("retire");
        index.remove(&[key(2)]).expect("remove");
        index.retire(&[ContainerId(8)]).expect("retire");
        let mut found = [None; 5];
        let keys = [1, 2, 3, 4, 5].map(key);
        index.lookup(&keys, &mut found).expect("lookup");
        assert_eq!(found, [None, None, Some(at(9)), None, None], "{name}");
        index.checkpoint().expect("checkpoint");
        index.insert(&[(key(5), at(8))]).expect("insert");
        index.checkpoint().expect("checkpoint");
        drop(index);
        let index = open(dir).expect("open again");
        index.lookup(&keys, &mut found).expect("lookup");
        // its records from before the retirement may be found again
        assert!(found[1].is_none_or(|found| found == at(8)), "{name}");
        assert_eq!([found[0], found[3]], [None, None], "{name}");
        assert_eq!([found[2], found[4]], [Some(at(9)), Some(at(8))], "{name}");
    }
}

fn open_strata(dir: Arc<dyn Dir>) -> Result<Box<dyn ChunkIndex>> {
    Ok(Box::new(Strata::open(dir, strata_options(1))?))
}

/// Options of `strata` for a small test.
pub fn strata_options(unique: u64) -> StrataOptions {
    StrataOptions {
        ram_budget_bytes: 1 << 20,
        background_merges: false,
        ..StrataOptions::new(unique)
    }
}
