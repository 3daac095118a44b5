//! The disk's own rates: the yardstick for re-reads and walks.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use onefold_io::os::{HUGE_PAGE_BYTES, Mapped};

const BUFFER_BYTES: usize = 1 << 20;
/// Bytes that fit into a core's cache.
const CACHED_BYTES: usize = 512 << 10;
/// Bytes of a chunk in a default repository.
const CHUNK_BYTES: usize = 8 << 10;

/// Seconds to read all metadata of `root`, `threads` folders at a time, and the files found.
pub fn walk(root: &Path, threads: usize) -> (f64, Vec<PathBuf>) {
    let start = Instant::now();
    let queue = Mutex::new((vec![root.to_path_buf()], 0usize));
    let files = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut mine = Vec::new();
                while let Some(folder) = next_folder(&queue) {
                    let mut found = Vec::new();
                    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                        match entry.metadata() {
                            Ok(metadata) if metadata.is_dir() => found.push(entry.path()),
                            Ok(metadata) if metadata.is_file() => mine.push(entry.path()),
                            _ => {}
                        }
                    }
                    let mut queue = queue.lock().expect("no thread panics");
                    queue.0.append(&mut found);
                    queue.1 -= 1;
                }
                files.lock().expect("no thread panics").append(&mut mine);
            });
        }
    });
    let mut files = files.into_inner().expect("no thread panics");
    let took = start.elapsed().as_secs_f64();
    files.sort();
    (took, files)
}

/// A folder to read; `None` when none is left and no thread may find more.
fn next_folder(queue: &Mutex<(Vec<PathBuf>, usize)>) -> Option<PathBuf> {
    loop {
        let mut held = queue.lock().expect("no thread panics");
        if let Some(folder) = held.0.pop() {
            held.1 += 1;
            return Some(folder);
        }
        if held.1 == 0 {
            return None;
        }
        drop(held);
        std::thread::yield_now();
    }
}

/// Seconds to read all `files`, `threads` at a time, and their bytes.
pub fn read(files: &[PathBuf], threads: usize) -> (f64, u64) {
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let read_some = || {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut bytes = 0;
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Ok(mut file) = File::open(path) else {
                continue;
            };
            while let Ok(len @ 1..) = file.read(&mut buffer) {
                bytes += len as u64;
            }
        }
        bytes
    };
    let bytes = in_threads(threads, read_some);
    (start.elapsed().as_secs_f64(), bytes)
}

/// The bytes of `files`, and how many of these the page cache holds, if the kernel tells (Linux 6.5).
pub fn cached(files: &[PathBuf]) -> (u64, Option<u64>) {
    let (mut bytes, mut cached) = (0, Some(0));
    for file in files.iter().filter_map(|path| File::open(path).ok()) {
        let len = file.metadata().map_or(0, |metadata| metadata.len());
        let held = onefold_io::os::cached_bytes(file.as_fd(), 0, len);
        bytes += len;
        // counted in whole pages: the last one may be longer than the rest of the file
        cached = cached.zip(held).map(|(all, held)| all + held.min(len));
    }
    (bytes, cached)
}

/// Seconds to copy all `files` out of the page cache and to fingerprint them in chunks of 8 KiB, on all cores, and
/// their bytes: the least work of a program that reads everything to find nothing new.
pub fn fingerprint(files: &[PathBuf]) -> (f64, u64) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    let pieces = pieces_of(files, |path| File::open(path).ok()).unwrap_or_default();
    let next = AtomicUsize::new(0);
    let read_some = || {
        let mut buffer = vec![0; CACHED_BYTES];
        let mut bytes = 0;
        while let Some((file, at)) = next_piece(&pieces, &next) {
            for at in (at..at + HUGE_PAGE_BYTES as u64).step_by(CACHED_BYTES) {
                let got = file.read_at(&mut buffer, at).unwrap_or(0);
                let chunks = buffer[..got].chunks(CHUNK_BYTES);
                std::hint::black_box(onefold_chunk::fingerprints(Some(&[7; 32]), chunks));
                bytes += got as u64;
            }
        }
        bytes
    };
    let bytes = in_threads(cores, read_some);
    (start.elapsed().as_secs_f64(), bytes)
}

/// The same as [`read`] past the page cache, in pieces of 2 MiB in order, `threads` pieces at a time, each passed to
/// `look`. `None` where the file system has no direct reads.
pub fn read_past_cache(
    files: &[PathBuf],
    threads: usize,
    look: impl Fn(&[u8]) + Sync,
) -> Option<(f64, u64)> {
    let start = Instant::now();
    let pieces = pieces_of(files, |path| {
        let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path);
        file.ok()
    })?;
    let next = AtomicUsize::new(0);
    let read_some = || {
        let mut buffer = Mapped::huge(0, HUGE_PAGE_BYTES);
        let mut bytes = 0;
        while let Some((file, at)) = next_piece(&pieces, &next) {
            let got = file.read_at(&mut buffer, at).unwrap_or(0);
            look(&buffer[..got]);
            bytes += got as u64;
        }
        bytes
    };
    let bytes = in_threads(threads, read_some);
    (bytes > 0).then(|| (start.elapsed().as_secs_f64(), bytes))
}

/// Reads each byte of memory: the least work of a program that uses what it reads. Memory that a core has just read is
/// slower to write to for a virtual disk, so the disk itself is slower for such a program.
pub fn add_up(bytes: &[u8]) {
    let words = bytes.as_chunks().0.iter().copied();
    std::hint::black_box(words.map(u64::from_le_bytes).fold(0, u64::wrapping_add));
}

/// Pieces of 2 MiB of all files, in order, as file and offset. `None` where a file cannot be opened for direct reads.
fn pieces_of(
    files: &[PathBuf],
    open: impl Fn(&Path) -> Option<File>,
) -> Option<Vec<(Arc<File>, u64)>> {
    let mut pieces = Vec::new();
    for path in files {
        let file = Arc::new(open(path)?);
        let len = file.metadata().ok()?.len();
        let places = (0..len).step_by(HUGE_PAGE_BYTES);
        pieces.extend(places.map(|at| (Arc::clone(&file), at)));
    }
    Some(pieces)
}

fn next_piece<'a>(pieces: &'a [(Arc<File>, u64)], next: &AtomicUsize) -> Option<(&'a File, u64)> {
    let (file, at) = pieces.get(next.fetch_add(1, Ordering::Relaxed))?;
    Some((file, *at))
}

/// Runs `work` in `threads` threads; returns the sum of their results.
fn in_threads(threads: usize, work: impl Fn() -> u64 + Sync) -> u64 {
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        let done = running.into_iter().map(|thread| thread.join().unwrap_or(0));
        done.sum()
    })
}
