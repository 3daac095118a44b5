//! Precautions of a daemon that serves a device to its own host.
//!
//! The kernel may write to the device in order to free memory. If the daemon then waited for memory, it would wait for
//! itself. So its memory stays in RAM, and its own requests for memory start no writes.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;

/// Protects this process; to be called before its threads are started. Gives what was refused, in words: the device
/// works all the same, until memory runs out.
pub fn protect() -> Vec<String> {
    let mut refused = Vec::new();
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = mlockall(flags) {
        refused.push(format!("its memory may be swapped out (mlockall: {error})"));
    }
    if let Err(error) = configure_io_flusher_behavior(true) {
        refused.push(format!(
            "it may wait for memory that only itself can free (PR_SET_IO_FLUSHER: {error})"
        ));
    }
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-1000") {
        refused.push(format!(
            "it may be killed when memory runs out (oom_score_adj: {error})"
        ));
    }
    refused
}
