//! Numbers of files and folders that are kept open: as many as help, and no more than a part of the system's limit.

use rustix::process::{Resource, getrlimit};

/// Largest number of folders that a restore keeps open.
const FOLDERS_MAX: usize = 384;
/// Largest number of large files that a restore keeps open.
const LARGE_MAX: usize = 128;
/// Largest number of folders that a walk keeps open for its consumer.
const FOLDERS_MET_MAX: usize = 512;
/// Largest number of small files that a backup opens before it reads them.
const AHEAD_MAX: usize = 4096;
/// Largest number of folders of small files that a backup keeps open until the files are read.
const FOLDERS_AHEAD_MAX: usize = 1024;

/// Number of folders that a walk keeps open for its consumer.
pub fn folders_met_max() -> usize {
    share(granted(), 8, FOLDERS_MET_MAX)
}

/// Number of small files that a backup opens before it reads them.
pub fn ahead_max() -> usize {
    share(granted(), 8, AHEAD_MAX)
}

/// Number of folders of small files that a backup keeps open until the files are read.
pub fn folders_ahead_max() -> usize {
    share(granted(), 4, FOLDERS_AHEAD_MAX)
}

/// Number of folders that a restore keeps open.
pub fn folders_max() -> usize {
    share(granted(), 4, FOLDERS_MAX)
}

/// Number of large files that a restore keeps open.
pub fn large_max() -> usize {
    share(granted(), 8, LARGE_MAX)
}

fn granted() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns one of `parts` parts of the limit, or `most` where that is less; at least 1.
fn share(granted: Option<u64>, parts: u64, most: usize) -> usize {
    let share = granted.map_or(usize::MAX, |granted| (granted / parts) as usize);
    share.clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_kept_open_where_few_are_granted() {
        for (granted, expected) in [
            (None, 384),
            (Some(1 << 20), 384),
            (Some(128), 32),
            (Some(2), 1),
        ] {
            assert_eq!(share(granted, 4, FOLDERS_MAX), expected);
        }
    }
}
