//! `onefold volume cp`: copies a file with hints, as the report's `dd` did with PREFETCH.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use onefold_volume::hints::HintKind;
use rustix::fs::OFlags;

use super::copying::Copying;
use super::hinted_file::{HINTS_LAST, HintedFile};
use super::hinter::{HintName, Hinter};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;
use crate::signal;

/// Bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Copy a file of an attached volume with hints
///
/// With prefetch, the source is read past the page cache and the depot remembers where its chunks lie: writing the copy
/// asks no index. With nodedup, the copy is stored once more. In the end the copy is on the disk.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Hint for what is read (prefetch) or written (nodedup, incompressible)
    #[arg(long = "hint", value_name = "HINT", required = true)]
    pub hints: Vec<HintName>,

    /// File that is copied
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,

    /// The copy, or the folder for it
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    let _listening = signal::listen();
    let (source, bytes) = open_source(&args.source)?;
    let target = target_path(args);
    let prefetching = if args.hints.contains(&HintName::Prefetch) {
        Some(Prefetching::begin(&source, &args.source)?)
    } else {
        None
    };
    let copied = copy(args, &source, bytes, &target, out);
    if let Some(prefetching) = prefetching {
        prefetching.end()?;
    }
    copied
}

fn copy(args: &Args, source: &File, bytes: u64, target: &Path, out: &Out) -> Result<Exit> {
    let of_writes = args
        .hints
        .iter()
        .filter(|hint| **hint != HintName::Prefetch);
    let kinds = of_writes.copied().map(Into::into).collect();
    let mut written = HintedFile::create(target, source, kinds, Some(bytes))?;
    let copying = Copying {
        from: args.source.display().to_string(),
        block_bytes: BLOCK_BYTES,
        bytes_max: bytes,
        bytes_expected: Some(bytes),
        out,
    };
    let mut read = |buffer: &mut [u8], offset| read_block(source, buffer, offset);
    let copied = copying.run(&mut read, &mut written);
    // Also where the copy failed: its hints must not last.
    let finished = written.finish();
    let copied = copied?;
    let file = finished?;
    let set = source
        .metadata()
        .and_then(|found| file.set_permissions(found.permissions()));
    set.map_err(|error| Error::io(format!("set the mode of {}", target.display()), error))?;
    copying.tell(&copied)
}

/// Opens a file past the page cache, where its file system can do that, and returns its size.
fn open_source(path: &Path) -> Result<(File, u64)> {
    let failed = |error| Error::io(format!("open {}", path.display()), error);
    let mut options = File::options();
    options.read(true);
    let past = options
        .clone()
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(path);
    let file = match past {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => options.open(path),
        opened => opened,
    };
    let file = file.map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if found.is_file() {
        Ok((file, found.len()))
    } else {
        Err(Error::Usage(format!("{} is no file", path.display())))
    }
}

/// Reads a block, or what is left of the file.
fn read_block(source: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match source.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn target_path(args: &Args) -> PathBuf {
    let name = args.source.file_name().unwrap_or_default();
    if args.target.is_dir() {
        args.target.join(name)
    } else {
        args.target.clone()
    }
}

/// The hint PREFETCH for all of a file.
struct Prefetching {
    hinter: Hinter,
    ranges: Vec<std::ops::Range<u64>>,
}

impl Prefetching {
    fn begin(file: &File, path: &Path) -> Result<Self> {
        let hinter = Hinter::below(file, path)?;
        let ranges = hinter.ranges_of(file, path, 0..u64::MAX)?;
        hinter.hint(Some(&ranges), &[HintKind::Prefetch], Some(HINTS_LAST))?;
        Ok(Self { hinter, ranges })
    }

    fn end(self) -> Result<()> {
        let ranges = Some(&*self.ranges);
        self.hinter.unhint(ranges, &[HintKind::Prefetch]).map(drop)
    }
}
