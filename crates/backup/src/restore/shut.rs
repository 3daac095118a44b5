//! Folders of the user that shut their owner out, such as read-only ones. While something is restored in them they are
//! open to the owner; afterwards they have their own mode again, or the snapshot's. Root is shut out nowhere.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::apply::by_descriptor;
use crate::Kind;
use crate::meta::Stat;

/// Lets the owner read, write and search a folder, if this user is the owner and may not. Returns the folder's mode
/// before, if it was changed.
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

/// Runs `run` while the owner is let in.
pub fn while_let_in<T>(folder: &OwnedFd, run: impl FnOnce() -> T) -> T {
    // Where this fails, whatever goes into the folder reports the error.
    let before = let_in(folder).unwrap_or_default();
    let done = run();
    if let Some(mode) = before {
        shut_again(folder, mode);
    }
    done
}

/// Gives a folder its own mode back.
pub fn shut_again(folder: &OwnedFd, mode: u16) {
    // Setting it cannot fail: the same user has just set another mode.
    let _ = set_mode(folder, mode);
}

fn set_mode(folder: &OwnedFd, mode: u16) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode.into());
    rustix::fs::chmod(by_descriptor(folder.as_fd()), mode)
}

/// Lets the owner into a folder that may not even be opened for reading, as [`let_in`] does.
pub fn let_into(dir: impl AsFd, name: &[u8]) -> Result<Option<u16>, Errno> {
    let_in(&by_path(dir, name)?)
}

/// Whether this user owns the folder `name`, and so may open it.
pub fn is_own(dir: impl AsFd, name: &[u8]) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let there = by_path(dir, name).and_then(Stat::of);
    there.is_ok_and(|there| there.kind == Kind::Dir && there.uid == user)
}

fn by_path(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}
