//! A device of the kernel's driver nbd, whose server is this process: `nbd-client` connects them by a Unix socket in
//! the private folder. When the process dies, every request fails until the device is disconnected.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_volume::BlockDevice;

use crate::nbd::{Exports, Server, ServerLimits};
use crate::{Error, Listener, Result, host, nbd_netlink};

/// Program and package, for messages.
const NBD_CLIENT: &str = "nbd-client (package nbd-client)";
/// Memory of requests in flight, in bytes; the one connection of a device takes a quarter of it.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Devices that are looked at for a free one.
const DEVICES_MAX: u32 = 1024;

/// A connected device. Dropped without [`remove`](Self::remove), it fails once the process ends.
pub struct KernelNbd {
    server: Arc<Server>,
    listener: Arc<Listener>,
    device: PathBuf,
    /// The number by which the kernel knows who has connected the device.
    pub owner: u64,
}

impl KernelNbd {
    /// Connects the first free device, by a socket in `folder`.
    ///
    /// # Errors
    /// [`Error::Missing`] without `nbd-client` or a free device; [`Error::Host`].
    pub fn make(device: &Arc<dyn BlockDevice>, folder: &Path) -> Result<Self> {
        let socket = folder.join("nbd");
        let listener = Arc::new(Listener::unix(&socket)?);
        let limits = ServerLimits {
            request_bytes_max: REQUEST_BYTES_MAX,
            ..ServerLimits::default()
        };
        let server = Server::new(Exports::new(vec![device.clone()]), None, limits);
        server.listen(&listener)?;
        let connected = connect(device, &socket);
        let (device, owner) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                listener.close();
                server.stop();
                return Err(error);
            }
        };
        Ok(Self {
            server,
            listener,
            device,
            owner,
        })
    }

    /// The block device's path.
    pub fn path(&self) -> PathBuf {
        self.device.clone()
    }

    /// Has the block device take the size that the device has now.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn grown(&self, bytes: u64) -> std::io::Result<()> {
        let name = self.device.file_name().and_then(|name| name.to_str());
        let index = name.and_then(|name| name.strip_prefix("nbd")?.parse().ok());
        match index {
            Some(index) => nbd_netlink::resize(index, bytes),
            None => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// Disconnects the device. What was sent before is answered by the device before this returns.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn remove(&self) -> Result<()> {
        disconnect(&self.device)?;
        self.listener.close();
        self.server.stop();
        Ok(())
    }
}

/// Connects a free device; returns its path and owner.
fn connect(device: &Arc<dyn BlockDevice>, socket: &Path) -> Result<(PathBuf, u64)> {
    let geometry = device.geometry();
    let mut last = Error::Missing {
        what: "all devices of the kernel's nbd are in use (`modprobe nbd nbds_max=64` gives more)"
            .into(),
    };
    for path in free_devices() {
        let mut client = host::program("nbd-client");
        client
            .arg("-unix")
            .arg(socket)
            .arg("-name")
            .arg(&geometry.name);
        client.args(["-block-size", "512"]);
        if !geometry.is_writable {
            client.arg("-readonly");
        }
        // Another process may take the same device at the same time: then the next one is tried.
        match host::run(client.arg(&path), NBD_CLIENT) {
            Ok(_) => {}
            Err(error @ Error::Missing { .. }) => return Err(error),
            Err(error) => {
                last = error;
                continue;
            }
        }
        if let Some(owner) =
            host::wait_for(|| owner_of(&path).filter(|_| size_of(&path) == geometry.bytes))
        {
            return Ok((path, owner));
        }
        let _ = disconnect(&path);
    }
    Err(last)
}

/// Devices that nobody has connected.
fn free_devices() -> impl Iterator<Item = PathBuf> {
    let all = (0..DEVICES_MAX).map(|number| format!("nbd{number}"));
    let there = all.take_while(|name| Path::new("/sys/block").join(name).exists());
    let paths = there.map(|name| Path::new("/dev").join(name));
    paths.filter(|path| owner_of(path).is_none() && size_of(path) == 0)
}

fn attribute(device: &Path, name: &str) -> Option<u64> {
    let folder = Path::new("/sys/block").join(device.file_name()?);
    let text = std::fs::read_to_string(folder.join(name)).ok()?;
    text.trim().parse().ok()
}

/// The process that has connected the device; it has ended meanwhile.
fn owner_of(device: &Path) -> Option<u64> {
    attribute(device, "pid")
}

fn size_of(device: &Path) -> u64 {
    attribute(device, "size").unwrap_or_default() * 512
}

fn disconnect(device: &Path) -> Result<()> {
    host::run(
        host::program("nbd-client").arg("-d").arg(device),
        NBD_CLIENT,
    )?;
    // The kernel answers before it is done.
    match host::wait_for(|| owner_of(device).is_none().then_some(())) {
        Some(()) => Ok(()),
        None => Err(Error::Host {
            what: format!("{} is still connected", device.display()),
            source: std::io::ErrorKind::TimedOut.into(),
        }),
    }
}

/// Whether the device is still connected as this owner has connected it.
pub fn is_left(device: &Path, owner: u64) -> bool {
    owner_of(device) == Some(owner)
}

/// Disconnects a device whose server has died.
///
/// # Errors
/// [`Error::Missing`]; [`Error::Host`].
pub fn remove_left(device: &Path) -> Result<()> {
    disconnect(device)
}
