//! `cargo xtask bench papers`: the papers' indexes under the papers' workloads, on a modelled flash with the papers'
//! costs.
//!
//! Every index is driven as by a dedup store (look up, insert new keys), then asked for absent keys and for present
//! ones at random. "lost" is the share of the stream's duplicates that were not recognized (sampling alone may lose
//! some). Times are the device's, modelled (25/200/1500 µs; one thing at a time, or as many as `--device` says), plus 1
//! µs of CPU a key, so a busy machine does not matter. RAM is what the index holds.

mod configurations;

use std::sync::Arc;

use onefold_io::{FlashDir, FlashModel, MemDir};
use onefold_papers::workload::{Workload, drive, key_of};

use self::configurations::Open;

use super::report::{Table, machine, machine_line};

/// CPU time of a key in microseconds, so that a lookup without reads costs something.
const CPU_US: f64 = 1.0;
/// Bytes of a record, for write amplification.
const RECORD_BYTES: f64 = 64.0;

/// Options of the benchmark.
#[derive(clap::Args, Clone, Debug)]
pub struct PapersArgs {
    /// Share of the papers' data sets, above 0; 1 is full scale.
    #[arg(long, default_value_t = 0.1)]
    pub scale: f64,
    /// Seed of the workloads.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One workload only: linux, vx, fbf, vx-9m, vx-20m. Default: linux and vx.
    #[arg(long)]
    pub workload: Option<String>,
    /// Indexes whose name contains this; with --filters, tables: 3.1, 3.3, 3.4, 3.6, 3.7, 3.8; with --disks: prune,
    /// chunkstash.
    #[arg(long, default_value = "")]
    pub index: String,
    /// How much the device does at once: serial (one thing), sata (10 channels, 32 commands), pcie (32 channels, 256
    /// commands).
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
    for (name, open) in configurations::all(workload, unique) {
        if name.contains(&args.index) {
            rows.push(row(args, workload, name, &open)?);
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

fn row(
    args: &PapersArgs,
    workload: Workload,
    name: String,
    open: &Open,
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
