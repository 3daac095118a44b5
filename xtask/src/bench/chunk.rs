//! `cargo xtask bench chunk`: what every chunker costs, and what it finds, beside the `fastcdc` crate in the same run.
//!
//! Speed is thread CPU time over random data, contestants in alternation, the best round of each. The dedup ratio is over the files of folders
//! that are given (several versions of one source tree, say), each file a stream; chunks that a smaller mean makes find more, so it is read beside
//! the mean that came out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use onefold_chunk::ae::{self as simd, Ae};
use onefold_chunk::ram::Ram;
use onefold_chunk::seqcdc::SeqCdc;
use onefold_chunk::sieve::{Isa, Sieve};
use onefold_chunk::{Chunker, Fingerprint, Limits, by_name, names};

use super::report;

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct ChunkArgs {
    /// Mean chunk in bytes.
    #[arg(long, default_value_t = 8192)]
    pub mean: usize,
    /// Random data in MiB.
    #[arg(long, default_value_t = 256)]
    pub mib: usize,
    /// Rounds; the best of each contestant counts.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Folders whose files are deduplicated together.
    #[arg(long)]
    pub data: Vec<PathBuf>,
    /// At most so many MiB of their files.
    #[arg(long, default_value_t = 1024)]
    pub data_mib: usize,
}

/// Runs the benchmark and prints its tables.
pub fn run(args: &ChunkArgs) -> Result<(), String> {
    println!("{}", report::machine_line(&report::machine()));
    speed(args)?;
    if !args.data.is_empty() {
        ratio(args)?;
    }
    Ok(())
}

const PEER: &str = "fastcdc crate v2020";

struct Contestant {
    name: String,
    chunker: Box<dyn Chunker>,
}

/// All of ours but `whole-file`, sieve on every instruction set and keyed, and the peer last.
fn contestants(mean: usize) -> Result<Vec<Contestant>, String> {
    let sieves = Isa::available().into_iter().filter_map(|isa| {
        let chunker: Box<dyn Chunker> = Box::new(Sieve::new(mean).on(isa)?);
        Some((format!("sieve {isa:?}"), chunker))
    });
    let mut all: Vec<_> = sieves.collect();
    all.push(("sieve keyed".into(), Box::new(Sieve::keyed(mean, &[7; 32]))));
    let scalar = [
        byte_by_byte("ram", Ram::new(mean).on(simd::Isa::Scalar)),
        byte_by_byte("ae", Ae::new(mean).on(simd::Isa::Scalar)),
        byte_by_byte("seqcdc", SeqCdc::new(mean).on(simd::Isa::Scalar)),
    ];
    all.extend(scalar.into_iter().flatten());
    for name in names() {
        if !["sieve", "whole-file"].contains(name) {
            let chunker = by_name(name, mean, None).map_err(|error| error.to_string())?;
            all.push((name.to_string(), chunker));
        }
    }
    all.push((PEER.into(), Box::new(FastCdcCrate::new(mean))));
    let named = |(name, chunker)| Contestant { name, chunker };
    Ok(all.into_iter().map(named).collect())
}

fn byte_by_byte<C: Chunker + 'static>(
    name: &str,
    chunker: Option<C>,
) -> Option<(String, Box<dyn Chunker>)> {
    Some((format!("{name} Scalar"), Box::new(chunker?)))
}

fn speed(args: &ChunkArgs) -> Result<(), String> {
    let data = random(args.mib << 20);
    let mut all = contestants(args.mean)?;
    let mut best = vec![f64::MAX; all.len()];
    let mut chunks = vec![0; all.len()];
    for _ in 0..args.rounds {
        for (i, contestant) in all.iter_mut().enumerate() {
            let begin = thread_seconds();
            chunks[i] = count(&mut *contestant.chunker, &data);
            best[i] = best[i].min(thread_seconds() - begin);
        }
    }
    println!(
        "\nrandom data, {} MiB, mean asked for {}",
        args.mib, args.mean
    );
    println!(
        "{:<22} {:>8} {:>9} {:>10}",
        "chunker", "GB/s", "× crate", "mean"
    );
    let peer = *best.last().ok_or("no contestants")?;
    for (i, contestant) in all.iter().enumerate() {
        println!(
            "{:<22} {:>8.2} {:>9.2} {:>10.0}",
            contestant.name,
            data.len() as f64 / best[i] / 1e9,
            peer / best[i],
            data.len() as f64 / chunks[i] as f64,
        );
    }
    Ok(())
}

fn ratio(args: &ChunkArgs) -> Result<(), String> {
    let mut files = Vec::new();
    let mut left = args.data_mib << 20;
    for folder in &args.data {
        collect(folder, &mut files, &mut left)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let bytes: usize = files.iter().map(Vec::len).sum();
    println!("\n{} files, {} MiB", files.len(), bytes >> 20);
    println!(
        "{:<22} {:>8} {:>10} {:>10}",
        "chunker", "DER", "mean", "unique"
    );
    for mut contestant in contestants(args.mean)? {
        let is_variant = contestant.name.contains(' ') && contestant.name != PEER;
        if is_variant && !["sieve Scalar", "sieve keyed"].contains(&&*contestant.name) {
            continue; // They cut alike.
        }
        let mut unique = HashMap::new();
        let mut chunks = 0;
        for file in &files {
            let mut rest = &file[..];
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(contestant.chunker.cut(rest));
                unique.insert(Fingerprint::of(chunk), chunk.len());
                chunks += 1;
                rest = after;
            }
        }
        let stored: usize = unique.values().sum();
        println!(
            "{:<22} {:>8.4} {:>10.0} {:>10}",
            contestant.name,
            bytes as f64 / stored.max(1) as f64,
            bytes as f64 / f64::from(chunks.max(1)),
            unique.len(),
        );
    }
    Ok(())
}

/// Reads regular files, in order of their names, while they fit.
fn collect(folder: &Path, files: &mut Vec<Vec<u8>>, left: &mut usize) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), files, left)?;
        } else if kind.is_file() && entry.metadata()?.len() <= *left as u64 {
            let file = std::fs::read(entry.path())?;
            *left = left.saturating_sub(file.len());
            files.push(file);
        }
    }
    Ok(())
}

fn count(chunker: &mut dyn Chunker, data: &[u8]) -> usize {
    let mut chunks = 0;
    chunker.cuts(data, true, &mut |_| chunks += 1);
    chunks
}

/// The same bytes at every run: splitmix64.
fn random(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let words = (0..len / 8).flat_map(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31).to_le_bytes()
    });
    words.collect()
}

fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The peer behind our seam, with the parameters that our own `fastcdc` has.
struct FastCdcCrate {
    limits: Limits,
    masks: (u64, u64),
}

impl FastCdcCrate {
    fn new(mean: usize) -> Self {
        let mean = mean & !1;
        let limits = Limits {
            min: (mean / 4) & !1,
            mean,
            max: 4 * mean,
        };
        let masks = fastcdc::v2020::select_masks(mean, fastcdc::v2020::Normalization::Level1);
        Self { limits, masks }
    }
}

impl Chunker for FastCdcCrate {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let (Limits { min, mean, max }, (small, large)) = (self.limits, self.masks);
        fastcdc::v2020::cut(data, min, mean, max, small, large, small << 1, large << 1).1
    }
}
