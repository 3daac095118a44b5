//! Block devices of tests: whether they can be attached here, and the end of a file system on one.
//!
//! A program that another test starts in a mount namespace of its own (`unshare`) has a copy of every mount. A device
//! is in use until the last copy of its mount is gone, also after `umount`, so a test waits for that before it looks at
//! the device or detaches it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::rig::Rig;
use crate::untested::{has, is_root, not_tested};
use crate::volume::succeeds;
use crate::wait::wait_until;

/// Whether this host can have a loop device over FUSE.
pub fn can_attach() -> bool {
    let is_there = |path: &&str| Path::new(path).exists();
    let all = is_root() && has("losetup") && has("mkfs.ext4") && has("mount");
    let missing = ["/dev/fuse", "/dev/loop-control"]
        .iter()
        .find(|path| !is_there(path));
    if let Some(path) = missing {
        not_tested(&format!("there is no {path} here"));
    }
    all && missing.is_none()
}

/// Ends what a failed test leaves.
pub struct AttachedDepot<'a>(pub &'a Rig);

impl Drop for AttachedDepot<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path("mnt"))
            .output();
        let _ = self.0.run(["volume", "detach", "depot"]);
    }
}

/// Unmounts the file system at `mnt`, and returns once nothing has its device any more.
pub fn unmount(rig: &Rig, device: &str) {
    succeeds(Command::new("umount").arg(rig.path("mnt")));
    wait_until_free(device);
}

/// The same where the device's process was killed.
pub fn unmount_dead(rig: &Rig, device: &str) {
    succeeds(Command::new("umount").arg("--lazy").arg(rig.path("mnt")));
    wait_until_free(device);
}

fn wait_until_free(device: &str) {
    let mut exclusive = File::options();
    exclusive
        .read(true)
        .custom_flags(OFlags::EXCL.bits() as i32);
    wait_until("the end of the last mount of the device", || {
        let busy = |error: std::io::Error| Errno::from_io_error(&error) == Some(Errno::BUSY);
        !exclusive.open(device).is_err_and(busy)
    });
}
