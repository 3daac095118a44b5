//! Where a file's bytes lie on the device below its file system: the ioctl FIEMAP (Linux,
//! Documentation/filesystems/fiemap.rst).

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Number of the ioctl: `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: u32 = 0xC020_660B;
/// Has the file system write what has no place yet.
const FLAG_SYNC: u32 = 1;
/// Extents of one call.
const EXTENTS_A_CALL: usize = 128;

const EXTENT_LAST: u32 = 1;
/// The place is unknown (2), not given yet (4), no place of plain bytes (8), or within a block of metadata (0x200).
const EXTENT_WITHOUT_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x200;

/// Neighbouring bytes of a file that lie side by side on its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// Offset of the first byte in the file.
    pub logical: u64,
    /// Offset of the first byte on the device.
    pub physical: u64,
    /// How many bytes there are.
    pub bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    bytes: u64,
    reserved_64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct RawMap {
    start: u64,
    bytes: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_A_CALL],
}

/// The extents of a file that begin in `range` or reach into it, in order, `most` of them at most. Holes have none, nor
/// has what the file system keeps compressed or within its metadata. What was written before has a place when this
/// returns, also what is allocated and unwritten.
///
/// # Errors
/// The system's: `ENOTSUP` or `ENOTTY` where the file system does not tell.
pub fn file_extents(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    most: usize,
) -> io::Result<Vec<FileExtent>> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end && found.len() < most {
        let (extents, is_last) = next_extents(file, at..range.end)?;
        let Some(end) = extents.iter().map(RawExtent::end).max() else {
            break;
        };
        let placed = extents
            .iter()
            .filter(|extent| extent.flags & EXTENT_WITHOUT_PLACE == 0)
            .map(|extent| FileExtent {
                logical: extent.logical,
                physical: extent.physical,
                bytes: extent.bytes,
            });
        found.extend(placed);
        if is_last || end <= at {
            break;
        }
        at = end;
    }
    found.truncate(most);
    Ok(found)
}

impl RawExtent {
    fn end(&self) -> u64 {
        self.logical.saturating_add(self.bytes)
    }
}

/// The first extents of a range, and whether the file has no more.
fn next_extents(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<(Vec<RawExtent>, bool)> {
    let mut map = RawMap {
        start: range.start,
        bytes: range.end - range.start,
        flags: FLAG_SYNC,
        mapped: 0,
        count: EXTENTS_A_CALL as u32,
        reserved: 0,
        extents: [RawExtent::default(); EXTENTS_A_CALL],
    };
    // SAFETY: the kernel reads the header and writes it and as many extents as `count` says, which `map` has room for;
    // both are laid out as in linux/fiemap.h, any bytes are valid for them, and `map` lives across the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut map) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let extents = map.extents[..(map.mapped as usize).min(EXTENTS_A_CALL)].to_vec();
    let is_last = extents
        .last()
        .is_none_or(|extent| extent.flags & EXTENT_LAST != 0);
    Ok((extents, is_last))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    const _: () = assert!(size_of::<RawExtent>() == 56);
    const _: () = assert!(size_of::<RawMap>() == 32 + 56 * EXTENTS_A_CALL);

    /// File systems in RAM do not tell; where the one of temporary files does, the extents are those of the file.
    #[test]
    fn extents_cover_what_was_written_and_no_hole() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let path = folder.path().join("file");
        let mut file = File::create(&path).expect("a file");
        file.write_all(&[7; 1 << 20]).expect("written");
        file.set_len(64 << 20).expect("a hole");
        let whole = 0..u64::MAX;
        let Ok(extents) = file_extents(file.as_fd(), whole.clone(), 1000) else {
            eprintln!("not tested: the file system of /var/tmp tells no extents");
            return;
        };
        let bytes: u64 = extents.iter().map(|extent| extent.bytes).sum();
        if bytes == 0 {
            eprintln!("not tested: the file system of /var/tmp gives files no places");
            return;
        }
        assert_eq!(extents[0].logical, 0);
        assert!((1 << 20..2 << 20).contains(&bytes), "{extents:?}");
        assert!(extents.iter().all(|extent| extent.physical > 0));
        let behind = file_extents(file.as_fd(), 32 << 20..64 << 20, 1000);
        assert_eq!(behind.expect("it tells"), []);
        let one = file_extents(file.as_fd(), whole, 1).expect("it tells");
        assert_eq!(one, extents[..1]);
    }
}
