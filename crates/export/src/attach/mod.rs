//! A device of this host: what `volume attach` makes, and what `detach` takes away, also when the daemon was killed.
//!
//! Invariant: no device outlives its daemon. A killed one takes writes with it that it has answered and not flushed;
//! if the device went on working, a file system on it would never learn of the loss.
//!
//! The private folder holds `lock` (held by the daemon), `attached` (the device, for a process that cleans up, and the
//! control socket, which is in a depot's own folder, or else here), and what a way to the kernel needs: `mount`, where
//! the file is that a loop device stands on, or `nbd`, the socket of the kernel's nbd.

mod transport;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_io::{Dir, FileDir, LockGuard, LockKind};
use onefold_volume::BlockDevice;
use serde_json::{Value, json};

pub use self::transport::Transport;
use self::transport::{KernelDevice, Left};
pub use crate::host::confirm_unused;
use crate::process::DYING_MAX;
use crate::{Error, Result, host};

/// How the kernel is given the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// The first way that works.
    Auto,
    /// This way.
    Only(Transport),
}

impl Via {
    /// Ways in the order in which they are tried.
    fn transports(self) -> Vec<Transport> {
        match self {
            Self::Auto => vec![Transport::Ublk, Transport::Nbd, Transport::Fuse],
            Self::Only(transport) => vec![transport],
        }
    }

    /// Whether the kernel has what one of the ways needs.
    ///
    /// # Errors
    /// [`Error::Missing`], for the last way.
    pub fn check(self) -> Result<()> {
        let mut last = Ok(());
        for transport in self.transports() {
            last = transport.check();
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Gives a device to the kernel by the first way that works. Returns which one, and in words why.
    fn give(
        self,
        device: &Arc<dyn BlockDevice>,
        folder: &Path,
    ) -> Result<(Transport, KernelDevice, String)> {
        let mut others = Vec::new();
        let transports = self.transports();
        for (number, transport) in transports.iter().enumerate() {
            match transport
                .check()
                .and_then(|()| KernelDevice::give(*transport, device, folder))
            {
                Ok(given) => return Ok((*transport, given, self.why(*transport, &others))),
                Err(error) if number + 1 == transports.len() => return Err(error),
                Err(error) => {
                    let cause = std::error::Error::source(&error);
                    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
                    others.push(format!("{}: {error}{cause}", transport.name()));
                }
            }
        }
        Err(Error::Missing {
            what: "there is no way to the kernel".into(),
        })
    }

    fn why(self, transport: Transport, others: &[String]) -> String {
        let name = match transport {
            Transport::Ublk => "ublk",
            Transport::Nbd => "the kernel's nbd",
            Transport::Fuse => "FUSE and a loop device",
        };
        match (self, others) {
            (Self::Only(_), _) => format!("by {name}, as asked for"),
            (Self::Auto, []) => format!("by {name}, the first way that is there"),
            (Self::Auto, others) => format!("by {name}; {}", others.join("; ")),
        }
    }
}

/// The folder of one attached device, locked by its daemon.
pub struct AttachFolder {
    folder: PathBuf,
    _lock: Box<dyn LockGuard>,
}

/// An attached device.
pub struct AttachedDevice {
    place: AttachFolder,
    /// The block device, for mkfs and mount.
    pub device: PathBuf,
    /// The way to the kernel.
    pub transport: Transport,
    /// Why this way, in words.
    pub why: String,
    given: KernelDevice,
}

impl AttachFolder {
    /// Makes the folder where it is missing, and locks it. What a killed daemon left there is taken away first.
    ///
    /// # Errors
    /// [`Error::InUse`] where a daemon lives there; what [`clean_up`] says.
    pub fn take(folder: &Path) -> Result<Self> {
        let place = Self::lock(folder)?;
        place.take_away_leftovers()?;
        Ok(place)
    }

    fn lock(folder: &Path) -> Result<Self> {
        let dir = FileDir::create(folder).map_err(onefold_volume::Error::from)?;
        let lock = dir
            .lock("lock", LockKind::Exclusive)
            .map_err(onefold_volume::Error::from)?;
        let Some(lock) = lock else {
            let what = read_record(folder).map_or("the device".into(), |record| {
                format!(
                    "process {} has {} of it as {}, and one process attaches one volume at a time (`onefold volume detach` takes it away): it",
                    record.process,
                    record.volume,
                    record.left.device.display()
                )
            });
            return Err(Error::InUse { address: what });
        };
        Ok(Self {
            folder: folder.to_owned(),
            _lock: lock,
        })
    }

    fn take_away_leftovers(&self) -> Result<Option<PathBuf>> {
        let mount = self.folder.join("mount");
        let record = read_record(&self.folder);
        if let Some(record) = &record
            && record.left.is_there()
        {
            host::confirm_unused(&record.left.device, "detach")?;
            record.left.take_away()?;
        }
        host::unmount_leftover(&mount);
        let _ = std::fs::remove_dir(&mount);
        for name in ["attached", "control", "nbd"] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
        Ok(record.map(|record| record.left.device))
    }

    /// Gives `device` to the kernel. `control` is the daemon's socket, for others to find.
    ///
    /// # Errors
    /// [`Error::Missing`]: the host lacks something; [`Error::Host`].
    pub fn attach(
        self,
        device: &Arc<dyn BlockDevice>,
        via: Via,
        control: &Path,
    ) -> Result<AttachedDevice> {
        let (transport, given, why) = via.give(device, &self.folder)?;
        let control = std::path::absolute(control).unwrap_or_else(|_| control.to_owned());
        let record = json!({
            "process": std::process::id(),
            "volume": device.geometry().name,
            "via": transport.name(),
            "device": given.path(),
            "file": given.file(),
            "owner": given.owner(),
            "control": control,
        });
        let written = std::fs::write(self.folder.join("attached"), format!("{record}\n"));
        let mut attached = AttachedDevice {
            device: given.path(),
            transport,
            why,
            given,
            place: self,
        };
        match written {
            Ok(()) => Ok(attached),
            Err(source) => {
                let _ = attached.detach();
                Err(Error::Host {
                    what: "cannot write down which device it is".into(),
                    source,
                })
            }
        }
    }
}

impl AttachedDevice {
    /// Tells the kernel that the device has `bytes` bytes now.
    ///
    /// # Errors
    /// [`Error::Refused`] where the kernel learns of it only when the device is attached again; [`Error::Host`].
    pub fn grown(&mut self, bytes: u64) -> Result<()> {
        self.given.grown(bytes)
    }

    /// Takes the device away from the kernel. What was written before is answered by the device before this returns.
    ///
    /// # Errors
    /// [`Error::Busy`] while somebody uses it: it stays attached then.
    pub fn detach(&mut self) -> Result<()> {
        host::confirm_unused(&self.device, "detach")?;
        self.given.take_back()?;
        let _ = self.place.take_away_leftovers();
        Ok(())
    }
}

/// Takes away what a killed daemon left in `folder`: its device, if there was one. The lock of one that was killed just
/// now is waited for.
///
/// # Errors
/// [`Error::InUse`]: the daemon lives; [`Error::Busy`]: the device is in use.
pub fn clean_up(folder: &Path) -> Result<Option<PathBuf>> {
    if !folder.is_dir() {
        return Ok(None);
    }
    let unless_in_use = || match AttachFolder::lock(folder) {
        Err(Error::InUse { .. }) => None,
        locked => Some(locked),
    };
    let locked = host::wait_at_most(DYING_MAX, unless_in_use);
    let place = locked.unwrap_or_else(|| AttachFolder::lock(folder))?;
    place.take_away_leftovers()
}

/// The control socket of the daemon that has attached a device in `folder`; `None` where none has.
pub fn control_in(folder: &Path) -> Option<PathBuf> {
    read_record(folder).map(|record| record.control)
}

/// The device that a daemon has attached in `folder`, or had when it was killed.
pub fn device_in(folder: &Path) -> Option<PathBuf> {
    read_record(folder).map(|record| record.left.device)
}

/// The device that a daemon attached in `folder`, where it is still there though the daemon has died.
pub fn dead_in(folder: &Path) -> Option<PathBuf> {
    let left = read_record(folder)?.left;
    (left.is_there() && AttachFolder::lock(folder).is_ok()).then_some(left.device)
}

/// Fails while somebody uses the device that is attached in `folder`, if one is.
///
/// # Errors
/// [`Error::Busy`].
pub fn confirm_unused_in(folder: &Path) -> Result<()> {
    match read_record(folder) {
        Some(record) if record.left.is_there() => {
            host::confirm_unused(&record.left.device, "detach")
        }
        _ => Ok(()),
    }
}

struct AttachRecord {
    process: u64,
    /// Name of the volume, or of the export of a raw file.
    volume: String,
    control: PathBuf,
    left: Left,
}

fn read_record(folder: &Path) -> Option<AttachRecord> {
    let text = std::fs::read(folder.join("attached")).ok()?;
    let record: Value = serde_json::from_slice(&text).ok()?;
    let process = record["process"].as_u64()?;
    Some(AttachRecord {
        process,
        // Records of earlier versions do not name it.
        volume: record["volume"].as_str().unwrap_or("a volume").into(),
        control: record["control"].as_str()?.into(),
        left: Left {
            // Records of earlier versions name no way.
            transport: Transport::named(record["via"].as_str().unwrap_or("fuse"))?,
            device: record["device"].as_str()?.into(),
            file: record["file"].as_str()?.into(),
            owner: record["owner"].as_u64().unwrap_or(process),
        },
    })
}
