//! Temporary names for incomplete files: until a file is complete, the thing in its place stays, and no program takes
//! the half for the whole.
//!
//! The names show in a listing that they are temporary. Leftovers of a killed run are removed by `--delete`, or by
//! hand.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::meta::Stat;

/// The name under which something was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CurrentName {
    /// The thing's own name, where nothing was.
    Own,
    /// A temporary name with this number, while nothing was under its own name.
    Hidden(NonZeroU64),
    /// A temporary name with this number, beside the thing that it will replace.
    Beside(NonZeroU64),
}

impl CurrentName {
    /// Makes a hidden place, with a number that this process has not used yet.
    pub fn hidden() -> Self {
        Self::Hidden(next())
    }

    /// Makes a place beside the thing to replace, with such a number.
    pub fn beside() -> Self {
        Self::Beside(next())
    }

    /// Returns the current name of the thing that is to be called `name`.
    pub fn name(self, name: &[u8]) -> Vec<u8> {
        match self {
            Self::Own => name.to_vec(),
            Self::Hidden(number) | Self::Beside(number) => {
                format!(".onefold-{}-{number}.tmp", std::process::id()).into_bytes()
            }
        }
    }

    /// Returns the same place, but from now on it replaces anything under its own name.
    pub fn replacing(self) -> Self {
        match self {
            Self::Own => Self::Own,
            Self::Hidden(number) | Self::Beside(number) => Self::Beside(number),
        }
    }

    /// Gives a complete file its own name, and the place of the thing that it replaces. Errors: the file is removed;
    /// `EXIST` where something has come under its own name that it is not to replace.
    pub fn put(self, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let there = self.name(name);
        let renamed = match self {
            Self::Own => return Ok(()),
            Self::Hidden(_) => match rename_to_new(dir, &there, name) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => return Err(Errno::EXIST),
                other => other,
            },
            Self::Beside(_) => rustix::fs::renameat(dir, there, dir, name),
        };
        // Renaming one name of a file to another name of the same file removes neither.
        self.give_up(dir);
        renamed
    }

    /// Removes the temporary name: the file will not be complete, or has its own name already.
    pub fn give_up(self, dir: &OwnedFd) {
        if self != Self::Own {
            let _ = rustix::fs::unlinkat(dir, self.name(b""), AtFlags::empty());
        }
    }
}

fn next() -> NonZeroU64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Relaxed).saturating_add(1);
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MAX)
}

/// Renames where `to` is free. `EXIST`: something has that name, or one that the file system takes for it.
fn rename_to_new(dir: &OwnedFd, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        // NFS, exFAT, some file systems of FUSE, and old kernels cannot rename without replacing.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => look_and_rename(dir, from, to),
        other => other,
    }
}

/// Looks whether `to` is free, then renames. The lock keeps other threads of this restore out in between.
fn look_and_rename(dir: &OwnedFd, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let _one = ONE_BY_ONE.lock();
    match Stat::at(dir, to, false) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rustix::fs::renameat(dir, from, dir, to),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_complete_takes_the_place_and_leaves_no_name_behind() {
        let place = tempfile::tempdir().expect("tempdir");
        let path = |name: &[u8]| place.path().join(std::str::from_utf8(name).expect("text"));
        let dir = OwnedFd::from(fs::File::open(place.path()).expect("open"));
        fs::write(path(b"file"), "old").expect("write");
        let (new, same, failed) = (
            CurrentName::beside(),
            CurrentName::beside(),
            CurrentName::beside(),
        );
        fs::write(path(&new.name(b"file")), "new").expect("write");
        assert_eq!(new.put(&dir, b"file"), Ok(()));
        assert_eq!(fs::read(path(b"file")).expect("read"), b"new");
        fs::hard_link(path(b"file"), path(&same.name(b"file"))).expect("link");
        assert_eq!(same.put(&dir, b"file"), Ok(()));
        fs::create_dir(path(b"folder")).expect("dir");
        fs::write(path(&failed.name(b"folder")), "x").expect("write");
        assert!(failed.put(&dir, b"folder").is_err());
        assert_eq!(CurrentName::Own.put(&dir, b"file"), Ok(()));
        let hidden = CurrentName::hidden();
        for put in [rename_to_new, look_and_rename] {
            fs::write(path(&hidden.name(b"file")), "newer").expect("write");
            assert_eq!(hidden.put(&dir, b"file"), Err(Errno::EXIST));
            let name = hidden.name(b"file");
            assert_eq!(put(&dir, &name, b"file"), Err(Errno::EXIST));
            assert_eq!(fs::read(path(b"file")).expect("read"), b"new");
            assert_eq!(put(&dir, &name, b"other"), Ok(()));
            assert_eq!(fs::read(path(b"other")).expect("read"), b"newer");
            fs::remove_file(path(b"other")).expect("remove");
        }
        fs::write(path(&hidden.name(b"file")), "newer").expect("write");
        assert_eq!(hidden.replacing().put(&dir, b"file"), Ok(()));
        assert_eq!(fs::read(path(b"file")).expect("read"), b"newer");
        assert_eq!(fs::read_dir(place.path()).expect("list").count(), 2);
    }
}
