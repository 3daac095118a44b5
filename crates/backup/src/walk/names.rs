//! The names of a folder, in order, in bounded RAM: of a folder with more names than a pass keeps, one pass gives the first, the next those behind them.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::RawDir;
use rustix::io::Errno;

/// Names that one pass over a folder keeps, in bytes with overhead.
pub const PASS_BYTES_MAX: usize = 16 << 20;
pub const NAME_OVERHEAD_BYTES: usize = 32;

/// Names with inode numbers.
pub type Names = Vec<(Vec<u8>, u64)>;

/// Names of a folder, in order.
pub struct Listing {
    /// As many as a pass keeps.
    pub names: Names,
    /// Whether others follow them.
    pub more: bool,
    /// What ended it too early.
    pub failed: Option<Errno>,
}

/// The names after `after`; with `fails_after` the listing fails after so many.
pub fn sorted_names(
    dir: &OwnedFd,
    after: Option<&[u8]>,
    fails_after: Option<usize>,
) -> Result<Listing, Errno> {
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
    let mut names: Names = Vec::new();
    let mut bytes = 0;
    let mut ceiling: Option<Vec<u8>> = None;
    let mut buf = [MaybeUninit::uninit(); 32 << 10];
    let mut listing = RawDir::new(dir, &mut buf);
    let mut failed = None;
    while let Some(entry) = listing.next() {
        let entry = match entry {
            Ok(_) if fails_after.is_some_and(|most| names.len() >= most) => Err(Errno::IO),
            other => other,
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                failed = Some(e);
                break;
            }
        };
        let name = entry.file_name().to_bytes();
        let beyond = ceiling.as_deref().is_some_and(|ceiling| name > ceiling);
        if matches!(name, b"." | b"..") || beyond || after.is_some_and(|after| name <= after) {
            continue;
        }
        bytes += name.len() + NAME_OVERHEAD_BYTES;
        names.push((name.to_vec(), entry.ino()));
        if bytes > 2 * PASS_BYTES_MAX {
            bytes = keep_first(&mut names, PASS_BYTES_MAX);
            ceiling = names.last().map(|(name, _)| name.clone());
        }
    }
    names.sort_unstable();
    Ok(Listing {
        names,
        more: ceiling.is_some() && failed.is_none(),
        failed,
    })
}

/// Sorts and keeps the first names up to `max` bytes; returns the bytes kept.
fn keep_first(names: &mut Names, max: usize) -> usize {
    names.sort_unstable();
    let mut kept = 0;
    let mut keep = 0;
    for (name, _) in names.iter() {
        if kept + name.len() + NAME_OVERHEAD_BYTES > max {
            break;
        }
        kept += name.len() + NAME_OVERHEAD_BYTES;
        keep += 1;
    }
    names.truncate(keep);
    kept
}
