//! Reads small files: those of a job go into one buffer, one after another, and are cut and fingerprinted there.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::{JOB_XATTRS_BYTES_MAX, Reader};
use crate::backup::file_end::FileEnd;
use crate::backup::read::{self, Source, pieces};
use crate::backup::work::{SmallDone, SmallFile, SmallFiles, SmallPart};
use crate::meta::Stat;
use crate::walk::opened::OpenedFile;

impl Reader<'_> {
    /// Reads the files up to the first one that does not fit into the reserved room.
    pub(super) fn small(&mut self, wanted: &mut SmallFiles, buffer_bytes: usize) -> SmallDone {
        let mut room = JobRoom::new(self.buffers.get(buffer_bytes), wanted.len());
        let mut files = Vec::with_capacity(wanted.len());
        let mut xattrs_bytes = 0;
        for (dir, name, opened) in wanted.iter() {
            let before = room.filled();
            let as_found = opened.and_then(|it| self.as_found((dir, name), it, &mut room));
            let file = match as_found {
                Some(read) => read.map(Some),
                None => read::open(dir.as_fd(), name)
                    .and_then(|source| self.small_file((name, source), &mut room)),
            };
            match file {
                Ok(Some(file)) => {
                    xattrs_bytes += file.end.bytes();
                    if xattrs_bytes > JOB_XATTRS_BYTES_MAX {
                        room.back_to(before);
                        break;
                    }
                    files.push(Ok(file));
                }
                Ok(None) => break,
                Err(e) => files.push(Err(e)),
            }
        }
        let JobRoom { buffer, parts, .. } = room;
        let lengths = parts.iter().filter_map(|part| match part {
            SmallPart::Chunk(len) => Some(*len),
            SmallPart::Hole(_) => None,
        });
        let mut chunks = Vec::with_capacity(parts.len());
        chunks.extend(pieces(&buffer, lengths));
        let fingerprints = self.fingerprinter.fingerprints(chunks);
        SmallDone {
            buffer,
            files,
            parts,
            fingerprints,
            rest: None,
        }
    }

    /// Reads a file that is open already; `None` where it does not fit into the room, or has changed since it was
    /// opened.
    fn as_found(
        &mut self,
        (dir, name): (&OwnedFd, &[u8]),
        (file, stat): (OpenedFile, Stat),
        room: &mut JobRoom,
    ) -> Option<Result<SmallFile, Errno>> {
        let before = room.filled();
        let mut source = read::opened(file, stat);
        self.begins(name);
        let read = self.small_content(&source, room);
        if source.is_as_it_was(dir.as_fd(), name) && read != Ok(false) {
            return Some(match read {
                Ok(_) => Ok(self.whole(source, room.since(before), false)),
                Err(e) => {
                    room.back_to(before);
                    Err(e)
                }
            });
        }
        room.back_to(before);
        None
    }

    /// Reads a file; `None` where it does not fit, and then the room is as before.
    fn small_file(
        &mut self,
        (name, mut source): (&[u8], Source),
        room: &mut JobRoom,
    ) -> Result<Option<SmallFile>, Errno> {
        let before = room.filled();
        let read = self.small_file_from((name, &mut source), room);
        if !matches!(read, Ok((true, _))) {
            room.back_to(before);
        }
        let (fits, changed) = read?;
        Ok(fits.then(|| self.whole(source, room.since(before), changed)))
    }

    /// Reads a file, and once more if another program wrote meanwhile. Returns whether it fits, and whether it was
    /// written to each time.
    fn small_file_from(
        &mut self,
        (name, source): (&[u8], &mut Source),
        room: &mut JobRoom,
    ) -> Result<(bool, bool), Errno> {
        let before = room.filled();
        self.begins(name);
        if !self.small_content(source, room)? {
            return Ok((false, false));
        }
        if !source.changed()? {
            return Ok((true, false));
        }
        source.look_again()?;
        room.back_to(before);
        self.begins(name);
        let fits = self.small_content(source, room)?;
        Ok((fits, source.changed()?))
    }

    /// Describes a file of `parts` parts that was read to its end.
    fn whole(&self, source: Source, parts: usize, changed: bool) -> SmallFile {
        SmallFile {
            end: FileEnd::new(source, changed),
            packing: self.cutter.lock().packing(),
            parts,
        }
    }

    /// Reads the whole file into the room; returns `false` where it does not fit.
    fn small_content(&mut self, source: &Source, room: &mut JobRoom) -> Result<bool, Errno> {
        // A file larger than the address space does not fit.
        let size = usize::try_from(source.stat.size).unwrap_or(usize::MAX);
        if !source.may_have_holes() {
            let left = room.left();
            let read = match size {
                0 => read_to_end(source, left)?,
                _ if size > left.len() => None,
                _ => Some(source.read_fully(&mut left[..size])?),
            };
            let Some(read) = read else { return Ok(false) };
            self.cut(read, room);
            return Ok(true);
        }
        let mut offset = 0;
        while let Some(data) = source
            .data_from(offset)?
            .filter(|data| data.start < size as u64)
        {
            room.hole(data.start - offset);
            let want = data.end.min(size as u64) - data.start;
            let left = room.left();
            if want > left.len() as u64 {
                return Ok(false);
            }
            let got = source.read_fully(&mut left[..want as usize])?;
            self.cut(got, room);
            offset = data.start + got as u64;
            if (got as u64) < want {
                return Ok(true);
            }
        }
        room.hole((size as u64).saturating_sub(offset));
        Ok(true)
    }

    /// Cuts the next `bytes` bytes of the room.
    fn cut(&mut self, bytes: usize, room: &mut JobRoom) {
        let data = &room.left()[..bytes];
        self.lengths.clear();
        self.cutter.lock().cut(data, true, &mut self.lengths);
        room.chunks(bytes, &self.lengths);
    }
}

/// Reads a file that claims to be empty, since another program may have written to it. Files of /proc always claim so,
/// and are read as large ones. `None`: the file does not fit.
fn read_to_end(source: &Source, room: &mut [u8]) -> Result<Option<usize>, Errno> {
    let used = source.read_fully(room)?;
    let is_all = used < room.len() || source.read(&mut [0])? == 0;
    Ok(is_all.then_some(used))
}

/// Memory that a job's files are read to, one after another.
struct JobRoom {
    buffer: Vec<u8>,
    /// Bytes of the buffer that are filled.
    used: usize,
    parts: Vec<SmallPart>,
}

/// State of a room before a file was read.
#[derive(Clone, Copy)]
struct Filled {
    bytes: usize,
    parts: usize,
}

impl JobRoom {
    fn new(buffer: Vec<u8>, parts: usize) -> Self {
        Self {
            buffer,
            used: 0,
            parts: Vec::with_capacity(parts),
        }
    }

    fn filled(&self) -> Filled {
        Filled {
            bytes: self.used,
            parts: self.parts.len(),
        }
    }

    fn left(&mut self) -> &mut [u8] {
        &mut self.buffer[self.used..]
    }

    fn chunks(&mut self, bytes: usize, lengths: &[u32]) {
        self.parts
            .extend(lengths.iter().copied().map(SmallPart::Chunk));
        self.used += bytes;
    }

    /// Adds a hole, unless its length is 0.
    fn hole(&mut self, len: u64) {
        if len > 0 {
            self.parts.push(SmallPart::Hole(len));
        }
    }

    /// Number of parts that were added since `before`.
    fn since(&self, before: Filled) -> usize {
        self.parts.len() - before.parts
    }

    fn back_to(&mut self, before: Filled) {
        self.parts.truncate(before.parts);
        self.used = before.bytes;
    }
}
