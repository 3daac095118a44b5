//! How many files and folders are kept open: as many as help, and no more than a part of what the system grants.

use rustix::process::{Resource, getrlimit};

/// Folders that a restore keeps open at most,
const FOLDERS_MAX: usize = 384;
/// and large files.
const LARGE_MAX: usize = 128;
/// Folders that a walk keeps open for who follows it,
const FOLDERS_MET_MAX: usize = 512;
/// small files that a backup opens before it reads them,
const AHEAD_MAX: usize = 4096;
/// and folders of small files that are kept open until these are read.
const FOLDERS_AHEAD_MAX: usize = 1024;

/// How many folders a walk keeps open for who follows it.
pub fn folders_met_max() -> usize {
    share(granted(), 8, FOLDERS_MET_MAX)
}

/// How many small files a backup opens before it reads them.
pub fn ahead_max() -> usize {
    share(granted(), 8, AHEAD_MAX)
}

/// How many folders of small files it keeps open until these are read.
pub fn folders_ahead_max() -> usize {
    share(granted(), 4, FOLDERS_AHEAD_MAX)
}

/// How many folders a restore keeps open.
pub fn folders_max() -> usize {
    share(granted(), 4, FOLDERS_MAX)
}

/// How many large files it keeps open.
pub fn large_max() -> usize {
    share(granted(), 8, LARGE_MAX)
}

fn granted() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// One of `parts` parts of what is granted, or the most that is of use.
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
