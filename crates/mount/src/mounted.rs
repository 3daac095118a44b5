//! A mounted tree, from mounting to the last request.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use onefold_backup::vfs::Vfs;

use crate::options::Options;
use crate::tree::Snapshots;

/// Threads that take requests.
const THREADS: usize = 4;

/// Snapshots that are mounted. Dropping it unmounts.
pub struct Mounted {
    session: BackgroundSession,
    folder: PathBuf,
}

/// Why nothing can be mounted here, in words.
pub fn why_not() -> Option<&'static str> {
    let is_missing = !Path::new("/dev/fuse").exists();
    is_missing.then_some(
        "the kernel has no FUSE here: /dev/fuse is missing (modprobe fuse; in a container, pass it in)",
    )
}

/// Mounts the tree at `folder`.
///
/// # Errors
/// There is no FUSE, the folder is none, or it may not be mounted.
pub fn mount(vfs: Arc<Vfs>, folder: &Path, options: Options) -> io::Result<Mounted> {
    let folder = folder.canonicalize()?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("onefold".into()),
        MountOption::Subtype("onefold".into()),
        MountOption::RO,
        MountOption::NoAtime,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    if options.checks_permissions {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    if options.allow_other {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let session = fuser::spawn_mount(Snapshots::new(vfs, options), &folder, &config)?;
    Ok(Mounted { session, folder })
}

/// Leaves the terminal that started this process: the terminal may close, and whoever reads what the process prints is
/// not to wait for its end.
pub fn leave_terminal() {
    let _ = nix::unistd::setsid();
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null");
    if let Ok(null) = null {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
        let _ = nix::unistd::dup2_stderr(&null);
    }
}

impl Mounted {
    /// Whether somebody unmounted it.
    pub fn has_ended(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Unmounts. False: it is in use, and stays.
    ///
    /// # Errors
    /// The folder cannot be unmounted, for another reason.
    pub fn unmount(&self) -> io::Result<bool> {
        self.unmount_with(MntFlags::empty(), &["-u"])
    }

    /// Takes the folder away at once; whoever has a file of it open still reads that until this process ends.
    ///
    /// # Errors
    /// The folder cannot be unmounted.
    pub fn detach(&self) -> io::Result<()> {
        self.unmount_with(MntFlags::MNT_DETACH, &["-u", "-z"])
            .map(drop)
    }

    fn unmount_with(&self, flags: MntFlags, by_program: &[&str]) -> io::Result<bool> {
        if self.has_ended() {
            return Ok(true);
        }
        match umount2(&self.folder, flags) {
            Ok(()) => Ok(true),
            Err(Errno::EBUSY) => Ok(false),
            // A user who is not root has a helper program for it, which has mounted, too.
            Err(Errno::EPERM) => self.unmount_by(by_program),
            Err(error) => Err(error.into()),
        }
    }

    fn unmount_by(&self, flags: &[&str]) -> io::Result<bool> {
        let mut command = Command::new("fusermount3");
        command.args(flags).arg("--").arg(&self.folder);
        let output = command.env("LC_ALL", "C").output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(true),
            false if said.contains("busy") => Ok(false),
            false => Err(io::Error::other(said.trim().to_owned())),
        }
    }
}
