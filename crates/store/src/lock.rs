//! Locks on a repository, in its folder `locks/`: of those who do the same thing, one at a time. Nobody waits for them
//! here; the kernel frees them with the process.

use onefold_io::{Dir, LockGuard, LockKind};

use crate::{Error, Result};

/// The folder of all locks.
pub const LOCKS_FOLDER: &str = "locks";

/// What one does at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lock {
    /// To make a repository.
    Init,
    /// To remove a key, or write one anew.
    Keys,
    /// To choose snapshots to remove or to replace.
    Snapshots,
    /// To sweep or repair.
    Sweep,
}

impl Lock {
    /// Of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Keys => "keys",
            Self::Snapshots => "snapshots",
            Self::Sweep => "sweep",
        }
    }

    /// Takes it, in the repository in `root`.
    ///
    /// # Errors
    /// [`Error::Locked`] while another has it.
    pub fn take(self, root: &dyn Dir) -> Result<Box<dyn LockGuard>> {
        self.take_as(root, LockKind::Exclusive)
    }

    /// Keeps out who would [take](Self::take) it, together with others who do.
    ///
    /// # Errors
    /// [`Error::Locked`] while another has it.
    pub fn share(self, root: &dyn Dir) -> Result<Box<dyn LockGuard>> {
        self.take_as(root, LockKind::Shared)
    }

    fn take_as(self, root: &dyn Dir, kind: LockKind) -> Result<Box<dyn LockGuard>> {
        let held = || Error::Locked {
            what: self.held().into(),
        };
        let lock = root.subdir(LOCKS_FOLDER)?.lock(self.name(), kind)?;
        lock.ok_or_else(held)
    }

    fn held(self) -> &'static str {
        match self {
            Self::Init => "another makes a repository here",
            Self::Keys => "another key is being removed",
            Self::Snapshots => "another forget, tag or repair of snapshots is running",
            Self::Sweep => {
                "another prune or repair is running, or a copy is being made (with-lock)"
            }
        }
    }
}
