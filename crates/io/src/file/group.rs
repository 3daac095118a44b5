//! Folders that a group shares: what is made in them is its members', too.
//!
//! Always holds: a group gets no more than its folder's, and none but its folder's. Where what was made cannot be given
//! to that group, it stays its owner's alone: the group that it has instead may be everybody's.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{FileType, Gid, Mode, Stat, Uid};
use rustix::io::Errno;

/// What members of a folder's group may do with what is made in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GroupAccess {
    /// Nothing: it is its owner's alone (mode 0600, folders 0700).
    #[default]
    None,
    /// Read it (0640, folders 0750).
    Read,
    /// Read and write it (0660, folders 0770).
    Write,
}

/// How often a member tries again what is not permitted, a millisecond apart.
const TRIES: usize = 8;

impl GroupAccess {
    /// What the mode of a file or folder grants its group.
    pub(super) fn of_mode(mode: Mode) -> Self {
        match (mode.contains(Mode::RGRP), mode.contains(Mode::WGRP)) {
            (true, true) => Self::Write,
            (true, false) => Self::Read,
            (false, _) => Self::None,
        }
    }

    /// What the owner of a folder has said by its mode: one that gives its group to all that is made in it, and in
    /// which the group may make things, is the group's.
    pub(super) fn of_setgid_folder(mode: Mode) -> Self {
        match mode.contains(Mode::SGID) && Self::of_mode(mode) == Self::Write {
            true => Self::Write,
            false => Self::None,
        }
    }

    /// The group's part of the mode of a file.
    fn file_bits(self) -> Mode {
        match self {
            Self::None => Mode::empty(),
            Self::Read => Mode::RGRP,
            Self::Write => Mode::RGRP | Mode::WGRP,
        }
    }

    /// The group's part of the mode of a folder.
    pub(super) fn folder_bits(self) -> Mode {
        match self {
            Self::None => Mode::empty(),
            _ => self.file_bits() | Mode::XGRP,
        }
    }

    /// What `open` opens or makes in a shared folder. Another member may have made what it needs a moment ago, and be
    /// about to give it to the group: what is not permitted is tried again.
    pub(super) fn patiently<T>(
        self,
        open: impl Fn() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let mut opened = open();
        for _ in 0..TRIES {
            if self != Self::Write || !matches!(opened, Err(Errno::ACCESS)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            opened = open();
        }
        opened
    }

    /// Gives what was made in `folder` a moment ago to whom it belongs there.
    ///
    /// What root makes in the folder of another user is that user's: whoever owns a repository can open what is in it,
    /// though root was there. What is made in a shared folder is the folder's group's. All as far as the system permits
    /// it: in a container, or over NFS, root may not give files away; a member of a group may give them to that group.
    pub(super) fn give(self, made: &File, folder: BorrowedFd<'_>) {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root && self == Self::None {
            return;
        }
        let Ok(folder) = rustix::fs::fstat(folder) else {
            return;
        };
        if is_root && folder.st_uid != 0 {
            let (owner, group) = (Uid::from_raw(folder.st_uid), Gid::from_raw(folder.st_gid));
            let _ = rustix::fs::fchown(made, Some(owner), Some(group));
        }
        if self != Self::None {
            self.share(made, &folder);
        }
    }

    fn share(self, made: &File, folder: &Stat) {
        let group = |file: &File| rustix::fs::fstat(file).map(|stat| (stat.st_gid, stat.st_mode));
        if !matches!(group(made), Ok((gid, _)) if gid == folder.st_gid) {
            let _ = rustix::fs::fchown(made, None, Some(Gid::from_raw(folder.st_gid)));
        }
        // Where the umask is 0, nothing of it is new; a folder keeps that it gives its group on.
        if let Ok((gid, mode)) = group(made)
            && gid == folder.st_gid
        {
            let bits = match FileType::from_raw_mode(mode) {
                FileType::Directory => self.folder_bits(),
                _ => self.file_bits(),
            };
            let _ = rustix::fs::fchmod(made.as_fd(), Mode::from_raw_mode(mode) | bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_says_what_the_group_may() {
        for (mode, access, of_setgid) in [
            (0o600, GroupAccess::None, GroupAccess::None),
            (0o620, GroupAccess::None, GroupAccess::None),
            (0o640, GroupAccess::Read, GroupAccess::None),
            (0o604, GroupAccess::None, GroupAccess::None),
            (0o664, GroupAccess::Write, GroupAccess::None),
            (0o2750, GroupAccess::Read, GroupAccess::None),
            (0o2770, GroupAccess::Write, GroupAccess::Write),
        ] {
            let mode = Mode::from_raw_mode(mode);
            assert_eq!(GroupAccess::of_mode(mode), access, "{mode:?}");
            assert_eq!(GroupAccess::of_setgid_folder(mode), of_setgid, "{mode:?}");
        }
    }
}
