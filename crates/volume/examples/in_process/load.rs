//! A volume of a depot under load, in process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use onefold_io::{Dir, FileDir, Random};
use onefold_keys::{KdfCost, Secret};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::config::EngineKind;
use onefold_volume::depot::{CreateOptions, NewPassword, OpenOptions};
use onefold_volume::{BlockDevice, Buffer, Completion, Depot, Effort, HeadId, Hints, Op, Request};

use crate::{CHUNK, DEPTH, MIB, Outcome};

/// A depot with its volume.
pub struct Volume {
    place: PathBuf,
    depot: Depot,
    device: Arc<dyn BlockDevice>,
    bytes: u64,
    random: Random,
    pieces: Vec<Vec<u8>>,
    /// Chunks that were made so far, which makes each unique.
    number: u64,
}

impl Volume {
    /// Makes a depot in a folder of `path`, in place of the one of before.
    pub fn create(path: &Path, bytes: u64, capacity: u64, seed: u64) -> Outcome<Self> {
        Self::create_as(path, bytes, capacity, seed, false)
    }

    /// The same, encrypted or not.
    pub fn create_as(
        path: &Path,
        bytes: u64,
        capacity: u64,
        seed: u64,
        is_encrypted: bool,
    ) -> Outcome<Self> {
        let password = is_encrypted.then(|| Secret::new("open sesame"));
        let encryption = password.clone().map(|password| NewPassword {
            password,
            cost: KdfCost::LEAST,
            label: String::new(),
            created_unix_s: 0,
        });
        let place = path.join("depot");
        let _ = std::fs::remove_dir_all(&place);
        let folder: Arc<dyn Dir> = Arc::new(FileDir::create(&place)?.direct());
        let options = CreateOptions {
            engine: EngineKind::Log,
            encryption,
            capacity_bytes: Some(capacity),
            ..CreateOptions::new(bytes, [1; 16], [2; 32])
        };
        Depot::create(&folder, &options)?;
        let options = OpenOptions {
            password,
            ..OpenOptions::default()
        };
        let depot = Depot::open(folder, options)?;
        let device = depot.device(HeadId(0)).ok_or("no volume")?;
        let piece = |n| Random(seed << 40 | n).bytes(MIB as usize);
        Ok(Self {
            place,
            depot,
            device,
            bytes,
            random: Random(seed),
            pieces: (0..64).map(piece).collect(),
            number: 0,
        })
    }

    /// Writes `count` times `bytes`, in order or at random chunks, then commits; returns the seconds.
    pub fn write(
        &mut self,
        count: u64,
        bytes: u64,
        is_unique: bool,
        is_random: bool,
    ) -> Outcome<f64> {
        let start = Instant::now();
        let (sender, receiver) = channel();
        for n in 0..count {
            if n >= DEPTH {
                receiver.recv()??;
            }
            let offset = if is_random {
                self.random.below(self.bytes / CHUNK) * CHUNK
            } else {
                n * bytes
            };
            let buffer = self.buffer(n, bytes, is_unique);
            submit(&*self.device, offset, buffer, &sender);
        }
        for _ in 0..count.min(DEPTH) {
            receiver.recv()??;
        }
        self.depot.commit()?;
        Ok(start.elapsed().as_secs_f64())
    }

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

    /// Writes `content` at `offset` in requests of a MiB, then commits; returns the seconds.
    pub fn copy(&self, offset: u64, content: &[u8]) -> Outcome<f64> {
        let start = Instant::now();
        let (sender, receiver) = channel();
        for (n, piece) in (0..).zip(content.chunks(MIB as usize)) {
            if n >= DEPTH {
                receiver.recv()??;
            }
            let at = offset + n * MIB;
            submit(&*self.device, at, Buffer::copy_of(piece), &sender);
        }
        drop(sender);
        receiver.iter().try_for_each(|answer| answer.map(drop))?;
        self.depot.commit()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Writes `count` unique random chunks, `rate` a second, and returns how long each took from when it was due, in
    /// seconds, ascending.
    pub fn write_steadily(&mut self, count: u64, rate: f64) -> Outcome<Vec<f64>> {
        let (sender, receiver) = channel();
        let start = Instant::now();
        for n in 0..count {
            let due = start + Duration::from_secs_f64(n as f64 / rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let offset = self.random.below(self.bytes / CHUNK) * CHUNK;
            let (buffer, sender) = (self.buffer(n, CHUNK, true), sender.clone());
            let completion = Completion::new(move |result| {
                let took = due.elapsed().as_secs_f64();
                let _ = sender.send(result.map(|_| took));
            });
            write(&*self.device, offset, buffer, completion);
        }
        drop(sender);
        let mut all: Vec<f64> = receiver.iter().collect::<Result<_, _>>()?;
        all.sort_by(f64::total_cmp);
        Ok(all)
    }

    /// Clients that write a random chunk and flush it, one after the other; returns how many were written.
    pub fn write_and_flush(&self, clients: u64, seconds: f64) -> Outcome<u64> {
        let (done, start) = (AtomicU64::new(0), Instant::now());
        let client = |seed: u64| -> Outcome<()> {
            let caller = Caller(Arc::clone(&self.device));
            let mut random = Random(clients << 32 | seed);
            while start.elapsed().as_secs_f64() < seconds {
                let chunk = random.bytes(CHUNK as usize);
                caller.write(random.below(self.bytes / CHUNK) * CHUNK, &chunk)?;
                caller.flush()?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let client = &client;
            let all: Vec<_> = (0..clients)
                .map(|seed| scope.spawn(move || client(seed)))
                .collect();
            let mut ended = all.into_iter().map(|thread| thread.join());
            ended.try_for_each(|ended| ended.unwrap_or_else(|_| Err("a client panicked".into())))
        })?;
        Ok(done.into_inner())
    }

    /// Writes unique chunks over `bytes` at `offset`, then commits.
    pub fn overwrite(&mut self, offset: u64, bytes: u64) -> Outcome<()> {
        for n in 0..bytes.div_ceil(MIB) {
            let at = n * MIB;
            let piece = self.buffer(n, MIB.min(bytes - at), true);
            self.copy(offset + at, &piece)?;
        }
        Ok(())
    }

    /// Collects all garbage.
    pub fn collect(&self) -> Outcome<()> {
        self.depot.save()?;
        Ok(self.depot.collect(Effort::Whole).map(drop)?)
    }

    /// Chunks that were there already, since the depot was opened.
    pub fn duplicates(&self) -> Outcome<u64> {
        Ok(self.depot.stats()?.engine.duplicate_writes)
    }

    /// A counter of the engine; `None` where it has none of that name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counters = self.depot.stats().ok()?.engine.counters;
        let found = counters.iter().find(|(known, _)| *known == name);
        found.map(|(_, count)| *count)
    }

    /// Bytes that data may take.
    pub fn usable_bytes(&self) -> u64 {
        self.depot.space().usable() * CHUNK
    }

    /// One line of the depot's statistics.
    pub fn told(&self) -> String {
        let Ok(stats) = self.depot.stats() else {
            return "no statistics".into();
        };
        let (space, engine) = (self.depot.space(), stats.engine);
        format!(
            "{} % full; {} unique, {} duplicate; {:?}",
            space.full_percent(),
            engine.unique_writes,
            engine.duplicate_writes,
            engine.counters
        )
    }

    /// Removes the depot.
    pub fn delete(self) -> Outcome<()> {
        drop(self.device);
        self.depot.close()?;
        Ok(std::fs::remove_dir_all(&self.place)?)
    }
}

fn submit(
    device: &dyn BlockDevice,
    offset: u64,
    buffer: Buffer,
    sender: &Sender<onefold_volume::Result<Buffer>>,
) {
    let sender = sender.clone();
    let completion = Completion::new(move |result| {
        let _ = sender.send(result);
    });
    write(device, offset, buffer, completion);
}

fn write(device: &dyn BlockDevice, offset: u64, buffer: Buffer, completion: Completion) {
    let request = Request {
        op: Op::Write,
        offset,
        bytes: buffer.len() as u64,
        buffer,
        fua: false,
        hints: Hints::default(),
        completion,
    };
    device.submit(&mut vec![request]);
}

/// The contents of a tree's files in order of their names, each padded to whole chunks; `bytes_max` at most.
pub fn tree(path: &Path, bytes_max: u64) -> Outcome<Vec<u8>> {
    let (mut all, mut folders) = (Vec::new(), vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && (all.len() as u64) < bytes_max {
                all.extend(std::fs::read(entry.path())?);
                all.resize(all.len().next_multiple_of(CHUNK as usize), 0);
            }
        }
    }
    Ok(all)
}
