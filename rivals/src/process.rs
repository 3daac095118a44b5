//! Counts that the system keeps of this process and of files.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use crate::store::Error;

/// Bytes that went to and from the disk, CPU time, and the most RAM that was held.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Bytes read from the device, not from the page cache.
    pub read_bytes: u64,
    /// Bytes written to the device, or dirtied for it.
    pub write_bytes: u64,
    /// CPU time of all threads.
    pub cpu: Duration,
    /// Peak RSS, in KiB; of a mapped file too.
    pub peak_kib: u64,
}

impl Counts {
    /// Since `earlier`; the peak is that of now.
    pub fn since(self, earlier: Counts) -> Counts {
        Counts {
            read_bytes: self.read_bytes - earlier.read_bytes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            cpu: self.cpu - earlier.cpu,
            peak_kib: self.peak_kib,
        }
    }
}

/// CPU time of the thread that asks.
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the present counts.
pub fn counts() -> Counts {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Counts {
        read_bytes: line("/proc/self/io", "read_bytes"),
        write_bytes: line("/proc/self/io", "write_bytes"),
        cpu: Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        peak_kib: line("/proc/self/status", "VmHWM"),
    }
}

/// Drops what the page cache has of the files in `dir`: what one process left there is not charged to the memory group
/// of the next.
pub fn forget_pages(dir: &Path) -> Result<(), Error> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            forget_pages(&path)?;
        } else {
            let file = File::open(&path)?;
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// The number behind `name:`; 0 where the system does not tell.
fn line(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
