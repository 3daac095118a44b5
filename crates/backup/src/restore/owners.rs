//! Compares owners where the file system shows another owner than the one that was set: some file systems of FUSE and
//! of the network map owners, or give all files to one.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use parking_lot::Mutex;
use rustix::fs::Uid;
use rustix::io::Errno;

use super::trial::nameless;
use crate::meta::Stat;

/// Users that file systems show as the owners of files that were given to a user, by device and that user; tried out
/// only where it matters. `None`: cannot be found out.
#[derive(Default)]
pub struct ShownOwners(Mutex<HashMap<(u64, u32), Option<u32>>>);

impl ShownOwners {
    /// Whether `there`, in `dir`, may be a file that this restore has made and given to `user`.
    pub fn are_of(&self, dir: BorrowedFd<'_>, there: &Stat, user: u32) -> bool {
        let ours = rustix::process::geteuid().as_raw();
        let shown = || {
            *self
                .0
                .lock()
                .entry((there.device, user))
                .or_insert_with(|| try_out(dir, user).ok())
        };
        there.uid == user || there.uid == ours || shown() == Some(there.uid)
    }
}

/// Returns the user who is shown as the owner of a file that is given to `user` in this folder.
fn try_out(dir: BorrowedFd<'_>, user: u32) -> Result<u32, Errno> {
    let file = nameless(dir)?;
    // Where a file cannot be given away, a restore cannot do it either: the shown owner counts.
    let _ = rustix::fs::fchown(&file, Some(Uid::from_raw(user)), None);
    Ok(Stat::of(&file)?.uid)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::chown;

    use super::*;

    /// The test's file system, like most, shows the owner that was set.
    #[test]
    fn a_strangers_file_is_theirs_only_where_all_are_shown_so() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("file");
        std::fs::write(&path, "x").expect("write");
        let folder = std::fs::File::open(dir.path()).expect("open");
        let owners = ShownOwners::default();
        let stat_of = |user| {
            chown(&path, Some(user), None).expect("chown");
            Stat::at(&folder, b"file", false).expect("stat")
        };
        for (user, is_theirs) in [(1234, true), (0, true), (5678, false)] {
            let there = stat_of(user);
            assert_eq!(owners.are_of(folder.as_fd(), &there, 1234), is_theirs);
        }
        let there = stat_of(5678);
        // Simulates a file system that gives all files to one owner.
        owners.0.lock().insert((there.device, 1234), Some(5678));
        assert!(owners.are_of(folder.as_fd(), &there, 1234));
        assert!(!owners.are_of(folder.as_fd(), &there, 4321));
        let names = std::fs::read_dir(dir.path()).expect("list").count();
        assert_eq!(names, 1, "nothing is left of trying out");
    }
}
