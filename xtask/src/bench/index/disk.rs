//! The disk's own random-read rate: the yardstick for lookups. Plain reads of 4 KiB, a thread each, as many at once as the goal says; nothing of the engine is in
//! their way.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onefold_index::workload::{Asked, Order};

use super::figures::PAGE_BYTES;
use super::{Error, IndexArgs};

/// Reads under way.
pub const DEPTH: u64 = 32;

/// Reads a second at random places of the largest file in `folder`, past the page cache unless `--cached`.
pub fn random_reads(folder: &Path, args: &IndexArgs) -> Result<f64, Error> {
    let (path, len) = largest(folder)?;
    let mut options = File::options();
    options.read(true);
    if !args.cached {
        options.custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
    }
    let file = options.open(path)?;
    let pages = (len / PAGE_BYTES).max(1);
    let time = Duration::from_secs(args.seconds);
    let start = Instant::now();
    let read_some = |thread: u64| {
        let mut places = Asked::new(Order::Random, pages, args.seed + thread);
        let mut buffer = vec![0; 2 * PAGE_BYTES as usize];
        let aligned = buffer.as_ptr().align_offset(PAGE_BYTES as usize);
        let page = &mut buffer[aligned..][..PAGE_BYTES as usize];
        let mut reads = 0;
        while start.elapsed() < time {
            let place = places.next().unwrap_or(0);
            file.read_exact_at(page, place * PAGE_BYTES)?;
            reads += 1;
        }
        Ok::<u64, std::io::Error>(reads)
    };
    let read_some = &read_some;
    let reads: std::io::Result<u64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..DEPTH)
            .map(|thread| scope.spawn(move || read_some(thread)))
            .collect();
        let each = running.into_iter();
        each.map(|thread| thread.join().expect("a thread that reads does not panic"))
            .sum()
    });
    Ok(reads? as f64 / start.elapsed().as_secs_f64())
}

fn largest(folder: &Path) -> Result<(PathBuf, u64), Error> {
    let mut found: Option<(PathBuf, u64)> = None;
    for entry in std::fs::read_dir(folder)? {
        let (path, metadata) = (entry.as_ref().map(|entry| entry.path()), entry.as_ref());
        let metadata = metadata.map(std::fs::DirEntry::metadata);
        if let (Ok(path), Ok(Ok(metadata))) = (path, metadata)
            && metadata.is_file()
            && found.as_ref().is_none_or(|(_, len)| *len < metadata.len())
        {
            found = Some((path, metadata.len()));
        }
    }
    found
        .filter(|(_, len)| *len >= PAGE_BYTES)
        .ok_or_else(|| "the index has no file of a page".into())
}
