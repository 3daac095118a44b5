//! The RAM that an index or a filter reports, compared with an allocator's count: a binary of its own, since the
//! allocator counts the whole process.
//!
//! Bytes on disk are in files, so that the heap has only the measured structures. One test runs at a time: nothing else
//! allocates meanwhile. `cargo test -p onefold-papers --test ram -- --nocapture` prints the table.

mod forged;
mod merging;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onefold_chunk::Fingerprint;
use onefold_index::{
    ChunkIndex, ContainerId, Filter, Location, RamIndex, Result, Strata, StrataOptions,
};
use onefold_io::os::mapped_bytes;
use onefold_io::{Dir, Disk, FileDir};
use onefold_papers::filters::{
    Accounting, BlockedBloom, Bloom, BufferOptions, Buffering, Chain, Forest, ForestOptions, Full,
    PageShape, Quotient, SingleLayer, Traverse,
};
use onefold_papers::workload::key_of;
use onefold_papers::{
    BTree, BTreeOptions, BloomStore, BloomStoreOptions, BufferHash, BufferHashOptions, ChunkStash,
    ChunkStashOptions, Search, SkimpyStash, SkimpyStashOptions, Sparse, SparseOptions, Tablets,
    TabletsOptions,
};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The keys of 16 full partitions: a write buffer of BloomStore is a page, a page is 64 keys, and a chain has M
/// filters.
const fn partitions_of_16(chain_max: u64) -> u64 {
    16 * 64 * chain_max
}

/// Number of keys of all other indexes and of the filters.
const KEYS: u64 = 100_000;
/// Number of keys in a batch of a stream.
const BATCH: usize = 512;
/// One batch in this many is looked up: that fills every cache several times, and all that a lookup leaves behind is in
/// caches.
const ASKED_EVERY: usize = 8;
/// Number of chunks in a container.
const CONTAINER: u64 = 1000;

/// Allowed difference between reported and counted RAM: a share of it, and bytes beside it (names, handles of open
/// files, lists that grow by doubling).
const PART: f64 = 0.05;
const BESIDE: f64 = 8192.0;

type Open = Box<dyn Fn(Arc<dyn Dir>) -> Result<Box<dyn ChunkIndex>>>;

/// An index to be measured.
struct Case {
    name: &'static str,
    keys: u64,
    /// Bytes a key by the papers' formula, where there is one, and the allowed distance from it.
    formula: Option<(f64, f64)>,
    open: Open,
}

fn case<I: ChunkIndex + 'static>(
    name: &'static str,
    open: impl Fn(Arc<dyn Dir>) -> Result<I> + 'static,
) -> Case {
    Case {
        name,
        keys: KEYS,
        formula: None,
        open: Box::new(move |dir| Ok(Box::new(open(dir)?))),
    }
}

fn bloomstore(name: &'static str, chain_max: u32, formula: f64) -> Case {
    let keys = partitions_of_16(chain_max.into());
    let options = BloomStoreOptions {
        chain_max,
        filter_bytes: 64,
        prefilter_bytes: 0,
        pool_bytes: 0,
        ..BloomStoreOptions::new(keys, 0)
    };
    assert_eq!(options.partitions(), 16, "{name}");
    Case {
        keys,
        formula: Some((formula, 0.10)),
        ..case(name, move |dir| BloomStore::open(dir, options.clone()))
    }
}

fn indexes() -> Vec<Case> {
    let tablets = |dir, search| {
        let options = TabletsOptions {
            search,
            tablet_bytes: 64 << 10,
            cache_tablets: 2,
            filter_bits: 16,
        };
        Tablets::open(dir, options)
    };
    let with_formula = |case: Case, bytes: f64, within: f64| Case {
        formula: Some((bytes, within)),
        ..case
    };
    vec![
        case("ram", |_| Ok(RamIndex::new())),
        bloomstore("bloomstore, M = 128", 128, 0.5),
        bloomstore("bloomstore, M = 96", 96, 0.67),
        case("bloomstore, pool and pre-filter", |dir| {
            BloomStore::open(dir, BloomStoreOptions::new(KEYS, KEYS as usize * 3 / 2))
        }),
        with_formula(
            case("skimpystash, l = 9", |dir| skimpystash(dir, 9)),
            1.0 + 4.0 / 9.0,
            0.10,
        ),
        with_formula(
            case("skimpystash, l = 20", |dir| skimpystash(dir, 20)),
            1.0 + 4.0 / 20.0,
            0.10,
        ),
        with_formula(
            case("bufferhash, C = 16", |dir| {
                BufferHash::open(dir, BufferHashOptions::new(6 * 16 * 1024))
            }),
            10.0,
            0.10,
        ),
        case("chunkstash", |dir| chunkstash(dir, 1)),
        case("chunkstash, 1 key in 10", |dir| chunkstash(dir, 10)),
        case("btree", |dir| BTree::open(dir, btree(0, 0))),
        case("btree, filter and prefetch", |dir| {
            BTree::open(dir, btree(KEYS as usize, 256 << 10))
        }),
        case("tablets, linear", move |dir| tablets(dir, Search::Linear)),
        case("tablets, LRU and prefetch", move |dir| {
            tablets(dir, Search::LruPrefetch)
        }),
        case("sparse", |dir| {
            Sparse::open(dir, SparseOptions::new(1 << 20))
        }),
        case("strata", |dir| {
            let options = StrataOptions {
                ram_budget_bytes: 1 << 20,
                background_merges: false,
                ..StrataOptions::new(1)
            };
            Strata::open(dir, options)
        }),
    ]
}

fn skimpystash(dir: Arc<dyn Dir>, bucket_keys: u32) -> Result<SkimpyStash> {
    let options = SkimpyStashOptions {
        keys_expected: KEYS,
        bucket_keys,
    };
    SkimpyStash::open(dir, options)
}

fn chunkstash(dir: Arc<dyn Dir>, sample: u32) -> Result<ChunkStash> {
    let options = ChunkStashOptions {
        ram_budget_bytes: KEYS as usize * 9 / sample as usize,
        cache_bytes: Some(256 << 10),
        sample,
    };
    ChunkStash::open(dir, options)
}

fn btree(filter_bytes: usize, prefetch_bytes: usize) -> BTreeOptions {
    BTreeOptions {
        cache_bytes: 1 << 20,
        filter_bytes,
        keys_expected: KEYS,
        prefetch_bytes,
        // fewer syncs make the test faster
        writes_late: true,
        ..BTreeOptions::new(KEYS, 0)
    }
}

/// Held by the test that measures.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes on the heap and in mappings of the process.
fn held() -> usize {
    ALLOCATOR.current_usage() + mapped_bytes()
}

/// Bytes that are held beyond `before`, next to the `said` ones: other threads may hold some for a moment.
fn counted(before: usize, said: usize) -> usize {
    let counts = (0..10).map(|turn| {
        std::thread::sleep(Duration::from_millis(turn));
        held().saturating_sub(before)
    });
    counts
        .min_by_key(|counted| counted.abs_diff(said))
        .unwrap_or(0)
}

/// Fills an index like a first backup, which looks up absent keys, and then looks up parts of the stream again.
fn fill(index: &mut dyn ChunkIndex, keys: u64) {
    let batches = || {
        let firsts = (0..keys).step_by(BATCH);
        firsts.map(|first| first..(first + BATCH as u64).min(keys))
    };
    let ask = |index: &mut dyn ChunkIndex, numbers: Range<u64>, is_there: bool| {
        let asked: Vec<Fingerprint> = numbers.map(key_of).collect();
        let mut found = vec![None; asked.len()];
        index.lookup(&asked, &mut found).expect("lookup");
        // an index that samples may not know all
        assert!(is_there || found.iter().all(Option::is_none), "never said");
    };
    for (number, numbers) in batches().enumerate() {
        if number % ASKED_EVERY == 0 {
            ask(index, numbers.clone(), false);
        }
        let at = |number| Location {
            container: ContainerId(number / CONTAINER),
        };
        let new: Vec<_> = numbers.map(|i| (key_of(i), at(i))).collect();
        index.insert(&new).expect("insert");
    }
    index.checkpoint().expect("checkpoint");
    for numbers in batches().step_by(ASKED_EVERY) {
        ask(index, numbers, true);
    }
    index.checkpoint().expect("checkpoint");
}

/// Prints a line; returns whether the reported RAM is as counted, and the count as the formula says.
fn holds(name: &str, keys: u64, said: usize, counted: usize, formula: Option<(f64, f64)>) -> bool {
    let each = |bytes: usize| bytes as f64 / keys as f64;
    let paper = formula.map_or(String::new(), |(bytes, _)| format!("{bytes:.2}"));
    println!(
        "{name:<34}{keys:>8}{:>9.3}{:>9.3}{paper:>9}",
        each(said),
        each(counted)
    );
    let apart = (said as f64 - counted as f64).abs();
    let is_said = apart <= counted as f64 * PART + BESIDE;
    let is_formula = formula.is_none_or(|(bytes, within)| {
        let beside = (counted as f64 - BESIDE) / keys as f64;
        beside <= bytes * (1.0 + within) && each(counted) >= bytes * (1.0 - within)
    });
    is_said && is_formula
}

/// Filters by their names, for [`KEYS`] keys.
fn filter(name: &str, disk: Arc<dyn Disk>) -> Result<Box<dyn Filter>> {
    let shape = PageShape::for_rate(0.01);
    let forest = |starts_in_flash| ForestOptions {
        ram_bytes: 64 << 10,
        shape,
        grown: shape,
        branching: 4,
        traverse: Traverse::BottomUp,
        group_pages: 4,
        starts_in_flash,
        full: Full::FullestPage,
        accounting: Accounting::OURS,
    };
    let layer = |buffering| {
        let buffer = BufferOptions::new(buffering, 64 << 10);
        SingleLayer::new(Arc::clone(&disk), KEYS, shape, buffer, 4)
    };
    Ok(match name {
        "bloom" => Box::new(Bloom::new(KEYS, 0.01)?),
        "bloom, blocked" => Box::new(BlockedBloom::new(KEYS, 0.01)?),
        "flash-single, compartments" => Box::new(layer(Buffering::Compartments)?),
        "flash-single, pooled" => Box::new(layer(Buffering::Pooled)?),
        "flash-chain" => Box::new(Chain::new(disk, 16, shape)),
        "forest" => Box::new(Forest::new(disk, forest(false))?),
        "forest from flash" => Box::new(Forest::new(disk, forest(true))?),
        _ => Box::new(Quotient::new(1000, KEYS, 0.01)?),
    })
}

const FILTERS: [&str; 8] = [
    "bloom",
    "bloom, blocked",
    "flash-single, compartments",
    "flash-single, pooled",
    "flash-chain",
    "forest",
    "forest from flash",
    "quotient",
];

#[test]
fn what_is_held_is_what_an_allocator_counts() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let mut wrong = Vec::new();
    println!(
        "{:<34}{:>8}{:>9}{:>9}{:>9}",
        "bytes a key", "keys", "said", "counted", "formula"
    );
    for (number, case) in indexes().into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        let dir: Arc<dyn Dir> = Arc::new(FileDir::create(&path).expect("a folder"));
        let before = held();
        let mut index = (case.open)(dir).expect("open");
        fill(&mut *index, case.keys);
        let said = index.ram_bytes();
        let counted = counted(before, said);
        if !holds(case.name, case.keys, said, counted, case.formula) {
            wrong.push(case.name);
        }
    }
    for (number, name) in FILTERS.into_iter().enumerate() {
        let path = folder.path().join(format!("filter-{number}"));
        let dir = FileDir::create(&path).expect("a folder");
        let disk = dir.create("filter").expect("a file");
        let before = held();
        let mut filter = filter(name, disk).expect("a filter");
        for first in (0..KEYS).step_by(BATCH) {
            let numbers = first..(first + BATCH as u64).min(KEYS);
            let keys: Vec<Fingerprint> = numbers.map(key_of).collect();
            filter.insert(&keys).expect("insert");
        }
        let said = filter.ram_bytes();
        let counted = counted(before, said);
        if !holds(name, KEYS, said, counted, None) {
            wrong.push(name);
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:?} hold something else than they say"
    );
}
