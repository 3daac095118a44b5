//! `cargo xtask bench sampling FOLDER FOLDER …`: the duplicates that ChunkStash loses where only one key in n has a
//! slot, and sparse indexing beside it, on backups of real data.
//!
//! Each folder is a backup, in the given order: versions of the same data. Its files are cut and fingerprinted in the
//! order of their names, looked up batch by batch, and missing chunks are stored. A duplicate that was not found is
//! lost: it is stored again. Device time is modelled, as in [`super::papers`].

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_chunk::{Chunker, Fingerprint, by_name};
use onefold_index::{ChunkIndex, ContainerId, Location};
use onefold_io::{Dir, FlashDir, FlashModel, MemDir};
use onefold_papers::{ChunkStash, ChunkStashOptions, Sparse, SparseOptions};

use super::report::{Table, machine, machine_line};

const BATCH: usize = 512;
const CONTAINER_CHUNKS: u64 = 1023;
/// Bytes of a file that are read; the rest is left out.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Options of the benchmark.
#[derive(clap::Args, Clone, Debug)]
pub struct SamplingArgs {
    /// Backups, in order.
    pub backups: Vec<PathBuf>,
    /// Mean chunk, in bytes.
    #[arg(long, default_value_t = 8192)]
    pub mean: usize,
    /// The prefetch cache in MiB, the same for every sample.
    #[arg(long, default_value_t = 4)]
    pub cache_mib: usize,
}

type Error = Box<dyn std::error::Error>;
/// Chunks with their lengths in bytes.
type Chunks = Vec<(Fingerprint, u32)>;

/// Runs the benchmark and prints its table.
pub fn run(args: &SamplingArgs) -> Result<(), Error> {
    println!("{}", machine_line(&machine()));
    let mut chunker = by_name("sieve", args.mean, None).map_err(|error| error.to_string())?;
    let (mut backups, mut known, mut dup, mut all) = (Vec::new(), HashSet::new(), 0u64, 0u64);
    for folder in &args.backups {
        let mut chunks = Chunks::new();
        cut_folder(folder, &mut *chunker, &mut chunks)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        all += chunks.len() as u64;
        dup += chunks.iter().filter(|(key, _)| !known.insert(*key)).count() as u64;
        backups.push(chunks);
    }
    println!(
        "{} backups, {all} chunks of {} bytes on the mean, {} unique, {dup} duplicates; cache {} MiB",
        backups.len(),
        args.mean,
        known.len(),
        args.cache_mib
    );
    let mut table = Table {
        head: vec![
            "index and sample",
            "RAM B/key",
            "table B/key",
            "lost chunks %",
            "lost bytes %",
            "reads/1000 lookups",
            "lookups/s",
            "written B/key",
        ],
        words: 1,
        rows: Vec::new(),
    };
    let unique = known.len();
    for sample in [1, 2, 10, 30, 100] {
        let open = |dir: Arc<dyn Dir>| chunkstash(dir, unique, sample, args.cache_mib << 20);
        let bytes = 6.0 / 0.9 / f64::from(sample);
        let name = format!("chunkstash 1/{sample}");
        table.rows.push(row(name, bytes, &open, &backups, unique)?);
    }
    for sample in [1, 8, 32, 64, 128] {
        let open = |dir: Arc<dyn Dir>| {
            let options = sparse(unique, sample, args.cache_mib << 20);
            Ok(Box::new(Sparse::open(dir, options)?) as Box<dyn ChunkIndex>)
        };
        let bytes = 21.0 * 8.0 / 7.0 / f64::from(sample);
        let name = format!("sparse 1/{sample}");
        table.rows.push(row(name, bytes, &open, &backups, unique)?);
    }
    print!("{}", table.text());
    Ok(())
}

fn chunkstash(
    dir: Arc<dyn Dir>,
    unique: usize,
    sample: u32,
    cache_bytes: usize,
) -> onefold_index::Result<Box<dyn ChunkIndex>> {
    let options = ChunkStashOptions {
        ram_budget_bytes: unique * 6 * 10 / 9 * 5 / 4 / sample as usize * 5 / 4 + (16 << 10),
        cache_bytes: Some(cache_bytes),
        sample,
    };
    Ok(Box::new(ChunkStash::open(dir, options)?))
}

/// Options of sparse indexing with that sample, which never doubles, whatever RAM the table takes.
pub fn sparse(unique: usize, sample: u32, cache_bytes: usize) -> SparseOptions {
    SparseOptions {
        sample,
        hook_bytes: unique * 64 / sample as usize + (64 << 10),
        cache_bytes,
        ..SparseOptions::new(4 << 20)
    }
}

/// Opens an index in a folder.
type Open<'a> = &'a dyn Fn(Arc<dyn Dir>) -> onefold_index::Result<Box<dyn ChunkIndex>>;

fn row(
    name: String,
    table_bytes: f64,
    open: Open<'_>,
    backups: &[Chunks],
    unique: usize,
) -> Result<Vec<String>, Error> {
    let flash = FlashDir::new(
        Arc::new(MemDir::new()),
        FlashModel::with_capacity(unique as u64 * 256 + (64 << 20)),
    );
    let mut index = open(Arc::new(flash.clone()))?;
    let (mut known, mut lost) = (HashSet::new(), Loss::default());
    let mut stored = 0;
    for backup in backups {
        for batch in backup.chunks(BATCH) {
            let keys: Vec<Fingerprint> = batch.iter().map(|(key, _)| *key).collect();
            let mut found = vec![None; keys.len()];
            let before = flash.counts().modelled_us;
            index.lookup(&keys, &mut found)?;
            lost.us += flash.counts().modelled_us - before;
            let (mut new, mut seen) = (Vec::new(), HashSet::new());
            for ((key, len), found) in batch.iter().zip(found) {
                let (is_known, is_seen) = (!known.insert(*key), !seen.insert(*key));
                lost.duplicates += u64::from(is_known);
                lost.duplicate_bytes += u64::from(*len) * u64::from(is_known);
                if found.is_some() || is_seen {
                    continue;
                }
                lost.chunks += u64::from(is_known);
                lost.bytes += u64::from(*len) * u64::from(is_known);
                let container = ContainerId(stored / CONTAINER_CHUNKS);
                new.push((*key, Location { container }));
                stored += 1;
            }
            index.insert(&new)?;
        }
        index.checkpoint()?;
    }
    let stats = index.stats();
    let percent =
        |part: u64, whole: u64| format!("{:.2}", part as f64 * 100.0 / whole.max(1) as f64);
    Ok(vec![
        name,
        format!("{:.2}", index.ram_bytes() as f64 / unique as f64),
        format!("{table_bytes:.2}"),
        percent(lost.chunks, lost.duplicates),
        percent(lost.bytes, lost.duplicate_bytes),
        format!(
            "{:.2}",
            stats.lookup_reads as f64 * 1000.0 / stats.lookups as f64
        ),
        format!(
            "{:.0}",
            stats.lookups as f64 * 1e6 / (lost.us + stats.lookups as f64)
        ),
        format!("{:.0}", stats.bytes_written as f64 / unique as f64),
    ])
}

/// The number of duplicates, and of those that were stored again.
#[derive(Default)]
struct Loss {
    duplicates: u64,
    duplicate_bytes: u64,
    chunks: u64,
    bytes: u64,
    us: f64,
}

/// Appends the chunks of all files below `folder`, in the order of their names.
fn cut_folder(folder: &Path, chunker: &mut dyn Chunker, into: &mut Chunks) -> std::io::Result<()> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    names.sort();
    for path in names {
        let kind = std::fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            cut_folder(&path, chunker, into)?;
        } else if kind.is_file() {
            let mut data = Vec::new();
            std::io::Read::read_to_end(
                &mut std::io::Read::take(std::fs::File::open(&path)?, FILE_BYTES_MAX),
                &mut data,
            )?;
            let mut rest = &data[..];
            while !rest.is_empty() {
                let (chunk, behind) = rest.split_at(chunker.cut(rest));
                into.push((Fingerprint::of(chunk), chunk.len() as u32));
                rest = behind;
            }
        }
    }
    Ok(())
}
