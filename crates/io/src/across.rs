//! One batch of reads over many disks, so that the device sees them all at once: an index has many files on one device.

use crate::{
    Disk, ReadAt, Result,
    batch::{self, BatchFile, Batching},
    batch_piece::{BatchPiece, IN_FLIGHT_MAX},
};

/// One read of a batch over many disks: fill `buf` from `offset` of `disk`.
pub struct ReadFrom<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// Offset on the disk, in bytes.
    pub offset: u64,
    /// The buffer to fill, as a whole.
    pub buf: &'a mut [u8],
}

/// Does all `reads`, as many at once as the device takes.
///
/// Disks past the page cache take part where offset, length and memory are multiples of 4096; other disks are read one
/// by one.
///
/// # Errors
/// The error of [`Disk::read_at`] for one of the failed reads; the content of every `buf` is then undefined.
pub fn read_across(reads: &mut [ReadFrom<'_>]) -> Result<()> {
    read_across_within(reads, IN_FLIGHT_MAX)
}

/// The same as [`read_across`] with at most `in_flight_max` reads at the device at once, and never more than
/// [`IN_FLIGHT_MAX`]. For measurements; disks that are read one by one ignore the limit.
///
/// # Errors
/// Errors of [`read_across`].
pub fn read_across_within(reads: &mut [ReadFrom<'_>], in_flight_max: usize) -> Result<()> {
    let mut pieces = Vec::with_capacity(reads.len());
    let mut how = Batching::default();
    let mut whole = true;
    for read in reads.iter_mut() {
        let Some(file) = read.disk.batch_file().filter(|file| fits(file, read)) else {
            whole = false;
            continue;
        };
        how = file.how;
        pieces.push(BatchPiece {
            file: file.file,
            cached: file.align == 1,
            offset: read.offset,
            need: read.buf.len(),
            buf: &mut *read.buf,
        });
    }
    let done = batch::read_within(&mut pieces, how, in_flight_max).is_ok();
    if whole && done {
        return Ok(());
    }
    // reads that could not take part, or after a failure all of them, so that the disk itself returns the error
    let mut rest = &mut reads[..];
    while let Some(first) = rest.first() {
        let disk = first.disk;
        let len = rest
            .iter()
            .take_while(|read| std::ptr::addr_eq(read.disk, disk))
            .count();
        let (own, others) = rest.split_at_mut(len);
        rest = others;
        let mut own: Vec<ReadAt<'_>> = own
            .iter_mut()
            .filter(|read| !(done && disk.batch_file().is_some_and(|file| fits(&file, read))))
            .map(|read| ReadAt {
                offset: read.offset,
                buf: &mut *read.buf,
            })
            .collect();
        if !own.is_empty() {
            disk.read_many_at(&mut own)?;
        }
    }
    Ok(())
}

fn fits(file: &BatchFile<'_>, read: &ReadFrom<'_>) -> bool {
    let place = (read.offset % file.align as u64) as usize;
    [place, read.buf.len(), read.buf.as_ptr().addr()]
        .iter()
        .all(|n| n.is_multiple_of(file.align))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dir, ErrorKind, FileDir, MemDir};

    #[test]
    fn reads_of_files_past_the_cache_and_not_and_of_memory_come_together() {
        let temp = tempfile::tempdir().unwrap();
        let cached = FileDir::open(temp.path()).unwrap();
        let direct = FileDir::open(temp.path()).unwrap().direct();
        let memory = MemDir::new();
        let bytes: Vec<u8> = (0..1u32 << 16).map(|i| (i / 5) as u8).collect();
        let disks = [
            cached.create("a").unwrap(),
            direct.create("b").unwrap(),
            memory.create("c").unwrap(),
        ];
        disks
            .iter()
            .for_each(|disk| disk.write_at(&bytes, 0).unwrap());
        // aligned and unaligned reads
        for (offset, len) in [(4096, 4096), (100, 777), (8192, 12288)] {
            let mut bufs = vec![vec![0; len + 4096]; 30];
            let mut reads: Vec<ReadFrom<'_>> = Vec::new();
            for (i, buf) in bufs.iter_mut().enumerate() {
                let start = buf.as_ptr().align_offset(4096);
                let buf = &mut buf[start..start + len];
                let disk = &*disks[i % 3];
                reads.push(ReadFrom { disk, offset, buf });
            }
            read_across(&mut reads).unwrap();
            for read in &reads {
                assert!(read.buf[..] == bytes[offset as usize..][..len]);
            }
            reads[7].offset = 1 << 16;
            assert_eq!(read_across(&mut reads).unwrap_err().kind, ErrorKind::Short);
        }
    }
}
