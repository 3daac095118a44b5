//! The raw file: the same loads past the page cache, without a depot.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use onefold_io::{Dir, FileDir, Random};
use onefold_volume::Buffer;

use crate::{CHUNK, DEPTH, MIB, Outcome, RANDOM_WRITES, RAW_RANDOM, RAW_SEQUENTIAL, RAW_SYNCED};
use crate::{Rates, SYNC_SECONDS};

/// Measures all loads on a file of `mib` MiB, which is removed afterwards.
pub fn measure(rates: &mut Rates, path: &Path, mib: u64) -> Outcome<()> {
    let folder = FileDir::create(path)?.direct();
    let _ = folder.remove("raw");
    folder.create("raw")?.set_len(mib * MIB)?;
    let piece = Buffer::copy_of(&Random(1).bytes(MIB as usize));
    let next = AtomicU64::new(0);
    let sequential = threads(path, 4, |_, disk| {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= mib {
                return Ok(());
            }
            disk.write_at(&piece, n * MIB)?;
        }
    })?;
    rates.note(RAW_SEQUENTIAL, mib * MIB, sequential);
    let random = threads(path, DEPTH, |thread, disk| {
        let mut random = Random(thread);
        let chunk = Buffer::copy_of(&random.bytes(CHUNK as usize));
        for _ in 0..RANDOM_WRITES / DEPTH {
            disk.write_at(&chunk, random.below(mib * MIB / CHUNK) * CHUNK)?;
        }
        Ok(())
    })?;
    rates.note(RAW_RANDOM, RANDOM_WRITES * CHUNK, random);
    for (what, clients) in [
        (RAW_SYNCED, 1),
        ("raw: write and fdatasync, 32 threads", 32),
    ] {
        let (done, start) = (AtomicU64::new(0), Instant::now());
        let seconds = threads(path, clients, |thread, disk| {
            let mut random = Random(thread);
            let chunk = Buffer::copy_of(&random.bytes(CHUNK as usize));
            while start.elapsed().as_secs_f64() < SYNC_SECONDS {
                disk.write_at(&chunk, random.below(mib * MIB / CHUNK) * CHUNK)?;
                disk.sync()?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })?;
        rates.note(what, done.into_inner() * CHUNK, seconds);
    }
    Ok(folder.remove("raw")?)
}

/// Runs threads on the file, and a sync at the end; returns the seconds.
fn threads(
    path: &Path,
    count: u64,
    act: impl Fn(u64, &dyn onefold_io::Disk) -> Outcome<()> + Sync,
) -> Outcome<f64> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let act = &act;
        let all: Vec<_> = (0..count)
            .map(|thread| {
                scope.spawn(move || {
                    let disk = FileDir::open(path)?.direct().open_write("raw")?;
                    act(thread, &*disk)
                })
            })
            .collect();
        let mut ended = all.into_iter().map(|thread| thread.join());
        ended.try_for_each(|ended| ended.unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    FileDir::open(path)?.direct().open_write("raw")?.sync()?;
    Ok(start.elapsed().as_secs_f64())
}
