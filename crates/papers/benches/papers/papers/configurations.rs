//! The configurations that the dissertation compares, and those of the other papers beside them.

use std::sync::Arc;

use onefold_index::{ChunkIndex, Strata, StrataOptions};
use onefold_io::Dir;
use onefold_papers::workload::Workload;
use onefold_papers::{
    BTree, BTreeOptions, BloomStore, BloomStoreOptions, BufferHash, BufferHashOptions, ChunkStash,
    ChunkStashOptions, Search, SkimpyStash, SkimpyStashOptions, Sparse, Tablets, TabletsOptions,
};

use crate::sampling;

/// Opens an index in a folder.
pub type Open = Box<dyn Fn(Arc<dyn Dir>) -> onefold_index::Result<Box<dyn ChunkIndex>>>;

/// The name of an index in a table, and how to open it.
pub type Case = (String, Open);

/// Bytes of PRUNE's tablet (§3).
const TABLET_BYTES: usize = 1_572_864;
/// Bytes of a prefetch cache where few keys have a place in RAM.
const CACHE_BYTES: usize = 4 << 20;

/// All configurations, for `keys` unique keys.
pub fn all(workload: Workload, keys: u64) -> Vec<Case> {
    let chains =
        bloomstores(workload)
            .into_iter()
            .flat_map(|(chain_max, filter_bytes, ram, prefilter)| {
                let options = bloomstore(keys, chain_max, filter_bytes, ram, prefilter);
                let with = if prefilter { " pre-filter" } else { "" };
                let name = format!("bloomstore M={chain_max} δ={filter_bytes} {ram} B{with}");
                both_reads(name, options)
            });
    let tables = skimpystashes(keys)
        .into_iter()
        .chain([bufferhash(keys)])
        .chain(btrees(keys))
        .chain(tablets())
        .chain(sampled(keys))
        .chain([strata(keys)]);
    chains.chain(tables).collect()
}

fn case<I: ChunkIndex + 'static>(
    name: impl Into<String>,
    open: impl Fn(Arc<dyn Dir>) -> onefold_index::Result<I> + 'static,
) -> Case {
    let open =
        move |dir| -> onefold_index::Result<Box<dyn ChunkIndex>> { Ok(Box::new(open(dir)?)) };
    (name.into(), Box::new(open))
}

/// A BloomStore that reads the page of a chain that has the key's bits, and one that reads all pages.
fn both_reads(name: String, options: BloomStoreOptions) -> [Case; 2] {
    let whole = BloomStoreOptions {
        reads_whole_chains: true,
        ..options.clone()
    };
    [
        case(name.clone(), move |dir| {
            BloomStore::open(dir, options.clone())
        }),
        case(format!("{name}, whole chains"), move |dir| {
            BloomStore::open(dir, whole.clone())
        }),
    ]
}

fn skimpystashes(keys: u64) -> [Case; 2] {
    [9, 20].map(|bucket_keys| {
        let options = SkimpyStashOptions {
            keys_expected: keys,
            bucket_keys,
        };
        case(format!("skimpystash l={bucket_keys}"), move |dir| {
            SkimpyStash::open(dir, options)
        })
    })
}

fn bufferhash(keys: u64) -> Case {
    let options = BufferHashOptions::new(keys);
    case("bufferhash C=16", move |dir| BufferHash::open(dir, options))
}

fn btrees(keys: u64) -> [Case; 2] {
    [("btree", false), ("btree, writes late", true)].map(|(name, writes_late)| {
        let options = BTreeOptions {
            writes_late,
            ..BTreeOptions::new(keys, keys as usize * 9)
        };
        case(format!("{name} 9 B"), move |dir| BTree::open(dir, options))
    })
}

fn tablets() -> [Case; 2] {
    let searches = [
        ("linear", Search::Linear),
        ("LRU + prefetch", Search::LruPrefetch),
    ];
    searches.map(|(name, search)| {
        let options = TabletsOptions {
            search,
            tablet_bytes: TABLET_BYTES,
            cache_tablets: 2,
            filter_bits: 16,
        };
        case(format!("tablets {name}"), move |dir| {
            Tablets::open(dir, options)
        })
    })
}

/// The configurations that may keep a sample of the keys only.
fn sampled(keys: u64) -> Vec<Case> {
    let stashes = [1, 10].map(|sample| {
        let options = ChunkStashOptions {
            ram_budget_bytes: (keys as usize * 9 / sample).max(512 << 10),
            cache_bytes: (sample > 1).then_some(CACHE_BYTES),
            sample: sample as u32,
        };
        case(format!("chunkstash 1/{sample}"), move |dir| {
            ChunkStash::open(dir, options.clone())
        })
    });
    let sparse = [16, 64].map(|sample| {
        case(format!("sparse 1/{sample}"), move |dir| {
            Sparse::open(dir, sampling::sparse(keys as usize, sample, CACHE_BYTES))
        })
    });
    stashes.into_iter().chain(sparse).collect()
}

fn strata(keys: u64) -> Case {
    case("strata", move |dir| {
        let options = StrataOptions {
            ram_budget_bytes: (keys as usize * 3 / 2).max(1 << 20),
            background_merges: false,
            ..StrataOptions::new(1)
        };
        Strata::open(dir, options)
    })
}

/// M, δ, RAM a key in bytes, and whether there is a pre-filter.
fn bloomstores(workload: Workload) -> Vec<(u32, u32, f64, bool)> {
    match workload {
        Workload::Linux | Workload::Fbf => vec![
            (128, 64, 0.51, false),
            (96, 128, 0.69, false),
            (96, 128, 0.72, false),
            (96, 128, 1.2, false),
            (96, 128, 1.44, false),
            (96, 64, 1.44, false),
            (96, 128, 2.8, false),
        ],
        Workload::Vx | Workload::Vx9m | Workload::Vx20m => vec![
            (128, 64, 0.51, false),
            (96, 64, 0.72, false),
            (128, 64, 1.2, false),
            (96, 64, 1.2, false),
            (64, 64, 1.2, false),
            (96, 64, 1.2, true),
            (96, 64, 1.44, true),
        ],
    }
}

/// A BloomStore with `ram` bytes a key: RAM beside write buffers goes to the pre-filter, up to 4 bits a key, and the
/// rest to the pool.
fn bloomstore(
    keys: u64,
    chain_max: u32,
    filter_bytes: u32,
    ram: f64,
    prefilter: bool,
) -> BloomStoreOptions {
    let mut options = BloomStoreOptions {
        chain_max,
        filter_bytes,
        prefilter_bytes: 0,
        pool_bytes: 0,
        ..BloomStoreOptions::new(keys, 0)
    };
    let fixed = f64::from(options.partitions()) * f64::from(4096 + filter_bytes);
    let rest = (keys as f64 * ram - fixed).max(0.0) as usize;
    options.prefilter_bytes = if prefilter {
        rest.min(keys as usize / 2)
    } else {
        0
    };
    options.pool_bytes = rest - options.prefilter_bytes;
    options
}
