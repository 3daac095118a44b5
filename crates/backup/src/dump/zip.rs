//! A folder of a snapshot as a zip archive, written in one go to a stream that cannot seek.
//!
//! What always holds: RAM is bounded, whatever the number and the size of the files, since the central directory grows in a temporary file; names are the bytes
//! they were, and said to be UTF-8 only where they are. Sizes beyond 32 bits, and more entries than 16 bits count, take zip64's records
//! (PKWARE's APPNOTE 6.3.9 §4.3–4.5; times and owners as Info-ZIP's `proginfo/extrafld.txt` has them).
//! Why not a crate: those that stream keep all of the directory in RAM, and take names as text.

use std::io::{self, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use onefold_io::Scratch;
use onefold_store::ChunkReader;

use super::file;
use crate::tree::Tree;
use crate::{Entry, Error, Flags, Kind, Result, path};

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const END: u32 = 0x0605_4b50;

/// 4.5: zip64.
const VERSION: u16 = 45;
/// Made by a Unix: the upper half of the attributes is `st_mode`.
const MADE_BY: u16 = 3 << 8 | VERSION;
const SIZES_FOLLOW: u16 = 1 << 3;
const NAME_IS_UTF8: u16 = 1 << 11;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// Files from here on have sizes of 64 bits: deflating may make them a little longer.
const LARGE_BYTES: u64 = 0xf000_0000;
/// Of the directory, before it goes to the temporary file.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes everything in `folder` (clean; empty: the whole snapshot) as a zip archive. Names are relative to `folder`; a hard link carries its content again.
/// Pipes, sockets and devices are left out, as zip knows none, and what could not be read; `incomplete` is told of these, and of folders that could not be
/// listed, which are in the archive with what is known of them. Attributes and ACLs are not kept.
pub fn zip(
    tree: &Tree,
    folder: &[u8],
    reader: &mut ChunkReader,
    out: &mut dyn Write,
    incomplete: &mut dyn FnMut(&[u8], &Entry),
) -> Result<()> {
    let mut archive = Archive::new(out)?;
    let mut cursor = tree.cursor_at(folder, b"");
    while let Some((at, entry)) = cursor.next(reader)? {
        if !path::within(&at, folder) {
            break;
        }
        let is_held = matches!(entry.kind, Kind::File | Kind::Dir | Kind::Symlink);
        if !is_held || entry.is_unreadable() || entry.flags.has(Flags::UNLISTED) {
            incomplete(&path::join(&at, &entry.name), &entry);
        }
        if is_held && !entry.is_unreadable() {
            let full = path::join(&at[folder.len()..], &entry.name);
            archive.add(&entry, full[1..].to_vec(), reader)?;
        }
    }
    archive.finish()
}

/// Counts what goes through.
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

/// Deflates, and sums what it is given.
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

/// Writes a file's content deflated; gives its checksum and length.
fn deflate(entry: &Entry, reader: &mut ChunkReader, out: &mut Counted<'_>) -> Result<(u32, u64)> {
    let mut summed = Summed {
        to: DeflateEncoder::new(out, Compression::fast()),
        crc: Crc::new(),
        bytes: 0,
    };
    file(entry, reader, &mut summed)?;
    summed.to.try_finish().map_err(failed)?;
    Ok((summed.crc.sum(), summed.bytes))
}

/// What the two headers of an entry say.
struct Header {
    name: Vec<u8>,
    /// `st_mode`.
    mode: u32,
    flags: u16,
    method: u16,
    date: (u16, u16),
    extra: Vec<u8>,
    is_large: bool,
    crc: u32,
    stored_bytes: u64,
    bytes: u64,
    offset: u64,
}

struct Archive<'a> {
    out: Counted<'a>,
    directory: Directory,
}

impl<'a> Archive<'a> {
    fn new(out: &'a mut dyn Write) -> Result<Self> {
        Ok(Self {
            out: Counted { out, bytes: 0 },
            directory: Directory::new()?,
        })
    }

    fn add(&mut self, entry: &Entry, name: Vec<u8>, reader: &mut ChunkReader) -> Result<()> {
        let mut header = Header::new(entry, name, self.out.bytes);
        if header.name.len() > usize::from(u16::MAX) {
            let error = io::Error::other("zip has no names as long as this");
            return Err(Error::io("write", &header.name, error));
        }
        match entry.kind {
            Kind::File if entry.size > 0 => self.deflated(entry, &mut header, reader)?,
            Kind::Symlink => self.whole(&mut header, &entry.target)?,
            _ => self.whole(&mut header, b"")?,
        }
        self.directory.add(&header)
    }

    /// What is known whole stands behind a header that says all of it.
    fn whole(&mut self, header: &mut Header, bytes: &[u8]) -> Result<()> {
        let mut crc = Crc::new();
        crc.update(bytes);
        header.crc = crc.sum();
        (header.bytes, header.stored_bytes) = (bytes.len() as u64, bytes.len() as u64);
        let written = self.out.write_all(&header.local());
        written
            .and_then(|()| self.out.write_all(bytes))
            .map_err(failed)
    }

    /// What sizes and sum are is known when it is written, and stands behind it.
    fn deflated(
        &mut self,
        entry: &Entry,
        header: &mut Header,
        reader: &mut ChunkReader,
    ) -> Result<()> {
        header.flags |= SIZES_FOLLOW;
        header.method = DEFLATED;
        header.is_large = entry.size >= LARGE_BYTES;
        self.out.write_all(&header.local()).map_err(failed)?;
        let before = self.out.bytes;
        (header.crc, header.bytes) = deflate(entry, reader, &mut self.out)?;
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

/// Where a field of 64 bits follows, the one of 32 says so.
fn short(n: u64, is_elsewhere: bool) -> u32 {
    match is_elsewhere {
        true => u32::MAX,
        false => n as u32,
    }
}

impl Header {
    fn new(entry: &Entry, mut name: Vec<u8>, offset: u64) -> Self {
        let kind = match entry.kind {
            Kind::Dir => 0o04_0000,
            Kind::Symlink => 0o12_0000,
            _ => 0o10_0000,
        };
        if entry.is_dir() {
            name.push(b'/');
        }
        let is_utf8 = !name.is_ascii() && std::str::from_utf8(&name).is_ok();
        Self {
            name,
            mode: kind | u32::from(entry.mode),
            flags: if is_utf8 { NAME_IS_UTF8 } else { 0 },
            method: STORED,
            date: date(entry.mtime.secs),
            extra: extra(entry),
            is_large: false,
            crc: 0,
            stored_bytes: 0,
            bytes: 0,
            offset,
        }
    }

    /// The fields that both headers have, from the version on.
    fn common(&self, out: &mut Vec<u8>, (crc, stored_bytes, bytes): (u32, u32, u32), extra: usize) {
        for n in [VERSION, self.flags, self.method, self.date.1, self.date.0] {
            put16(out, n);
        }
        for n in [crc, stored_bytes, bytes] {
            put32(out, n);
        }
        put16(out, self.name.len() as u16);
        put16(out, extra as u16);
    }

    fn local(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put32(&mut out, LOCAL);
        let sizes = [self.stored_bytes, self.bytes].map(|n| short(n, self.is_large));
        let wide = if self.is_large { 20 } else { 0 };
        self.common(
            &mut out,
            (self.crc, sizes[0], sizes[1]),
            self.extra.len() + wide,
        );
        out.extend_from_slice(&self.name);
        if self.is_large {
            put16(&mut out, 1);
            put16(&mut out, 16);
            put64(&mut out, 0);
            put64(&mut out, 0);
        }
        out.extend_from_slice(&self.extra);
        out
    }

    fn descriptor(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put32(&mut out, DESCRIPTOR);
        put32(&mut out, self.crc);
        for n in [self.stored_bytes, self.bytes] {
            match self.is_large {
                true => put64(&mut out, n),
                false => put32(&mut out, n as u32),
            }
        }
        out
    }

    fn central(&self) -> Vec<u8> {
        let is_far = self.offset >= u64::from(u32::MAX);
        let mut wide = Vec::new();
        if self.is_large {
            put64(&mut wide, self.bytes);
            put64(&mut wide, self.stored_bytes);
        }
        if is_far {
            put64(&mut wide, self.offset);
        }
        let wide_bytes = if wide.is_empty() { 0 } else { wide.len() + 4 };
        let mut out = Vec::new();
        put32(&mut out, CENTRAL);
        put16(&mut out, MADE_BY);
        let sizes = [self.stored_bytes, self.bytes].map(|n| short(n, self.is_large));
        self.common(
            &mut out,
            (self.crc, sizes[0], sizes[1]),
            self.extra.len() + wide_bytes,
        );
        // No comment, the first disk, no internal attributes.
        for _ in 0..3 {
            put16(&mut out, 0);
        }
        let is_dir = self.name.ends_with(b"/");
        put32(&mut out, self.mode << 16 | if is_dir { 0x10 } else { 0 });
        put32(&mut out, short(self.offset, is_far));
        out.extend_from_slice(&self.name);
        if !wide.is_empty() {
            put16(&mut out, 1);
            put16(&mut out, wide.len() as u16);
            out.extend_from_slice(&wide);
        }
        out.extend_from_slice(&self.extra);
        out
    }
}

/// Time of the content, where 32 bits hold it, and owner.
fn extra(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::new();
    if let Ok(secs) = i32::try_from(entry.mtime.secs) {
        out.extend_from_slice(b"UT");
        put16(&mut out, 5);
        out.push(1);
        out.extend_from_slice(&secs.to_le_bytes());
    }
    out.extend_from_slice(b"ux");
    put16(&mut out, 11);
    out.push(1);
    for id in [entry.owner.uid, entry.owner.gid] {
        out.push(4);
        put32(&mut out, id);
    }
    out
}

/// Date and time as DOS has them, in UTC: from 1980 to 2107, in steps of two seconds.
fn date(secs: i64) -> (u16, u16) {
    const DAY: i64 = 86_400;
    let (first, last) = (315_532_800, 4_354_819_198);
    let secs = secs.clamp(first, last);
    let (days, secs) = (secs.div_euclid(DAY), secs.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let date = (year - 1980) << 9 | month << 5 | day;
    let time = ((secs / 3600) << 11) | ((secs / 60 % 60) << 5) | (secs % 60 / 2);
    (date as u16, time as u16)
}

/// Year, month and day of the `days`th day since 1970 (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
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

    fn add(&mut self, header: &Header) -> Result<()> {
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

fn failed(e: io::Error) -> Error {
    Error::io("write", b"", e)
}

fn put16(out: &mut Vec<u8>, n: u16) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_dos() {
        assert_eq!(date(0), (1 << 5 | 1, 0));
        assert_eq!(
            date(951_827_696),
            (20 << 9 | 2 << 5 | 29, 12 << 11 | 34 << 5 | 28)
        );
        assert_eq!(
            date(i64::MAX),
            (127 << 9 | 12 << 5 | 31, 23 << 11 | 59 << 5 | 29)
        );
    }

    #[test]
    fn what_32_bits_do_not_hold_stands_in_the_wide_fields() {
        let mut header = Header::new(
            &Entry::new(b"x".to_vec(), Kind::File),
            b"x".to_vec(),
            5 << 32,
        );
        (header.is_large, header.bytes, header.stored_bytes) = (true, 6 << 32, 7 << 32);
        let central = header.central();
        assert_eq!(central[20..28], [0xff; 8]);
        assert_eq!(central[42..46], [0xff; 4]);
        let wide: Vec<u8> = [6u64 << 32, 7 << 32, 5 << 32]
            .map(u64::to_le_bytes)
            .concat();
        assert_eq!(central[47..51], [1, 0, 24, 0]);
        assert_eq!(central[51..75], wide);
        assert_eq!(header.descriptor().len(), 24);
    }
}
