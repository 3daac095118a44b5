//! Folders shared by a group: files created in them are accessible to its members, too.
//!
//! Invariant: a group gets no more access than it has to the folder, and no group but the folder's gets any. Where a
//! new file cannot be given to that group, it stays accessible to its owner alone: its present group may be
//! everybody's.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{FileType, Gid, Mode, Stat, Uid};
use rustix::io::Errno;

/// The access of a folder's group to new files and folders in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GroupAccess {
    /// No access: only the owner has any (mode 0600, folders 0700).
    #[default]
    None,
    /// Reading (0640, folders 0750).
    Read,
    /// Reading and writing (0660, folders 0770).
    Write,
}

/// How often a member repeats an open that is not permitted, a millisecond apart.
const TRIES: usize = 8;

impl GroupAccess {
    /// The access that the mode of a file or folder grants its group.
    pub(super) fn of_mode(mode: Mode) -> Self {
        match (mode.contains(Mode::RGRP), mode.contains(Mode::WGRP)) {
            (true, true) => Self::Write,
            (true, false) => Self::Read,
            (false, _) => Self::None,
        }
    }

    /// The access that a folder's mode grants its group: [`Self::Write`] where new files get the folder's group
    /// (setgid) and the group may create files, otherwise none.
    pub(super) fn of_setgid_folder(mode: Mode) -> Self {
        if mode.contains(Mode::SGID) && Self::of_mode(mode) == Self::Write {
            Self::Write
        } else {
            Self::None
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

    /// Calls `open`, which opens or creates a file in a shared folder. Another member may have created a file a moment
    /// ago and not yet given it to the group: an open that is not permitted is repeated.
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

    /// Gives a file that was just created in `folder` to the owner and group that it should have there.
    ///
    /// A file that root creates in another user's folder becomes that user's: the owner of a repository can open its
    /// files even after root used it. A file in a shared folder gets the folder's group. Both only as far as the system
    /// permits it: in a container, or over NFS, root may not give files away; a member of a group may give them to that
    /// group.
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
        // With a umask of 0 the bits are set already; a folder keeps its setgid bit.
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
