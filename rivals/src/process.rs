//! What the system counts of this process.

use std::time::Duration;

/// Bytes that went to and from the disk, CPU time, and the most RAM that was held.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Bytes read from the device, not from the page cache.
    pub read_bytes: u64,
    /// Bytes written to the device, or dirtied for it.
    pub write_bytes: u64,
    /// Of all threads.
    pub cpu: Duration,
    /// Peak RSS, in KiB; of a mapped file too.
    pub peak_kib: u64,
}

/// Of now.
pub fn counts() -> Counts {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Counts {
        read_bytes: line("/proc/self/io", "read_bytes"),
        write_bytes: line("/proc/self/io", "write_bytes"),
        cpu: Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        peak_kib: line("/proc/self/status", "VmHWM"),
    }
}

/// The number behind `name:`; 0 where the system does not tell.
fn line(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
