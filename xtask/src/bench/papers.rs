//! `cargo xtask bench papers`: the papers' indexes under the papers' workloads, on a modelled flash with the papers' costs.
//!
//! Every index is driven as a dedup store does (look up, insert what is new), then asked for absent keys and for present ones at random.
//! "lost" is the part of the stream's duplicates that was not recognized (sampling alone may lose some). Times are
//! the device's, modelled (25/200/1500 µs; one thing at a time, or as many as `--device` says), plus 1 µs of CPU a key; so a busy machine does not matter. RAM is what the index holds.

use std::sync::Arc;

use onefold_index::workload::{Workload, drive, key_of};
use onefold_index::{
    BTree, BTreeOptions, BloomStore, BloomStoreOptions, BufferHash, BufferHashOptions, ChunkIndex,
    ChunkStash, ChunkStashOptions, Search, SkimpyStash, SkimpyStashOptions, Sparse, Strata,
    StrataOptions, Tablets, TabletsOptions,
};
use onefold_io::{Dir, FlashDir, FlashModel, MemDir};

use super::report::{Table, machine, machine_line};

/// CPU of a key, in microseconds: so that a lookup that reads nothing costs something.
const CPU_US: f64 = 1.0;
/// PRUNE's tablet (§3).
const TABLET_BYTES: usize = 1_572_864;
/// Bytes of a record, for write amplification.
const RECORD_BYTES: f64 = 64.0;

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct PapersArgs {
    /// Part of the papers' data sets.
    #[arg(long, default_value_t = 0.1)]
    pub scale: f64,
    /// Seed of the workloads.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One workload only: linux, vx, fbf, vx-9m, vx-20m. Default: linux and vx.
    #[arg(long)]
    pub workload: Option<String>,
    /// Indexes whose name contains this; with --filters, tables: 3.1, 3.3, 3.4, 3.6, 3.7, 3.8; with --disks: prune, chunkstash.
    #[arg(long, default_value = "")]
    pub index: String,
    /// How much the device does at once: serial (one thing), sata (10 channels, 32 commands), pcie (32 channels, 256 commands).
    #[arg(long, default_value = "serial")]
    pub device: String,
    /// The filters on flash instead of the indexes.
    #[arg(long)]
    pub filters: bool,
    /// PRUNE's tablets on a modelled disk, and ChunkStash beside B-trees, instead.
    #[arg(long)]
    pub disks: bool,
}

type Error = Box<dyn std::error::Error>;
type Open = Box<dyn Fn(Arc<dyn Dir>) -> onefold_index::Result<Box<dyn ChunkIndex>>>;

/// Runs the benchmark and prints a table a workload.
pub fn run(args: &PapersArgs) -> Result<(), Error> {
    println!("{}", machine_line(&machine()));
    if args.disks {
        return super::papers_disks::run(args.scale, &args.index);
    }
    if args.filters {
        return super::papers_filters::run(args.scale, args.seed, &args.index);
    }
    for (name, workload) in Workload::ALL {
        let is_wanted = match &args.workload {
            Some(wanted) => wanted == name,
            None => matches!(workload, Workload::Linux | Workload::Vx),
        };
        if is_wanted {
            let (chunks, unique) = workload.counts();
            println!(
                "\n{name}: {chunks} chunks, {unique} unique, × {}, seed {}, device {}",
                args.scale, args.seed, args.device
            );
            print!("{}", table(args, workload)?.text());
        }
    }
    Ok(())
}

fn table(args: &PapersArgs, workload: Workload) -> Result<Table, Error> {
    let unique = (workload.counts().1 as f64 * args.scale) as u64;
    let mut rows = Vec::new();
    for (name, open) in indexes(workload, unique) {
        if name.contains(&args.index) {
            rows.push(row(args, workload, name, &*open)?);
        }
    }
    Ok(Table {
        head: vec![
            "index",
            "RAM B/key",
            "lookups/s",
            "inserts/s",
            "reads/lookup",
            "reads/absent",
            "reads/present",
            "false/absent",
            "lost %",
            "WA",
            "wall s",
        ],
        words: 1,
        rows,
    })
}

/// The configurations that the dissertation compares, for `keys` unique keys.
fn indexes(workload: Workload, keys: u64) -> Vec<(String, Open)> {
    let mut all: Vec<(String, Open)> = Vec::new();
    for (chain_max, filter_bytes, ram, prefilter) in bloomstores(workload) {
        for reads_whole_chains in [false, true] {
            let options = BloomStoreOptions {
                reads_whole_chains,
                ..bloomstore(keys, chain_max, filter_bytes, ram, prefilter)
            };
            let name = format!(
                "bloomstore M={chain_max} δ={filter_bytes} {ram} B{}{}",
                if prefilter { " pre-filter" } else { "" },
                if reads_whole_chains {
                    ", whole chains"
                } else {
                    ""
                },
            );
            all.push((
                name,
                Box::new(move |dir| Ok(Box::new(BloomStore::open(dir, options.clone())?))),
            ));
        }
    }
    for bucket_keys in [9, 20] {
        let options = SkimpyStashOptions {
            keys_expected: keys,
            bucket_keys,
        };
        all.push((
            format!("skimpystash l={bucket_keys}"),
            Box::new(move |dir| Ok(Box::new(SkimpyStash::open(dir, options)?))),
        ));
    }
    for (name, writes_late) in [("btree", false), ("btree, writes late", true)] {
        let options = BTreeOptions {
            writes_late,
            ..BTreeOptions::new(keys, keys as usize * 9)
        };
        all.push((
            format!("{name} 9 B"),
            Box::new(move |dir| Ok(Box::new(BTree::open(dir, options)?))),
        ));
    }
    for (name, search) in [
        ("linear", Search::Linear),
        ("LRU + prefetch", Search::LruPrefetch),
    ] {
        let options = TabletsOptions {
            search,
            tablet_bytes: TABLET_BYTES,
            cache_tablets: 2,
            filter_bits: 16,
        };
        all.push((
            format!("tablets {name}"),
            Box::new(move |dir| Ok(Box::new(Tablets::open(dir, options)?))),
        ));
    }
    all.push((
        "bufferhash C=16".into(),
        Box::new(move |dir| {
            let options = BufferHashOptions::new(keys);
            Ok(Box::new(BufferHash::open(dir, options)?))
        }),
    ));
    for sample in [1, 10] {
        let ram_budget_bytes = (keys as usize * 9 / sample).max(512 << 10);
        all.push((
            format!("chunkstash 1/{sample}"),
            Box::new(move |dir| {
                let options = ChunkStashOptions {
                    ram_budget_bytes,
                    cache_bytes: (sample > 1).then_some(4 << 20),
                    sample: sample as u32,
                };
                Ok(Box::new(ChunkStash::open(dir, options)?))
            }),
        ));
    }
    for sample in [16, 64] {
        all.push((
            format!("sparse 1/{sample}"),
            Box::new(move |dir| {
                let options = super::sampling::sparse(keys as usize, sample, 4 << 20);
                Ok(Box::new(Sparse::open(dir, options)?))
            }),
        ));
    }
    all.push((
        "strata".into(),
        Box::new(move |dir| {
            let options = StrataOptions {
                ram_budget_bytes: (keys as usize * 3 / 2).max(1 << 20),
                background_merges: false,
                ..StrataOptions::new(1)
            };
            Ok(Box::new(Strata::open(dir, options)?))
        }),
    ));
    all
}

/// M, δ, RAM a key, pre-filter.
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

/// What write buffers leave of `ram` bytes a key goes to the pre-filter, up to 4 bits a key, and the rest to the pool.
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

fn row(
    args: &PapersArgs,
    workload: Workload,
    name: String,
    open: &dyn Fn(Arc<dyn Dir>) -> onefold_index::Result<Box<dyn ChunkIndex>>,
) -> Result<Vec<String>, Error> {
    let unique = (workload.counts().1 as f64 * args.scale) as u64;
    let model = FlashModel::with_capacity(unique * 64 * 4 + (64 << 20));
    let model = match &*args.device {
        "serial" => model,
        "sata" => model.sata(),
        "pcie" => model.pcie(),
        other => return Err(format!("no device {other:?}: serial, sata, pcie").into()),
    };
    let flash = FlashDir::new(Arc::new(MemDir::new()), model);
    let clock = || flash.counts().modelled_us;
    let mut index = open(Arc::new(flash.clone()))?;
    let mut known = 0;
    let mut keys = workload.numbers(args.scale, args.seed).map(|number| {
        known = known.max(number + 1);
        key_of(number)
    });
    let stream = drive(&mut *index, &mut keys, false, &clock)?;
    drop(keys);
    let written = index.stats().bytes_written as f64;
    let (ram, built) = (index.ram_bytes() as f64, index.stats());
    let mut absent = (1u64 << 40..(1 << 40) + 20_000).map(key_of);
    drive(&mut *index, &mut absent, true, &clock)?;
    let asked = index.stats();
    let mut present = (0..20_000u64).map(|i| key_of(i.wrapping_mul(0x9e37_79b9) % known));
    drive(&mut *index, &mut present, true, &clock)?;
    let last = index.stats();
    // duplicates that were stored again
    let lost = (stream.inserts - known) as f64 / (stream.lookups - known) as f64;
    let rate =
        |keys: u64, us: f64| format!("{:.0}", keys as f64 * 1e6 / (us + keys as f64 * CPU_US));
    let each = |count: u64, keys: u64| format!("{:.4}", count as f64 / keys as f64);
    Ok(vec![
        name,
        format!("{:.2}", ram / known as f64),
        rate(stream.lookups, stream.lookup_us),
        rate(stream.inserts, stream.insert_us),
        each(built.lookup_reads, stream.lookups),
        each(asked.lookup_reads - built.lookup_reads, 20_000),
        each(last.lookup_reads - asked.lookup_reads, 20_000),
        each(asked.false_reads - built.false_reads, 20_000),
        format!("{:.2}", lost * 100.0),
        format!("{:.2}", written / (known as f64 * RECORD_BYTES)),
        format!("{:.1}", stream.wall.as_secs_f64()),
    ])
}
