//! Folders of the user's own that shut their owner out, such as read-only ones: while something is restored in them
//! they are open to the owner, and afterwards have their own mode again, or the snapshot's.
//! Root is shut out nowhere.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::apply::by_descriptor;
use crate::Kind;
use crate::meta::Stat;

/// Lets the owner read, write and search a folder, if this user is the owner and may not: then it gives the mode that
/// the folder had.
pub fn let_in(folder: &OwnedFd) -> Result<Option<u16>, Errno> {
    let user = rustix::process::geteuid();
    let all = Mode::RWXU.bits() as u16;
    let there = Stat::of(folder)?;
    let is_shut = there.kind == Kind::Dir && there.mode & all != all;
    if user.is_root() || there.uid != user.as_raw() || !is_shut {
        return Ok(None);
    }
    set_mode(folder, there.mode | all)?;
    Ok(Some(there.mode))
}

/// Lets the owner in for as long as this runs.
pub fn while_let_in<T>(folder: &OwnedFd, run: impl FnOnce() -> T) -> T {
    // Where it fails, what goes into the folder tells of it.
    let before = let_in(folder).unwrap_or_default();
    let done = run();
    if let Some(mode) = before {
        shut_again(folder, mode);
    }
    done
}

/// Gives a folder back the mode that it had.
pub fn shut_again(folder: &OwnedFd, mode: u16) {
    // It was just set to another, and by the same user.
    let _ = set_mode(folder, mode);
}

fn set_mode(folder: &OwnedFd, mode: u16) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode.into());
    rustix::fs::chmod(by_descriptor(folder.as_fd()), mode)
}

/// The same of a folder that may not even be opened for reading.
pub fn let_into(dir: impl AsFd, name: &[u8]) -> Result<Option<u16>, Errno> {
    let_in(&by_path(dir, name)?)
}

/// Whether this user may let themselves into the folder `name`.
pub fn is_own(dir: impl AsFd, name: &[u8]) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let there = by_path(dir, name).and_then(Stat::of);
    there.is_ok_and(|there| there.kind == Kind::Dir && there.uid == user)
}

fn by_path(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}
