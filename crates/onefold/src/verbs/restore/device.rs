//! Restoring the image of a device onto a block device, or into a volume of a depot: bytes are written where they were,
//! holes as zeros, which take no space in a volume.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use onefold_backup::dump::{self, WriteHoles};
use onefold_backup::tree::Tree;
use onefold_backup::{Entry, Kind};
use onefold_export::{RawDevice, attach, carry_out, flush};
use onefold_store::SessionKind;
use onefold_volume::front::WhenFull;
use onefold_volume::{BlockDevice, Buffer, Depot, Op};
use serde_json::json;

use super::Args;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human;
use crate::out::Out;
use crate::repository;
use crate::select::{self, Spec};
use crate::verbs::volume::{HeadName, now, open_depot};

const PREFIX: &[u8] = b"volume:";
/// Bytes that are written together.
const BYTES_AT_ONCE: usize = 1 << 20;

/// A device to restore onto.
enum RestoreTarget {
    Device(Arc<dyn BlockDevice>),
    Volume(Depot, Arc<dyn BlockDevice>),
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
/// The snapshot has no such file, or the device is in use or too small; the repository or the device failed.
pub fn run(args: &Args, spec: &Spec, global: &Global, out: &Out) -> Result<Exit> {
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
    let opened = RestoreTarget::open(&args.target, &entry)?;
    let mut writer = DeviceWriter {
        device: opened.device(),
        at: 0,
        buffer: Vec::with_capacity(BYTES_AT_ONCE),
    };
    dump::file_with_holes(&path, &entry, &mut reader, &mut writer, &mut ())?;
    let failed = |error| Error::io(format!("write {}", args.target.display()), error);
    writer.finish(entry.size).map_err(failed)?;
    drop(writer);
    opened.close()?;
    session.finish()?;
    tell(args, &entry, "restored", out)
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
    fn open(target: &OsStr, entry: &Entry) -> Result<Self> {
        let opened = match target.as_bytes().strip_prefix(PREFIX) {
            None => {
                let path = Path::new(target);
                attach::confirm_unused(path, "restore")?;
                let device = RawDevice::open(path, "target", true)?;
                Self::Device(Arc::new(device))
            }
            Some(name) => {
                let Ok(name) = String::from_utf8_lossy(name).parse::<HeadName>();
                let volume = name.named_volume()?;
                let depot = open_depot(&name.depot, None, WhenFull::Fail)?;
                let head = match depot.heads().into_iter().find(|head| head.name == volume) {
                    Some(head) => head,
                    None => depot.create_volume(volume, entry.size.max(1), now())?,
                };
                let device = depot.device(head.id).ok_or_else(|| {
                    Error::Failed(format!("volume {volume} was deleted meanwhile"))
                })?;
                Self::Volume(depot, device)
            }
        };
        let bytes = opened.device().geometry().bytes;
        if bytes < entry.size {
            Err(Error::Usage(format!(
                "{} has {bytes} bytes, and {} are to be restored: make it larger first",
                target.display(),
                entry.size
            )))
        } else {
            Ok(opened)
        }
    }

    fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::Device(device) | Self::Volume(_, device) => &**device,
        }
    }

    fn close(self) -> Result<()> {
        flush(self.device())?;
        match self {
            Self::Device(_) => Ok(()),
            Self::Volume(depot, device) => {
                drop(device);
                Ok(depot.close()?)
            }
        }
    }
}

/// Writes one byte behind the other.
struct DeviceWriter<'a> {
    device: &'a dyn BlockDevice,
    /// Where the buffer belongs.
    at: u64,
    buffer: Vec<u8>,
}

impl DeviceWriter<'_> {
    fn write_out(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let end = self.at + self.buffer.len() as u64;
        let mut buffer = Buffer::zeroed(self.buffer.len());
        buffer.copy_from_slice(&self.buffer);
        self.buffer.clear();
        let range = self.at..end;
        self.at = end;
        carry_out(self.device, Op::Write, range, buffer).map_err(io::Error::other)
    }

    /// Writes what is left. What lies behind the image on a larger device stays.
    fn finish(&mut self, size: u64) -> io::Result<()> {
        self.write_out()?;
        if self.at == size {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "{} of {size} bytes came",
                self.at
            )))
        }
    }
}

impl Write for DeviceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Writes begin and end where chunks do.
        let used = self.buffer.len() + (self.at % BYTES_AT_ONCE as u64) as usize;
        let part = bytes.len().min(BYTES_AT_ONCE.saturating_sub(used).max(1));
        self.buffer.extend_from_slice(&bytes[..part]);
        if (self.at + self.buffer.len() as u64).is_multiple_of(BYTES_AT_ONCE as u64) {
            self.write_out()?;
        }
        Ok(part)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteHoles for DeviceWriter<'_> {
    fn hole(&mut self, bytes: u64) -> io::Result<()> {
        self.write_out()?;
        let range = self.at..self.at + bytes;
        self.at = range.end;
        carry_out(self.device, Op::WriteZeroes, range, Buffer::zeroed(0)).map_err(io::Error::other)
    }
}
