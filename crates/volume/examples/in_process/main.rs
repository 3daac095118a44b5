//! How fast a depot of the engine `log` takes blocks in process, against the raw file past the page cache, in
//! alternating rounds of one run. Each row is a ratio beside its goal.
//!
//! ```text
//! cargo run --release -p onefold-volume --example in_process -- \
//!     FOLDER [mib=1024] [rounds=3] [tree=PATH] [only=raw|fresh|sealed|full|steady]
//! ```
//!
//! FOLDER lies on the disk to measure, `mib` is the size of the volume, the files of `tree` are written twice, and a
//! third time after half of them were overwritten and collected; `only` does one part.

mod cpu;
mod exact;
mod load;
mod raw;

use std::collections::BTreeMap;
use std::path::Path;

use crate::cpu::Cpu;
use crate::exact::ExactIndex;
use crate::load::Volume;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 4096;
/// Requests in flight.
const DEPTH: u64 = 32;
/// Random writes of a round.
const RANDOM_WRITES: u64 = 65_536;
/// Seconds of each measurement of writes that are synced one by one.
const SYNC_SECONDS: f64 = 2.0;

/// A row of the table: the rates of `above` by those of `below`.
struct Row {
    above: &'static str,
    below: &'static str,
    goal: Option<f64>,
}

const ROWS: [Row; 12] = [
    row("unique, sequential", RAW_SEQUENTIAL, Some(0.8)),
    row(SEALED, UNSEALED, None),
    row("duplicate, sequential", RAW_SEQUENTIAL, Some(2.0)),
    row("unique, random 4 KiB, 32 in flight", RAW_RANDOM, Some(4.0)),
    row("duplicate, random 4 KiB, 32 in flight", RAW_RANDOM, None),
    row(OVERWRITTEN, RAW_RANDOM, Some(1.0)),
    row(SETTLED, RAW_RANDOM, None),
    row("write and flush, 1 client", RAW_SYNCED, Some(0.8)),
    row(
        "write and flush, 32 clients",
        "write and flush, 1 client",
        Some(8.0),
    ),
    row(
        "write and flush, 32 clients",
        "raw: write and fdatasync, 32 threads",
        None,
    ),
    row("a tree", RAW_SEQUENTIAL, None),
    row("the tree once more", RAW_SEQUENTIAL, None),
];
const RAW_SEQUENTIAL: &str = "raw: sequential, 1 MiB, 4 in flight";
const RAW_RANDOM: &str = "raw: random 4 KiB, 32 in flight";
const RAW_SYNCED: &str = "raw: write and fdatasync, 1 thread";
const UNSEALED: &str = "unique, sequential, beside an encrypted depot";
const SEALED: &str = "unique, sequential, encrypted";
const OVERWRITTEN: &str = "unique, random 4 KiB, after three overwrites at 85 % full";
const SETTLED: &str = "unique, random 4 KiB, after an overwrite at 70 % full";
/// Milliseconds in which 99 of 100 writes are to be answered while zones are cleaned.
const P99_MS_GOAL: f64 = 20.0;

const fn row(above: &'static str, below: &'static str, goal: Option<f64>) -> Row {
    Row { above, below, goal }
}

/// Bytes a second of each measurement, of all rounds.
pub struct Rates(BTreeMap<&'static str, Vec<f64>>, Cpu);

impl Rates {
    /// Notes that `bytes` took `seconds`, which end now. CPU is what this process took since the note before, and what
    /// others took meanwhile.
    pub fn note(&mut self, what: &'static str, bytes: u64, seconds: f64) {
        let (rate, chunks) = (bytes as f64 / seconds, bytes as f64 / CHUNK as f64);
        let now = Cpu::now();
        println!(
            "  {what:<58}{:6.0} MB/s{:9.0} chunks/s{:7.2} µs CPU a chunk, others {:2.0} %",
            rate / 1e6,
            chunks / seconds,
            now.own_seconds(&self.1) * 1e6 / chunks,
            now.others_percent(&self.1)
        );
        self.0.entry(what).or_default().push(rate);
        self.1 = now;
    }

    /// Begins a measurement: the CPU used before counts no more.
    pub fn begin(&mut self) {
        self.1 = Cpu::now();
    }

    fn median(&self, what: &str) -> Option<f64> {
        let mut rates = self.0.get(what)?.clone();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = Path::new(arguments.first().ok_or("a folder is wanted")?);
    let given = |name: &str| {
        let mut pairs = arguments.iter().filter_map(|text| text.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let mib: u64 = given("mib").unwrap_or("1024").parse()?;
    let rounds: u64 = given("rounds").unwrap_or("3").parse()?;
    let is_wanted = |part| given("only").is_none_or(|only| only == part);
    let mut rates = Rates(BTreeMap::new(), Cpu::now());
    let mut longest = Vec::new();
    for round in 0..rounds {
        println!("round {} of {rounds}", round + 1);
        if is_wanted("raw") {
            raw::measure(&mut rates, path, mib)?;
        }
        if is_wanted("fresh") {
            fresh(&mut rates, path, mib, round)?;
        }
        if is_wanted("sealed") {
            sealed(&mut rates, path, mib, round)?;
        }
        if let Some(tree) = given("tree") {
            twice(&mut rates, path, Path::new(tree))?;
        }
        if is_wanted("full") {
            overwritten(&mut rates, path, mib / 2, round)?;
        }
        if is_wanted("steady") {
            longest.push(steady(&mut rates, path, mib / 2, round)?);
        }
    }
    println!("\nmedians of {rounds} rounds");
    for Row { above, below, goal } in ROWS {
        let Some((one, other)) = rates.median(above).zip(rates.median(below)) else {
            continue;
        };
        let ratio = one / other;
        let judged = match goal {
            Some(goal) if ratio >= goal => format!("goal {goal:.1}: kept"),
            Some(goal) => format!("goal {goal:.1}: MISSED"),
            None => String::new(),
        };
        println!("{ratio:7.2}  {above} / {below}  {judged}");
    }
    longest.sort_by(f64::total_cmp);
    if let Some(median) = longest.get(longest.len() / 2).map(|seconds| seconds * 1e3) {
        let judged = if median <= P99_MS_GOAL {
            "kept"
        } else {
            "MISSED"
        };
        println!(
            "{median:7.2}  ms for 99 of 100 writes at half of that rate, 70 % full  goal {P99_MS_GOAL}: {judged}"
        );
    }
    Ok(())
}

/// A depot with room for three times its volume: no cleaning.
fn fresh(rates: &mut Rates, path: &Path, mib: u64, seed: u64) -> Outcome<()> {
    let mut volume = Volume::create(path, mib * MIB, 3 * mib * MIB, seed)?;
    let mut timed = |what, volume: &mut Volume, is_unique, is_random| {
        rates.begin();
        let (count, bytes) = if is_random {
            (RANDOM_WRITES, CHUNK)
        } else {
            (mib, MIB)
        };
        let seconds = volume.write(count, bytes, is_unique, is_random)?;
        rates.note(what, count * bytes, seconds);
        Outcome::Ok(())
    };
    timed("unique, sequential", &mut volume, true, false)?;
    timed(
        "64 MiB again and again, stored first",
        &mut volume,
        false,
        false,
    )?;
    timed("duplicate, sequential", &mut volume, false, false)?;
    timed(
        "unique, random 4 KiB, 32 in flight",
        &mut volume,
        true,
        true,
    )?;
    timed(
        "duplicate, random 4 KiB, 32 in flight",
        &mut volume,
        false,
        true,
    )?;
    let one = volume.write_and_flush(1, SYNC_SECONDS)?;
    rates.note("write and flush, 1 client", one * CHUNK, SYNC_SECONDS);
    let many = volume.write_and_flush(32, SYNC_SECONDS)?;
    rates.note("write and flush, 32 clients", many * CHUNK, SYNC_SECONDS);
    volume.delete()
}

/// The same writes to a depot that is encrypted and to one that is not.
fn sealed(rates: &mut Rates, path: &Path, mib: u64, seed: u64) -> Outcome<()> {
    for (what, is_encrypted) in [(UNSEALED, false), (SEALED, true)] {
        let (bytes, capacity) = (mib * MIB, 3 * mib * MIB);
        let mut volume = Volume::create_as(path, bytes, capacity, seed, is_encrypted)?;
        rates.begin();
        let seconds = volume.write(mib, MIB, true, false)?;
        rates.note(what, bytes, seconds);
        volume.delete()?;
    }
    Ok(())
}

/// A volume, written once in order, that fills its depot to so many percent.
fn filled(path: &Path, mib: u64, percent: u64, seed: u64) -> Outcome<Volume> {
    // The room that a depot cannot use, above all the reserve, comes on top.
    let wanted = mib * MIB * 100 / percent;
    let trial = Volume::create(path, mib * MIB, wanted, seed)?;
    let unusable = wanted.saturating_sub(trial.usable_bytes());
    trial.delete()?;
    let mut volume = Volume::create(path, mib * MIB, wanted + unusable, seed)?;
    volume.write(mib, MIB, true, false)?;
    Ok(volume)
}

/// Overwrites all of a volume three times at random, in a depot that it fills to 85 %, and goes on.
fn overwritten(rates: &mut Rates, path: &Path, mib: u64, seed: u64) -> Outcome<()> {
    let mut volume = filled(path, mib, 85, seed)?;
    for n in 1..=3 {
        let count = mib * MIB / CHUNK;
        let seconds = volume.write(count, CHUNK, true, true)?;
        println!("    overwrite {n}: {:.0} chunks/s", count as f64 / seconds);
    }
    let before = volume.counter("pages copied");
    rates.begin();
    let seconds = volume.write(RANDOM_WRITES, CHUNK, true, true)?;
    rates.note(OVERWRITTEN, RANDOM_WRITES * CHUNK, seconds);
    println!("    {}", volume.told());
    if let Some((before, after)) = before.zip(volume.counter("pages copied")) {
        println!(
            "    {} pages were moved for {RANDOM_WRITES}",
            after - before
        );
    }
    volume.delete()
}

/// Overwrites all of a volume at random in a depot that it fills to 70 %, then goes on at half of the rate: returns how
/// long 99 of 100 writes took at most, in seconds.
fn steady(rates: &mut Rates, path: &Path, mib: u64, seed: u64) -> Outcome<f64> {
    let mut volume = filled(path, mib, 70, seed)?;
    volume.write(mib * MIB / CHUNK, CHUNK, true, true)?;
    rates.begin();
    let seconds = volume.write(RANDOM_WRITES, CHUNK, true, true)?;
    rates.note(SETTLED, RANDOM_WRITES * CHUNK, seconds);
    let rate = RANDOM_WRITES as f64 / seconds / 2.0;
    let all = volume.write_steadily(RANDOM_WRITES, rate)?;
    let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize];
    println!(
        "    {rate:.0} writes/s at 70 % full: median {:.2} ms, 99 of 100 {:.2} ms, longest {:.2} ms",
        at(0.5) * 1e3,
        at(0.99) * 1e3,
        at(1.0) * 1e3
    );
    println!("    {}", volume.told());
    volume.delete()?;
    Ok(at(0.99))
}

/// Writes a tree of files, each at a border of chunks, and once more behind it. Then only the second half of the first
/// copy is left, and what else there was is collected: of the tree's chunks, those are known that this half has.
fn twice(rates: &mut Rates, path: &Path, tree: &Path) -> Outcome<()> {
    let content = load::tree(tree, 512 * MIB)?;
    let bytes = content.len() as u64;
    rates.begin();
    let mut volume = Volume::create(path, 2 * bytes + MIB, 5 * bytes + 64 * MIB, 0)?;
    let mut exact = ExactIndex::default();
    (0..2).for_each(|_| exact.write(&content));
    rates.note("a tree", bytes, volume.copy(0, &content)?);
    rates.note("the tree once more", bytes, volume.copy(bytes, &content)?);
    println!("    {}", volume.told());
    exact.judge(volume.duplicates()?);
    let (lost, left) = content.split_at((bytes / 2).next_multiple_of(CHUNK) as usize);
    let mut exact = ExactIndex::holding(left);
    exact.write(&content);
    volume.overwrite(0, lost.len() as u64)?;
    volume.overwrite(bytes, bytes)?;
    volume.collect()?;
    let before = volume.duplicates()?;
    rates.begin();
    let seconds = volume.copy(bytes, &content)?;
    rates.note(
        "the tree, half of it known, after a collection",
        bytes,
        seconds,
    );
    println!("    {}", volume.told());
    exact.judge(volume.duplicates()? - before);
    volume.delete()
}
