//! `cargo xtask bench index`: what strata costs a key and a lookup, on a real disk, against its goals.
//!
//! It builds an index by lookup-then-insert, segment by segment, as a first backup does, then asks for absent keys, for present ones in the
//! order of the stream, and for present ones at random. The disk's own random-read rate is measured in the same run, on the same
//! files, since goals are ratios. One thread asks; merges run beside it. With `--program-rss` it measures the whole program instead.

mod program;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, IndexStats, Location, Strata, StrataOptions};
use onefold_io::{Dir, FileDir, ReadAt};

/// Keys a segment.
const SEGMENT: u64 = 512;
/// Chunks a container, for 16 MiB of 12 KiB chunks.
const CHUNKS_A_CONTAINER: u64 = 1400;
const PAGE_BYTES: usize = 4096;

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct IndexArgs {
    /// Keys in the index.
    #[arg(long, default_value_t = 20_000_000)]
    pub keys: u64,
    /// The index's RAM budget in MiB.
    #[arg(long, default_value_t = 64)]
    pub budget_mib: usize,
    /// Where the index is made, on the disk to measure. Default: a new folder here, removed at the end.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Seconds for each kind of lookup.
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Read through the page cache instead of past it.
    #[arg(long)]
    pub cached: bool,
    /// Measure the RAM of the whole program with so many keys in a repository's index instead.
    #[arg(long)]
    pub program_rss: bool,
    /// The program to measure. Default: the one built beside this.
    #[arg(long)]
    pub onefold: Option<PathBuf>,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs the benchmark and prints its table.
pub fn run(args: &IndexArgs) -> Result<(), Box<dyn std::error::Error>> {
    let made = args
        .dir
        .is_none()
        .then(|| {
            tempfile::Builder::new()
                .prefix("bench-index")
                .tempdir_in(".")
        })
        .transpose()?;
    let path = args
        .dir
        .clone()
        .or(made.as_ref().map(|dir| dir.path().to_path_buf()))
        .expect("one of them");
    if args.program_rss {
        return program::run(args, &path);
    }
    let dir = FileDir::create(&path)?;
    let dir: Arc<dyn Dir> = Arc::new(if args.cached { dir } else { dir.direct() });
    println!(
        "strata: {} keys, budget {} MiB, seed {}, {}",
        args.keys,
        args.budget_mib,
        args.seed,
        machine()
    );
    println!(
        "{:<34}{:>14}{:>12}{:>12}  goal",
        "", "keys/s", "reads/key", "CPU µs/key"
    );
    let mut bench = Bench {
        args,
        index: open(&dir, args)?,
        before: IndexStats::default(),
    };
    bench.build()?;
    let rate = disk_rate(&*dir, args)?;
    println!(
        "{:<34}{rate:>14.0}{:>12}{:>12}  reads of 4 KiB at random, 64 in flight{}",
        "the disk itself",
        "",
        "",
        if args.cached { ", page cache" } else { "" }
    );
    bench.lookups("absent keys", "≥ 2,000,000", Order::Absent)?;
    bench.lookups("present, in stream order", "≥ 1,000,000", Order::Stream)?;
    let present = bench.lookups("present, at random", "≥ 0.8 × the disk", Order::Random)?;
    println!("present at random / disk: {:.2}", present / rate);
    bench.report(&dir, args)
}

fn open(dir: &Arc<dyn Dir>, args: &IndexArgs) -> Result<Strata, onefold_index::Error> {
    Strata::open(
        Arc::clone(dir),
        StrataOptions {
            ram_budget_bytes: args.budget_mib << 20,
            ..StrataOptions::new(args.seed)
        },
    )
}

struct Bench<'a> {
    args: &'a IndexArgs,
    index: Strata,
    before: IndexStats,
}

#[derive(Clone, Copy)]
enum Order {
    Absent,
    Stream,
    Random,
}

impl Bench<'_> {
    /// Lookup, then insert of what was not found, which is all.
    fn build(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let (start, cpu) = (Instant::now(), cpu_time());
        let mut slowest = f64::INFINITY;
        let slice = (self.args.keys / 10).next_multiple_of(SEGMENT);
        let mut since = Instant::now();
        for first in (0..self.args.keys).step_by(SEGMENT as usize) {
            let numbers = first..(first + SEGMENT).min(self.args.keys);
            let keys: Vec<Fingerprint> = numbers
                .clone()
                .map(|number| key(self.args.seed, number))
                .collect();
            let mut found = vec![None; keys.len()];
            self.index.lookup(&keys, &mut found)?;
            let new = keys
                .iter()
                .zip(numbers)
                .zip(&found)
                .filter(|(_, found)| found.is_none());
            let new: Vec<_> = new
                .map(|((key, number), _)| {
                    (
                        *key,
                        Location {
                            container: container(number),
                        },
                    )
                })
                .collect();
            self.index.insert(&new)?;
            if (first + SEGMENT).is_multiple_of(slice) {
                slowest = slowest.min(slice as f64 / since.elapsed().as_secs_f64());
                since = Instant::now();
            }
        }
        self.index.checkpoint()?;
        let took = start.elapsed();
        self.index.merge_all()?;
        let stats = self.index.stats();
        let each = 1.0 / self.args.keys as f64;
        self.line(
            "lookup, then insert",
            took,
            cpu,
            self.args.keys,
            stats.lookup_reads,
            "≥ 400,000",
        );
        println!(
            "{:<34}{slowest:>14.0}{:>12}{:>12}  slowest tenth",
            "", "", ""
        );
        println!(
            "{:<34}{:>14.2}{:>12}{:>12}  ≤ 3: bytes written / (entries × 52)",
            "write amplification",
            stats.bytes_written as f64 * each / 52.0,
            "",
            ""
        );
        println!(
            "{:<34}{:>14.1}{:>12}{:>12}  ≤ 60",
            "bytes on disk a key",
            stats.disk_bytes as f64 * each,
            "",
            ""
        );
        Ok(())
    }

    fn lookups(
        &mut self,
        name: &str,
        goal: &str,
        order: Order,
    ) -> Result<f64, Box<dyn std::error::Error>> {
        self.before = self.index.stats();
        let cpu = cpu_time();
        let (mut asked, mut took, mut numbers) = (
            0,
            Duration::ZERO,
            Numbers {
                args: self.args,
                order,
                state: 7,
                next: 0,
            },
        );
        let mut generating = Duration::ZERO;
        while took < Duration::from_secs(self.args.seconds) {
            let making = cpu_time();
            let batch: Vec<u64> = (0..SEGMENT).map(|_| numbers.next()).collect();
            let keys: Vec<Fingerprint> = batch
                .iter()
                .map(|number| key(self.args.seed, *number))
                .collect();
            let mut found = vec![None; keys.len()];
            generating += cpu_time() - making;
            let start = Instant::now();
            self.index.lookup(&keys, &mut found)?;
            took += start.elapsed();
            asked += SEGMENT;
            for (number, found) in batch.iter().zip(found) {
                let expected = (*number < self.args.keys).then(|| Location {
                    container: container(*number),
                });
                if found != expected {
                    return Err(
                        format!("key {number}: found {found:?}, expected {expected:?}").into(),
                    );
                }
            }
        }
        let reads = self.index.stats().lookup_reads - self.before.lookup_reads;
        self.line(name, took, cpu + generating, asked, reads, goal);
        Ok(asked as f64 / took.as_secs_f64())
    }

    fn line(&self, name: &str, took: Duration, cpu: Duration, keys: u64, reads: u64, goal: &str) {
        let cpu = (cpu_time() - cpu).as_secs_f64() * 1e6 / keys as f64;
        println!(
            "{name:<34}{:>14.0}{:>12.4}{cpu:>12.2}  {goal}",
            keys as f64 / took.as_secs_f64(),
            reads as f64 / keys as f64
        );
    }

    fn report(
        self,
        dir: &Arc<dyn Dir>,
        args: &IndexArgs,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let ram = self.index.ram_bytes();
        println!(
            "index RAM {:.1} MiB, {:.2} bytes a key",
            ram as f64 / 1048576.0,
            ram as f64 / args.keys as f64
        );
        println!(
            "process: RSS {} MiB, peak {} MiB",
            status("VmRSS")? >> 10,
            status("VmHWM")? >> 10
        );
        let stats = self.index.stats();
        println!(
            "false reads: {} of {} lookups; files {}",
            stats.false_reads,
            stats.lookups,
            dir.list()?.len()
        );
        drop(self.index);
        let start = Instant::now();
        drop(open(dir, args)?);
        println!(
            "opening takes {:.0} ms",
            start.elapsed().as_secs_f64() * 1e3
        );
        Ok(())
    }
}

struct Numbers<'a> {
    args: &'a IndexArgs,
    order: Order,
    state: u64,
    next: u64,
}

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.state = mix(self.state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        match self.order {
            Order::Absent => self.args.keys + self.state % (1 << 40),
            Order::Stream => (self.next - 1) % self.args.keys,
            Order::Random => self.state % self.args.keys,
        }
    }
}

/// 4 KiB reads a second at random places of the largest file, in batches.
fn disk_rate(dir: &dyn Dir, args: &IndexArgs) -> Result<f64, Box<dyn std::error::Error>> {
    let largest = dir
        .list()?
        .into_iter()
        .max_by_key(|entry| entry.len)
        .ok_or("no files")?;
    let disk = dir.open(&largest.name)?;
    let pages = largest.len / PAGE_BYTES as u64;
    let (mut state, mut reads) = (args.seed, 0u64);
    let mut buf = vec![0; SEGMENT as usize * PAGE_BYTES];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(args.seconds) {
        let mut batch: Vec<ReadAt<'_>> = Vec::with_capacity(SEGMENT as usize);
        for buf in buf.chunks_exact_mut(PAGE_BYTES) {
            state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
            batch.push(ReadAt {
                offset: state % pages * PAGE_BYTES as u64,
                buf,
            });
        }
        disk.read_many_at(&mut batch)?;
        reads += SEGMENT;
    }
    Ok(reads as f64 / start.elapsed().as_secs_f64())
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key(seed: u64, number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    let start = mix(seed) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (i, eight) in (0u64..).zip(bytes.chunks_exact_mut(8)) {
        eight.copy_from_slice(&mix(start.wrapping_add(i << 56)).to_be_bytes());
    }
    Fingerprint(bytes)
}

fn container(number: u64) -> ContainerId {
    ContainerId(mix(number / CHUNKS_A_CONTAINER))
}

/// CPU time of the whole process, merges included.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A line of this process's status, in KiB.
fn status(field: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .ok_or("no such line")?;
    Ok(line
        .trim_start_matches(':')
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()?)
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("?");
    format!(
        "{} × {}",
        std::thread::available_parallelism().map_or(0, usize::from),
        model.trim_start_matches(['\t', ':', ' '])
    )
}
