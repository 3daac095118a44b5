//! `--workload`: indexes under generated or recorded streams, on a modelled flash and on a real disk.
//!
//! Every index sees each stream twice: once on the flash of the papers (25/200/1500 µs, one thing at a time, plus 1 µs
//! of CPU a key), once on files past the page cache. Then it is asked for absent keys and for present ones at random.
//! Reads are what the index asks for, of any length, as the papers count them.

use std::path::Path;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, IndexKind, OpenIndex};
use onefold_io::os::mapped_bytes;
use onefold_io::{Dir, FileDir, FlashDir, FlashModel, MemDir};
use onefold_papers::workload::{TraceReader, Workload, drive, key_of};

use super::figures::RECORD_BYTES;
use super::{Error, IndexArgs};
use crate::ALLOCATOR;
use crate::report::Table;

/// Number of keys asked for after the stream, of either kind.
const PROBES: u64 = 20_000;
/// CPU time of a key on the modelled flash, in microseconds.
const CPU_US: f64 = 1.0;
/// Numbers from here on are in no stream.
const ABSENT: u64 = 1 << 40;

/// Prints a table a stream.
pub fn run(args: &IndexArgs, path: &Path) -> Result<(), Error> {
    for name in &args.workload {
        let keys = keys_of(name, args)?;
        let mut unique: Vec<Fingerprint> = keys.clone();
        unique.sort_unstable();
        unique.dedup();
        println!(
            "\n{name}: {} chunks, {} unique, seed {}",
            keys.len(),
            unique.len(),
            args.seed
        );
        let mut rows = Vec::new();
        for &budget_mib in &args.budget_mib {
            for &index in &args.index {
                let stream = KeyStream {
                    keys: &keys,
                    unique: &unique,
                    index,
                    budget_bytes: budget_mib << 20,
                };
                rows.push(stream.row(args, budget_mib, &path.join("stream"))?);
            }
        }
        let head = HEAD.to_vec();
        print!(
            "{}",
            Table {
                head,
                words: 1,
                rows
            }
            .text()
        );
    }
    Ok(())
}

const HEAD: [&str; 14] = [
    "index",
    "MiB",
    "B/key held",
    "counted",
    "lookups/s modelled",
    "inserts/s modelled",
    "chunks/s wall",
    "reads/chunk",
    "reads/absent",
    "reads/present",
    "false/absent",
    "written/key",
    "WA",
    "lost %",
];

fn keys_of(name: &str, args: &IndexArgs) -> Result<Vec<Fingerprint>, Error> {
    if let Some((_, workload)) = Workload::ALL.iter().find(|(known, _)| *known == name) {
        return Ok(workload
            .numbers(args.scale, args.seed)
            .map(key_of)
            .collect());
    }
    let path = Path::new(name);
    let folder = path.parent().filter(|path| !path.as_os_str().is_empty());
    let dir = FileDir::open(folder.unwrap_or(Path::new(".")))?;
    let file = path.file_name().and_then(|name| name.to_str());
    let disk = dir.open(file.ok_or("a trace is a file")?)?;
    let mut trace = TraceReader::new(disk, name);
    let mut keys = Vec::new();
    loop {
        let more = trace.read()?;
        if more.is_empty() {
            return Ok(keys);
        }
        keys.extend(more);
    }
}

struct KeyStream<'a> {
    keys: &'a [Fingerprint],
    unique: &'a [Fingerprint],
    index: IndexKind,
    budget_bytes: usize,
}

impl KeyStream<'_> {
    fn row(&self, args: &IndexArgs, budget_mib: usize, path: &Path) -> Result<Vec<String>, Error> {
        let unique = self.unique.len() as f64;
        let model = FlashModel::with_capacity(self.unique.len() as u64 * 64 * 8 + (64 << 20));
        let flash = FlashDir::new(Arc::new(MemDir::new()), model);
        let clock = || flash.counts().modelled_us;
        let mut index = self.open(Arc::new(flash.clone()), args)?;
        let mut keys = self.keys.iter().copied();
        let modelled = drive(&mut *index, &mut keys, false, &clock)?;
        drop(index);

        let dir = FileDir::create(path)?.direct();
        let before = ALLOCATOR.current_usage() + mapped_bytes();
        let mut index = self.open(Arc::new(dir), args)?;
        let mut keys = self.keys.iter().copied();
        let real = drive(&mut *index, &mut keys, false, &|| 0.0)?;
        let built = index.stats();
        let held = index.ram_bytes() as f64;
        let counted = (ALLOCATOR.current_usage() + mapped_bytes()).saturating_sub(before) as f64;
        drive(
            &mut *index,
            &mut (ABSENT..ABSENT + PROBES).map(key_of),
            true,
            &|| 0.0,
        )?;
        let absent = index.stats();
        let spread = |i: u64| self.unique[i.wrapping_mul(0x9e37_79b9) as usize % self.unique.len()];
        drive(&mut *index, &mut (0..PROBES).map(spread), true, &|| 0.0)?;
        let present = index.stats();
        drop(index);
        std::fs::remove_dir_all(path)?;

        let rate =
            |keys: u64, us: f64| format!("{:.0}", keys as f64 * 1e6 / (us + keys as f64 * CPU_US));
        let each = |count: u64, keys: u64| format!("{:.4}", count as f64 / keys as f64);
        let written = built.bytes_written as f64 / unique;
        let lost = (real.inserts as f64 - unique) / (real.lookups as f64 - unique).max(1.0);
        Ok(vec![
            self.index.name.to_string(),
            budget_mib.to_string(),
            format!("{:.2}", held / unique),
            format!("{:.2}", counted / unique),
            rate(modelled.lookups, modelled.lookup_us),
            rate(modelled.inserts, modelled.insert_us),
            format!("{:.0}", real.lookups as f64 / real.wall.as_secs_f64()),
            each(built.lookup_reads, real.lookups),
            each(absent.lookup_reads - built.lookup_reads, PROBES),
            each(present.lookup_reads - absent.lookup_reads, PROBES),
            each(absent.false_reads - built.false_reads, PROBES),
            format!("{written:.0}"),
            format!("{:.2}", written / RECORD_BYTES),
            format!("{:.2}", lost * 100.0),
        ])
    }

    fn open(&self, dir: Arc<dyn Dir>, args: &IndexArgs) -> Result<Box<dyn ChunkIndex>, Error> {
        let at = OpenIndex::new(dir, self.budget_bytes, args.seed);
        Ok((self.index.open)(at)?)
    }
}
