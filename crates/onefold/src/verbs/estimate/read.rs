//! Reads files on all cores, each by one thread, while the walk beside it finds the next.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use onefold_backup::backup::{SeenFiles, read};
use onefold_backup::walk::{self, Walk};
use onefold_backup::{Error as BackupError, Events, Kind, Progress, path};
use onefold_lab::{Helpers, Reading, Tallies};

use super::Args;
use crate::error::{Error, Result};
use crate::global::Global;
use crate::out::Out;
use crate::paths;
use crate::progress::Meter;

/// RAM for files with several names, in bytes; further ones go to a temporary file.
const MET_BYTES: usize = 6 << 20;

/// Counts all files below the paths as a backup reads them, each once whatever the number of its names; returns how
/// many could not be read.
pub fn all(
    args: &Args,
    global: &Global,
    tallies: &Tallies,
    meter: &Meter,
    out: &Out,
) -> Result<u64> {
    let sources = args.paths.iter().map(|path| {
        paths::confirm_no_stdin(path)?;
        paths::absolute(path)
    });
    let sources = sources.collect::<Result<Vec<_>>>()?;
    for source in &sources {
        std::fs::symlink_metadata(std::ffi::OsStr::from_bytes(source))
            .map_err(|e| Error::io(format!("look at {}", paths::shown(source)), e))?;
    }
    let options = walk::Options {
        threads: 1,
        excludes: args.leave_out.excludes(out)?.0.into(),
        one_file_system: args.leave_out.one_file_system,
        read_special: false,
        open_files: 0,
        failing: walk::SOUND,
    };
    // A chunker that cannot be made is reported before the walk begins.
    Reading::new(tallies).map_err(|error| Error::Usage(error.to_string()))?;
    let walk = Mutex::new(WalkedFiles::new(Walk::start(&sources, &options)?, meter));
    let threads = threads(global);
    let helpers = Helpers::default();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if meter.is_shown() {
            let scan = Walk::start(&sources, &options)?;
            scope.spawn(|| meter.expected.count(scan, &ended));
        }
        let worker = || work(&walk, tallies, &helpers, meter);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let join = |worker: ScopedJoinHandle<Result<()>>| {
            let done = worker.join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let done: Vec<_> = workers.into_iter().map(join).collect();
        ended.store(true, Relaxed);
        done.into_iter().collect::<Result<()>>()
    })?;
    if meter.progress.is_cancelled() {
        return Err(BackupError::Cancelled.into());
    }
    Ok(meter.progress.errors.load(Relaxed))
}

fn threads(global: &Global) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    global.threads.map_or_else(cores, usize::from).max(1)
}

/// Counts standard input, on all cores.
pub fn stdin(args: &Args, global: &Global, tallies: &Tallies, meter: &Meter) -> Result<()> {
    let helpers = Helpers::new(threads(global) - 1);
    let reading = Reading::new(tallies).map_err(|error| Error::Usage(error.to_string()))?;
    let mut reading = reading.helped(&helpers);
    let (name, progress) = (paths::inside(&args.stdin_filename), &meter.progress);
    reading
        .stream(&name, &mut std::io::stdin().lock(), tick(progress))
        .map_err(|error| Error::io("read standard input", error))?;
    reading.finish();
    if progress.is_cancelled() {
        return Err(BackupError::Cancelled.into());
    }
    progress.files_done.fetch_add(1, Relaxed);
    Ok(())
}

/// Returns a function that counts bytes as they are read, and ends the reading after a signal.
fn tick(progress: &Progress) -> impl FnMut(usize) -> bool {
    |bytes| {
        progress.bytes_done.fetch_add(bytes as u64, Relaxed);
        progress.bytes_moved.fetch_add(bytes as u64, Relaxed);
        !progress.is_cancelled()
    }
}

/// Reads file after file; where none is left, helps with the large ones that other threads still read.
fn work(
    files: &Mutex<WalkedFiles>,
    tallies: &Tallies,
    helpers: &Helpers,
    meter: &Meter,
) -> Result<()> {
    let reading = Reading::new(tallies).map_err(|error| Error::Usage(error.to_string()))?;
    let mut reading = reading.helped(helpers);
    loop {
        let next = files.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(file) = next else { break };
        let progress = &meter.progress;
        match file.read(&mut reading, progress) {
            Ok(()) => drop(progress.files_done.fetch_add(1, Relaxed)),
            Err(error) => {
                progress.errors.fetch_add(1, Relaxed);
                let path = &file.path;
                meter.error(path, &BackupError::io("read", path, error));
            }
        }
        if progress.is_cancelled() {
            break;
        }
    }
    reading.finish();
    helpers.join();
    Ok(())
}

/// A file that the walk has found.
struct FoundFile {
    /// Folder that the file lies in.
    dir: Arc<OwnedFd>,
    path: Vec<u8>,
}

impl FoundFile {
    /// Reads the file's data; holes are skipped, as in a backup.
    fn read(&self, reading: &mut Reading<'_>, progress: &Progress) -> io::Result<()> {
        let mut source = read::open_to_look(self.dir.as_fd(), path::split(&self.path).1)?;
        if !source.may_have_holes() {
            return reading.stream(&self.path, &mut source, tick(progress));
        }
        let size = source.stat.size;
        let passed = |hole: u64| {
            progress.bytes_done.fetch_add(hole, Relaxed);
        };
        let (mut offset, mut begins) = (0, true);
        while let Some(data) = source.data_from(offset)?.filter(|data| data.start < size) {
            passed(data.start - offset);
            offset = data.end.min(size);
            let mut data = Read::take(&mut source, offset - data.start);
            if std::mem::take(&mut begins) {
                reading.stream(&self.path, &mut data, tick(progress))?
            } else {
                reading.behind_hole(&mut data, tick(progress))?
            }
            if progress.is_cancelled() {
                return Ok(());
            }
        }
        passed(size - offset);
        Ok(())
    }
}

/// Files of the walk, one after another.
struct WalkedFiles<'a, 'b> {
    walk: Walk,
    meter: &'a Meter<'b>,
    /// Folder of the current piece.
    place: Option<(Arc<OwnedFd>, Arc<[u8]>)>,
    names: std::vec::IntoIter<Vec<u8>>,
    met: SeenFiles,
}

impl<'a, 'b> WalkedFiles<'a, 'b> {
    fn new(walk: Walk, meter: &'a Meter<'b>) -> Self {
        Self {
            walk,
            meter,
            place: None,
            names: Vec::new().into_iter(),
            met: SeenFiles::new(MET_BYTES),
        }
    }

    fn next(&mut self) -> Option<FoundFile> {
        loop {
            if let Some((dir, folder)) = &self.place
                && let Some(name) = self.names.next()
            {
                let path = path::join(folder, &name);
                self.meter.progress.current.lock().clone_from(&path);
                let dir = dir.clone();
                return Some(FoundFile { dir, path });
            }
            let is_over = || self.meter.progress.is_cancelled();
            let piece = self.walk.next_unless(&is_over)?;
            for (path, error) in &piece.errors {
                self.meter.progress.errors.fetch_add(1, Relaxed);
                self.meter.error(path, error);
            }
            for (file, why) in &piece.warnings {
                self.meter.warning(file, &why.to_string());
            }
            self.place = None;
            if let Some(dir) = piece.dir {
                self.names = self.names_of(piece.found).into_iter();
                self.place = Some((dir, piece.folder));
            }
        }
    }

    /// Returns the names of a piece that must be read. Further names of files that were read count as done.
    fn names_of(&mut self, found: Vec<walk::WalkedEntry>) -> Vec<Vec<u8>> {
        let progress = &self.meter.progress;
        let mut names = Vec::new();
        for file in found {
            if file.stat.kind != Kind::File {
                continue;
            }
            if self.met.again(&file.stat) {
                progress.files_done.fetch_add(1, Relaxed);
                progress.bytes_done.fetch_add(file.stat.size, Relaxed);
                continue;
            }
            names.push(file.name);
        }
        names
    }
}
