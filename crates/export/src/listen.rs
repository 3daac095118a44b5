//! Listeners for clients: a Unix socket or a TCP address. Closing one wakes the thread that waits at it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::nbd::Socket;
use crate::socket_path::SocketPath;
use crate::{Error, Result};

/// A bound socket.
pub struct Listener {
    bound: Bound,
    wake: (UnixStream, UnixStream),
    /// The socket's file and its inode, to be removed at the end.
    file: Option<(PathBuf, u64)>,
}

enum Bound {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at `path`, for its owner alone (mode 0600). A socket that a dead process left there is replaced.
    ///
    /// # Errors
    /// [`Error::InUse`] where a process listens there; [`Error::Listen`].
    pub fn unix(path: &Path) -> Result<Self> {
        let address = path.display().to_string();
        let fail = |source| Error::Listen {
            address: address.clone(),
            source,
        };
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                let what = "something that is no socket has this name";
                return Err(fail(io::Error::new(io::ErrorKind::AlreadyExists, what)));
            }
            Ok(_) if SocketPath::of(path).and_then(UnixStream::connect).is_ok() => {
                return Err(Error::InUse { address });
            }
            _ => {}
        }
        // Under another name first: nobody may connect before the mode is right.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hidden = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let _ = std::fs::remove_file(&hidden);
        let bound = SocketPath::of(&hidden).and_then(UnixListener::bind);
        let listener = bound.map_err(fail)?;
        let placed = std::fs::set_permissions(&hidden, PermissionsExt::from_mode(0o600))
            .and_then(|()| std::fs::rename(&hidden, path))
            .and_then(|()| std::fs::symlink_metadata(path));
        let inode = match placed {
            Ok(metadata) => metadata.ino(),
            Err(error) => {
                let _ = std::fs::remove_file(&hidden);
                return Err(fail(error));
            }
        };
        Self::new(Bound::Unix(listener), Some((path.to_path_buf(), inode))).map_err(fail)
    }

    /// Listens at `address`.
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub fn tcp(address: SocketAddr) -> Result<Self> {
        TcpListener::bind(address)
            .and_then(|listener| Self::new(Bound::Tcp(listener), None))
            .map_err(|source| Error::Listen {
                address: address.to_string(),
                source,
            })
    }

    fn new(bound: Bound, file: Option<(PathBuf, u64)>) -> io::Result<Self> {
        match &bound {
            Bound::Unix(listener) => listener.set_nonblocking(true)?,
            Bound::Tcp(listener) => listener.set_nonblocking(true)?,
        }
        Ok(Self {
            bound,
            wake: UnixStream::pair()?,
            file,
        })
    }

    /// The TCP address that it got.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.bound {
            Bound::Unix(_) => None,
            Bound::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    /// Waits for the next client; `None` once the listener is closed.
    pub(crate) fn accept(&self) -> Option<Socket> {
        loop {
            let fd = match &self.bound {
                Bound::Unix(listener) => listener.as_fd(),
                Bound::Tcp(listener) => listener.as_fd(),
            };
            let mut fds = [
                PollFd::new(&fd, PollFlags::IN),
                PollFd::new(&self.wake.1, PollFlags::IN),
            ];
            let polled = poll(&mut fds, None);
            if !fds[1].revents().is_empty() {
                return None;
            }
            let taken = match &self.bound {
                Bound::Unix(listener) => listener.accept().map(|(socket, _)| Socket::Unix(socket)),
                Bound::Tcp(listener) => listener.accept().map(|(socket, _)| Socket::Tcp(socket)),
            };
            match taken {
                Ok(socket) if socket.set_blocking().is_ok() => return Some(socket),
                Err(error) if polled.is_ok() && error.kind() != io::ErrorKind::WouldBlock => {
                    // No descriptors are left, say: that passes when clients leave.
                    tracing::warn!("cannot take a client: {error}");
                    std::thread::sleep(Duration::from_millis(100));
                }
                _ => {}
            }
        }
    }

    /// The same where it is a Unix socket.
    pub(crate) fn accept_unix(&self) -> Option<UnixStream> {
        match self.accept()? {
            Socket::Unix(socket) => Some(socket),
            Socket::Tcp(_) => None,
        }
    }

    /// No more clients are taken, and the socket's file is removed.
    pub fn close(&self) {
        let _ = self.wake.0.shutdown(std::net::Shutdown::Both);
        if let Some((path, inode)) = &self.file
            && std::fs::symlink_metadata(path).is_ok_and(|found| found.ino() == *inode)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}
