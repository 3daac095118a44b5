//! Needs of the engine `log` at most: RAM for a map of random chunks, and time to open after a kill.
//!
//! ```text
//! cargo run --release -p onefold-volume --example log_limits -- FOLDER ram [CHUNKS] [RAM_MIB]
//! cargo run --release -p onefold-volume --example log_limits -- FOLDER recovery [LOG_MIB] [EXTENTS]
//! ```
//!
//! `ram` stores chunks that are all different at LBNs in random order, as many as fill the data device; what they hold is
//! thrown away, so CHUNKS may be more than the disk has room for. `recovery` writes a log on a real file, with a map of
//! EXTENTS extents behind it, drops the engine as a kill would, and opens it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use onefold_chunk::{Fingerprint, fingerprints};
use onefold_index::{Strata, StrataOptions};
use onefold_io::{Dir, Disk, FileDir, Random};
use onefold_volume::log::{Budget, Layout, LogEngine, LogOptions};
use onefold_volume::{
    ChunkContent, Compression, Engine, EngineStats, HashedChunk, HeadId, HeadInfo, Lbn,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 4096;
/// Chunks that go to the engine together.
const BATCH: u64 = 256;
/// RAM of the process beside the budget, in bytes.
const FIXED_BYTES: u64 = 48 * MIB;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("a folder is wanted")?;
    let what = arguments.next().ok_or("ram or recovery is wanted")?;
    let numbers: Vec<u64> = arguments.map(|it| it.parse()).collect::<Result<_, _>>()?;
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let place = Path::new(&folder).join("log-limits");
    let _ = std::fs::remove_dir_all(&place);
    let dir: Arc<dyn Dir> = Arc::new(FileDir::create(&place)?);
    let measured = match what.as_str() {
        "ram" => ram(&dir, number(0, 1 << 22), number(1, 64) * MIB),
        "recovery" => recovery(&dir, number(0, 1024), number(1, 1 << 22)),
        other => Err(format!("{other} is neither ram nor recovery").into()),
    };
    std::fs::remove_dir_all(&place)?;
    measured
}

/// A data device that keeps nothing.
struct NullDisk(u64);

impl Disk for NullDisk {
    fn len(&self) -> onefold_io::Result<u64> {
        Ok(self.0)
    }

    fn read_at(&self, buf: &mut [u8], _: u64) -> onefold_io::Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> onefold_io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> onefold_io::Result<()> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> onefold_io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> onefold_io::Result<()> {
        Ok(())
    }
}

fn options(dir: &Arc<dyn Dir>, device_bytes: u64, ram_bytes: u64) -> Outcome<LogOptions> {
    let layout = Layout::new(device_bytes, CHUNK as u32)?;
    let budget = Budget::divide(ram_bytes, &layout)?;
    let strata = StrataOptions {
        ram_budget_bytes: budget.index_bytes as usize,
        background_merges: true,
        unique: 1,
        lock_wait_ms_max: None,
    };
    Ok(LogOptions {
        first: HeadInfo::first("main", 1 << 20),
        depot: [1; 16],
        fingerprint: Arc::new(|chunks| fingerprints(None, chunks.iter().copied())),
        index: Box::new(Strata::open(dir.subdir("index")?, strata)?),
        sizes: budget.sizes,
        compression: Compression::None,
        seals: onefold_volume::log::Seals::none(),
        is_inline: false,
        clock: None,
    })
}

/// Writes a batch; `fingerprint` names each chunk's content.
fn write(
    engine: &mut LogEngine,
    bytes: &[u8],
    lbns: impl Iterator<Item = u64>,
    fingerprint: impl Fn(u64) -> Fingerprint,
) -> Outcome<()> {
    let chunks: Vec<HashedChunk<'_>> = lbns
        .map(|lbn| HashedChunk {
            head: HeadId(0),
            lbn: Lbn(lbn),
            content: ChunkContent::Fingerprinted(fingerprint(lbn), bytes),
            has_page: true,
            is_metadata: false,
            is_incompressible: false,
        })
        .collect();
    if engine.write(&chunks)?.is_empty() {
        Ok(())
    } else {
        Err("the data device is full".into())
    }
}

/// Writes a batch of new chunks in order: chunk `n` at LBN `n`.
fn write_new(engine: &mut LogEngine, first: u64, content: &dyn Fn(u64) -> Vec<u8>) -> Outcome<()> {
    let contents: Vec<(u64, Vec<u8>)> = (first..first + BATCH).map(|n| (n, content(n))).collect();
    let names = fingerprints(None, contents.iter().map(|(_, bytes)| &bytes[..]));
    let chunks: Vec<HashedChunk<'_>> = (contents.iter().zip(names))
        .map(|((lbn, bytes), name)| HashedChunk {
            head: HeadId(0),
            lbn: Lbn(*lbn),
            content: ChunkContent::Fingerprinted(name, bytes),
            has_page: true,
            is_metadata: false,
            is_incompressible: false,
        })
        .collect();
    if engine.write(&chunks)?.is_empty() {
        Ok(())
    } else {
        Err("the data device is full".into())
    }
}

/// A fingerprint that no other number has.
fn named(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    for (part, seed) in bytes.chunks_exact_mut(8).zip(0..) {
        part.copy_from_slice(&Random(number << 2 | seed).next().to_le_bytes());
    }
    Fingerprint(bytes)
}

/// The `n`th of `chunks` LBNs in an order without neighbours.
fn scattered(n: u64, chunks: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) & (chunks - 1)
}

fn ram(dir: &Arc<dyn Dir>, chunks: u64, ram_bytes: u64) -> Outcome<()> {
    let chunks = chunks.next_power_of_two().max(BATCH);
    let device_bytes = chunks * CHUNK / 10 * 11 + 256 * MIB;
    let data = Arc::new(NullDisk(device_bytes));
    let options = options(dir, device_bytes, ram_bytes)?;
    let mut engine = LogEngine::create(Arc::clone(dir), data, CHUNK as u32, options)?;
    let (bytes, start) = (vec![7; CHUNK as usize], Instant::now());
    let mut peak = 0;
    for batch in 0..chunks / BATCH {
        let lbns = (0..BATCH).map(|n| scattered(batch * BATCH + n, chunks));
        write(&mut engine, &bytes, lbns, named)?;
        if batch % 64 == 0 {
            peak = peak.max(resident()?);
        }
        if (batch + 1) % (chunks / BATCH / 8).max(1) == 0 {
            println!(
                "{:>12} chunks  {:>7.1} s  resident {:>5} MiB",
                (batch + 1) * BATCH,
                start.elapsed().as_secs_f64(),
                resident()? / MIB
            );
        }
    }
    engine.commit()?;
    let stats = engine.stats();
    print_parts(&stats, chunks);
    lookups(&engine, chunks)?;
    let limit = ram_bytes + FIXED_BYTES;
    println!(
        "resident at most {} MiB, limit {} MiB: {}",
        peak / MIB,
        limit / MIB,
        if peak <= limit { "ok" } else { "TOO MUCH" }
    );
    if peak <= limit {
        Ok(())
    } else {
        Err("the engine takes more RAM than its budget".into())
    }
}

fn print_parts(stats: &EngineStats, chunks: u64) {
    let mut sum = 0;
    for (name, bytes) in &stats.ram_bytes {
        println!("{name:>18} {:>8} KiB", bytes >> 10);
        sum += bytes;
    }
    println!(
        "{:>18} {:>8} KiB, {:.3} bytes a chunk",
        "sum",
        sum >> 10,
        sum as f64 / chunks as f64
    );
    for name in ["extents", "map runs", "index reads", "checkpoints"] {
        let found = stats.counters.iter().find(|(known, _)| *known == name);
        println!("{name:>18} {:>8}", found.map_or(0, |(_, count)| *count));
    }
}

/// Asks the map for LBNs in random order.
fn lookups(engine: &LogEngine, chunks: u64) -> Outcome<()> {
    const ASKED: u64 = 100_000;
    let reads = |stats: &EngineStats| {
        let counters = &stats.counters;
        let found = counters.iter().find(|(name, _)| *name == "map page reads");
        found.map_or(0, |(_, count)| *count)
    };
    let (reader, before) = (engine.reader(), reads(&engine.stats()));
    let (mut random, start) = (Random(1), Instant::now());
    for _ in 0..ASKED {
        let lbn = random.below(chunks);
        reader.extents(HeadId(0), lbn..lbn + 1, &mut |_, _| true)?;
    }
    let read = reads(&engine.stats()) - before;
    println!(
        "a lookup of a random LBN: {:.2} page reads, {:.1} µs",
        read as f64 / ASKED as f64,
        start.elapsed().as_secs_f64() * 1e6 / ASKED as f64
    );
    Ok(())
}

/// RAM of this process, in bytes.
fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.ok_or("no VmRSS")? << 10)
}

fn recovery(dir: &Arc<dyn Dir>, log_mib: u64, extents: u64) -> Outcome<()> {
    let device_bytes = (log_mib * 2 + 1024) * MIB;
    let direct: Arc<dyn Dir> = dir.clone();
    let data = direct.create("data")?;
    data.set_len(device_bytes)?;
    let ram_bytes = Budget::default_bytes(device_bytes);
    let known = 1024;
    let piece = Random(9).bytes(CHUNK as usize);
    let content = |number: u64| {
        let mut bytes = piece.clone();
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    let fill = |with_log: bool| -> Outcome<f64> {
        for name in ["manifest", "map", "index"] {
            let _ = dir.remove(name);
        }
        let options = || options(dir, device_bytes, ram_bytes);
        let mut engine =
            LogEngine::create(Arc::clone(dir), Arc::clone(&data), CHUNK as u32, options()?)?;
        for first in (0..known).step_by(BATCH as usize) {
            write_new(&mut engine, first, &content)?;
        }
        // A large map of known chunks: what it maps takes no room.
        let names: Vec<Fingerprint> = (0..known).map(|n| Fingerprint::of(&content(n))).collect();
        let chunks = extents.next_power_of_two();
        for batch in 0..extents / BATCH {
            let lbns = (0..BATCH).map(|n| known + scattered(batch * BATCH + n, chunks) * 2);
            let name = |lbn: u64| names[Random(lbn).below(known) as usize];
            write(&mut engine, &piece, lbns, name)?;
        }
        engine.checkpoint()?;
        if with_log {
            // Less than a checkpoint is due after.
            for first in (0..log_mib * MIB / CHUNK * 98 / 100).step_by(BATCH as usize) {
                write_new(&mut engine, known + first, &content)?;
            }
            engine.commit()?;
        }
        drop(engine);
        data.forget_cached();
        let start = Instant::now();
        let engine = LogEngine::open(Arc::clone(dir), Arc::clone(&data), options()?)?;
        let took = start.elapsed().as_secs_f64();
        let stats = engine.stats();
        println!("{:>8.2} s  {:?}", took, stats.counters);
        Ok(took)
    };
    println!("opening without a log, {extents} extents:");
    fill(false)?;
    println!("opening with {log_mib} MiB of log:");
    let took = fill(true)?;
    println!(
        "{took:.2} s, limit 3 s: {}",
        if took <= 3.0 { "ok" } else { "TOO LONG" }
    );
    Ok(())
}
