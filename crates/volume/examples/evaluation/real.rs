//! The loads of Figures 4.1 to 4.3 on a disk of this machine: depots with the report's backends and with the engine
//! `log`, beside the file itself, past the page cache, in alternating rounds.
//!
//! Data and metadata share the disk. A measurement ends when all is written and durable, or after `--seconds`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use onefold_io::{Dir, FileDir, Random};
use onefold_volume::depot::backends::Parameters;
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::{BlockDevice, Buffer, Completion, Depot, HeadId, Hints, Op, Request};

use crate::setup::{CHUNK_BYTES, Setup, Spent, Write, cache_bytes};
use crate::{Args, Error};

/// Requests in flight, and fewer where each is large: all of them are waited for at the end.
const DEPTH: usize = 32;
const CHUNKS_IN_FLIGHT: usize = 640;
/// Threads that write the file itself, with large requests.
const RAW_THREADS: usize = 4;
/// The smallest cache that a depot takes.
const CACHE_BYTES_MIN: u64 = 64 << 10;
/// Bytes that contents are made of: random ones, so that no device compresses them.
const PIECES: u64 = 256;
/// Tabulated 97.5 % points of Student's t distribution, from one degree of freedom on.
const STUDENT: [f64; 10] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
];

/// Mean and half of the 95 % interval, as a share of it (report §4.1). One number has no interval.
pub fn mean_and_half_width(all: &[f64]) -> (f64, f64) {
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    if all.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
    let deviation = (squares / (n - 1.0)).sqrt();
    let t = STUDENT.get(all.len() - 2).copied().unwrap_or(1.96);
    (mean, t * deviation / n.sqrt() / mean)
}

/// The outcome of one run of a load.
pub struct Ran {
    /// Chunks that were written.
    pub chunks: u64,
    /// Their cost: data time is the time on the clock.
    pub spent: Spent,
    /// Chunks that were new.
    pub stored: Option<u64>,
}

/// Runs a load, given as requests, on a new device of `chunks` chunks.
pub fn run(args: &Args, setup: Setup, chunks: u64, writes: &[Write]) -> Result<Ran, Error> {
    let place = args.folder.join("bench-volume-evaluation");
    let _ = std::fs::remove_dir_all(&place);
    let deadline = Duration::from_secs(args.seconds.into());
    let contents = Contents::new();
    let ran = match setup {
        Setup::Raw => raw(&place, chunks, writes, &contents, deadline),
        _ => Volume::create(&place, setup, chunks)?.write(writes, &contents, deadline),
    };
    let _ = std::fs::remove_dir_all(&place);
    ran
}

/// Makes the bytes of contents.
struct Contents(Vec<Vec<u8>>);

impl Contents {
    fn new() -> Self {
        let piece = |n| Random(n).bytes(CHUNK_BYTES as usize);
        Self((0..PIECES).map(piece).collect())
    }

    fn buffer(&self, write: &Write) -> Buffer {
        let mut buffer = Buffer::zeroed(write.contents.len() * CHUNK_BYTES as usize);
        let chunks = buffer.chunks_exact_mut(CHUNK_BYTES as usize);
        for (content, chunk) in write.contents.iter().zip(chunks) {
            chunk.copy_from_slice(&self.0[(content % PIECES) as usize]);
            chunk[..8].copy_from_slice(&content.to_le_bytes());
        }
        buffer
    }
}

/// The file itself, by threads that take one request after the other.
fn raw(
    place: &Path,
    chunks: u64,
    writes: &[Write],
    contents: &Contents,
    deadline: Duration,
) -> Result<Ran, Error> {
    let folder = FileDir::create(place)?.direct();
    folder.create("raw")?.set_len(chunks * CHUNK_BYTES)?;
    let next = AtomicUsize::new(0);
    let is_small = writes.first().is_some_and(|write| write.contents.len() < 8);
    let threads = if is_small { DEPTH } else { RAW_THREADS };
    let start = Instant::now();
    let work = || -> Result<u64, Error> {
        let disk = FileDir::open(place)?.direct().open_write("raw")?;
        let mut done = 0;
        while let Some(write) = writes.get(next.fetch_add(1, Ordering::Relaxed)) {
            if start.elapsed() > deadline {
                break;
            }
            disk.write_at(&contents.buffer(write), write.lbn * CHUNK_BYTES)?;
            done += write.contents.len() as u64;
        }
        Ok(done)
    };
    let done: Vec<Result<u64, Error>> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        (all.into_iter())
            .map(|thread| thread.join().expect("a writer panicked"))
            .collect()
    });
    folder.open_write("raw")?.sync()?;
    let data_us = start.elapsed().as_secs_f64() * 1e6;
    Ok(Ran {
        chunks: done.into_iter().sum::<Result<u64, Error>>()?,
        spent: Spent {
            data_us,
            ..Spent::default()
        },
        stored: None,
    })
}

/// A depot with its volume.
struct Volume {
    depot: Depot,
    device: Arc<dyn BlockDevice>,
}

impl Volume {
    fn create(place: &Path, setup: Setup, chunks: u64) -> Result<Self, Error> {
        let folder: Arc<dyn Dir> = Arc::new(FileDir::create(place)?.direct());
        let bytes = chunks * CHUNK_BYTES;
        let mut options = CreateOptions {
            capacity_bytes: Some(match setup {
                // Room for cleaning, though there is nothing to clean.
                Setup::Log => bytes + bytes / 2,
                _ => bytes,
            }),
            ..CreateOptions::new(bytes, [1; 16], [2; 32])
        };
        let cached = |cache| cache_bytes(chunks, cache).max(CACHE_BYTES_MIN);
        (options.engine, options.parameters) = match setup {
            Setup::Raw | Setup::Log => (EngineKind::Log, Parameters::default()),
            Setup::InRam => (EngineKind::Dmdedup(Backend::InRam), Parameters::default()),
            Setup::Dtb { cache } => (
                EngineKind::Dmdedup(Backend::Dtb),
                Parameters {
                    cache_bytes: cached(cache),
                    ..Parameters::default()
                },
            ),
            Setup::Cbt { cache, transaction } => (
                EngineKind::Dmdedup(Backend::Cbt),
                Parameters {
                    cache_bytes: cached(cache),
                    transaction_writes: transaction,
                },
            ),
        };
        Depot::create(&folder, &options)?;
        let depot = Depot::open(folder, OpenOptions::default())?;
        let device = depot.device(HeadId(0)).ok_or("no volume")?;
        Ok(Self { depot, device })
    }

    fn write(
        self,
        writes: &[Write],
        contents: &Contents,
        deadline: Duration,
    ) -> Result<Ran, Error> {
        let start = Instant::now();
        let (sender, receiver) = channel();
        let (mut chunks, mut flying) = (0, 0);
        let each = writes
            .first()
            .map_or(1, |write| write.contents.len().max(1));
        let depth = (CHUNKS_IN_FLIGHT / each).clamp(1, DEPTH);
        for write in writes {
            if start.elapsed() > deadline {
                break;
            }
            if flying == depth {
                receiver.recv()??;
                flying -= 1;
            }
            submit(&*self.device, write, contents.buffer(write), &sender);
            flying += 1;
            chunks += write.contents.len() as u64;
        }
        for _ in 0..flying {
            receiver.recv()??;
        }
        self.depot.commit()?;
        let data_us = start.elapsed().as_secs_f64() * 1e6;
        let engine = self.depot.stats()?.engine;
        let counter = |name: &str| {
            let found = engine.counters.iter().find(|(known, _)| *known == name);
            found.map_or(0, |(_, count)| *count)
        };
        let spent = Spent {
            data_us,
            reads: counter("metadata_page_reads"),
            writes: counter("metadata_page_writes"),
            ..Spent::default()
        };
        drop(self.device);
        self.depot.close()?;
        Ok(Ran {
            chunks,
            spent,
            stored: Some(engine.unique_writes),
        })
    }
}

fn submit(
    device: &dyn BlockDevice,
    write: &Write,
    buffer: Buffer,
    sender: &Sender<onefold_volume::Result<Buffer>>,
) {
    let sender = sender.clone();
    let request = Request {
        op: Op::Write,
        offset: write.lbn * CHUNK_BYTES,
        bytes: buffer.len() as u64,
        buffer,
        fua: false,
        hints: Hints {
            nodedup: write.nodedup,
            ..Hints::default()
        },
        completion: Completion::new(move |result| {
            // The receiver lives until all are answered, unless a write failed.
            let _ = sender.send(result);
        }),
    };
    device.submit(&mut vec![request]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        let (mean, half) = mean_and_half_width(&[9.0, 10.0, 11.0]);
        assert_eq!(mean, 10.0);
        assert!((half - 4.303 / 3f64.sqrt() / 10.0).abs() < 1e-9, "{half}");
    }
}
