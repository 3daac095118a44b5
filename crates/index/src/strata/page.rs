//! The page: 4 KiB with a checksum in its first eight bytes, the unit in which logs and runs are read.

use onefold_io::frame::crc64;
use onefold_io::{Disk, ReadFrom, read_across};

use crate::{Error, Result};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Largest footer or manifest in bytes: it bounds what a damaged length can make a reader allocate.
pub const FOOTER_BYTES_MAX: u64 = 1 << 28;

/// Writes the checksum into a page that is otherwise complete, for a file without a mark; `page` counts within its
/// file.
pub fn seal_page(bytes: &mut [u8], page: u32) {
    seal_page_of(bytes, 0, page);
}

/// Writes the checksum into a page that is otherwise complete, for a file with `mark`: the same page of another file
/// has another checksum. `page` counts within its file.
pub fn seal_page_of(bytes: &mut [u8], mark: u64, page: u32) {
    let sum = checksum(bytes, page) ^ mark;
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
}

/// Compares the checksum of page `page` of the file `path`, which has no mark.
///
/// # Errors
/// [`Error::Damaged`] where the checksums differ.
pub fn check_page(bytes: &[u8], path: &str, page: u32) -> Result<()> {
    check_page_of(bytes, 0, path, page)
}

/// Compares the checksum of page `page` of the file `path`, whose mark is `mark`.
///
/// # Errors
/// [`Error::Damaged`] where the checksums differ.
pub fn check_page_of(bytes: &[u8], mark: u64, path: &str, page: u32) -> Result<()> {
    let stored = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let found = checksum(bytes, page) ^ mark;
    if stored != found {
        let at = u64::from(page) * PAGE_BYTES as u64;
        let what = format!("page checksum {found:#018x}, expected {stored:#018x}");
        return Err(Error::damaged(path, at, what));
    }
    Ok(())
}

/// Checksum of a page's content and number, so that a page in the wrong place is damage too.
fn checksum(bytes: &[u8], page: u32) -> u64 {
    crc64(&bytes[8..]) ^ (u64::from(page) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Checks that a run has the length `file_bytes`, as the manifest says.
///
/// # Errors
/// [`Error::Damaged`] where the length differs, [`Error::Io`] where it cannot be read.
pub fn check_length(disk: &dyn Disk, path: &str, file_bytes: u64) -> Result<()> {
    match disk.len()? {
        len if len == file_bytes => Ok(()),
        len => Err(Error::damaged(
            path,
            len,
            format!("{len} bytes, expected {file_bytes}"),
        )),
    }
}

/// Checks that a log file has at least the length `file_bytes` of the manifest: its writer may be adding to it.
///
/// # Errors
/// [`Error::Damaged`] where the file is shorter, [`Error::Io`] where its length cannot be read.
pub fn check_reaches(disk: &dyn Disk, path: &str, file_bytes: u64) -> Result<()> {
    match disk.len()? {
        len if len >= file_bytes => Ok(()),
        len => Err(Error::damaged(
            path,
            len,
            format!("{len} bytes, expected {file_bytes} at least"),
        )),
    }
}

/// Reads pages in one batch: `wanted` gives a disk, the first page and the number of pages for each read. `buf`
/// provides page-aligned room, which a disk past the page cache fills without another copy.
///
/// # Errors
/// [`Error::Io`], or [`Error::Damaged`] where a disk ends before a page.
pub fn read_pages<'a, 'b>(
    wanted: impl Iterator<Item = (&'a dyn Disk, u32, usize)> + Clone,
    buf: &'b mut Vec<u8>,
) -> Result<&'b mut [u8]> {
    let bytes: usize = wanted.clone().map(|(_, _, pages)| pages * PAGE_BYTES).sum();
    if buf.len() < bytes + PAGE_BYTES {
        *buf = vec![0; bytes + PAGE_BYTES];
    }
    let start = buf.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
    let pages = &mut buf[start..start + bytes];
    let mut rest = &mut pages[..];
    let mut reads = Vec::new();
    for (disk, page, count) in wanted {
        let (buf, behind) = rest.split_at_mut(count * PAGE_BYTES);
        rest = behind;
        reads.push(ReadFrom {
            disk,
            offset: u64::from(page) * PAGE_BYTES as u64,
            buf,
        });
    }
    read_across(&mut reads)?;
    Ok(pages)
}
