//! Compares a file's time with the snapshot's, since some file systems keep times more coarsely than others.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use parking_lot::Mutex;
use rustix::fs::Timestamps;
use rustix::io::Errno;

use super::apply::timespec;
use super::trial::nameless;
use crate::Time;
use crate::meta::Stat;

/// Steps in which file systems keep times, in nanoseconds: most; NTFS and SMB; exFAT; ext4 with small inodes; FAT.
const STEPS: [i128; 5] = [1, 100, 10_000_000, 1_000_000_000, 2_000_000_000];
/// A time that each of these steps changes differently.
const TELLING: Time = Time {
    secs: 1_000_000_001,
    nanos: 123_456_789,
};

/// Steps of the file systems that are restored into, by device; each is tried out once, and only where it matters.
#[derive(Default)]
pub struct TimeSteps(Mutex<HashMap<u64, TimeKeeping>>);

/// Precision in which a file system keeps times.
#[derive(Clone, Copy)]
struct TimeKeeping {
    /// Step of times of change, in nanoseconds.
    step: i128,
    /// Whether it keeps times of access, in any of [`STEPS`].
    has_access: bool,
}

fn nanos(time: Time) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// Whether a file system that keeps times in steps of `step` nanoseconds turns `wanted` into `there`.
fn is_cut_to(step: i128, wanted: Time, there: Time) -> bool {
    nanos(there) == nanos(wanted) - nanos(wanted).rem_euclid(step)
}

/// Whether some file system turns `wanted` into `there`.
pub fn may_be_same(wanted: Time, there: Time) -> bool {
    STEPS.iter().any(|step| is_cut_to(*step, wanted, there))
}

impl TimeSteps {
    /// Whether `there`, in `dir`, has the time `wanted` as far as its file system can tell.
    pub fn is_same(&self, dir: BorrowedFd<'_>, wanted: Time, there: &Stat) -> bool {
        if there.mtime == wanted {
            return true;
        }
        may_be_same(wanted, there.mtime)
            && is_cut_to(self.keeping(dir, there.device).step, wanted, there.mtime)
    }

    /// Whether the file system of `dir`, which is this device, keeps times of access.
    pub fn has_access(&self, dir: BorrowedFd<'_>, device: u64) -> bool {
        self.keeping(dir, device).has_access
    }

    /// Returns how the file system keeps times. Where that cannot be found out, times count as exact: a file is rather
    /// written again than left as it was.
    fn keeping(&self, dir: BorrowedFd<'_>, device: u64) -> TimeKeeping {
        *self.0.lock().entry(device).or_insert_with(|| {
            let there = try_out(dir).ok();
            let step_of = |there| {
                STEPS
                    .into_iter()
                    .find(|step| is_cut_to(*step, TELLING, there))
            };
            let access = there.map(|there| there.atime);
            TimeKeeping {
                step: there.and_then(|it| step_of(it.mtime)).unwrap_or(1),
                has_access: access.is_none_or(|access| step_of(access).is_some()),
            }
        })
    }
}

/// Returns the `stat` of a file in this folder that was given the time [`TELLING`].
fn try_out(dir: BorrowedFd<'_>) -> Result<Stat, Errno> {
    let file = nameless(dir)?;
    let time = timespec(TELLING);
    let both = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::futimens(&file, &both)?;
    Stat::of(&file)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_time_that_a_file_system_has_cut_off_is_the_same() {
        let time = |secs, nanos| Time { secs, nanos };
        let wanted = time(1_000_001, 123_456_789);
        for there in [
            wanted,
            time(1_000_001, 123_456_700),
            time(1_000_001, 120_000_000),
            time(1_000_001, 0),
            time(1_000_000, 0),
        ] {
            assert!(may_be_same(wanted, there), "{there:?}");
        }
        for there in [
            time(1_000_001, 123_456_788),
            time(1_000_001, 123_000_000),
            time(1_000_002, 0),
            time(999_999, 0),
        ] {
            assert!(!may_be_same(wanted, there), "{there:?}");
        }
        assert!(may_be_same(time(-3, 500_000_000), time(-4, 0)));
    }

    /// The test's file system, like most, keeps times whole: a round time is another one.
    #[test]
    fn a_round_time_is_the_same_only_where_times_are_cut_off() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("file");
        let file = std::fs::File::create(&path).expect("create");
        let at = |nanos| std::time::UNIX_EPOCH + std::time::Duration::new(1_000_001, nanos);
        file.set_modified(at(0)).expect("set");
        let folder = std::fs::File::open(dir.path()).expect("open");
        let there = Stat::at(&folder, b"file", false).expect("stat");
        let (steps, wanted) = (TimeSteps::default(), |nanos| Time {
            secs: 1_000_001,
            nanos,
        });
        assert!(steps.is_same(folder.as_fd(), wanted(0), &there));
        assert!(!steps.is_same(folder.as_fd(), wanted(500_000_000), &there));
        // Simulates a file system that keeps whole seconds.
        let keeping = TimeKeeping {
            step: 1_000_000_000,
            has_access: true,
        };
        steps.0.lock().insert(there.device, keeping);
        assert!(steps.is_same(folder.as_fd(), wanted(500_000_000), &there));
        let names = std::fs::read_dir(dir.path()).expect("list").count();
        assert_eq!(names, 1, "nothing is left of trying out");
    }
}
