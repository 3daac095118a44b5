//! One of our indexes on a real disk: built as by a first backup, then asked.

mod beside_the_disk;
mod callers;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_chunk::Fingerprint;
use onefold_index::{
    ChunkIndex, IndexKind, IndexStats, Location, OpenIndex, Openers, Strata, StrataOptions,
};
use onefold_io::{Dir, FileDir};
use onefold_papers::workload::{Asked, Order, container_of, seeded_key};

use super::figures::{Figure, MeasuredStore, PAGE_BYTES, RECORD_BYTES};
use super::peak::{self, Peak};
use super::{BATCH, Error, IndexArgs};
use crate::disk_io::DiskIo;

/// Builds and asks `index` in a new folder `path`, which is removed.
pub fn run(
    args: &IndexArgs,
    index: IndexKind,
    budget_mib: usize,
    path: &Path,
) -> Result<MeasuredStore, Error> {
    let dir = FileDir::create(path)?;
    let dir: Arc<dyn Dir> = Arc::new(if args.cached { dir } else { dir.direct() });
    println!(
        "{:<34}{:>14}{:>12}{:>12}{:>12}  goal of strata",
        index.name, "keys/s", "pages/key", "reads/key", "CPU µs/key"
    );
    // forgets the peak of the measurement before
    std::fs::write("/proc/self/clear_refs", "5").ok();
    let before = peak::held();
    let peak = Peak::start();
    let mut bench = Bench {
        args,
        keys: args.keys,
        index: Index::open(index, &dir, budget_mib, args.seed)?,
        may_forget: ["chunkstash", "sparse", "bufferhash"].contains(&index.name),
        figures: Vec::new(),
    };
    bench.build()?;
    // merges run until here; the next steps have buffers of their own
    let most = peak.most().saturating_sub(before) as u64;
    drop(peak);
    bench.lookups("absent", "≥ 2,000,000", Order::Absent)?;
    bench.lookups("stream", "≥ 1,000,000", Order::Stream)?;
    if !bench.may_forget {
        bench.callers()?;
    }
    bench.random_beside_the_disk(&*dir)?;
    let held = bench.index.as_dyn().ram_bytes() as u64;
    let counted = peak::held().saturating_sub(before) as u64;
    let peak_kib = status("VmHWM")?;
    bench.report(&dir, (held, counted, most), peak_kib, index, budget_mib)?;
    let (figures, keys) = (bench.figures, bench.keys);
    drop(bench.index);
    // an index that took too long to fill would take as long to read
    if keys == args.keys {
        let start = Instant::now();
        drop(Index::open(index, &dir, budget_mib, args.seed)?);
        println!(
            "opening takes {:.0} ms",
            start.elapsed().as_secs_f64() * 1e3
        );
    }
    println!();
    std::fs::remove_dir_all(path)?;
    Ok(MeasuredStore {
        name: index.name.to_string(),
        budget_mib,
        keys,
        ram: (held, counted),
        peak_kib,
        figures,
    })
}

/// An index; merges of `strata` can be waited for.
enum Index {
    Strata(Box<Strata>),
    Other(Box<dyn ChunkIndex>),
}

impl Index {
    fn open(
        index: IndexKind,
        dir: &Arc<dyn Dir>,
        budget_mib: usize,
        seed: u64,
    ) -> onefold_index::Result<Index> {
        let ram_budget_bytes = budget_mib << 20;
        if index.openers == Openers::One {
            let other = (index.open)(OpenIndex::new(Arc::clone(dir), ram_budget_bytes, seed))?;
            return Ok(Index::Other(other));
        }
        let options = StrataOptions {
            ram_budget_bytes,
            ..StrataOptions::new(seed)
        };
        let strata = Strata::open(Arc::clone(dir), options)?;
        Ok(Index::Strata(Box::new(strata)))
    }

    fn as_shared(&self) -> &dyn ChunkIndex {
        match self {
            Index::Strata(strata) => &**strata,
            Index::Other(other) => &**other,
        }
    }

    fn as_dyn(&mut self) -> &mut dyn ChunkIndex {
        match self {
            Index::Strata(strata) => &mut **strata,
            Index::Other(other) => &mut **other,
        }
    }

    fn merge_all(&mut self) -> onefold_index::Result<()> {
        match self {
            Index::Strata(strata) => strata.merge_all(),
            Index::Other(_) => Ok(()),
        }
    }
}

struct Bench<'a> {
    args: &'a IndexArgs,
    /// Number of keys in the index, once it is built.
    keys: u64,
    index: Index,
    /// Whether the index may forget keys: with RAM for few keys it samples, or drops the oldest.
    may_forget: bool,
    figures: Vec<Figure>,
}

impl Bench<'_> {
    /// Looks keys up, then inserts the missing ones, which are all; stops when the time is up.
    fn build(&mut self) -> Result<(), Error> {
        let spent = self.spent();
        let start = Instant::now();
        let mut slowest = f64::INFINITY;
        let slice = (self.args.keys / 10).next_multiple_of(BATCH);
        let mut since = Instant::now();
        let most = Duration::from_secs(self.args.insert_seconds.unwrap_or(u64::MAX));
        for first in (0..self.args.keys).step_by(BATCH as usize) {
            if start.elapsed() > most {
                self.keys = first;
                println!("stopped after {} s: {first} keys", most.as_secs());
                break;
            }
            self.look_up_and_insert(first..(first + BATCH).min(self.args.keys))?;
            if (first + BATCH).is_multiple_of(slice) {
                slowest = slowest.min(slice as f64 / since.elapsed().as_secs_f64());
                since = Instant::now();
            }
        }
        self.index.as_dyn().checkpoint()?;
        let durable = self.spent().since(spent);
        let took = start.elapsed();
        self.index.merge_all()?;
        let merged = self.spent().since(spent);
        let took_merged = start.elapsed();
        let keys = self.keys;
        self.enter(
            "insert",
            keys,
            took,
            durable,
            "≥ 400,000, lookup before each",
        );
        let note = "until nothing is left to merge";
        self.enter("merged", keys, took_merged, merged, note);
        if slowest.is_finite() {
            print_value("slowest tenth", slowest, 0, "");
        }
        let written = merged.io.write_bytes as f64 / keys as f64;
        print_value(
            "bytes written a key",
            written,
            1,
            "as the system counts them",
        );
        let amplification = written / RECORD_BYTES;
        let goal = "≤ 3: of the 40 bytes of a key and its container";
        print_value("write amplification", amplification, 2, goal);
        let stats = self.index.as_dyn().stats();
        let on_disk = stats.disk_bytes as f64 / keys as f64;
        print_value("bytes on disk a key", on_disk, 1, "≤ 60");
        Ok(())
    }

    /// The costs so far.
    fn spent(&mut self) -> Spent {
        Spent {
            cpu: cpu_time(),
            io: DiskIo::now(),
            reads: self.index.as_dyn().stats().lookup_reads,
        }
    }

    fn look_up_and_insert(&mut self, numbers: std::ops::Range<u64>) -> Result<(), Error> {
        let key = |number| seeded_key(self.args.seed, number);
        let keys: Vec<Fingerprint> = numbers.clone().map(key).collect();
        let mut found = vec![None; keys.len()];
        self.index.as_dyn().lookup(&keys, &mut found)?;
        let new = keys.iter().zip(numbers).zip(&found);
        let new: Vec<_> = new
            .filter(|(_, found)| found.is_none())
            .map(|((key, number), _)| (*key, at(number)))
            .collect();
        Ok(self.index.as_dyn().insert(&new)?)
    }

    fn lookups(&mut self, name: &str, goal: &str, order: Order) -> Result<(), Error> {
        let mut asking = Asking::new(order, self.keys);
        self.ask_for(&mut asking, Duration::from_secs(self.args.seconds))?;
        self.enter_lookups(name, &asking, goal);
        Ok(())
    }

    fn ask_for(&mut self, asking: &mut Asking, time: Duration) -> Result<(), Error> {
        let before = self.spent();
        let (mut generating, until) = (Duration::ZERO, asking.took + time);
        while asking.took < until {
            let making = cpu_time();
            let batch: Vec<u64> = asking.asked.by_ref().take(BATCH as usize).collect();
            let key = |number: &u64| seeded_key(self.args.seed, *number);
            let keys: Vec<Fingerprint> = batch.iter().map(key).collect();
            let mut found = vec![None; keys.len()];
            generating += cpu_time() - making;
            let start = Instant::now();
            self.index.as_dyn().lookup(&keys, &mut found)?;
            asking.took += start.elapsed();
            asking.count += BATCH;
            for (number, found) in batch.iter().zip(found) {
                let expected = (*number < self.keys).then(|| at(*number));
                let is_forgotten = self.may_forget && expected.is_some() && found.is_none();
                asking.forgotten += u64::from(is_forgotten);
                if found != expected && !is_forgotten {
                    let what = format!("key {number}: found {found:?}, expected {expected:?}");
                    return Err(what.into());
                }
            }
        }
        let mut spent = self.spent().since(before);
        spent.cpu -= generating;
        asking.spent = asking.spent.and(spent);
        Ok(())
    }

    fn enter_lookups(&mut self, name: &str, asking: &Asking, goal: &str) {
        if asking.forgotten > 0 {
            let percent = asking.forgotten as f64 * 100.0 / asking.count as f64;
            println!("{name}: {percent:.2} % are not found, for want of RAM");
        }
        self.enter(name, asking.count, asking.took, asking.spent, goal);
    }

    /// Keeps and prints the costs of `keys` keys.
    fn enter(&mut self, what: &str, keys: u64, took: Duration, spent: Spent, goal: &str) {
        let each = 1.0 / keys as f64;
        let figure = Figure {
            what: what.to_string(),
            threads: 1,
            rate: keys as f64 / took.as_secs_f64(),
            cpu_us: spent.cpu.as_secs_f64() * 1e6 * each,
            pages: spent.io.read_bytes as f64 / PAGE_BYTES as f64 * each,
            written: spent.io.write_bytes as f64 * each,
        };
        println!(
            "{what:<34}{:>14.0}{:>12.4}{:>12.4}{:>12.2}  {goal}",
            figure.rate,
            figure.pages,
            spent.reads as f64 * each,
            figure.cpu_us
        );
        self.figures.push(figure);
    }

    fn report(
        &mut self,
        dir: &Arc<dyn Dir>,
        (held, counted, most): (u64, u64, u64),
        peak_kib: u64,
        index: IndexKind,
        budget_mib: usize,
    ) -> Result<(), Error> {
        let mib = |bytes: u64| bytes as f64 / 1048576.0;
        println!(
            "RAM: {} holds {:.1} of {budget_mib} MiB, {:.2} bytes a key; the allocator counts {:.1} MiB, {:.1} at most while it was filled",
            index.name,
            mib(held),
            held as f64 / self.keys as f64,
            mib(counted),
            mib(most)
        );
        println!(
            "process: RSS {} MiB, peak {} MiB",
            status("VmRSS")? >> 10,
            peak_kib >> 10
        );
        let IndexStats {
            false_reads,
            lookups,
            ..
        } = self.index.as_dyn().stats();
        println!(
            "false reads: {false_reads} of {lookups} lookups; files {}",
            dir.list()?.len()
        );
        Ok(())
    }
}

/// A kind of lookup, and its costs so far.
struct Asking {
    asked: Asked,
    count: u64,
    forgotten: u64,
    took: Duration,
    spent: Spent,
}

impl Asking {
    fn new(order: Order, keys: u64) -> Asking {
        Asking {
            asked: Asked::new(order, keys, 7),
            count: 0,
            forgotten: 0,
            took: Duration::ZERO,
            spent: Spent::default(),
        }
    }
}

/// Costs of the whole process, merges included.
#[derive(Clone, Copy, Default)]
struct Spent {
    cpu: Duration,
    io: DiskIo,
    /// Reads that lookups asked for, of any length, by the index's own count.
    reads: u64,
}

impl Spent {
    fn since(self, earlier: Spent) -> Spent {
        Spent {
            cpu: self.cpu - earlier.cpu,
            io: self.io.since(earlier.io),
            reads: self.reads - earlier.reads,
        }
    }

    fn and(self, other: Spent) -> Spent {
        Spent {
            cpu: self.cpu + other.cpu,
            io: self.io.and(other.io),
            reads: self.reads + other.reads,
        }
    }
}

/// A line of the table with one figure, with `digits` digits behind the point.
fn print_value(what: &str, value: f64, digits: usize, note: &str) {
    println!("{what:<34}{value:>14.digits$}{:>38}{note}", "");
}

fn at(number: u64) -> Location {
    Location {
        container: container_of(number),
    }
}

/// CPU time of the whole process, merges included.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A field of this process's status, in KiB.
fn status(field: &str) -> Result<u64, Error> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.ok_or("no such line")?.trim_start_matches(':').trim();
    Ok(line.trim_end_matches("kB").trim().parse()?)
}
