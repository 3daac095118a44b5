//! Filters on disk: one framed file each, with all that a filter holds in RAM and a checksum of its pages on flash.
//! FORMAT.md, "Filters".
//!
//! Invariant: a loaded filter equals the saved one, or loading fails. A filter whose pages were changed after it was
//! saved is not loaded, because its "surely not" would be no promise; a run that inserts more must save again at its
//! end.

use onefold_chunk::Fingerprint;
use onefold_io::frame::{FrameKind, HEADER_BYTES, crc64, encode_frame, read_frame};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};
use onefold_io::{Dir, Disk};

use super::page_shape::{PAGE_BITS, PAGE_BYTES, PageShape};
use crate::flashlog::replace_file;
use onefold_index::{Error, Result};

const FRAME: FrameKind = FrameKind {
    magic: *b"OFFILTER",
    version: 1,
};
/// Number of pages that are read at once for their checksum.
const RUN_PAGES: u64 = 256;
/// Largest number of pages of a filter on flash: 4 TiB.
const PAGES_MAX: u64 = 1 << 30;

/// The kind of filter in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Saved {
    Bloom = 0,
    Blocked = 1,
    Single = 2,
    Chain = 3,
    Forest = 4,
    Quotient = 5,
}

/// Saves the filter as file `name` of `dir`, replacing an existing file.
pub(super) fn save(dir: &dyn Dir, name: &str, kind: Saved, body: &[u8]) -> Result<()> {
    let payload = [&[kind as u8], body].concat();
    replace_file(dir, name, &encode_frame(FRAME, &payload))
}

/// Loads the file `name` of `dir`, which must hold a filter of this kind, and passes its body to `make`.
pub(super) fn load<T>(
    dir: &dyn Dir,
    name: &str,
    kind: Saved,
    make: impl FnOnce(&mut ByteReader<'_>) -> Result<T>,
) -> Result<T> {
    let disk = dir.open(name)?;
    let payload = read_frame(&*disk, FRAME, 0, disk.len()?, name)?;
    let mut reader = ByteReader::new(&payload, name, HEADER_BYTES as u64);
    let found = reader.u8()?;
    if found != kind as u8 {
        let what = format!("filter of kind {found}, expected {} ({kind:?})", kind as u8);
        return Err(reader.damaged(what).into());
    }
    let made = make(&mut reader)?;
    reader.end()?;
    Ok(made)
}

/// Appends a shape: hashes, keys.
pub(super) fn put_shape(out: &mut Vec<u8>, shape: PageShape) {
    put_varint(out, shape.hashes.into());
    put_varint(out, shape.keys.into());
}

/// The inverse of [`put_shape`].
pub(super) fn shape(reader: &mut ByteReader<'_>) -> Result<PageShape> {
    Ok(PageShape {
        hashes: number(reader, 1, 64)? as u32,
        keys: number(reader, 1, PAGE_BITS.into())? as u32,
    })
}

/// Appends words as bytes.
pub(super) fn put_words<'a>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'a u64>) {
    put_varint(out, words.len() as u64 * 8);
    words.for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// The inverse of [`put_words`].
pub(super) fn words(reader: &mut ByteReader<'_>, multiple: usize) -> Result<Vec<u64>> {
    let (words, rest) = reader.bytes()?.as_chunks::<8>();
    if !rest.is_empty() || words.is_empty() || !words.len().is_multiple_of(multiple) {
        return Err(reader
            .damaged(format!("{} words and {} bytes", words.len(), rest.len()))
            .into());
    }
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Appends numbers of keys, one for each page.
pub(super) fn put_counts(out: &mut Vec<u8>, counts: &[u32]) {
    put_varint(out, counts.len() as u64);
    counts
        .iter()
        .for_each(|count| put_varint(out, (*count).into()));
}

/// The inverse of [`put_counts`].
pub(super) fn counts(reader: &mut ByteReader<'_>) -> Result<Vec<u32>> {
    let pages = reader.count(1)?;
    (0..pages)
        .map(|_| Ok(number(reader, 0, u32::MAX.into())? as u32))
        .collect()
}

/// Appends pages that are in RAM.
pub(super) fn put_pages(out: &mut Vec<u8>, pages: &[u8]) {
    put_bytes(out, pages);
}

/// The inverse of [`put_pages`] for `pages` pages.
pub(super) fn pages(reader: &mut ByteReader<'_>, pages: usize) -> Result<Vec<u8>> {
    let bytes = reader.bytes()?.to_vec();
    if bytes.len() != pages * PAGE_BYTES {
        return Err(reader
            .damaged(format!("{} bytes, expected {pages} pages", bytes.len()))
            .into());
    }
    Ok(bytes)
}

/// Reads a number from `least` to `most`.
pub(super) fn number(reader: &mut ByteReader<'_>, least: u64, most: u64) -> Result<u64> {
    let number = reader.varint()?;
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(reader
        .damaged(format!("{number}, expected {least} to {most}"))
        .into())
}

/// Appends the checksum of a filter's pages on flash.
pub(super) fn put_checksum(out: &mut Vec<u8>, disk: &dyn Disk, pages: u64) -> Result<()> {
    put_varint(out, pages);
    out.extend_from_slice(&checksum(disk, pages)?.to_le_bytes());
    Ok(())
}

/// Compares the pages on flash with the checksum of [`put_checksum`]. Returns the number of pages.
pub(super) fn check_pages(reader: &mut ByteReader<'_>, disk: &dyn Disk) -> Result<u64> {
    let pages = number(reader, 0, PAGES_MAX)?;
    let expected = reader.u64()?;
    let there = disk.len()?;
    if there < pages * PAGE_BYTES as u64 {
        return Err(reader
            .damaged(format!("{there} bytes on flash, expected {pages} pages"))
            .into());
    }
    let found = checksum(disk, pages)?;
    if found == expected {
        return Ok(pages);
    }
    let what = format!("pages with the checksum {found:016x}, expected {expected:016x}");
    Err(reader.damaged(what).into())
}

/// CRC-64 of the CRC-64s of runs of pages.
fn checksum(disk: &dyn Disk, pages: u64) -> Result<u64> {
    let mut sums = Vec::new();
    for first in (0..pages).step_by(RUN_PAGES as usize) {
        let mut run = vec![0; (RUN_PAGES.min(pages - first)) as usize * PAGE_BYTES];
        disk.read_at(&mut run, first * PAGE_BYTES as u64)
            .map_err(|error| Error::from_read(error, "filter"))?;
        sums.extend_from_slice(&crc64(&run).to_le_bytes());
    }
    Ok(crc64(&sums))
}

/// Asks a filter key by key: for filters without a batch form.
pub(super) fn each(
    keys: &[Fingerprint],
    present: &mut [bool],
    mut ask: impl FnMut(&Fingerprint) -> bool,
) {
    keys.iter()
        .zip(present)
        .for_each(|(key, present)| *present = ask(key));
}
