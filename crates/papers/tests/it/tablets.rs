//! Tablets: the costs of a search in each order, the space that a sweep frees, and their golden files.

use std::path::PathBuf;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location};
use onefold_io::{Dir, MemDir};
use onefold_papers::{Search, Tablets, TabletsOptions};

use crate::history::key;

const KEYS: u64 = 99 * 16 * 20;

fn options(search: Search) -> TabletsOptions {
    TabletsOptions {
        search,
        tablet_bytes: 16 * 4096,
        cache_tablets: 3,
        filter_bits: 12,
    }
}

fn filled(dir: &MemDir, options: TabletsOptions, keys: u64) -> Tablets {
    let mut index = Tablets::open(Arc::new(dir.clone()), options).expect("open");
    let at = |number: u64| Location {
        container: ContainerId(number / 1000),
    };
    let entries: Vec<_> = (0..keys).map(|number| (key(number), at(number))).collect();
    index.insert(&entries).expect("insert");
    index.checkpoint().expect("checkpoint");
    index
}

/// Page reads for a key of a stream that comes again, and for an absent key.
fn reads(search: Search) -> (f64, f64) {
    let index = filled(&MemDir::new(), options(search), KEYS);
    let ask = |numbers: std::ops::Range<u64>, is_there: bool| {
        let before = index.stats().lookup_reads;
        let keys: Vec<Fingerprint> = numbers.map(key).collect();
        for keys in keys.chunks(512) {
            let mut found = vec![None; keys.len()];
            index.lookup(keys, &mut found).expect("lookup");
            assert!(found.iter().all(|found| found.is_some() == is_there));
        }
        (index.stats().lookup_reads - before) as f64 / keys.len() as f64
    };
    (ask(0..KEYS, true), ask(KEYS..2 * KEYS, false))
}

/// PRUNE, §3.3: "the successor tablet in the linked list" is moved with the one that is hit, and read ahead with it
/// here.
#[test]
fn the_successor_that_is_read_ahead_is_the_next_in_the_list() {
    let index = filled(&MemDir::new(), options(Search::LruPrefetch), KEYS);
    let reads_of = |number: u64| {
        let before = index.stats().lookup_reads;
        let mut found = [None];
        index.lookup(&[key(number)], &mut found).expect("lookup");
        assert!(found[0].is_some());
        index.stats().lookup_reads - before
    };
    let of_tablet = |tablet: u64| tablet * 99 * 16;
    // the list is 5 6 0 1 2 …, then 6 0 5 1 2 …
    reads_of(of_tablet(5));
    (0..8).for_each(|number| {
        reads_of(of_tablet(6) + number);
    });
    assert_eq!(
        reads_of(of_tablet(6) + 9),
        0,
        "what is hit again and again is in RAM"
    );
    assert_eq!(reads_of(of_tablet(0)), 0, "so is the next in the list");
    assert_eq!(reads_of(of_tablet(7)), 1, "the next of the stream is not");
}

#[test]
fn lru_spares_what_linear_reads_in_vain_and_prefetch_the_first_hits_of_each_tablet() {
    let [linear, lru, prefetch] =
        [Search::Linear, Search::Lru, Search::LruPrefetch].map(|search| reads(search).0);
    assert!(linear > 2.0 * lru, "{linear} and {lru}");
    // the next tablet in the list is the next of the stream every other time
    assert!(lru > 1.7 * prefetch, "{lru} and {prefetch}");
    assert!(prefetch < 0.005, "{prefetch} reads a key");
    let (_, absent) = reads(Search::LruPrefetch);
    assert!(absent < 0.15, "{absent} reads an absent key of 20 tablets");
}

#[test]
fn tablets_of_retired_containers_give_back_their_space() {
    let dir = MemDir::new();
    let mut index = filled(&dir, options(Search::Lru), KEYS);
    let before = index.stats().disk_bytes;
    let retired: Vec<ContainerId> = (0..25).map(ContainerId).collect();
    index.retire(&retired).expect("retire");
    index.checkpoint().expect("checkpoint");
    assert!(index.stats().disk_bytes < before / 3);
    drop(index);
    let index = Tablets::open(Arc::new(dir), options(Search::Lru)).expect("open");
    let mut found = [None; 2];
    let keys = [key(24_999), key(25_000)];
    index.lookup(&keys, &mut found).expect("lookup");
    let container = ContainerId(25);
    assert_eq!(found, [None, Some(Location { container })]);
}

#[test]
fn a_removal_of_what_is_not_there_is_not_written() {
    let dir = MemDir::new();
    let mut index = filled(&dir, options(Search::Lru), 10);
    let before = index.stats().bytes_written;
    index
        .remove(&(100..2000).map(key).collect::<Vec<_>>())
        .expect("remove");
    index.checkpoint().expect("checkpoint");
    assert_eq!(index.stats().bytes_written, before);
}

/// A single part would be larger than a reader accepts.
#[test]
fn a_checkpoint_of_two_million_retirements_is_read_again() {
    let dir = MemDir::new();
    let mut index = filled(&dir, options(Search::Lru), 10);
    let retired: Vec<ContainerId> = (1000..2_000_000).map(ContainerId).collect();
    index.remove(&[key(5)]).expect("remove");
    index.retire(&retired).expect("retire");
    index.checkpoint().expect("checkpoint");
    drop(index);
    let index = Tablets::open(Arc::new(dir), options(Search::Lru)).expect("open");
    let mut found = [None; 2];
    index.lookup(&[key(4), key(5)], &mut found).expect("lookup");
    let container = ContainerId(0);
    assert_eq!(found, [Some(Location { container }), None]);
}

#[test]
fn golden_tablets_are_still_written_so_and_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/tablets-1");
    let options = TabletsOptions {
        tablet_bytes: 4096,
        ..options(Search::Lru)
    };
    let (made, kept) = (MemDir::new(), MemDir::new());
    let mut index = filled(&made, options, 99);
    let at = |container| Location {
        container: ContainerId(container),
    };
    index.remove(&[key(5)]).expect("remove");
    index.insert(&[(key(99), at(8))]).expect("insert");
    index.retire(&[ContainerId(8)]).expect("retire");
    index.checkpoint().expect("checkpoint");
    for name in ["tablet-00000000", "tablets-journal-00000001"] {
        let disk = made.open(name).expect("open");
        let mut written = vec![0; disk.len().expect("len") as usize];
        disk.read_at(&mut written, 0).expect("read");
        if std::env::var_os("ONEFOLD_BLESS").is_some() {
            std::fs::create_dir_all(&folder).expect("create");
            std::fs::write(folder.join(name), &written).expect("write");
        }
        let golden = std::fs::read(folder.join(name)).expect("golden file");
        assert!(written == golden, "{name} differs");
        let disk = kept.create(name).expect("create");
        disk.write_at(&golden, 0).expect("write");
    }
    let index = Tablets::open(Arc::new(kept), options).expect("open");
    let mut found = [None; 3];
    let keys = [key(4), key(5), key(99)];
    index.lookup(&keys, &mut found).expect("lookup");
    assert_eq!(found, [Some(at(0)), None, None]);
}

/// There is no number for the next tablet.
#[test]
fn a_tablet_of_the_last_number_is_damage() {
    for name in ["tablet-ffffffff", "tablets-journal-ffffffff"] {
        let dir = MemDir::new();
        dir.create(name).expect("create");
        let opened = Tablets::open(Arc::new(dir), options(Search::Lru));
        let error = opened.err().expect("refused");
        assert!(error.to_string().contains(name), "{error}");
        assert!(matches!(error, onefold_index::Error::Damaged { .. }));
    }
}
