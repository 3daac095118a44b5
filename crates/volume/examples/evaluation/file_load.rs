//! The load of a file server: Filebench's `fileserver` with unique data, as the report ran it (p. 11, p. 35).
//!
//! A loop writes a new file, appends to one, reads one, deletes one and asks for the size of one. Files have a mean of
//! 128 KiB (gamma, 1.5), folders 20 entries, and four of five files are there before the load begins.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_io::Random;

use crate::Error;
use crate::recorder::MARK;
use crate::setup::CHUNK_BYTES;

const FOLDER_ENTRIES: u64 = 20;
const FILE_BYTES_MEAN: f64 = 128.0 * 1024.0;
const GAMMA: f64 = 1.5;
const APPENDED_BYTES_MAX: u64 = 16 << 10;
/// Sizes are multiples of this, so that a mark fits at the end of each file.
const UNIT_BYTES: u64 = 16;
/// Filebench has 50 threads: here the host has few cores, and the device below keeps up with them.
const THREADS: u64 = 16;
/// Loops after which the file system writes out what it holds. This host runs the load in seconds, in which nothing
/// would grow old enough to be written; the report's disk takes a minute for as many.
const LOOPS_A_SYNC: u64 = 1000;

/// A file server's folder on a mounted file system.
pub struct FileServer<'a> {
    root: &'a Path,
    files: u64,
    seed: u64,
    /// Number of the next piece of data.
    next: AtomicU64,
    loops: AtomicU64,
}

/// The files of one thread, by number.
struct Files {
    there: Vec<u64>,
    missing: Vec<u64>,
    random: Random,
}

impl<'a> FileServer<'a> {
    /// A server of so many files, of which none is there yet.
    pub fn new(root: &'a Path, files: u64, seed: u64) -> Self {
        Self {
            root,
            files,
            seed,
            next: AtomicU64::new(1),
            loops: AtomicU64::new(0),
        }
    }

    /// Writes four of five files, calls `begin`, and runs `loops` loops.
    ///
    /// # Errors
    /// The file system failed.
    pub fn run(&self, loops: u64, begin: impl FnOnce()) -> Result<(), Error> {
        for folder in 0..self.files.div_ceil(FOLDER_ENTRIES) {
            fs::create_dir_all(self.folder(folder))?;
        }
        let mut all: Vec<Files> = (0..THREADS).map(|thread| self.files_of(thread)).collect();
        self.side_by_side(&mut all, |files| {
            for number in files.there.clone() {
                self.create(number, &mut files.random)?;
            }
            Ok(())
        })?;
        self.sync()?;
        begin();
        self.side_by_side(&mut all, |files| {
            while self.loops.fetch_add(1, Ordering::Relaxed) < loops {
                self.one_loop(files)?;
            }
            Ok(())
        })?;
        self.sync()
    }

    fn files_of(&self, thread: u64) -> Files {
        let mine = (0..self.files).filter(|number| number % THREADS == thread);
        let (missing, there) = mine.partition(|number| number / THREADS % 5 == 4);
        Files {
            there,
            missing,
            random: Random(self.seed ^ thread << 32),
        }
    }

    fn side_by_side(
        &self,
        all: &mut [Files],
        work: impl Fn(&mut Files) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        std::thread::scope(|scope| {
            let work = &work;
            let start = |files| scope.spawn(move || work(files));
            let threads: Vec<_> = all.iter_mut().map(start).collect();
            (threads.into_iter()).try_for_each(|thread| thread.join().expect("a thread panicked"))
        })
    }

    fn one_loop(&self, files: &mut Files) -> Result<(), Error> {
        let Files {
            there,
            missing,
            random,
        } = files;
        if let Some(number) = taken(missing, random) {
            self.create(number, random)?;
            there.push(number);
        }
        if let Some(number) = picked(there, random) {
            self.append(number, random)?;
        }
        if let Some(number) = picked(there, random) {
            File::open(self.file(number))?.read_to_end(&mut Vec::new())?;
        }
        if let Some(number) = taken(there, random) {
            fs::remove_file(self.file(number))?;
            missing.push(number);
        }
        if let Some(number) = picked(there, random) {
            fs::metadata(self.file(number))?;
        }
        match self.loops.load(Ordering::Relaxed) % LOOPS_A_SYNC {
            0 => self.sync(),
            _ => Ok(()),
        }
    }

    fn create(&self, number: u64, random: &mut Random) -> Result<(), Error> {
        let bytes = self.unique(0, size(random));
        Ok(File::create(self.file(number))?.write_all(&bytes)?)
    }

    fn append(&self, number: u64, random: &mut Random) -> Result<(), Error> {
        let mut file = OpenOptions::new().append(true).open(self.file(number))?;
        let bytes = (1 + random.below(APPENDED_BYTES_MAX / UNIT_BYTES)) * UNIT_BYTES;
        Ok(file.write_all(&self.unique(file.metadata()?.len(), bytes))?)
    }

    /// Bytes for a place in a file: a mark and a number at their beginning, and at that of each chunk.
    fn unique(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        let mut at = 0;
        while at < len {
            let place = &mut bytes[at as usize..];
            place[..8].copy_from_slice(&MARK);
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            place[8..16].copy_from_slice(&number.to_le_bytes());
            at += CHUNK_BYTES - (offset + at) % CHUNK_BYTES;
        }
        bytes
    }

    /// Has the file system write out all that it holds.
    fn sync(&self) -> Result<(), Error> {
        let status = Command::new("sync").arg("-f").arg(self.root).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("sync: {status}").into())
        }
    }

    fn folder(&self, number: u64) -> PathBuf {
        let above = self.root.join(format!("d{}", number / FOLDER_ENTRIES));
        above.join(format!("d{}", number % FOLDER_ENTRIES))
    }

    fn file(&self, number: u64) -> PathBuf {
        let folder = self.folder(number / FOLDER_ENTRIES);
        folder.join(format!("f{number:08}"))
    }
}

/// Takes one of these numbers out.
fn taken(numbers: &mut Vec<u64>, random: &mut Random) -> Option<u64> {
    let len = numbers.len() as u64;
    (len > 0).then(|| numbers.swap_remove(random.below(len) as usize))
}

fn picked(numbers: &[u64], random: &mut Random) -> Option<u64> {
    let len = numbers.len() as u64;
    (len > 0).then(|| numbers[random.below(len) as usize])
}

/// Bytes of a file: a gamma distribution of one and a half is an exponential one and half a square of a normal one.
fn size(random: &mut Random) -> u64 {
    let mut exponential = || -(1.0 - random.unit()).ln();
    let (whole, half) = (exponential(), exponential());
    let turn = (std::f64::consts::TAU * random.unit()).cos();
    let bytes = FILE_BYTES_MEAN / GAMMA * (whole + half * turn * turn);
    (bytes as u64 / UNIT_BYTES).max(1) * UNIT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{Chunk, Kind};

    #[test]
    fn sizes_have_the_mean_and_the_spread_of_the_distribution() {
        let mut random = Random(1);
        let all: Vec<f64> = (0..20_000).map(|_| size(&mut random) as f64).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let squares: f64 = all.iter().map(|size| (size - mean).powi(2)).sum();
        let variance = squares / all.len() as f64;
        assert!((mean / FILE_BYTES_MEAN - 1.0).abs() < 0.03, "{mean}");
        let gamma = mean * mean / variance;
        assert!((gamma / GAMMA - 1.0).abs() < 0.1, "{gamma}");
    }

    #[test]
    fn each_chunk_of_a_file_is_marked_and_unique() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = FileServer::new(folder.path(), 100, 1);
        server.run(200, || {}).expect("a load");
        let (mut chunks, mut files) = (Vec::new(), 0);
        for number in 0..100 {
            let Ok(bytes) = fs::read(server.file(number)) else {
                continue;
            };
            files += 1;
            for chunk in bytes.chunks(CHUNK_BYTES as usize) {
                assert_eq!(Chunk::of(chunk).kind, Kind::Data);
                chunks.push(Chunk::of(chunk).content);
            }
        }
        assert!((60..=90).contains(&files), "{files}");
        let all = chunks.len();
        chunks.sort_unstable();
        chunks.dedup();
        assert_eq!(chunks.len(), all);
    }
}
