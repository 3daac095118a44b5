//! Sharing a folder with its group: as requested by the caller, or by the folder's mode.

use rustix::fs::{AtFlags, FileType, Mode};

use super::FileDir;
use crate::file::GroupAccess;
use crate::{Error, Result};

impl FileDir {
    /// This folder with the access `group` for its group to new files and folders in it, at all depths.
    #[must_use]
    pub fn shared(mut self, group: GroupAccess) -> Self {
        self.access.group = group;
        self
    }

    /// This folder with the group access that the mode of the first existing one of `names` within grants; none where
    /// no such disk or folder exists.
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

    /// The group's access to new files and folders.
    pub fn group_access(&self) -> GroupAccess {
        self.access.group
    }

    /// The group access that the folder's own mode asks for: [`GroupAccess::Write`] where new files get the folder's
    /// group (setgid), and the group may create files there.
    ///
    /// # Errors
    /// The system does not tell the folder's mode.
    pub fn group_access_by_mode(&self) -> Result<GroupAccess> {
        Ok(GroupAccess::of_setgid_folder(self.mode()?))
    }

    /// Gives the group access to the folder itself, as far as it has access to new files in it.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) where the folder is another user's and does not let its group
    /// in.
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
