//! Names for what is not complete yet: until then, what stands in its place stays, and nobody takes the half for the
//! whole.
//!
//! Nobody who lists the folder takes them for anything else; what a killed run leaves is removed by `--delete`, or by
//! hand.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::meta::Stat;

/// Where something was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Under its own name, where nothing was.
    Own,
    /// Under a name of this number, and under its own there was nothing.
    Hidden(NonZeroU64),
    /// Under a name of this number, beside what it is to replace.
    Beside(NonZeroU64),
}

impl Place {
    /// Hidden, under a name that this process has not given yet.
    pub fn hidden() -> Self {
        Self::Hidden(next())
    }

    /// Beside, under such a name.
    pub fn beside() -> Self {
        Self::Beside(next())
    }

    /// What stands there now and is to be called `name`.
    pub fn name(self, name: &[u8]) -> Vec<u8> {
        match self {
            Self::Own => name.to_vec(),
            Self::Hidden(number) | Self::Beside(number) => {
                format!(".onefold-{}-{number}.tmp", std::process::id()).into_bytes()
            }
        }
    }

    /// The same place, from which it replaces whatever has come under its own name.
    pub fn replacing(self) -> Self {
        match self {
            Self::Own => Self::Own,
            Self::Hidden(number) | Self::Beside(number) => Self::Beside(number),
        }
    }

    /// It is complete: it takes its own name, and the place of what it replaces. Errors: it is removed; but not where
    /// something has come under its own name (`EXIST`) that it is not to replace.
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
        // Of two names of one file, renaming removes none.
        self.give_up(dir);
        renamed
    }

    /// It will not be complete, or is what stands there anyway.
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

/// `EXIST`: something has that name, or one that the file system takes for it.
fn rename_to_new(dir: &OwnedFd, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        // NFS, exFAT, some of FUSE, and old kernels replace or nothing.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => look_and_rename(dir, from, to),
        other => other,
    }
}

/// Of this restore's own files none comes in between.
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
        let (new, same, failed) = (Place::beside(), Place::beside(), Place::beside());
        fs::write(path(&new.name(b"file")), "new").expect("write");
        assert_eq!(new.put(&dir, b"file"), Ok(()));
        assert_eq!(fs::read(path(b"file")).expect("read"), b"new");
        fs::hard_link(path(b"file"), path(&same.name(b"file"))).expect("link");
        assert_eq!(same.put(&dir, b"file"), Ok(()));
        fs::create_dir(path(b"folder")).expect("dir");
        fs::write(path(&failed.name(b"folder")), "x").expect("write");
        assert!(failed.put(&dir, b"folder").is_err());
        assert_eq!(Place::Own.put(&dir, b"file"), Ok(()));
        let hidden = Place::hidden();
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
