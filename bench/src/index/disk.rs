//! The disk's own random-read rate: the yardstick for lookups. Reads of 4 KiB in the engine's own batches, with as many
//! at the device at once as in the goal, and as in lookups, at random places of the very files that lookups read: the
//! runs, where an index has any. Yardstick and lookups then differ in the index alone. Other ways to read, or files
//! that lookups do not read, would measure something else: a file that was just written may be in the cache of a host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_io::{Dir, Disk, IN_FLIGHT_MAX, ReadFrom, read_across_within, uring_works};
use onefold_papers::workload::{Asked, Order};

use super::Error;
use super::figures::PAGE_BYTES;

/// Numbers of reads at the device at once: that of the goal, and that of a batch of lookups.
pub const DEPTHS: [usize; 2] = [32, IN_FLIGHT_MAX];

/// Reads in a batch: enough that its end, with fewer reads under way, counts for little.
const BATCH: usize = 1024;

/// Prefix of the files that lookups read, in an index that has such files.
const RUNS: &str = "run-";

/// Files to read at random.
pub struct Yardstick {
    files: Vec<(Arc<dyn Disk>, u64)>,
    pages: u64,
    of_runs: bool,
    buffer: Vec<u8>,
}

impl Yardstick {
    /// The yardstick for the index in `dir`.
    pub fn new(dir: &dyn Dir) -> Result<Self, Error> {
        let mut files = files(dir, RUNS)?;
        let of_runs = !files.is_empty();
        if !of_runs {
            files = self::files(dir, "")?;
        }
        let pages = files.iter().map(|(_, pages)| pages).sum();
        if pages == 0 {
            return Err("the index has no file of a page".into());
        }
        Ok(Self {
            files,
            pages,
            of_runs,
            buffer: vec![0; (BATCH + 1) * PAGE_BYTES as usize],
        })
    }

    /// Description of the reads, in words.
    pub fn words(&self, depth: usize) -> String {
        let way = if uring_works() { "io_uring" } else { "threads" };
        let files = if self.of_runs {
            "run-* alone"
        } else {
            "all files"
        };
        format!(
            "the engine's batches of 4 KiB reads at random, {depth} in flight by {way}, in {files}"
        )
    }

    /// Reads a second, with `depth` of them under way.
    pub fn rate(&mut self, depth: usize, time: Duration, seed: u64) -> Result<f64, Error> {
        let mut places = Asked::new(Order::Random, self.pages, seed);
        let start = Instant::now();
        let mut reads = 0u64;
        while start.elapsed() < time {
            let batch: Vec<u64> = places.by_ref().take(BATCH).collect();
            self.read(&batch, depth)?;
            reads += batch.len() as u64;
        }
        Ok(reads as f64 / start.elapsed().as_secs_f64())
    }

    fn read(&mut self, places: &[u64], depth: usize) -> Result<(), Error> {
        let aligned = self.buffer.as_ptr().align_offset(PAGE_BYTES as usize);
        let pages = self.buffer[aligned..].chunks_exact_mut(PAGE_BYTES as usize);
        let read = |(place, buf)| {
            let (disk, page) = place_of(&self.files, place);
            ReadFrom {
                disk: &**disk,
                offset: page * PAGE_BYTES,
                buf,
            }
        };
        let mut reads: Vec<_> = places.iter().copied().zip(pages).map(read).collect();
        Ok(read_across_within(&mut reads, depth)?)
    }
}

/// The files whose names begin with `begin`, each with its number of whole pages.
fn files(dir: &dyn Dir, begin: &str) -> onefold_io::Result<Vec<(Arc<dyn Disk>, u64)>> {
    let entries = dir.list()?.into_iter();
    let names = entries.filter(|entry| !entry.is_dir && entry.name.starts_with(begin));
    let mut files = Vec::new();
    for entry in names {
        let disk = dir.open(&entry.name)?;
        match disk.len()? / PAGE_BYTES {
            0 => {}
            pages => files.push((disk, pages)),
        }
    }
    Ok(files)
}

/// The file and the page in it for page `page`, counted through all files.
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
    use onefold_io::MemDir;

    use super::*;

    /// A log, which random lookups do not read, is left out; of an index without runs all files are read.
    #[test]
    fn the_files_that_lookups_go_to_are_read() {
        let dir = MemDir::new();
        let make = |name, pages: u64| {
            let disk = dir.create(name).unwrap();
            let page = vec![1; PAGE_BYTES as usize];
            (0..pages).for_each(|page_no| disk.write_at(&page, page_no * PAGE_BYTES).unwrap());
        };
        make("log-1", 5);
        let all = Yardstick::new(&dir).unwrap();
        assert_eq!((all.pages, all.of_runs), (5, false));
        make("run-1", 2);
        make("run-2", 1);
        let mut runs = Yardstick::new(&dir).unwrap();
        assert_eq!((runs.pages, runs.of_runs), (3, true));
        assert!(runs.rate(32, Duration::from_millis(1), 1).unwrap() > 0.0);
        assert!(runs.buffer.contains(&1), "nothing was read");
    }

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
