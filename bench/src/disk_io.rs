//! Bytes between a process and the disk, as the system counts them: past the page cache or through it, but not those
//! that the cache alone provided.

/// Bytes so far, of this process and all children that it has waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskIo {
    /// Bytes read from the disk.
    pub read_bytes: u64,
    /// Bytes written to the disk, or changed in the page cache.
    pub write_bytes: u64,
}

impl DiskIo {
    /// The present counts; zeros where the system does not tell.
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

    /// The bytes since `earlier`.
    pub fn since(self, earlier: DiskIo) -> DiskIo {
        DiskIo {
            read_bytes: self.read_bytes - earlier.read_bytes,
            write_bytes: self.write_bytes - earlier.write_bytes,
        }
    }

    /// The sum of both counts.
    pub fn and(self, other: DiskIo) -> DiskIo {
        DiskIo {
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
        }
    }
}
