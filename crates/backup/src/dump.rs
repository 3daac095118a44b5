//! Writes a file of a snapshot, or a folder as a tar or zip archive, to a stream.

pub(crate) mod acl;
mod sparse;
mod tar;
mod zip;

use std::io::{self, Write};
use std::ops::Range;

use onefold_store::ChunkReader;

pub use tar::tar;
pub use zip::{zip, zip_of_file};

use self::sparse::is_left_out;
use crate::content::ContentCursor;
use crate::{Entry, Error, Item, Result, Slice};

/// Makes the error of a failed write to `out`, whose path is not known here.
fn failed(source: io::Error) -> Error {
    Error::Io {
        op: "write",
        path: "the output".into(),
        source,
    }
}

/// Least length of a hole, in bytes, that is a hole in a tar, too: file systems have no shorter ones.
const HOLE_BYTES_MIN: u64 = 4096;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes of a block of a tar: everything in it begins with one.
const BLOCK: u64 = 512;

/// Number of bytes from `len` up to the end of its block.
fn padding(len: u64) -> usize {
    ((BLOCK - len % BLOCK) % BLOCK) as usize
}

/// Receiver of reports about a dump.
pub trait Told {
    /// Reports a path that an archive lacks, or has without some part of it, and its entry.
    fn incomplete(&mut self, _path: &[u8], _entry: &Entry) {}

    /// Reports an entry whose extended attributes and ACLs the archive has no place for.
    fn without_attributes(&mut self, _path: &[u8], _entry: &Entry) {}

    /// Reports bytes of the file at `path` that cannot be had, and why. `Ok`: zeros are written in their place.
    ///
    /// # Errors
    /// An error ends the dump: the default, unless a caller wants the rest.
    fn lost(&mut self, _path: &[u8], _bytes: Range<u64>, why: Error) -> Result<()> {
        Err(why)
    }

    /// Reports that the last lost bytes are followed by others, or by the end of the file.
    fn end_of_loss(&mut self) {}
}

/// Ignores reports.
impl Told for () {}

/// Writes the content of the file at `path`; holes become zeros. `told` is asked about each part that is lost to damage
/// or to a bad sector: a chunk, or the bytes that a recipe chunk covers.
///
/// # Errors
/// [`Error::Io`] where `out` fails; errors of [`Told::lost`]; [`Error::Store`] where a chunk cannot be had for another
/// reason. The bytes before it are written.
pub fn file(
    path: &[u8],
    entry: &Entry,
    reader: &mut ChunkReader,
    out: &mut dyn Write,
    told: &mut dyn Told,
) -> Result<()> {
    file_with_holes(path, entry, reader, &mut Zeros(out), told)
}

/// Writes the content of the file at `path` as [`file()`] does; `out` makes holes in its own way.
///
/// # Errors
/// Errors of [`file()`].
pub fn file_with_holes(
    path: &[u8],
    entry: &Entry,
    reader: &mut ChunkReader,
    out: &mut dyn WriteHoles,
    told: &mut dyn Told,
) -> Result<()> {
    let written = write_content((path, entry), reader, out, told);
    told.end_of_loss();
    written.map(|_| ())
}

/// Writer of a file's content that makes holes in its own way.
pub trait WriteHoles: Write {
    /// Makes a hole of `bytes` bytes, at least 4096.
    ///
    /// # Errors
    /// Errors of the system.
    fn hole(&mut self, bytes: u64) -> io::Result<()>;
}

/// Writer that writes holes as zeros.
struct Zeros<'a>(&'a mut dyn Write);

impl WriteHoles for Zeros<'_> {
    fn hole(&mut self, bytes: u64) -> io::Result<()> {
        write_zeros(bytes, self.0)
    }
}

/// Writer that leaves holes out, since a map names them.
struct LeftOut<'a>(&'a mut dyn Write);

impl WriteHoles for LeftOut<'_> {
    fn hole(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Zeros<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Write for LeftOut<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes a file's content; returns how many bytes were written, without holes.
fn write_content(
    (path, entry): (&[u8], &Entry),
    reader: &mut ChunkReader,
    out: &mut dyn WriteHoles,
    told: &mut dyn Told,
) -> Result<u64> {
    let mut content = ContentCursor::new(&entry.content);
    let (mut at, mut written) = (0u64, 0u64);
    while let Some((depth, item)) = content.peek() {
        let bytes = item.span();
        let got = match item {
            Item::Chunk { .. } if depth > 0 => match content.open(reader) {
                Ok(()) => continue,
                Err(e) => Err(e),
            },
            _ => {
                content.pass();
                let read = |slice: Slice| Ok((slice, reader.read(&slice.chunk)?));
                item.data().map(read).transpose()
            }
        };
        if got.is_ok() {
            told.end_of_loss();
        }
        if is_left_out(&item) {
            out.hole(bytes).map_err(failed)?;
            at = at.saturating_add(bytes);
            continue;
        }
        match got {
            Ok(Some((slice, data))) => out.write_all(slice.of(&data)).map_err(failed)?,
            Ok(None) => write_zeros(bytes, out).map_err(failed)?,
            Err(e) if e.is_loss() => {
                told.lost(path, at..at.saturating_add(bytes), e)?;
                write_zeros(bytes, out).map_err(failed)?;
            }
            Err(e) => return Err(e),
        }
        at = at.saturating_add(bytes);
        written = written.saturating_add(bytes);
    }
    Ok(written)
}

fn write_zeros<W: Write + ?Sized>(mut bytes: u64, out: &mut W) -> io::Result<()> {
    while bytes > 0 {
        let some = bytes.min(ZEROS.len() as u64);
        out.write_all(&ZEROS[..some as usize])?;
        bytes -= some;
    }
    Ok(())
}
