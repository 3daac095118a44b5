//! Disks past the page cache: `O_DIRECT`.
//!
//! For a volume's data and for indexes larger than RAM, where the page cache would hold pages that nobody asks for again.
//!
//! Always holds: callers need no alignment. What is aligned in place, length and memory goes straight; other reads go through aligned buffers from a
//! pool; the unaligned head and tail of a write go through the page cache, which the kernel keeps coherent with direct I/O on the same
//! file. So two writers of neighbouring bytes never race for a page, as a read-modify-write of our own would. Where the file system
//! refuses `O_DIRECT`, everything goes through the page cache.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fs::File,
    ops::{Deref, DerefMut, Range},
    os::unix::fs::FileExt,
    ptr::NonNull,
};

use parking_lot::Mutex;
use rustix::{fs::OFlags, io::Errno};

use crate::{
    BatchFile, Disk, Error, FileDisk, ReadAt, Result,
    batch::{self, BatchError, Piece},
    read_fully::read_fully,
};

/// What `O_DIRECT` wants places, lengths and memory to be multiples of: the page, which no device in use exceeds.
const ALIGN: usize = 4096;

/// Bytes of a pooled buffer. Only pages that were used are resident.
const BUFFER_BYTES: usize = 1 << 20;

/// Idle buffers kept.
const IDLE_MAX: usize = 8;

static IDLE: Mutex<Vec<Aligned>> = Mutex::new(Vec::new());

/// A file or block device that is read and written past the page cache.
pub struct DirectDisk {
    direct: File,
    cached: FileDisk,
}

impl DirectDisk {
    /// `disk` past the page cache, or `disk` as it is where the file system refuses that.
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

    /// Fails unless `len` bytes are there at `offset`: a direct read at the end is no place to find out.
    fn check_there(&self, offset: u64, len: usize) -> Result<()> {
        let there = self.cached.len()?;
        match offset.checked_add(len as u64) {
            Some(end) if end <= there => Ok(()),
            _ => Err(Error::short(self.cached.path(), offset, len, there)),
        }
    }

    /// Reads into memory that is aligned, at an aligned place, at least `need` bytes.
    fn read_aligned(&self, buf: &mut [u8], offset: u64, need: usize) -> Result<()> {
        let mut got = 0;
        let read = read_fully(buf, offset, |part, at| {
            if got >= need {
                return Ok(0);
            }
            let count = self.direct.read_at(part, at)?;
            got += count;
            Ok(count)
        });
        match read {
            Ok(_) if got >= need => Ok(()),
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.cached.read_at(&mut buf[..need], offset)
            }
            Ok(_) => Err(Error::short(
                self.cached.path(),
                offset,
                need,
                self.cached.len()?,
            )),
            Err(e) => Err(self.fail("read", e, offset)),
        }
    }

    /// Reads anything, through pooled memory.
    fn read_through_buffer(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut memory = Aligned::take();
        let (mut rest, mut at) = (buf, offset);
        while !rest.is_empty() {
            let head = (at % ALIGN as u64) as usize;
            let count = rest.len().min(BUFFER_BYTES - head);
            let span = (head + count).next_multiple_of(ALIGN);
            self.read_aligned(&mut memory[..span], at - head as u64, head + count)?;
            rest[..count].copy_from_slice(&memory[head..head + count]);
            rest = &mut rest[count..];
            at += count as u64;
        }
        memory.give_back();
        Ok(())
    }

    /// Reads as many of `reads` as one buffer takes, all at once; returns how many.
    fn read_group(&self, reads: &mut [ReadAt<'_>], memory: &mut Aligned) -> Result<usize> {
        let mut used = 0;
        let mut spans = Vec::new();
        for read in reads.iter() {
            let head = (read.offset % ALIGN as u64) as usize;
            let span = (head + read.buf.len()).next_multiple_of(ALIGN);
            if used + span > BUFFER_BYTES {
                break;
            }
            spans.push((used..used + span, head));
            used += span;
        }
        if spans.is_empty() {
            let read = &mut reads[0];
            self.read_at(read.buf, read.offset)?;
            return Ok(1);
        }
        let mut left = &mut memory[..used];
        let mut pieces = Vec::with_capacity(spans.len());
        for ((span, head), read) in spans.iter().zip(reads.iter()) {
            let (buf, after) = left.split_at_mut(span.len());
            left = after;
            pieces.push(Piece {
                file: &self.direct,
                offset: read.offset - *head as u64,
                buf,
                need: head + read.buf.len(),
            });
        }
        self.run(&mut pieces)?;
        for ((span, head), read) in spans.iter().zip(reads.iter_mut()) {
            read.buf
                .copy_from_slice(&memory[span.clone()][*head..head + read.buf.len()]);
        }
        Ok(spans.len())
    }

    fn run(&self, pieces: &mut [Piece<'_>]) -> Result<()> {
        match batch::read(pieces, self.cached.batching()) {
            Ok(()) => Ok(()),
            Err(BatchError::Short(i)) => Err(Error::short(
                self.cached.path(),
                pieces[i].offset,
                pieces[i].need,
                self.cached.len()?,
            )),
            Err(BatchError::System(_, e))
                if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
            {
                pieces.iter_mut().try_for_each(|piece| {
                    self.cached
                        .read_at(&mut piece.buf[..piece.need], piece.offset)
                })
            }
            Err(BatchError::System(i, e)) => Err(self.fail("read", e, pieces[i].offset)),
        }
    }

    /// Writes whole pages, in place where the memory is aligned.
    fn write_pages(&self, data: &[u8], offset: u64) -> Result<()> {
        if data.as_ptr().addr().is_multiple_of(ALIGN) {
            return self.write_aligned(data, offset);
        }
        let mut memory = Aligned::take();
        for (i, part) in data.chunks(BUFFER_BYTES).enumerate() {
            memory[..part.len()].copy_from_slice(part);
            self.write_aligned(&memory[..part.len()], offset + (i * BUFFER_BYTES) as u64)?;
        }
        memory.give_back();
        Ok(())
    }

    fn write_aligned(&self, data: &[u8], offset: u64) -> Result<()> {
        match self.direct.write_all_at(data, offset) {
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.cached.write_at(data, offset)
            }
            done => done.map_err(|e| self.fail("write", e, offset)),
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
        let aligned = [
            buf.as_ptr().addr(),
            buf.len(),
            (offset % ALIGN as u64) as usize,
        ]
        .iter()
        .all(|n| n.is_multiple_of(ALIGN));
        if aligned {
            self.read_aligned(buf, offset, buf.len())
        } else {
            self.read_through_buffer(buf, offset)
        }
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        for read in reads.iter().filter(|read| !read.buf.is_empty()) {
            self.check_there(read.offset, read.buf.len())?;
        }
        let mut memory = Aligned::take();
        let mut done = 0;
        while done < reads.len() {
            done += self.read_group(&mut reads[done..], &mut memory)?;
        }
        memory.give_back();
        Ok(())
    }

    fn batch_file(&self) -> Option<BatchFile<'_>> {
        Some(BatchFile {
            file: &self.direct,
            align: ALIGN,
            how: self.cached.batching(),
        })
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let pages = whole_pages(offset, data.len());
        if pages.is_empty() {
            return self.cached.write_at(data, offset);
        }
        if pages.start > 0 {
            self.cached.write_at(&data[..pages.start], offset)?;
        }
        self.write_pages(&data[pages.clone()], offset + pages.start as u64)?;
        if pages.end < data.len() {
            self.cached
                .write_at(&data[pages.end..], offset + pages.end as u64)?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.cached.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.cached.set_len(len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.cached.discard(offset, len)
    }
}

/// The part of `len` bytes at `offset` that is whole pages, as a range within them; empty where there is none.
fn whole_pages(offset: u64, len: usize) -> Range<usize> {
    let head = (offset.wrapping_neg() % ALIGN as u64) as usize;
    if head >= len {
        return 0..0;
    }
    head..head + (len - head) / ALIGN * ALIGN
}

/// [`BUFFER_BYTES`] of memory at a page border.
struct Aligned(NonNull<u8>);

impl Aligned {
    const LAYOUT: Layout = match Layout::from_size_align(BUFFER_BYTES, ALIGN) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    /// An idle buffer, or a new one. Its content is whatever it was.
    fn take() -> Self {
        if let Some(idle) = IDLE.lock().pop() {
            return idle;
        }
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(Self::LAYOUT) };
        NonNull::new(memory).map_or_else(|| handle_alloc_error(Self::LAYOUT), Self)
    }

    /// Keeps it for the next one. One that is dropped instead, on an error, is freed.
    fn give_back(self) {
        let mut idle = IDLE.lock();
        if idle.len() < IDLE_MAX {
            idle.push(self);
        }
    }
}

// SAFETY: it owns its memory alone, as a `Box<[u8]>` does.
unsafe impl Send for Aligned {}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is that long, was initialised when it was allocated, and is ours alone.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), BUFFER_BYTES) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), BUFFER_BYTES) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated in `take` with the same layout.
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) }
    }
}
