//! How fast a depot takes blocks in process, against the raw file past the page cache, in alternating rounds of one run.
//!
//! ```text
//! cargo run --release -p onefold-volume --example in_process -- FOLDER [MIB] [ROUNDS]
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use onefold_io::{Dir, FileDir, Random};
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::{BlockDevice, Buffer, Completion, Depot, HeadId, Hints, Op, Request};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Requests under way at once.
const DEPTH: u64 = 32;
const MIB: u64 = 1 << 20;
const CHUNK: u64 = 4096;
/// Random writes of a round.
const RANDOM_WRITES: u64 = 65_536;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("a folder is wanted")?;
    let mib: u64 = arguments.next().unwrap_or("1024".into()).parse()?;
    let rounds: u64 = arguments.next().unwrap_or("3".into()).parse()?;
    let path = Path::new(&path);
    for round in 0..rounds {
        println!("round {round}");
        raw(path, mib)?;
        depot(path, mib, round)?;
    }
    Ok(())
}

fn raw(path: &Path, mib: u64) -> Outcome<()> {
    let folder = FileDir::create(path)?.direct();
    let _ = folder.remove("raw");
    let disk = folder.create("raw")?;
    disk.set_len(mib * MIB)?;
    let piece = Buffer::copy_of(&Random(1).bytes(MIB as usize));
    timed("raw: sequential, 1 MiB, one at a time", mib * MIB, || {
        for n in 0..mib {
            disk.write_at(&piece, n * MIB)?;
        }
        Ok(disk.sync()?)
    })?;
    timed(
        "raw: random, 4 KiB, 32 at once",
        RANDOM_WRITES * CHUNK,
        || {
            std::thread::scope(|scope| {
                let writers: Vec<_> = (0..DEPTH)
                    .map(|seed| scope.spawn(move || random_writes(path, seed, mib)))
                    .collect();
                let mut ended = writers.into_iter().map(|writer| writer.join());
                ended
                    .try_for_each(|ended| ended.unwrap_or_else(|_| Err("a writer panicked".into())))
            })?;
            Ok(disk.sync()?)
        },
    )?;
    Ok(folder.remove("raw")?)
}

fn random_writes(path: &Path, seed: u64, mib: u64) -> Outcome<()> {
    let disk = FileDir::open(path)?.direct().open_write("raw")?;
    let mut random = Random(seed);
    let chunk = Buffer::copy_of(&random.bytes(CHUNK as usize));
    for _ in 0..RANDOM_WRITES / DEPTH {
        disk.write_at(&chunk, random.below(mib * MIB / CHUNK) * CHUNK)?;
    }
    Ok(())
}

/// Contents of writes: unique, or the same ones again and again.
struct Source {
    pieces: Vec<Vec<u8>>,
    number: u64,
}

impl Source {
    fn buffer(&mut self, n: u64, bytes: u64, is_unique: bool) -> Buffer {
        let piece = &self.pieces[(n % self.pieces.len() as u64) as usize];
        let mut buffer = Buffer::copy_of(&piece[..bytes as usize]);
        if is_unique {
            for chunk in buffer.chunks_mut(CHUNK as usize) {
                self.number += 1;
                chunk[..8].copy_from_slice(&self.number.to_le_bytes());
            }
        }
        buffer
    }
}

fn depot(path: &Path, mib: u64, seed: u64) -> Outcome<()> {
    let place = path.join("depot");
    let _ = std::fs::remove_dir_all(&place);
    let folder: Arc<dyn Dir> = Arc::new(FileDir::create(&place)?.direct());
    let options = CreateOptions {
        capacity_bytes: Some(3 * mib * MIB),
        ..CreateOptions::new(mib * MIB, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options)?;
    let depot = Depot::open(folder, OpenOptions::default())?;
    let device = depot.device(HeadId(0)).ok_or("no volume")?;
    let mut source = Source {
        pieces: (0..64)
            .map(|n| Random(seed << 40 | n).bytes(MIB as usize))
            .collect(),
        number: 0,
    };
    let mut random = Random(seed);
    for (what, is_unique, count, bytes) in [
        ("depot: unique, sequential, 1 MiB", true, mib, MIB),
        (
            "depot: 64 MiB again and again, stored first",
            false,
            mib,
            MIB,
        ),
        ("depot: duplicate, sequential, 1 MiB", false, mib, MIB),
        ("depot: unique, random, 4 KiB", true, RANDOM_WRITES, CHUNK),
        (
            "depot: duplicate, random, 4 KiB",
            false,
            RANDOM_WRITES,
            CHUNK,
        ),
    ] {
        timed(what, count * bytes, || {
            let (sender, receiver) = channel();
            for n in 0..count {
                if n >= DEPTH {
                    receiver.recv()??;
                }
                let offset = match bytes {
                    MIB => n * MIB,
                    _ => random.below(mib * MIB / CHUNK) * CHUNK,
                };
                let buffer = source.buffer(n, bytes, is_unique);
                write(&*device, offset, buffer, &sender);
            }
            Ok(depot.commit()?)
        })?;
    }
    let stats = depot.stats()?;
    println!(
        "  {} unique, {} duplicate; {} batches of {} chunks",
        stats.engine.unique_writes,
        stats.engine.duplicate_writes,
        stats.front.batches,
        stats.front.batch_chunks / stats.front.batches.max(1)
    );
    drop(device);
    depot.close()?;
    Ok(std::fs::remove_dir_all(&place)?)
}

type Answers = Sender<onefold_volume::Result<Buffer>>;

fn write(device: &dyn BlockDevice, offset: u64, buffer: Buffer, sender: &Answers) {
    let sender = sender.clone();
    let request = Request {
        op: Op::Write,
        offset,
        bytes: buffer.len() as u64,
        buffer,
        fua: false,
        hints: Hints::default(),
        completion: Completion::new(move |result| {
            let _ = sender.send(result);
        }),
    };
    device.submit(&mut vec![request]);
}

fn timed(what: &str, bytes: u64, act: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let start = Instant::now();
    act()?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "  {what:<46} {:7.0} MB/s {:9.0} chunks/s",
        bytes as f64 / seconds / 1e6,
        bytes as f64 / CHUNK as f64 / seconds
    );
    Ok(())
}
