//! Ways to the kernel, and the device that each makes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_volume::BlockDevice;

use crate::fuse::{self, MountedDevice};
use crate::kernel_nbd::{self, KernelNbd};
use crate::ublk::{self, UblkDevice};
use crate::{Error, Result, host};

/// A way to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// The driver ublk.
    Ublk,
    /// The driver nbd.
    Nbd,
    /// A file of a FUSE file system, and a loop device over it.
    Fuse,
}

const NO_UBLK: &str = "this kernel has no ublk: /dev/ublk-control is missing (`modprobe ublk_drv`, where the kernel has the module: Linux 6.5 or later); leave --via out, or serve the volume to programs with `onefold volume serve --unix`";
const NO_NBD: &str = "this kernel has no nbd: /sys/block/nbd0 is missing (`modprobe nbd`, where the kernel has the module); leave --via out, or serve the volume to programs with `onefold volume serve --unix`";
const NO_FUSE: &str = "the kernel has no FUSE here: /dev/fuse is missing (`modprobe fuse`; in a container, `--device /dev/fuse`); `onefold volume serve --unix` needs none";

impl Transport {
    /// Its name, as `attach --via` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ublk => "ublk",
            Self::Nbd => "nbd",
            Self::Fuse => "fuse",
        }
    }

    /// The way with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Ublk, Self::Nbd, Self::Fuse]
            .into_iter()
            .find(|transport| transport.name() == name)
    }

    /// Whether the kernel has what this way needs. A module that is missing is loaded.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn check(self) -> Result<()> {
        let (file, module, why) = match self {
            Self::Ublk => (onefold_io::ublk::CONTROL, "ublk_drv", NO_UBLK),
            Self::Nbd => ("/sys/block/nbd0", "nbd", NO_NBD),
            Self::Fuse => ("/dev/fuse", "fuse", NO_FUSE),
        };
        if !Path::new(file).exists() {
            host::load_module(module);
        }
        if Path::new(file).exists() {
            Ok(())
        } else {
            Err(Error::Missing { what: why.into() })
        }
    }
}

/// A device that was given to the kernel.
pub(super) enum KernelDevice {
    Ublk(UblkDevice),
    Nbd(KernelNbd),
    Fuse {
        /// `None` once it is unmounted.
        mounted: Option<MountedDevice>,
        file: PathBuf,
        device: PathBuf,
    },
}

impl KernelDevice {
    /// Gives `device` to the kernel. The file systems and sockets that this takes lie in `folder`.
    pub fn give(
        transport: Transport,
        device: &Arc<dyn BlockDevice>,
        folder: &Path,
    ) -> Result<Self> {
        let failed = |what: &str, source| Error::Host {
            what: what.into(),
            source,
        };
        match transport {
            Transport::Ublk => UblkDevice::make(device)
                .map(Self::Ublk)
                .map_err(|error| failed("ublk does not make a device", error)),
            Transport::Nbd => KernelNbd::make(device, folder).map(Self::Nbd),
            Transport::Fuse => Self::mount(device, &folder.join("mount")),
        }
    }

    fn mount(device: &Arc<dyn BlockDevice>, mount: &Path) -> Result<Self> {
        let failed = |what: &str, source| Error::Host {
            what: what.into(),
            source,
        };
        std::fs::create_dir_all(mount).map_err(|error| failed("cannot make a folder", error))?;
        let geometry = device.geometry();
        let file_name = geometry.name.replace('/', "_");
        let mounted = fuse::mount(device.clone(), mount, &file_name)
            .map_err(|error| failed("cannot mount a FUSE file system", error))?;
        let file = mount.join(&file_name);
        match host::set_up_loop(&file, geometry.is_writable) {
            Ok(device) => Ok(Self::Fuse {
                mounted: Some(mounted),
                file,
                device,
            }),
            Err(error) => {
                mounted.unmount();
                Err(error)
            }
        }
    }

    /// The block device's path.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Ublk(device) => device.path(),
            Self::Nbd(device) => device.path(),
            Self::Fuse { device, .. } => device.clone(),
        }
    }

    /// The file below a loop device, for a process that cleans up; empty where there is none.
    pub fn file(&self) -> &Path {
        match self {
            Self::Fuse { file, .. } => file,
            _ => Path::new(""),
        }
    }

    /// The process that the kernel takes for the device's owner.
    pub fn owner(&self) -> u64 {
        match self {
            Self::Nbd(device) => device.owner,
            _ => std::process::id().into(),
        }
    }

    /// Tells the kernel that the device has `bytes` bytes now.
    pub fn grown(&mut self, bytes: u64) -> Result<()> {
        match self {
            Self::Ublk(device) => device
                .grown(bytes)
                .map_err(|error| seen_later(&device.path(), &error)),
            Self::Nbd(device) => device
                .grown(bytes)
                .map_err(|error| seen_later(&device.path(), &error)),
            Self::Fuse {
                mounted,
                file,
                device,
            } => {
                // Before Linux 6.17 a loop device takes the size that the kernel knows, and does not ask for it.
                let asked = match mounted {
                    Some(mounted) => mounted.grown().and_then(|()| std::fs::metadata(file)),
                    None => std::fs::metadata(file),
                };
                asked.map_err(|source| Error::Host {
                    what: "cannot tell the kernel of the new size".into(),
                    source,
                })?;
                host::look_at_size(device)
            }
        }
    }

    /// Takes the device away from the kernel; nobody uses it. After an error it can be tried again.
    pub fn take_back(&mut self) -> Result<()> {
        match self {
            Self::Ublk(device) => device.remove().map_err(|source| Error::Host {
                what: format!("cannot remove {}", device.path().display()),
                source,
            }),
            Self::Nbd(device) => device.remove(),
            Self::Fuse {
                mounted,
                file,
                device,
            } => {
                host::take_down_loop_over(device, file)?;
                // A folder in use stays mounted, so that another try finds it as it was.
                file.parent().map_or(Ok(()), host::unmount)?;
                if let Some(mounted) = mounted.take() {
                    mounted.unmount();
                }
                Ok(())
            }
        }
    }
}

fn seen_later(device: &Path, why: &std::io::Error) -> Error {
    let device = device.display();
    Error::Refused {
        what: format!(
            "the volume has grown; {device} shows it once it is detached and attached again: {why}"
        ),
        exit: 1,
    }
}

/// The record that a daemon has left of its device.
pub(super) struct Left {
    pub transport: Transport,
    pub device: PathBuf,
    /// The file below a loop device.
    pub file: PathBuf,
    /// The owner, as the kernel knows it.
    pub owner: u64,
}

impl Left {
    /// Whether the device is still there, and that of the daemon that wrote this.
    pub fn is_there(&self) -> bool {
        match self.transport {
            Transport::Ublk => ublk::is_left(&self.device, self.owner),
            Transport::Nbd => kernel_nbd::is_left(&self.device, self.owner),
            Transport::Fuse => host::is_loop_over(&self.device, &self.file),
        }
    }

    /// Takes the device of a dead daemon away.
    pub fn take_away(&self) -> Result<()> {
        match self.transport {
            Transport::Ublk => ublk::remove_left(&self.device).map_err(|source| Error::Host {
                what: format!("cannot remove {}", self.device.display()),
                source,
            }),
            Transport::Nbd => kernel_nbd::remove_left(&self.device),
            Transport::Fuse => host::take_down_loop(&self.device),
        }
    }
}
