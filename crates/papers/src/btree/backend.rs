//! The file of the B-tree library on one of our [`Disk`]s, so that it runs on real, simulated and modelled devices.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use onefold_io::{Disk, ErrorKind};
use redb::StorageBackend;

use onefold_index::Error;

/// Counters of a backend since it was opened.
#[derive(Default)]
pub struct BackendTraffic {
    /// Reads, each of one page or of some neighbouring pages.
    pub reads: AtomicU64,
    /// Bytes written.
    pub bytes_written: AtomicU64,
}

/// A [`Disk`] with the interface that the B-tree library needs.
pub struct DiskBackend {
    /// The disk that stores the bytes.
    pub disk: Arc<dyn Disk>,
    /// Counters of reads and writes.
    pub traffic: Arc<BackendTraffic>,
}

impl std::fmt::Debug for DiskBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskBackend")
    }
}

impl StorageBackend for DiskBackend {
    fn len(&self) -> io::Result<u64> {
        self.disk.len().map_err(io::Error::other)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.traffic.reads.fetch_add(1, Relaxed);
        self.disk.read_at(out, offset).map_err(io::Error::other)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(len).map_err(io::Error::other)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.sync().map_err(io::Error::other)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.traffic
            .bytes_written
            .fetch_add(data.len() as u64, Relaxed);
        self.disk.write_at(data, offset).map_err(io::Error::other)
    }
}

/// Turns an error of the library into ours; our own errors come back unchanged.
pub fn failed(error: impl Into<redb::Error>) -> Error {
    let (kind, what, source) = match error.into() {
        redb::Error::Corrupted(what) => return damaged(what),
        // Tables are created before the file gets its name.
        missing @ redb::Error::TableDoesNotExist(_) => return damaged(missing.to_string()),
        redb::Error::Io(io) if io.kind() == io::ErrorKind::InvalidData => {
            return damaged(io.to_string());
        }
        redb::Error::Io(io) => match io.downcast::<onefold_io::Error>() {
            Ok(own) => return own.into(),
            Err(io) => (ErrorKind::of(&io), io.kind().to_string(), Some(io)),
        },
        other => (ErrorKind::Device, other.to_string(), None),
    };
    Error::Io(onefold_io::Error {
        op: "use",
        path: super::FILE.to_string(),
        offset: None,
        kind,
        what,
        source,
    })
}

fn damaged(what: String) -> Error {
    Error::Damaged {
        path: super::FILE.to_string(),
        offset: None,
        what,
    }
}
