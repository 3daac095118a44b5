//! Disks past the page cache: `O_DIRECT`.
//!
//! Direct disks are for a volume's data and for indexes larger than RAM, where the page cache would hold pages that are
//! not read again.
//!
//! Invariant: callers need no alignment. A request aligned in offset, length and memory is done in place; other
//! reads go through aligned buffers from a pool; the unaligned head and tail of a write go through the page cache,
//! which the kernel keeps coherent with direct I/O on the same file. Two writers of neighbouring bytes thus never race
//! for a page, as a read-modify-write of our own would. Where the file system refuses `O_DIRECT`, everything goes
//! through the page cache.

use std::fs::File;

use rustix::fs::OFlags;

use crate::{
    BatchFile, Disk, Error, FileDisk, ReadAt, Result, Stretch, WriteAt,
    aligned::{Aligned, BUFFER_BYTES, DIRECT_ALIGN, is_misaligned, read_pages, read_through},
    batch::{self, BatchError},
    batch_piece::BatchPiece,
    disk::write_zeroes_by_hand,
};

/// A file or block device that is read and written past the page cache.
pub struct DirectDisk {
    direct: File,
    cached: FileDisk,
}

impl DirectDisk {
    /// Opens `disk` past the page cache.
    ///
    /// # Errors
    /// The unchanged `disk`, to be used instead, where the file system refuses direct I/O or no more files may be open.
    pub fn over(disk: FileDisk) -> std::result::Result<Self, FileDisk> {
        match disk.reopen(OFlags::DIRECT) {
            Ok(direct) => Ok(Self {
                direct,
                cached: disk,
            }),
            Err(_) => Err(disk),
        }
    }

    fn fail(&self, op: &'static str, e: std::io::Error, offset: u64) -> Error {
        Error::from_io(op, self.cached.path(), e).at(offset)
    }

    /// Fails unless `len` bytes exist at `offset`: a direct read must not meet the end.
    fn check_there(&self, offset: u64, len: usize) -> Result<()> {
        let there = self.cached.len()?;
        match offset.checked_add(len as u64) {
            Some(end) if end <= there => Ok(()),
            _ => Err(Error::short(self.cached.path(), offset, len, there)),
        }
    }

    /// Reads `group` at once, each read into a span of `memory`; the spans must fit.
    fn read_group(&self, group: &mut [&mut ReadAt<'_>], memory: &mut Aligned) -> Result<()> {
        let mut left = &mut memory[..];
        let mut pieces = Vec::with_capacity(group.len());
        for read in group.iter() {
            let (head, span) = span(read);
            let (buf, after) = left.split_at_mut(span);
            left = after;
            pieces.push(BatchPiece {
                file: &self.direct,
                cached: false,
                offset: read.offset - head as u64,
                buf,
                need: head + read.buf.len(),
            });
        }
        self.run(&mut pieces)?;
        for (piece, read) in pieces.iter().zip(group) {
            read.buf
                .copy_from_slice(&piece.buf[piece.need - read.buf.len()..piece.need]);
        }
        Ok(())
    }

    /// Does reads into their own, aligned memory at once.
    fn read_in_place(&self, reads: &mut [&mut ReadAt<'_>]) -> Result<()> {
        let mut pieces: Vec<BatchPiece> = reads
            .iter_mut()
            .map(|read| BatchPiece {
                file: &self.direct,
                cached: false,
                offset: read.offset,
                need: read.buf.len(),
                buf: &mut *read.buf,
            })
            .collect();
        self.run(&mut pieces)
    }

    fn run(&self, pieces: &mut [BatchPiece<'_>]) -> Result<()> {
        match batch::read(pieces, self.cached.batching()) {
            Ok(()) => Ok(()),
            Err(BatchError::Short(i)) => Err(Error::short(
                self.cached.path(),
                pieces[i].offset,
                pieces[i].need,
                self.cached.len()?,
            )),
            Err(BatchError::System(_, e)) if is_misaligned(&e) => {
                pieces.iter_mut().try_for_each(|piece| {
                    self.cached
                        .read_at(&mut piece.buf[..piece.need], piece.offset)
                })
            }
            Err(BatchError::System(i, e)) => Err(self.fail("read", e, pieces[i].offset)),
        }
    }
}

impl Disk for DirectDisk {
    fn len(&self) -> Result<u64> {
        self.cached.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        self.check_there(offset, buf.len())?;
        let whole = if is_aligned(buf, offset) {
            read_pages(&self.direct, buf, offset, buf.len())
        } else {
            read_through(&self.direct, buf, offset)
        };
        match whole {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::short(
                self.cached.path(),
                offset,
                buf.len(),
                self.cached.len()?,
            )),
            Err(e) if is_misaligned(&e) => self.cached.read_at(buf, offset),
            Err(e) => Err(self.fail("read", e, offset)),
        }
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        let mut left: Vec<&mut ReadAt> = reads
            .iter_mut()
            .filter(|read| !read.buf.is_empty())
            .collect();
        for read in &left {
            self.check_there(read.offset, read.buf.len())?;
        }
        left.sort_by_key(|read| !is_aligned(read.buf, read.offset));
        let in_place = left.partition_point(|read| is_aligned(read.buf, read.offset));
        let (in_place, mut rest) = left.split_at_mut(in_place);
        if !in_place.is_empty() {
            self.read_in_place(in_place)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let mut memory = Aligned::take();
        while !rest.is_empty() {
            let count = fitting(rest);
            let (group, after) = rest.split_at_mut(count.max(1));
            match group {
                [large] if count == 0 => self.read_at(large.buf, large.offset)?,
                group => self.read_group(group, &mut memory)?,
            }
            rest = after;
        }
        memory.give_back();
        Ok(())
    }

    fn batch_file(&self) -> Option<BatchFile<'_>> {
        Some(BatchFile {
            file: &self.direct,
            align: DIRECT_ALIGN,
            how: self.cached.batching(),
        })
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.cached.write_past_cache(&self.direct, data, offset)
    }

    fn write_many_at(&self, writes: &[WriteAt<'_>]) -> Result<()> {
        let is_one_of_many = |write: &&WriteAt<'_>| {
            !write.data.is_empty() && is_aligned(write.data, write.offset) && writes.len() > 1
        };
        let pieces = writes.iter().filter(is_one_of_many);
        let left = self
            .cached
            .write_by_ring(&self.direct, pieces.copied().collect());
        let others = writes
            .iter()
            .filter(|write| !is_one_of_many(write))
            .copied();
        others
            .chain(left)
            .try_for_each(|write| self.write_at(write.data, write.offset))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        if self.cached.zero_in_place(offset, len)? {
            Ok(())
        } else {
            write_zeroes_by_hand(self, offset, len)
        }
    }

    fn stretch_at(&self, offset: u64) -> Result<Stretch> {
        self.cached.stretch_at(offset)
    }

    fn sync(&self) -> Result<()> {
        self.cached.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.cached.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.cached.allocate(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.cached.discard(offset, len)
    }
}

/// Whether offset, length and memory are aligned for direct I/O.
fn is_aligned(memory: &[u8], offset: u64) -> bool {
    let place = (offset % DIRECT_ALIGN as u64) as usize;
    let all = [memory.as_ptr().addr(), memory.len(), place];
    all.iter().all(|n| n.is_multiple_of(DIRECT_ALIGN))
}

/// The bytes between the page border before `read` and its start, and the bytes of all pages that it touches.
fn span(read: &ReadAt<'_>) -> (usize, usize) {
    let head = (read.offset % DIRECT_ALIGN as u64) as usize;
    (head, (head + read.buf.len()).next_multiple_of(DIRECT_ALIGN))
}

/// The number of reads, from the first on, that fit into one buffer together.
fn fitting(reads: &[&mut ReadAt<'_>]) -> usize {
    let mut room = BUFFER_BYTES;
    let fits = |read: &&&mut ReadAt<'_>| match room.checked_sub(span(read).1) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    reads.iter().take_while(fits).count()
}
