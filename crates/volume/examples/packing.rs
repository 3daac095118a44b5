//! Packing: the pages it saves, and the time it costs where nothing shrinks; none, `auto` and `lz4` in turns in one
//! run.
//!
//! ```text
//! cargo run --release -p onefold-volume --example packing -- FOLDER TREE [MIB] [ROUNDS]
//! ```
//!
//! The files of TREE are written one behind the other, each from a chunk's border on, up to MIB; then as many MiB that
//! do not compress. Times are medians of the rounds, from the first write to the end of a flush: by the clock, and of
//! all cores, which others on the machine do not change. Beside them stands how many pages the packer of dm-vdo takes
//! for the same chunks: it has 16 pages open, each for 14 chunks at most, and fills the fullest that has room.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use onefold_io::{Dir, FileDir, Random};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::config::EngineKind;
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::{Compression, Depot, EngineStats, HeadId};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const MIB: usize = 1 << 20;
const CHUNK: usize = 4096;
const ALL: [Compression; 3] = [Compression::None, Compression::Auto, Compression::Lz4];

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("a folder is wanted")?;
    let tree = arguments.next().ok_or("a folder with files is wanted")?;
    let numbers: Vec<usize> = arguments.map(|it| it.parse()).collect::<Result<_, _>>()?;
    let bytes = numbers.first().copied().unwrap_or(512) * MIB;
    let rounds = numbers.get(1).copied().unwrap_or(3);
    let place = Path::new(&folder).join("packing");
    let mut files = Vec::new();
    gather(Path::new(&tree), bytes, &mut files)?;
    compare("files", &place, &files, rounds)?;
    drop(files);
    compare("noise", &place, &Random(1).bytes(bytes), rounds)
}

/// Appends the files below a folder, by name, each padded to whole chunks, up to `bytes_max`.
fn gather(folder: &Path, bytes_max: usize, out: &mut Vec<u8>) -> Outcome<()> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.sort();
    for path in paths {
        let kind = std::fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            gather(&path, bytes_max, out)?;
        } else if kind.is_file() && out.len() + kind.len() as usize <= bytes_max {
            out.extend_from_slice(&std::fs::read(&path)?);
            out.resize(out.len().next_multiple_of(CHUNK), 0);
        }
    }
    Ok(())
}

/// Writes the same bytes in each way, and prints what they take and how long that takes, beside no packing.
fn compare(what: &str, place: &Path, bytes: &[u8], rounds: usize) -> Outcome<()> {
    let (mut seconds, mut busy) = (vec![Vec::new(); ALL.len()], vec![Vec::new(); ALL.len()]);
    let mut stored = [0; ALL.len()];
    for _ in 0..rounds {
        for (at, compression) in ALL.into_iter().enumerate() {
            let (took, cores, stats) = write(place, bytes, compression)?;
            seconds[at].push(took);
            busy[at].push(cores);
            stored[at] = counter(&stats, "group pages");
            if seconds[at].len() == rounds {
                println!(
                    "{what}: {:4}  {} MiB in {} pages, {} chunks packed into {} pages",
                    compression.name(),
                    bytes.len() / MIB,
                    stored[at],
                    counter(&stats, "packed chunks"),
                    counter(&stats, "packed pages"),
                );
            }
        }
    }
    println!("{what}: VDO's packer takes {} pages", vdo_pages(bytes));
    let clock: Vec<f64> = seconds.into_iter().map(median).collect();
    let cores: Vec<f64> = busy.into_iter().map(median).collect();
    for (at, compression) in ALL.into_iter().enumerate() {
        println!(
            "{what}: {:4}  {:.3} of the pages, {:.2} of the time ({:.2} s), {:.2} of the cores' ({:.2} s)",
            compression.name(),
            stored[at] as f64 / stored[0] as f64,
            clock[at] / clock[0],
            clock[at],
            cores[at] / cores[0],
            cores[at],
        );
    }
    Ok(())
}

/// A page that VDO's packer fills.
#[derive(Clone, Copy)]
struct VdoBin {
    room: usize,
    chunks: usize,
}

/// Pages that VDO would store different chunks in, zeros left out: packed ones, and those of chunks that stay as they
/// are.
fn vdo_pages(bytes: &[u8]) -> usize {
    // A header of 8 bytes of version and 14 sizes precedes the chunks.
    const EMPTY: VdoBin = VdoBin {
        room: CHUNK - 8 - 14 * 2,
        chunks: 0,
    };
    let written = |bin: VdoBin| usize::from(bin.chunks > 0);
    let mut seen = HashSet::new();
    let mut bins = [EMPTY; 16];
    let mut pages = 0;
    for chunk in bytes.chunks_exact(CHUNK) {
        if chunk.iter().all(|byte| *byte == 0) || !seen.insert(chunk) {
            continue;
        }
        let size = lz4_flex::block::compress(chunk).len();
        bins.sort_by_key(|bin| bin.room);
        let fitting = bins
            .iter()
            .position(|bin| size <= bin.room && bin.chunks < 14);
        let at = match fitting {
            Some(at) => at,
            // A bin that holds less than this chunk is not given up for it.
            None if size >= EMPTY.room - bins[0].room => {
                pages += 1;
                continue;
            }
            None => {
                pages += written(bins[0]);
                bins[0] = EMPTY;
                0
            }
        };
        bins[at].room -= size;
        bins[at].chunks += 1;
        if bins[at].chunks == 14 {
            pages += 1;
            bins[at] = EMPTY;
        }
    }
    pages + bins.into_iter().map(written).sum::<usize>()
}

/// Seconds that cores worked for this process.
fn cores() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may hold blanks, the 12th and 13th field: ticks of 10 ms.
    let fields = stat.rsplit(')').next().unwrap_or_default().split(' ');
    let ticks = fields.skip(12).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_unstable_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Writes a new depot full, and returns the seconds that took, by the clock and of all cores.
fn write(place: &Path, bytes: &[u8], compression: Compression) -> Outcome<(f64, f64, EngineStats)> {
    let _ = std::fs::remove_dir_all(place);
    let folder: Arc<dyn Dir> = Arc::new(FileDir::create(place)?);
    let room = (bytes.len() as u64 * 2).max(16 << 30);
    let options = CreateOptions {
        engine: EngineKind::Log,
        compression,
        capacity_bytes: Some(room),
        ..CreateOptions::new(bytes.len() as u64, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options)?;
    let depot = Depot::open(folder, OpenOptions::default())?;
    let device = Caller(depot.device(HeadId(0)).ok_or("a depot has a volume")?);
    let (start, worked) = (Instant::now(), cores()?);
    for (no, part) in bytes.chunks(MIB).enumerate() {
        device.write((no * MIB) as u64, part)?;
    }
    device.flush()?;
    let took = (start.elapsed().as_secs_f64(), cores()? - worked);
    let stats = depot.stats()?.engine;
    for (no, part) in bytes.chunks(MIB).enumerate().step_by(7) {
        let found = device.read((no * MIB) as u64, part.len() as u64)?;
        assert!(found[..] == *part, "what was written is read");
    }
    drop(device);
    depot.close()?;
    std::fs::remove_dir_all(place)?;
    Ok((took.0, took.1, stats))
}

fn counter(stats: &EngineStats, name: &str) -> u64 {
    let found = stats.counters.iter().find(|(known, _)| *known == name);
    found.map_or(0, |(_, count)| *count)
}
