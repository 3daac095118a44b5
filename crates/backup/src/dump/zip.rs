//! Writes a folder of a snapshot as a zip archive, in one go, to a stream that cannot seek.
//!
//! Invariant: RAM is bounded, whatever the number and the size of the files, since the central directory grows in a
//! temporary file. Names are the bytes they were, and flagged as UTF-8 only where they are. Sizes beyond 32 bits, and
//! more entries than 16 bits count, use zip64's records (PKWARE's APPNOTE 6.3.9 §4.3–4.5; times and owners as in
//! Info-ZIP's `proginfo/extrafld.txt`). The crates that can stream keep all of the directory in RAM, and take names as
//! text: so this is our own.

mod header;

use std::io::{self, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use onefold_io::os::Scratch;
use onefold_store::ChunkReader;

use super::{Told, failed, file};
use crate::tree::Tree;
use crate::{Entry, Error, Kind, Result, path};
use header::{DEFLATED, MADE_BY, SIZES_FOLLOW, VERSION, ZipHeader, put16, put32, put64, short};

const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const END: u32 = 0x0605_4b50;

/// Size from which on a file gets sizes of 64 bits, in bytes: deflating may make it a little longer.
const LARGE_BYTES: u64 = 0xf000_0000;
/// Bytes of the directory that are collected before they go to the temporary file.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes everything in `folder` (clean; empty: the whole snapshot) as a zip archive. Names are relative to `folder`; a
/// hard link carries its content again. Pipes, sockets and devices, which zip does not know, and files that could not
/// be read are left out. `told` hears of these, and of folders that could not be listed, which are in the archive as
/// far as they are known, and of entries whose attributes and ACLs are not kept.
///
/// # Errors
/// Errors of [`file`](super::file), of leaves too: then the archive is not complete; [`Error::Temporary`] where its
/// directory finds no room.
pub fn zip(
    tree: &Tree,
    folder: &[u8],
    reader: &mut ChunkReader,
    out: &mut dyn Write,
    told: &mut dyn Told,
) -> Result<()> {
    let mut archive = ZipArchive::new(out, told)?;
    let mut cursor = tree.cursor_at(folder, b"");
    while let Some((at, entry)) = cursor.next(reader)? {
        if !path::within(&at, folder) {
            break;
        }
        let is_held = matches!(entry.kind, Kind::File | Kind::Dir | Kind::Symlink);
        let path = path::join(&at, &entry.name);
        if let Some(error) = entry.damage() {
            archive.told.lost(&path, 0..entry.size, error)?;
            archive.told.end_of_loss();
        } else if !is_held || entry.is_unreadable() || entry.is_unlisted() {
            archive.told.incomplete(&path, &entry);
        }
        if is_held && !entry.is_unreadable() {
            archive.add((&path, folder), &entry, reader)?;
        }
    }
    archive.finish()
}

/// Writes the file or symbolic link at `path` as a zip archive that has nothing else in it.
///
/// # Errors
/// Errors of [`zip`].
pub fn zip_of_file(
    path: &[u8],
    entry: &Entry,
    reader: &mut ChunkReader,
    out: &mut dyn Write,
    told: &mut dyn Told,
) -> Result<()> {
    let mut archive = ZipArchive::new(out, told)?;
    let (folder, _) = path::split(path);
    archive.add((path, folder), entry, reader)?;
    archive.finish()
}

/// Writer that counts the bytes that pass through.
struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.out.write(buf)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writer that deflates bytes, and computes length and checksum of its input.
struct Summed<'a, 'b> {
    to: DeflateEncoder<&'b mut Counted<'a>>,
    crc: Crc,
    bytes: u64,
}

impl Write for Summed<'_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.to.write(buf)?;
        self.crc.update(&buf[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes a file's content deflated; returns its checksum and length.
fn deflate(
    (path, entry): (&[u8], &Entry),
    reader: &mut ChunkReader,
    out: &mut Counted<'_>,
    told: &mut dyn Told,
) -> Result<(u32, u64)> {
    let mut summed = Summed {
        to: DeflateEncoder::new(out, Compression::fast()),
        crc: Crc::new(),
        bytes: 0,
    };
    file(path, entry, reader, &mut summed, told)?;
    summed.to.try_finish().map_err(failed)?;
    Ok((summed.crc.sum(), summed.bytes))
}

struct ZipArchive<'a> {
    out: Counted<'a>,
    directory: Directory,
    told: &'a mut dyn Told,
}

impl<'a> ZipArchive<'a> {
    fn new(out: &'a mut dyn Write, told: &'a mut dyn Told) -> Result<Self> {
        Ok(Self {
            out: Counted { out, bytes: 0 },
            directory: Directory::new()?,
            told,
        })
    }

    /// Adds the entry at `path`, which lies in `folder`.
    fn add(
        &mut self,
        (path, folder): (&[u8], &[u8]),
        entry: &Entry,
        reader: &mut ChunkReader,
    ) -> Result<()> {
        let name = path[folder.len() + 1..].to_vec();
        let mut header = ZipHeader::new(entry, name, self.out.bytes);
        if header.name.len() > usize::from(u16::MAX) {
            let error = io::Error::other("zip has no names as long as this");
            return Err(Error::io("put into a zip", &header.name, error));
        }
        if !entry.xattrs.is_empty() {
            self.told.without_attributes(path, entry);
        }
        match entry.kind {
            Kind::File if entry.size > 0 => self.deflated((path, entry), &mut header, reader)?,
            Kind::Symlink => self.whole(&mut header, &entry.target)?,
            _ => self.whole(&mut header, b"")?,
        }
        self.directory.add(&header)
    }

    /// Writes bytes that are known as a whole, behind a header that has their length and checksum.
    fn whole(&mut self, header: &mut ZipHeader, bytes: &[u8]) -> Result<()> {
        let mut crc = Crc::new();
        crc.update(bytes);
        header.crc = crc.sum();
        (header.bytes, header.stored_bytes) = (bytes.len() as u64, bytes.len() as u64);
        let written = self.out.write_all(&header.local());
        written
            .and_then(|()| self.out.write_all(bytes))
            .map_err(failed)
    }

    /// Writes a file's content, with length and checksum behind it: they are known only when it is written.
    fn deflated(
        &mut self,
        (path, entry): (&[u8], &Entry),
        header: &mut ZipHeader,
        reader: &mut ChunkReader,
    ) -> Result<()> {
        header.flags |= SIZES_FOLLOW;
        header.method = DEFLATED;
        header.is_large = entry.size >= LARGE_BYTES;
        self.out.write_all(&header.local()).map_err(failed)?;
        let before = self.out.bytes;
        (header.crc, header.bytes) = deflate((path, entry), reader, &mut self.out, self.told)?;
        header.stored_bytes = self.out.bytes - before;
        self.out.write_all(&header.descriptor()).map_err(failed)
    }

    fn finish(mut self) -> Result<()> {
        let start = self.out.bytes;
        self.directory.copy_to(&mut self.out)?;
        let (entries, bytes) = (self.directory.entries, self.out.bytes - start);
        let mut end = Vec::new();
        let is_large = entries >= u64::from(u16::MAX) || self.out.bytes >= u64::from(u32::MAX);
        if is_large {
            put32(&mut end, END64);
            put64(&mut end, 44);
            put16(&mut end, MADE_BY);
            put16(&mut end, VERSION);
            put64(&mut end, 0);
            for n in [entries, entries, bytes, start] {
                put64(&mut end, n);
            }
            put32(&mut end, LOCATOR64);
            put32(&mut end, 0);
            put64(&mut end, self.out.bytes);
            put32(&mut end, 1);
        }
        put32(&mut end, END);
        put32(&mut end, 0);
        for _ in 0..2 {
            put16(&mut end, u16::try_from(entries).unwrap_or(u16::MAX));
        }
        for n in [bytes, start] {
            put32(&mut end, short(n, is_large));
        }
        put16(&mut end, 0);
        let written = self.out.write_all(&end);
        written.and_then(|()| self.out.flush()).map_err(failed)
    }
}

/// The central directory, as far as it has grown.
struct Directory {
    file: Scratch,
    written: u64,
    buffer: Vec<u8>,
    entries: u64,
}

impl Directory {
    fn new() -> Result<Self> {
        Ok(Self {
            file: Scratch::create().map_err(Error::Temporary)?,
            written: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            entries: 0,
        })
    }

    fn add(&mut self, header: &ZipHeader) -> Result<()> {
        self.entries += 1;
        self.buffer.extend_from_slice(&header.central());
        if self.buffer.len() >= BUFFER_BYTES {
            let written = self.file.write_at(&self.buffer, self.written);
            written.map_err(Error::Temporary)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    fn copy_to(&self, out: &mut dyn Write) -> Result<()> {
        let mut piece = vec![0; BUFFER_BYTES];
        let mut at = 0;
        while at < self.written {
            let some = piece.len().min((self.written - at) as usize);
            let read = self.file.read_at(&mut piece[..some], at);
            read.map_err(Error::Temporary)?;
            out.write_all(&piece[..some]).map_err(failed)?;
            at += some as u64;
        }
        out.write_all(&self.buffer).map_err(failed)
    }
}
