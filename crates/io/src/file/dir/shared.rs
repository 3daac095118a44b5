//! How a folder is shared by its group: what is asked of it, and what it says by its mode.

use rustix::fs::{AtFlags, FileType, Mode};

use super::FileDir;
use crate::file::GroupAccess;
use crate::{Error, Result};

impl FileDir {
    /// What is made in it, and in folders within, is for the folder's group, too, as far as `group` says.
    #[must_use]
    pub fn shared(mut self, group: GroupAccess) -> Self {
        self.access.group = group;
        self
    }

    /// The same, as far as the mode of the first of these disks and folders within says that is there; not at all where
    /// none is.
    #[must_use]
    pub fn shared_as(self, names: &[&str]) -> Self {
        let mode = |name: &&str| {
            let stat = rustix::fs::statat(&self.fd, *name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
            (!is_link).then(|| Mode::from_raw_mode(stat.st_mode))
        };
        let group = names.iter().find_map(mode).map(GroupAccess::of_mode);
        self.shared(group.unwrap_or_default())
    }

    /// What members of its group may do with what is made in it.
    pub fn group_access(&self) -> GroupAccess {
        self.access.group
    }

    /// What members of its group are to be able to do by its own mode: [`GroupAccess::Write`] where what is made in it
    /// gets its group (setgid), and the group may make things there.
    ///
    /// # Errors
    /// The system does not say its mode.
    pub fn group_access_by_mode(&self) -> Result<GroupAccess> {
        Ok(GroupAccess::of_setgid_folder(self.mode()?))
    }

    /// Lets the group into the folder itself, as far as into what is made there.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) where the folder is another user's and does not let its group in.
    pub fn let_group_in(&self) -> Result<()> {
        let (mode, bits) = (self.mode()?, self.access.group.folder_bits());
        if mode.contains(bits) {
            return Ok(());
        }
        let wanted = (mode | bits) & Mode::from_raw_mode(0o7777);
        rustix::fs::fchmod(&self.fd, wanted)
            .map_err(|e| Error::from_io("let the group into folder", &self.path, e))
    }

    fn mode(&self) -> Result<Mode> {
        match rustix::fs::fstat(&self.fd) {
            Ok(stat) => Ok(Mode::from_raw_mode(stat.st_mode)),
            Err(e) => Err(Error::from_io("look at folder", &self.path, e)),
        }
    }
}
