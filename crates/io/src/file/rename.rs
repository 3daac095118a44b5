//! Renames that never replace an existing file, on any file system.
//!
//! There are three ways, each used where the file system does not have the one before:
//! 1. `renameat2` with `RENAME_NOREPLACE`: one step of the kernel's.
//! 2. A hard link under the new name, then the old name is removed (NFS, some FUSE file systems). A crash between the
//!    two leaves the file under both names.
//! 3. Under an exclusive lock on the folder: where the new name is free, a plain rename (sshfs with `disable_hardlink`,
//!    exfat-fuse, shared folders of virtual machines).
//!
//! Invariant: the new name belongs to the whole file or to nothing, at each moment and after each crash. The third
//! way therefore creates no empty file under the new name by exclusive creation: a crash would leave it there, a
//! damaged object. The price is a race that the lock does not prevent. Renames by the first or second way do not take
//! the lock, and where the file system keeps locks on each machine by itself (sshfs does), another machine does not see
//! it. Two renames to one name within the same moment may then both succeed, and the last one's file remains. Names of
//! containers and keys are 64 random bits, those of snapshots the hash of the bytes, so that two such files are the
//! same. `config` remains: two machines that create a repository in one folder at the same moment.

use std::fs::File;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::unless_interrupted;

/// The reason why a file was not renamed.
pub(super) enum NotRenamed {
    /// The system's error for the old name, or the folder. Where the hard link was made before, the file has both
    /// names.
    From(Errno),
    /// The system's error for the new name.
    To(Errno),
    /// The file system has none of the three ways: the system's error for the lock that the third needs.
    NoWay(Errno),
}

/// Renames a file within `dir`, unless the new name is taken.
pub(super) fn rename_new(dir: BorrowedFd<'_>, from: &str, to: &str) -> Result<(), NotRenamed> {
    match rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_and_unlink(dir, from, to),
        done => done.map_err(of_either_name),
    }
}

fn link_and_unlink(dir: BorrowedFd<'_>, from: &str, to: &str) -> Result<(), NotRenamed> {
    match rustix::fs::linkat(dir, from, dir, to, AtFlags::empty()) {
        Ok(()) => rustix::fs::unlinkat(dir, from, AtFlags::empty()).map_err(NotRenamed::From),
        // "Not permitted" is what Linux answers for file systems without links. Where it is meant, a rename is not
        // permitted either, and its error is the one that is returned.
        Err(
            Errno::PERM
            | Errno::ACCESS
            | Errno::MLINK
            | Errno::INVAL
            | Errno::NOSYS
            | Errno::OPNOTSUPP,
        ) => look_and_rename(dir, from, to),
        Err(errno) => Err(of_either_name(errno)),
    }
}

fn look_and_rename(dir: BorrowedFd<'_>, from: &str, to: &str) -> Result<(), NotRenamed> {
    let _lock = lock_folder(dir)?;
    match rustix::fs::statat(dir, to, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => rustix::fs::renameat(dir, from, dir, to).map_err(NotRenamed::From),
        Ok(_) => Err(NotRenamed::To(Errno::EXIST)),
        Err(errno) => Err(NotRenamed::To(errno)),
    }
}

/// An exclusive lock on the folder itself, on a file description of its own, so that threads of one process exclude
/// each other, too. The lock is released when the file is closed, after no more than the time of a rename.
fn lock_folder(dir: BorrowedFd<'_>) -> Result<File, NotRenamed> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(dir, ".", flags, Mode::empty()).map_err(NotRenamed::From)?;
    unless_interrupted(|| rustix::fs::flock(&folder, FlockOperation::LockExclusive))
        .map_err(NotRenamed::NoWay)?;
    Ok(File::from(folder))
}

/// The error for an errno that may be about either name: a taken name is the new one, anything else is about the old
/// one.
fn of_either_name(errno: Errno) -> NotRenamed {
    match errno {
        Errno::EXIST => NotRenamed::To(errno),
        _ => NotRenamed::From(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::path::Path;
    use std::sync::Barrier;

    use super::*;

    type RenameWay = fn(BorrowedFd<'_>, &str, &str) -> Result<(), NotRenamed>;

    /// The ways of file systems without `RENAME_NOREPLACE`, which no test machine has.
    const OTHER_WAYS: [RenameWay; 2] = [link_and_unlink, look_and_rename];

    fn names_in(folder: &Path) -> Vec<String> {
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let names = std::fs::read_dir(folder).unwrap().map(name);
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn every_way_renames_and_never_replaces() {
        for way in OTHER_WAYS {
            let temp = tempfile::tempdir().unwrap();
            let dir = File::open(temp.path()).unwrap();
            for name in ["a", "b"] {
                std::fs::write(temp.path().join(name), name).unwrap();
            }
            std::fs::create_dir(temp.path().join("folder")).unwrap();
            for taken in ["b", "folder"] {
                let taken = way(dir.as_fd(), "a", taken);
                assert!(matches!(taken, Err(NotRenamed::To(Errno::EXIST))));
            }
            let missing = way(dir.as_fd(), "x", "y");
            assert!(matches!(missing, Err(NotRenamed::From(Errno::NOENT))));
            assert!(way(dir.as_fd(), "a", "c").is_ok());
            assert_eq!(names_in(temp.path()), ["b", "c", "folder"]);
            assert_eq!(std::fs::read(temp.path().join("b")).unwrap(), b"b");
        }
    }

    #[test]
    fn of_two_who_rename_to_one_name_at_once_one_succeeds() {
        const TIMES: usize = 300;
        for way in OTHER_WAYS {
            let temp = tempfile::tempdir().unwrap();
            let both = Barrier::new(2);
            let renamed = |own: &str| -> Vec<bool> {
                let dir = File::open(temp.path()).unwrap();
                let once = |time: usize| {
                    let from = format!("{own}{time}");
                    std::fs::write(temp.path().join(&from), own).unwrap();
                    both.wait();
                    way(dir.as_fd(), &from, &format!("to{time}")).is_ok()
                };
                (0..TIMES).map(once).collect()
            };
            let (a, b) = std::thread::scope(|scope| {
                let a = scope.spawn(|| renamed("a"));
                (renamed("b"), a.join().unwrap())
            });
            for (time, (a, b)) in a.into_iter().zip(b).enumerate() {
                assert!(a != b, "{time}: {a} and {b}");
            }
            // The loser's file is still there.
            assert_eq!(names_in(temp.path()).len(), 2 * TIMES);
        }
    }
}
