//! Unix sockets at long paths. The system takes some hundred bytes of a socket's path; a longer one is named through an
//! open descriptor of its folder.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The system takes paths that are shorter than this (`sockaddr_un`, unix(7)).
const PATH_BYTES_MAX: usize = 108;

/// A path for `bind` and `connect`, which leads to the socket at another path for as long as this is there.
pub(crate) struct SocketPath {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl SocketPath {
    /// The path itself where the system takes it, and otherwise one through its folder's descriptor.
    ///
    /// # Errors
    /// The folder of a long path cannot be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        let folder = path
            .parent()
            .filter(|_| path.as_os_str().len() >= PATH_BYTES_MAX);
        let (Some(folder), Some(name)) = (folder, path.file_name()) else {
            return Ok(Self {
                path: path.to_path_buf(),
                _folder: None,
            });
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let through = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        Ok(Self {
            path: through.join(name),
            _folder: Some(folder),
        })
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::Listener;

    #[test]
    fn a_long_path_is_listened_at_and_reached() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).expect("a deep folder");
        let path = deep.join("control");
        let listener = Listener::unix(&path).expect("a listener");
        let reached = SocketPath::of(&path).and_then(UnixStream::connect);
        reached.expect("a client");
        let again = Listener::unix(&path);
        assert!(matches!(again, Err(crate::Error::InUse { .. })));
        listener.close();
        assert!(!path.exists());
    }
}
