//! The disk's own random-read rate: the yardstick for lookups. Plain reads of 4 KiB, a thread each, as many at once as the goal says; nothing of the engine is in
//! their way. They go to all files alike, as lookups do: one file alone is soon in the cache of a host or of a drive.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use onefold_index::workload::{Asked, Order};

use super::Error;
use super::figures::PAGE_BYTES;

/// Reads under way.
pub const DEPTH: u64 = 32;

/// Reads a second at random places of the files in `folder`, past the page cache unless `cached`.
pub fn random_reads(folder: &Path, cached: bool, time: Duration, seed: u64) -> Result<f64, Error> {
    let files = files(folder, cached)?;
    let pages: u64 = files.iter().map(|(_, pages)| pages).sum();
    if pages == 0 {
        return Err("the index has no file of a page".into());
    }
    let start = Instant::now();
    let read_some = |thread: u64| {
        let mut places = Asked::new(Order::Random, pages, seed.wrapping_add(thread));
        let mut buffer = vec![0; 2 * PAGE_BYTES as usize];
        let aligned = buffer.as_ptr().align_offset(PAGE_BYTES as usize);
        let page = &mut buffer[aligned..][..PAGE_BYTES as usize];
        let mut reads = 0;
        while start.elapsed() < time {
            let (file, place) = place_of(&files, places.next().unwrap_or(0));
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

/// All files, and how many whole pages each has.
fn files(folder: &Path, cached: bool) -> std::io::Result<Vec<(File, u64)>> {
    let mut options = File::options();
    options.read(true);
    if !cached {
        options.custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && metadata.len() >= PAGE_BYTES {
            files.push((options.open(entry.path())?, metadata.len() / PAGE_BYTES));
        }
    }
    Ok(files)
}

/// Which file the page of this number is in, counted through all of them, and where.
fn place_of<T>(files: &[(T, u64)], mut page: u64) -> (&T, u64) {
    for (file, pages) in files {
        if page < *pages {
            return (file, page);
        }
        page -= pages;
    }
    (&files[0].0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_every_file_has_a_number() {
        let files = [('a', 2), ('b', 1), ('c', 3)];
        let places: Vec<_> = (0..6).map(|page| place_of(&files, page)).collect();
        let expected = [('a', 0), ('a', 1), ('b', 0), ('c', 0), ('c', 1), ('c', 2)];
        for (place, (file, at)) in places.iter().zip(&expected) {
            assert_eq!((*place.0, place.1), (*file, *at));
        }
    }
}
