//! Precautions of a daemon that serves a device to its own host, and how another process waits for its end.
//!
//! The kernel may write to the device in order to free memory. If the daemon then waited for memory, it would wait for
//! itself. So its memory stays in RAM, and its own requests for memory start no writes.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Pid, PidfdFlags, configure_io_flusher_behavior, pidfd_open};

/// Protects this process; to be called before its threads are started. Gives what was refused, in words: the device
/// works all the same, until memory runs out.
pub fn protect() -> Vec<String> {
    let mut refused = Vec::new();
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = mlockall(flags) {
        refused.push(format!("the memory of the device's process may be swapped out: raise its limit of locked memory, LimitMEMLOCK= with systemd (mlockall: {error})"));
    }
    if let Err(error) = configure_io_flusher_behavior(true) {
        refused.push(format!(
            "when memory runs out, the device's process may wait for memory that is free only once it has written: give it CAP_SYS_RESOURCE (PR_SET_IO_FLUSHER: {error})"
        ));
    }
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-1000") {
        refused.push(format!(
            "the device's process may be killed when memory runs out: give it CAP_SYS_RESOURCE (oom_score_adj: {error})"
        ));
    }
    refused
}

/// Longest time that a process which was just killed keeps its sockets open and its locks held.
pub const DYING_MAX: Duration = Duration::from_secs(2);

/// A running process, held by a descriptor, so that no later process with the same number is taken for it.
pub struct RunningProcess(OwnedFd);

impl RunningProcess {
    /// Returns the process with this number; `None` where there is none, or where the kernel cannot wait for it.
    pub fn find(process: u64) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// Waits until the process has ended, which closes its files and frees its locks. Returns `false` where that takes
    /// longer than `time_max`.
    pub fn has_ended_within(&self, time_max: Duration) -> bool {
        let timeout = Timespec::try_from(time_max).ok();
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }
}
