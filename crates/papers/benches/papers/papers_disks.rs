//! `cargo xtask bench papers --disks`: PRUNE's tablets, and ChunkStash beside B-trees on disk and flash, on modelled
//! devices.
//!
//! PRUNE: the same 100 GB twice (9.9 M chunks), the fingerprints on a disk of 10,000 turns; sets, tablets, cached RAM
//! and the disk's stroke are all scaled by the same factor, so that the number of tablets stays. The rest of a backup
//! takes as long as in PRUNE's fastest one (81.7 MB/s); the single table has as much RAM as the tablets. ChunkStash:
//! two full backups of 4.1 M chunks (its data set 2), of which the second has a sixteenth of new runs; index time
//! alone. Times are modelled, plus 1 µs of CPU a key.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::ChunkIndex;
use onefold_io::{FlashDir, FlashModel, MemDir, SpindleDir, SpindleModel};
use onefold_papers::workload::{drive, key_of};
use onefold_papers::{
    BTree, BTreeOptions, ChunkStash, ChunkStashOptions, Search, Tablets, TabletsOptions,
};

use super::report::Table;

type Error = Box<dyn std::error::Error>;

const CPU_US: f64 = 1.0;
/// Mean chunk in bytes for 13 bits of target pattern: PRUNE, §5.3.
const CHUNK_BYTES: f64 = 10_100.0;
const PRUNE_CHUNKS: f64 = 9_900_000.0;
/// Bytes a microsecond of a backup without its index: PRUNE's fastest (§5.6).
const REST: f64 = 81.7;
const TABLET_BYTES: f64 = 1_572_864.0;
const STASH_CHUNKS: f64 = 4_100_000.0;
/// Number of chunks that are new, or repeated, together.
const RUN: u64 = 64;

/// Runs the comparisons whose name contains `only` (prune, chunkstash) at `scale` and prints "paper | here".
pub fn run(scale: f64, only: &str) -> Result<(), Error> {
    if "prune".contains(only) {
        println!(
            "\nPRUNE, × {scale}: MB/s of a backup, and microseconds of the index's disk a chunk"
        );
        print!("{}", prune(scale)?.text());
    }
    if "chunkstash".contains(only) {
        println!(
            "\nChunkStash, × {scale}: how many times as fast it is on flash, and device time a chunk"
        );
        print!("{}", stash(scale)?.text());
    }
    Ok(())
}

fn prune(scale: f64) -> Result<Table, Error> {
    let keys = (PRUNE_CHUNKS * scale) as u64;
    let tablet_bytes = ((TABLET_BYTES * scale) as usize).next_multiple_of(4096);
    let mut rows = Vec::new();
    let mut ram = 0;
    for (name, search, first, second) in [
        ("LRU + prefetch", Search::LruPrefetch, "81.7", "80"),
        ("LRU", Search::Lru, "80.3", "79.3"),
        ("linear", Search::Linear, "76.9", "42.9"),
    ] {
        let disk = spindle(SpindleModel::RAPTOR.scaled(scale));
        let options = TabletsOptions {
            search,
            tablet_bytes,
            cache_tablets: 3,
            filter_bits: 24,
        };
        let mut index = Tablets::open(Arc::new(disk.clone()), options)?;
        rows.push(prune_row(name, &mut index, &disk, keys, [first, second])?);
        ram = index.ram_bytes();
    }
    let disk = spindle(SpindleModel::RAPTOR.scaled(scale));
    let options = BTreeOptions {
        cache_bytes: ram,
        filter_bytes: 0,
        keys_expected: keys,
        prefetch_bytes: 0,
        ..BTreeOptions::new(keys, 0)
    };
    let mut index = BTree::open(Arc::new(disk.clone()), options)?;
    rows.push(prune_row(
        "single (btree)",
        &mut index,
        &disk,
        keys,
        ["2.8", "3.3"],
    )?);
    rows.reverse();
    Ok(Table {
        head: vec![
            "organisation",
            "RAM B/key",
            "first: paper",
            "here",
            "µs",
            "second: paper",
            "here",
            "µs",
        ],
        words: 1,
        rows,
    })
}

fn prune_row(
    name: &str,
    index: &mut dyn ChunkIndex,
    disk: &SpindleDir,
    keys: u64,
    paper: [&str; 2],
) -> Result<Vec<String>, Error> {
    let mut row = vec![name.to_string(), String::new()];
    for paper in paper {
        let clock = || disk.counts().modelled_us;
        let before = clock();
        drive(index, &mut (0..keys).map(key_of), false, &clock)?;
        let us = (clock() - before) / keys as f64;
        let speed = CHUNK_BYTES / (CHUNK_BYTES / REST + us + CPU_US);
        row.extend([paper.to_string(), format!("{speed:.1}"), format!("{us:.1}")]);
    }
    row[1] = format!("{:.2}", index.ram_bytes() as f64 / keys as f64);
    Ok(row)
}

/// A B-tree as ChunkStash's rival: RAM a key for its pages, the records of its write buffer, and whether full buffers
/// wait in the cache.
struct Rival {
    name: &'static str,
    cache: f64,
    buffer_records: usize,
    writes_late: bool,
}

/// The first rival is this code as it is used. The others have what BerkeleyDB had on the papers' machines and redb
/// lacks: pages that are written when the cache is full, and the system's page cache around it, into which the index of
/// data set 2 fits whole (4.1 M records of 64 bytes are 262 MB).
const RIVALS: [Rival; 7] = [
    Rival {
        name: "4 B/key of pages, durable by 1023 keys",
        cache: 4.0,
        buffer_records: 1023,
        writes_late: false,
    },
    Rival {
        name: "the same, written late",
        cache: 4.0,
        buffer_records: 1023,
        writes_late: true,
    },
    Rival {
        name: "32 B/key of pages, written late",
        cache: 32.0,
        buffer_records: 1023,
        writes_late: true,
    },
    Rival {
        name: "64 B/key of pages, written late",
        cache: 64.0,
        buffer_records: 1023,
        writes_late: true,
    },
    Rival {
        name: "128 B/key of pages, written late",
        cache: 128.0,
        buffer_records: 1023,
        writes_late: true,
    },
    Rival {
        name: "256 B/key of pages: all, written late",
        cache: 256.0,
        buffer_records: 1023,
        writes_late: true,
    },
    Rival {
        name: "the same, by a sixteenth of all keys",
        cache: 256.0,
        buffer_records: 0,
        writes_late: true,
    },
];

fn stash(scale: f64) -> Result<Table, Error> {
    let keys = (STASH_CHUNKS * scale) as u64;
    let ram = keys as usize * 9;
    let flash = || {
        let model = FlashModel::with_capacity(keys * 64 * 12 + (64 << 20));
        FlashDir::new(Arc::new(MemDir::new()), model)
    };
    let device = flash();
    let options = ChunkStashOptions {
        ram_budget_bytes: ram,
        cache_bytes: None,
        sample: 1,
    };
    let mut stash = ChunkStash::open(Arc::new(device.clone()), options)?;
    let stash = backups(&mut stash, keys, &|| device.counts().modelled_us)?;
    let mut rows = Vec::new();
    for rival in &RIVALS {
        let options = BTreeOptions {
            filter_bytes: keys as usize,
            keys_expected: keys,
            cache_bytes: (keys as f64 * rival.cache) as usize,
            prefetch_bytes: ram * 4 / 9,
            buffer_records: match rival.buffer_records {
                0 => keys as usize / 16,
                records => records,
            },
            writes_late: rival.writes_late,
        };
        let disk = spindle(SpindleModel::DESKTOP.scaled(scale));
        let mut index = BTree::open(Arc::new(disk.clone()), options)?;
        let on_disk = backups(&mut index, keys, &|| disk.counts().modelled_us)?;
        let device = flash();
        let mut index = BTree::open(Arc::new(device.clone()), options)?;
        let on_flash = backups(&mut index, keys, &|| device.counts().modelled_us)?;
        for (device, paper, of_rival) in [("disk", "7–60", on_disk), ("flash", "2–4", on_flash)]
        {
            let mut row = vec![
                rival.name.to_string(),
                device.to_string(),
                paper.to_string(),
            ];
            for backup in 0..3 {
                row.push(format!(
                    "{:.1}",
                    stash[backup].speed() / of_rival[backup].speed()
                ));
            }
            row.extend(of_rival.iter().map(|part| format!("{:.2}", part.us)));
            rows.push(row);
        }
    }
    let mut own = vec![
        "chunkstash itself".to_string(),
        "flash".into(),
        String::new(),
    ];
    own.extend((0..3).map(|_| "1".to_string()));
    own.extend(stash.iter().map(|part| format!("{:.2}", part.us)));
    rows.push(own);
    Ok(Table {
        head: vec![
            "B-tree, with filter and prefetch",
            "on",
            "paper",
            "× first full",
            "× second full",
            "× its lookups",
            "µs first",
            "µs second",
            "µs lookup",
        ],
        words: 2,
        rows,
    })
}

/// Device time of a chunk.
#[derive(Clone, Copy, Default)]
struct Part {
    us: f64,
}

impl Part {
    /// Chunks a microsecond, CPU time included.
    fn speed(self) -> f64 {
        1.0 / (self.us + CPU_US)
    }
}

/// Device time a chunk of two full backups, and of the lookups of the second.
fn backups(
    index: &mut dyn ChunkIndex,
    keys: u64,
    clock: &dyn Fn() -> f64,
) -> Result<[Part; 3], Error> {
    let mut parts = [Part::default(); 3];
    for backup in 0..2 {
        let number = |i: u64| {
            let is_new = backup > 0 && (i / RUN).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0;
            if is_new { i + (1 << 40) } else { i }
        };
        let mut stream = (0..keys).map(|i| -> Fingerprint { key_of(number(i)) });
        let report = drive(index, &mut stream, false, clock)?;
        let us = |us: f64| Part {
            us: us / keys as f64,
        };
        parts[backup] = us(report.lookup_us + report.insert_us);
        parts[2] = us(report.lookup_us);
    }
    Ok(parts)
}

fn spindle(model: SpindleModel) -> SpindleDir {
    SpindleDir::new(Arc::new(MemDir::new()), model)
}
