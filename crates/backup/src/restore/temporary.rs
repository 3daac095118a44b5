//! Names for what is to replace something and is not complete yet: until then, what stands there stays.
//!
//! Nobody who lists the folder takes them for anything else; what a killed run leaves is removed by `--delete`, or by hand.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::AtFlags;
use rustix::io::Errno;

/// Where something was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Under its own name, where nothing was.
    Own,
    /// Under a name of this number, beside what it is to replace.
    Beside(NonZeroU64),
}

impl Place {
    /// Beside, under a name that this process has not given yet.
    pub fn beside() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Relaxed).saturating_add(1);
        Self::Beside(NonZeroU64::new(number).unwrap_or(NonZeroU64::MAX))
    }

    /// What stands there now and is to be called `name`.
    pub fn name(self, name: &[u8]) -> Vec<u8> {
        match self {
            Self::Own => name.to_vec(),
            Self::Beside(number) => {
                format!(".onefold-{}-{number}.tmp", std::process::id()).into_bytes()
            }
        }
    }

    /// It is complete: it takes its own name, and the place of what stood there. Errors: it is removed.
    pub fn put(self, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        if self == Self::Own {
            return Ok(());
        }
        let renamed = rustix::fs::renameat(dir, self.name(name), dir, name);
        // Of two names of one file, renaming removes none.
        self.give_up(dir);
        renamed
    }

    /// It will not be complete, or is what stands there anyway.
    pub fn give_up(self, dir: &OwnedFd) {
        if let Self::Beside(_) = self {
            let _ = rustix::fs::unlinkat(dir, self.name(b""), AtFlags::empty());
        }
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
        assert_eq!(fs::read_dir(place.path()).expect("list").count(), 2);
    }
}
