//! What went between a process and the disk, as the system counts it: past the page cache or through it, but not what
//! the cache alone gave.

/// Bytes so far, of this process and all that it has waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskIo {
    /// From the disk.
    pub read_bytes: u64,
    /// To the disk, or dirtied for it.
    pub write_bytes: u64,
}

impl DiskIo {
    /// Of now; zeros where the system does not tell.
    pub fn now() -> DiskIo {
        let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|bytes| bytes.trim().parse().ok())
                .unwrap_or(0)
        };
        DiskIo {
            read_bytes: number("read_bytes:"),
            write_bytes: number("write_bytes:"),
        }
    }

    /// Since `earlier`.
    pub fn since(self, earlier: DiskIo) -> DiskIo {
        DiskIo {
            read_bytes: self.read_bytes - earlier.read_bytes,
            write_bytes: self.write_bytes - earlier.write_bytes,
        }
    }

    /// This and `other` together.
    pub fn and(self, other: DiskIo) -> DiskIo {
        DiskIo {
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
        }
    }
}
