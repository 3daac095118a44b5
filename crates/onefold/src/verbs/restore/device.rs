//! Restoring the image of a device onto a block device, or into a volume of a depot: bytes are written where they were,
//! holes as zeros, which take no space in a volume.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use onefold_backup::dump::{self, WriteHoles};
use onefold_backup::tree::Tree;
use onefold_backup::{Entry, Kind, Progress};
use onefold_export::{RawDevice, attach, carry_out, flush};
use onefold_store::{ChunkReader, SessionKind};
use onefold_volume::front::WhenFull;
use onefold_volume::{BlockDevice, Buffer, Depot, Op};
use serde_json::json;

use super::{Args, OverwriteWhen};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human;
use crate::out::Out;
use crate::progress::{Doing, Meter};
use crate::repository;
use crate::select::{self, Spec};
use crate::verbs::volume::{HeadName, now, open_depot};

const PREFIX: &[u8] = b"volume:";
/// Bytes that are written together.
const BYTES_AT_ONCE: usize = 1 << 20;
/// Bytes of a hole that are zeroed together: a device may have to write them.
const HOLE_BYTES_AT_ONCE: u64 = 64 << 20;

/// A device to restore onto.
struct RestoreTarget {
    device: Arc<dyn BlockDevice>,
    /// The depot, where the device is one of its volumes.
    depot: Option<Depot>,
    /// The volume, where this restore has made it.
    new_volume: Option<String>,
}

/// Whether a target is a block device or a volume, and no folder.
pub fn is_one(target: &OsStr) -> bool {
    let is_block = |path: &Path| {
        path.metadata()
            .is_ok_and(|it| it.file_type().is_block_device())
    };
    target.as_bytes().starts_with(PREFIX) || is_block(Path::new(target))
}

/// Restores the one file of a snapshot, or the one that is named, onto the target.
///
/// # Errors
/// The snapshot has no such file; the device is in use or too small, or the volume is there and `--overwrite` does not
/// say that it may go; the repository or the device failed; with `--verify`, the device reads as something else.
pub fn run(args: &Args, spec: &Spec, global: &Global, out: &Out) -> Result<Exit> {
    refuse_options(args)?;
    let repository = repository::open(global, "a restore")?;
    let session = repository.session(SessionKind::Read)?;
    let named = select::one(&repository, &spec.snapshot, &args.filter.filter()?)?;
    let path = match (&spec.path[..], &named.snapshot.paths[..]) {
        ([], [one]) => one.clone(),
        (path, _) => path.to_vec(),
    };
    let mut reader = session.reader()?;
    let tree = Tree::open(&named.snapshot, &mut reader)?;
    let entry = tree.entry(&path, &mut reader)?;
    let entry = entry.filter(|entry| entry.kind == Kind::File && !entry.is_unreadable());
    let Some(entry) = entry else {
        return Err(Error::Usage(format!(
            "{} is no whole file of the snapshot: name one as SNAPSHOT:PATH",
            String::from_utf8_lossy(&path)
        )));
    };
    if args.dry_run {
        return tell(args, &entry, "would restore", out);
    }
    let opened = RestoreTarget::open(args, &entry)?;
    let meter = Meter::new(Doing::Restore, out);
    let image = DeviceImage {
        path: &path,
        entry: &entry,
        progress: &meter.progress,
    };
    let restored: Result<()> = meter.run(|| {
        image.write_onto(&*opened.device, &mut reader)?;
        opened.flush()?;
        if args.verify {
            image.compare_with(&*opened.device, &mut reader)?;
        }
        Ok(())
    });
    let closed = opened.close(restored.is_err());
    restored?;
    closed?;
    session.finish()?;
    tell(args, &entry, "restored", out)
}

/// # Errors
/// [`Error::Usage`]: an option is given that is for files.
fn refuse_options(args: &Args) -> Result<()> {
    let is_any = |patterns: &[&[OsString]]| patterns.iter().any(|them| !them.is_empty());
    let is_kept = matches!(args.overwrite, Some(when) if !matches!(when, OverwriteWhen::Always));
    let includes = [
        &*args.include,
        &args.iinclude,
        &args.include_file,
        &args.iinclude_file,
    ];
    let excludes = [
        &*args.exclude,
        &args.iexclude,
        &args.exclude_file,
        &args.iexclude_file,
    ];
    let given = [
        ("--include", is_any(&includes)),
        ("--exclude", is_any(&excludes)),
        ("--delete", args.delete),
        ("--overwrite other than always", is_kept),
        ("--no-owners", args.no_owners),
        ("--no-modes", args.no_modes),
        ("--numeric-owner", args.numeric_owner),
        ("--no-xattrs", args.no_xattrs),
        ("--include-xattr", !args.include_xattr.is_empty()),
        ("--exclude-xattr", !args.exclude_xattr.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Error::Usage(format!(
            "{option} is for files, and onto a device or volume goes one image as a whole"
        ))),
    }
}

fn tell(args: &Args, entry: &Entry, did: &str, out: &Out) -> Result<Exit> {
    if out.json {
        out.json(&json!({
            "message_type": "summary",
            "dry_run": args.dry_run,
            "total_bytes": entry.size,
            "target": args.target.to_string_lossy(),
        }))?
    } else {
        out.say(format_args!(
            "{did} {} onto {}",
            human::bytes(entry.size),
            args.target.display()
        ))?
    }
    Ok(Exit::Ok)
}

impl RestoreTarget {
    /// Opens the device, which must be large enough, or the volume, which is made where it is missing.
    fn open(args: &Args, entry: &Entry) -> Result<Self> {
        let opened = match args.target.as_bytes().strip_prefix(PREFIX) {
            None => {
                let path = Path::new(&args.target);
                attach::confirm_unused(path, "restore")?;
                Self {
                    device: Arc::new(RawDevice::open(path, "target", true)?),
                    depot: None,
                    new_volume: None,
                }
            }
            Some(name) => {
                let Ok(name) = String::from_utf8_lossy(name).parse();
                Self::open_volume(&name, entry.size, args.overwrite.is_some())?
            }
        };
        let bytes = opened.device.geometry().bytes;
        if bytes < entry.size {
            Err(Error::Usage(format!(
                "{} has {bytes} bytes, and {} are to be restored: make it larger first",
                args.target.display(),
                entry.size
            )))
        } else {
            Ok(opened)
        }
    }

    fn open_volume(name: &HeadName, bytes: u64, may_overwrite: bool) -> Result<Self> {
        let volume = name.named_volume()?;
        let depot = open_depot(&name.depot, None, WhenFull::Fail)?;
        let mut is_new = false;
        let head = match depot.heads().into_iter().find(|head| head.name == volume) {
            Some(_) if !may_overwrite => {
                return Err(Error::Usage(format!(
                    "volume {volume} is there already: name another one, or give --overwrite always"
                )));
            }
            Some(head) => head,
            None => {
                is_new = true;
                depot.create_volume(volume, bytes.max(1), now())?
            }
        };
        let deleted = || Error::Failed(format!("volume {volume} was deleted meanwhile"));
        let device = depot.device(head.id).ok_or_else(deleted)?;
        let new_volume = is_new.then(|| volume.to_owned());
        Ok(Self {
            device,
            depot: Some(depot),
            new_volume,
        })
    }

    fn flush(&self) -> Result<()> {
        Ok(flush(&*self.device)?)
    }

    /// Closes the depot. A volume that was made for a restore that `has_failed` goes again: another try may make it.
    fn close(self, has_failed: bool) -> Result<()> {
        drop(self.device);
        let Some(depot) = self.depot else {
            return Ok(());
        };
        if let Some(volume) = self.new_volume.filter(|_| has_failed) {
            depot.delete_head(&volume)?;
        }
        Ok(depot.close()?)
    }
}

/// The image of a device in a snapshot.
struct DeviceImage<'a> {
    path: &'a [u8],
    entry: &'a Entry,
    progress: &'a Progress,
}

impl DeviceImage<'_> {
    /// Writes it onto a device. What lies behind it on a larger device stays.
    fn write_onto(&self, device: &dyn BlockDevice, reader: &mut ChunkReader) -> Result<()> {
        let progress = self.progress;
        progress.files_total.store(1, Relaxed);
        progress.bytes_total.store(self.entry.size, Relaxed);
        progress.totals_known.store(true, Relaxed);
        let write = |part: ImagePart<'_>| {
            let (op, buffer) = match part.data {
                Some(data) => (Op::Write, Buffer::copy_of(data)),
                None => (Op::WriteZeroes, Buffer::zeroed(0)),
            };
            carry_out(device, op, part.range.clone(), buffer)?;
            let bytes = part.range.end - part.range.start;
            progress.bytes_moved.fetch_add(bytes, Relaxed);
            Ok(())
        };
        self.for_each_part(reader, write)?;
        progress.files_done.store(1, Relaxed);
        progress.bytes_done.store(self.entry.size, Relaxed);
        Ok(())
    }

    /// Reads a device, and compares it with the image.
    fn compare_with(&self, device: &dyn BlockDevice, reader: &mut ChunkReader) -> Result<()> {
        self.progress.is_verifying.store(true, Relaxed);
        self.for_each_part(reader, |part| {
            part.compare_with(device)?;
            let bytes = part.range.end - part.range.start;
            self.progress.bytes_verified.fetch_add(bytes, Relaxed);
            Ok(())
        })
    }

    fn for_each_part(
        &self,
        reader: &mut ChunkReader,
        mut take: impl FnMut(ImagePart<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut cutter = PartCutter {
            at: 0,
            buffer: Vec::with_capacity(BYTES_AT_ONCE),
            failure: None,
            take: &mut |part| {
                if self.progress.is_cancelled() {
                    return Err(onefold_backup::Error::Cancelled.into());
                }
                take(part)
            },
        };
        let came = dump::file_with_holes(self.path, self.entry, reader, &mut cutter, &mut ());
        // Its failure is kept.
        let _ = cutter.pass_on();
        match (cutter.failure, came) {
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => Err(error.into()),
            (None, Ok(())) if cutter.at == self.entry.size => Ok(()),
            (None, Ok(())) => Err(Error::Failed(format!(
                "{} of {} bytes came",
                cutter.at, self.entry.size
            ))),
        }
    }
}

/// A part of an image.
struct ImagePart<'a> {
    range: Range<u64>,
    /// Its bytes; `None`: a hole.
    data: Option<&'a [u8]>,
}

impl ImagePart<'_> {
    /// # Errors
    /// [`Error::Damaged`]: the device holds something else there; it failed.
    fn compare_with(&self, device: &dyn BlockDevice) -> Result<()> {
        let Range { start, end } = self.range;
        for at in (start..end).step_by(BYTES_AT_ONCE) {
            let bytes = (end - at).min(BYTES_AT_ONCE as u64) as usize;
            let range = at..at + bytes as u64;
            let found = carry_out(device, Op::Read, range, Buffer::zeroed(bytes))?;
            let from = (at - start) as usize;
            let expected = |place: usize| self.data.map_or(0, |data| data[from + place]);
            if let Some(place) = (0..bytes).find(|place| found[*place] != expected(*place)) {
                return Err(Error::Damaged(format!(
                    "the device reads otherwise than it was written: byte {} is {}, expected {}",
                    at + place as u64,
                    found[place],
                    expected(place)
                )));
            }
        }
        Ok(())
    }
}

/// Cuts an image into parts.
struct PartCutter<'a> {
    /// Where the buffer belongs.
    at: u64,
    buffer: Vec<u8>,
    take: &'a mut dyn FnMut(ImagePart<'_>) -> Result<()>,
    /// Failure of `take`, which no error of the system can hold.
    failure: Option<Error>,
}

impl PartCutter<'_> {
    fn pass_on(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let passed = self.pass(buffer.len() as u64, Some(&buffer));
        self.buffer = buffer;
        self.buffer.clear();
        passed
    }

    fn pass(&mut self, bytes: u64, data: Option<&[u8]>) -> io::Result<()> {
        let range = self.at..self.at + bytes;
        self.at = range.end;
        (self.take)(ImagePart { range, data }).map_err(|failure| {
            let told = io::Error::other(failure.to_string());
            self.failure.get_or_insert(failure);
            told
        })
    }
}

impl Write for PartCutter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Parts begin and end where chunks do.
        let used = self.buffer.len() + (self.at % BYTES_AT_ONCE as u64) as usize;
        let part = bytes.len().min(BYTES_AT_ONCE.saturating_sub(used).max(1));
        self.buffer.extend_from_slice(&bytes[..part]);
        if (self.at + self.buffer.len() as u64).is_multiple_of(BYTES_AT_ONCE as u64) {
            self.pass_on()?;
        }
        Ok(part)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteHoles for PartCutter<'_> {
    fn hole(&mut self, bytes: u64) -> io::Result<()> {
        self.pass_on()?;
        let mut left = bytes;
        while left > 0 {
            let part = left.min(HOLE_BYTES_AT_ONCE);
            self.pass(part, None)?;
            left -= part;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_reads_otherwise_is_told_by_the_byte() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        let data = vec![7; BYTES_AT_ONCE];
        let (middle, end) = (BYTES_AT_ONCE as u64, 3 * BYTES_AT_ONCE as u64);
        let parts = [(0..middle, Some(&data[..])), (middle..end, None)]
            .map(|(range, data)| ImagePart { range, data });
        let mut content = data.clone();
        content.resize(3 * BYTES_AT_ONCE, 0);
        std::fs::write(&path, &content).expect("written");
        let device = RawDevice::open(&path, "target", false).expect("a file");
        for part in &parts {
            part.compare_with(&device).expect("equal");
        }
        content[5] = 8;
        content[2 * BYTES_AT_ONCE + 9] = 1;
        std::fs::write(&path, &content).expect("written");
        let device = RawDevice::open(&path, "target", false).expect("a file");
        for (part, told) in parts
            .iter()
            .zip(["byte 5 is 8, expected 7", "byte 2097161 is 1, expected 0"])
        {
            let error = part.compare_with(&device).expect_err("they differ");
            assert_eq!(error.exit(), Exit::Damaged);
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
