//! A device of this host: what `volume attach` makes, and what `detach` takes away, also when the daemon was killed.
//!
//! Always holds: no device outlives its daemon. A killed one takes writes with it that it has answered and not flushed;
//! if the device went on working, a file system on it would never learn of the loss.
//!
//! The private folder holds `lock` (held by the daemon), `attached` (the device, for a process that cleans up, and the
//! control socket, which is in a depot's own folder, or else here) and `mount`, where the file is that the loop device
//! stands on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_io::{Dir, FileDir, LockGuard, LockKind};
use onefold_volume::BlockDevice;
use serde_json::{Value, json};

use crate::fuse::{self, Mounted};
pub use crate::host::confirm_unused;
use crate::{Error, Result, host};

/// How the kernel is given the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// The first that is there.
    Auto,
    /// The driver ublk.
    Ublk,
    /// The driver nbd.
    Nbd,
    /// A file of a FUSE file system, and a loop device over it.
    Fuse,
}

const NO_UBLK: &str = "ublk is not in this version yet: leave --via out, or serve the volume over NBD (`onefold volume serve --unix`)";
const NO_KERNEL_NBD: &str = "this kernel has no nbd: /sys/block/nbd0 is missing (`modprobe nbd`, where the kernel has the module); leave --via out, or serve the volume to programs with `onefold volume serve --unix`";
const NO_NBD: &str = "the kernel's nbd is not in this version yet: leave --via out, or serve the volume with `onefold volume serve DEPOT --unix SOCKET` and run `modprobe nbd; nbd-client -unix SOCKET -N main /dev/nbd0`";

impl Via {
    /// Whether the host has what this way needs; in words why this one, or why not.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn choose(self) -> Result<&'static str> {
        let missing = |what: &str| {
            Err(Error::Missing {
                what: what.to_owned(),
            })
        };
        match self {
            Self::Ublk => missing(NO_UBLK),
            Self::Nbd if !Path::new("/sys/block/nbd0").exists() => missing(NO_KERNEL_NBD),
            Self::Nbd => missing(NO_NBD),
            Self::Auto | Self::Fuse if !Path::new("/dev/fuse").exists() => missing(
                "the kernel has no FUSE here: /dev/fuse is missing (`modprobe fuse`; in a container, `--device /dev/fuse`); `onefold volume serve --unix` needs none",
            ),
            Self::Fuse => Ok("by FUSE and a loop device, as asked for"),
            Self::Auto => Ok("by FUSE and a loop device: ublk and nbd are not in this version yet"),
        }
    }
}

/// The folder of one attached device, locked by its daemon.
pub struct Place {
    folder: PathBuf,
    _lock: Box<dyn LockGuard>,
}

/// An attached device.
pub struct Attached {
    place: Place,
    /// The block device, for mkfs and mount.
    pub device: PathBuf,
    mounted: Option<Mounted>,
}

impl Place {
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
                    "process {} has it as {} (`onefold volume detach` takes it away): it",
                    record.process,
                    record.device.display()
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
        let left = read_record(&self.folder);
        if let Some(record) = &left
            && host::is_loop_over(&record.device, &record.file)
        {
            host::confirm_unused(&record.device, "detach")?;
            host::take_down_loop(&record.device)?;
        }
        host::unmount_leftover(&mount);
        let _ = std::fs::remove_dir(&mount);
        for name in ["attached", "control"] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
        Ok(left.map(|record| record.device))
    }

    /// Gives `device` to the kernel, by FUSE and a loop device. `control` is the daemon's socket, for others to find.
    ///
    /// # Errors
    /// [`Error::Missing`]: the host lacks something; [`Error::Host`].
    pub fn attach(self, device: Arc<dyn BlockDevice>, control: &Path) -> Result<Attached> {
        let geometry = device.geometry();
        let mount = self.folder.join("mount");
        let failed = |what: &str, source| Error::Host {
            what: what.into(),
            source,
        };
        std::fs::create_dir_all(&mount).map_err(|error| failed("cannot make a folder", error))?;
        let file_name = geometry.name.replace('/', "_");
        let mounted = fuse::mount(device, &mount, &file_name)
            .map_err(|error| failed("cannot mount a FUSE file system", error))?;
        let file = mount.join(&file_name);
        let device = match host::set_up_loop(&file, geometry.is_writable) {
            Ok(device) => device,
            Err(error) => {
                let _ = mounted.unmount();
                return Err(error);
            }
        };
        let attached = Attached {
            device: device.clone(),
            mounted: Some(mounted),
            place: self,
        };
        let control = std::path::absolute(control).unwrap_or_else(|_| control.to_owned());
        let record = json!({
            "process": std::process::id(),
            "device": device,
            "file": file,
            "control": control,
        });
        std::fs::write(
            attached.place.folder.join("attached"),
            format!("{record}\n"),
        )
        .map_err(|error| failed("cannot write down which device it is", error))?;
        Ok(attached)
    }
}

impl Attached {
    /// Tells the kernel that the device may have grown.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn grown(&self) -> Result<()> {
        if let Some(mounted) = &self.mounted {
            mounted.grown().map_err(|source| Error::Host {
                what: "cannot tell the kernel of the new size".into(),
                source,
            })?;
        }
        host::look_at_size(&self.device)
    }

    /// Takes the device away from the kernel. What was written before is answered by the device before this returns.
    ///
    /// # Errors
    /// [`Error::Busy`] while somebody uses it: it stays attached then.
    pub fn detach(&mut self) -> Result<()> {
        host::confirm_unused(&self.device, "detach")?;
        host::take_down_loop(&self.device)?;
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount().map_err(|source| Error::Host {
                what: "cannot unmount the FUSE file system".into(),
                source,
            })?;
        }
        let _ = self.place.take_away_leftovers();
        Ok(())
    }
}

/// Takes away what a killed daemon left in `folder`: its device, if there was one.
///
/// # Errors
/// [`Error::InUse`]: the daemon lives; [`Error::Busy`]: the device is in use.
pub fn clean_up(folder: &Path) -> Result<Option<PathBuf>> {
    if !folder.is_dir() {
        return Ok(None);
    }
    Place::lock(folder)?.take_away_leftovers()
}

/// The control socket of the daemon that has attached a device in `folder`; `None` where none has.
pub fn control_in(folder: &Path) -> Option<PathBuf> {
    read_record(folder).map(|record| record.control)
}

/// The device that a daemon attached in `folder`, where it is still there though the daemon has died.
pub fn dead_in(folder: &Path) -> Option<PathBuf> {
    let record = read_record(folder)?;
    let is_left = host::is_loop_over(&record.device, &record.file);
    (is_left && Place::lock(folder).is_ok()).then_some(record.device)
}

/// Fails while somebody uses the device that is attached in `folder`, if one is.
///
/// # Errors
/// [`Error::Busy`].
pub fn confirm_unused_in(folder: &Path) -> Result<()> {
    match read_record(folder) {
        Some(record) if host::is_loop_over(&record.device, &record.file) => {
            host::confirm_unused(&record.device, "detach")
        }
        _ => Ok(()),
    }
}

struct Record {
    process: u64,
    device: PathBuf,
    file: PathBuf,
    control: PathBuf,
}

fn read_record(folder: &Path) -> Option<Record> {
    let text = std::fs::read(folder.join("attached")).ok()?;
    let record: Value = serde_json::from_slice(&text).ok()?;
    Some(Record {
        process: record["process"].as_u64()?,
        device: record["device"].as_str()?.into(),
        file: record["file"].as_str()?.into(),
        control: record["control"].as_str()?.into(),
    })
}
