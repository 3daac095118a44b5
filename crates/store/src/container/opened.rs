//! A container that was opened: its header and descriptors, and how they lead to blocks and chunks.
//!
//! Invariant: nothing that a table says leads outside of its container, and no chunk is returned that was not compared
//! with its fingerprint in the table.

use std::ops::Range;
use std::sync::OnceLock;

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::ErrorKind;
use onefold_keys::Sealer;

use crate::container::block::{self, BLOCK_HEADER_BYTES};
use crate::container::compression::Decompressor;
use crate::container::footer::{FOOTER_BYTES, Footer};
use crate::container::{self, ContainerTable, HEADER_BYTES, Header, StreamKind};
use crate::objects::local_cache::{Copied, LocalCache};
use crate::objects::{read_twice_at_most, unless_damaged};
use crate::repository::Stored;
use crate::{Error, Result};

/// A container's header, table, and the way from a fingerprint to its place.
pub struct Opened {
    pub(crate) header: Header,
    pub(crate) table: ContainerTable,
    sealer: Sealer,
    /// Chunk numbers in order of fingerprint, once that was asked for: who goes through all chunks needs none.
    by_fingerprint: OnceLock<Vec<u32>>,
    /// Where it may have held more: why that cannot be read.
    partial: Option<Loss>,
}

/// Containers whose tables this machine copies when it reads them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyTables {
    /// Those of metadata: who reads the tables of many others needs each once.
    OfMetadata,
    /// All of them: chunks of a few containers are read now and then.
    All,
}

/// Why bytes cannot be had, to be told again and again.
struct Loss {
    /// Kind of the device's error, if it was one.
    kind: Option<ErrorKind>,
    what: String,
}

impl Opened {
    /// Reads header, footer and table of a container, twice where something is damaged. The header must say what the
    /// footer repeats: both are written at once, so a version that only one of them has is damage.
    pub(crate) fn read(shared: &Stored, id: ContainerId) -> Result<Self> {
        Self::read_copying(shared, id, CopyTables::OfMetadata)
    }

    /// The same, from this machine's copy where it has one; of what is read from the store, `copying` says whether a
    /// copy is kept.
    pub(crate) fn read_copying(
        shared: &Stored,
        id: ContainerId,
        copying: CopyTables,
    ) -> Result<Self> {
        if let Some(copied) = Self::read_copy(shared, id) {
            return Ok(copied);
        }
        let object = container::object_name(id);
        read_twice_at_most(&*shared.objects, &object, || {
            Self::read_once(shared, id, copying)
        })
    }

    /// A container by this machine's copy of its table.
    fn read_copy(shared: &Stored, id: ContainerId) -> Option<Self> {
        let cache = shared.local_cache.as_ref()?;
        let copy = cache.get(Copied::Table(id))?;
        let (len, tail) = copy.split_first_chunk::<8>()?;
        let opened = Self::from_tail(shared, id, tail, u64::from_le_bytes(*len)).ok();
        if opened.is_none() {
            cache.forget(Copied::Table(id));
        }
        opened
    }

    fn read_once(shared: &Stored, id: ContainerId, copying: CopyTables) -> Result<Self> {
        if shared.tail_bytes > 0 {
            return Self::read_tail(shared, id, copying);
        }
        let object = container::object_name(id);
        let (header, footer) = match (read_header(shared, id), read_footer(shared, id)) {
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => return Err(error.unless_other_version()),
            (header, footer) => (header?, footer?),
        };
        if header != footer.header {
            return Err(Error::damaged(object, Some(0), "header and footer differ"));
        }
        let sealer = shared.keys.container_sealer(&header.salt);
        let mut sealed = vec![0; footer.table_len as usize];
        shared
            .objects
            .get_range(&object, footer.table_offset, &mut sealed)?;
        let table = footer.open_table(sealed, &sealer)?;
        check_layout(&table, footer.table_offset, &object)?;
        Ok(Self::new(header, table, sealer))
    }

    /// Opens a container where a request is dear: with one request, if the table is short. The header only repeats the
    /// footer.
    fn read_tail(shared: &Stored, id: ContainerId, copying: CopyTables) -> Result<Self> {
        let object = container::object_name(id);
        let (mut tail, len) = shared.objects.get_tail(&object, shared.tail_bytes)?;
        let footer = decode_footer(id, &tail, len)?;
        match footer.table_offset.checked_sub(len - tail.len() as u64) {
            Some(before) => drop(tail.drain(..before as usize)),
            None => {
                let behind = tail.split_off(tail.len() - FOOTER_BYTES);
                tail = vec![0; footer.table_len as usize];
                let offset = footer.table_offset;
                shared.objects.get_range(&object, offset, &mut tail)?;
                tail.extend_from_slice(&behind);
            }
        }
        let opened = Self::from_tail(shared, id, &tail, len)?;
        let is_copied = copying == CopyTables::All || footer.header.stream == StreamKind::Metadata;
        if let Some(cache) = shared.local_cache.as_ref().filter(|_| is_copied) {
            cache.put(Copied::Table(id), &[&len.to_le_bytes(), &tail]);
        }
        Ok(opened)
    }

    /// A container of `len` bytes by its table and footer, which are all of `tail`.
    fn from_tail(shared: &Stored, id: ContainerId, tail: &[u8], len: u64) -> Result<Self> {
        let object = container::object_name(id);
        let footer = decode_footer(id, tail, len)?;
        let sealer = shared.keys.container_sealer(&footer.header.salt);
        let sealed = tail[..tail.len() - FOOTER_BYTES].to_vec();
        let table = footer.open_table(sealed, &sealer)?;
        check_layout(&table, footer.table_offset, &object)?;
        Ok(Self::new(footer.header, table, sealer))
    }

    pub(crate) fn new(header: Header, table: ContainerTable, sealer: Sealer) -> Self {
        Self {
            header,
            table,
            sealer,
            by_fingerprint: OnceLock::new(),
            partial: None,
        }
    }

    /// Notes that the container may have held more chunks, and why these cannot be read.
    pub(crate) fn partly(mut self, why: &Error) -> Self {
        let kind = match why {
            Error::Io(error) => Some(error.kind),
            _ => None,
        };
        let what = why.to_string();
        self.partial = Some(Loss { kind, what });
        self
    }

    /// Why a chunk that it does not list may have been in it all the same; `None` where it was not.
    pub(crate) fn loss(&self) -> Option<Error> {
        let Loss { kind, what } = self.partial.as_ref()?;
        let object = container::object_name(self.header.id);
        Some(match kind {
            Some(kind) => onefold_io::Error::new("read", object, *kind, what.clone()).into(),
            None => Error::damaged(object, None, what.clone()),
        })
    }

    fn by_fingerprint(&self) -> &[u32] {
        self.by_fingerprint.get_or_init(|| {
            let mut numbers: Vec<u32> = (0..self.table.chunks.len() as u32).collect();
            numbers.sort_unstable_by_key(|chunk| self.table.chunks[*chunk as usize].0);
            numbers
        })
    }

    /// The number of a chunk.
    pub(crate) fn find(&self, fingerprint: &Fingerprint) -> Option<u32> {
        let key = |chunk: &u32| self.table.chunks[*chunk as usize].0;
        let numbers = self.by_fingerprint();
        let at = numbers.binary_search_by_key(fingerprint, key).ok()?;
        Some(numbers[at])
    }

    /// Whether it holds a chunk whose fingerprint begins so.
    pub(crate) fn holds_prefix(&self, prefix: u64) -> bool {
        self.by_fingerprint()
            .binary_search_by_key(&prefix, |chunk| {
                self.table.chunks[*chunk as usize].0.prefix()
            })
            .is_ok()
    }

    /// A block's raw bytes, read and decoded, twice where something is damaged; of metadata, from this machine's copy
    /// where it has one.
    pub(crate) fn read_block(
        &self,
        shared: &Stored,
        number: usize,
        zstd: &mut Decompressor,
    ) -> Result<Vec<u8>> {
        let copied = self.read_block_copy(shared, number, zstd);
        if let Some(raw) = copied {
            return Ok(raw);
        }
        let read = self.read_block_once(shared, number, zstd);
        self.unless_damaged(shared, number, read, zstd)
    }

    /// This machine's copies, if the container is one whose blocks are copied.
    fn copies<'a>(&self, shared: &'a Stored) -> Option<&'a LocalCache> {
        let is_metadata = self.header.stream == StreamKind::Metadata;
        shared.local_cache.as_ref().filter(|_| is_metadata)
    }

    /// A block's raw bytes by this machine's copy.
    fn read_block_copy(
        &self,
        shared: &Stored,
        number: usize,
        zstd: &mut Decompressor,
    ) -> Option<Vec<u8>> {
        let cache = self.copies(shared)?;
        let of = Copied::Block(self.header.id, self.block_range(number).start);
        let mut stored = cache.get(of)?;
        let raw = self.decode_block(number, &mut stored, zstd).ok();
        if raw.is_none() {
            cache.forget(of);
        }
        raw
    }

    /// Decodes the stored bytes of a block, which are read again where they are damaged.
    pub(crate) fn decode_read_block(
        &self,
        shared: &Stored,
        number: usize,
        stored: &mut [u8],
        zstd: &mut Decompressor,
    ) -> Result<Vec<u8>> {
        let read = self.decode_block(number, stored, zstd);
        self.unless_damaged(shared, number, read, zstd)
    }

    fn unless_damaged(
        &self,
        shared: &Stored,
        number: usize,
        read: Result<Vec<u8>>,
        zstd: &mut Decompressor,
    ) -> Result<Vec<u8>> {
        let object = container::object_name(self.header.id);
        let again = || self.read_block_once(shared, number, zstd);
        unless_damaged(&*shared.objects, &object, read, again)
    }

    fn read_block_once(
        &self,
        shared: &Stored,
        number: usize,
        zstd: &mut Decompressor,
    ) -> Result<Vec<u8>> {
        let range = self.block_range(number);
        let mut stored = vec![0; (range.end - range.start) as usize];
        let object = container::object_name(self.header.id);
        shared
            .objects
            .get_range(&object, range.start, &mut stored)?;
        let Some(cache) = self.copies(shared) else {
            return self.decode_block(number, &mut stored, zstd);
        };
        // Decoding opens the seal in its place.
        let sealed = stored.clone();
        let raw = self.decode_block(number, &mut stored, zstd)?;
        cache.put(Copied::Block(self.header.id, range.start), &[&sealed]);
        Ok(raw)
    }

    fn decode_block(
        &self,
        number: usize,
        stored: &mut [u8],
        zstd: &mut Decompressor,
    ) -> Result<Vec<u8>> {
        let block = &self.table.blocks[number];
        let raw = block::decode_block(
            &self.header,
            block.number,
            stored,
            block.offset,
            &self.sealer,
            zstd,
        )?;
        if raw.len() < block.chunk_bytes as usize {
            let object = container::object_name(self.header.id);
            let what = format!(
                "{} raw bytes, its chunks take {}",
                raw.len(),
                block.chunk_bytes
            );
            return Err(Error::damaged(object, Some(block.offset), what));
        }
        Ok(raw)
    }

    /// Where a block lies in its container, header included.
    pub(crate) fn block_range(&self, number: usize) -> Range<u64> {
        let block = &self.table.blocks[number];
        block.offset..block.offset + BLOCK_HEADER_BYTES as u64 + u64::from(block.stored_len)
    }

    /// The chunks `wanted` of one block, in order, with their bytes in its raw ones; an error where those do not have
    /// the fingerprint that the table says.
    pub(crate) fn verify<'a>(
        &self,
        shared: &Stored,
        wanted: impl Iterator<Item = u32> + Clone,
        raw: &'a [u8],
    ) -> impl Iterator<Item = (u32, Result<&'a [u8]>)> {
        let chunks = self.chunks_of(wanted.clone(), raw);
        let fingerprinter = shared.keys.fingerprinter();
        let found = fingerprinter.fingerprints(chunks.iter().copied());
        let found = found.into_iter().zip(chunks);
        wanted.zip(found).map(move |(number, (found, chunk))| {
            (number, self.confirm(number, &found).map(|()| chunk))
        })
    }

    /// The bytes of `wanted`, chunks of one block in order, in its raw bytes.
    fn chunks_of<'a>(&self, wanted: impl IntoIterator<Item = u32>, raw: &'a [u8]) -> Vec<&'a [u8]> {
        let mut walked: Option<(u32, usize)> = None;
        let mut slices = Vec::new();
        for chunk in wanted {
            let (mut next, mut at) = walked
                .unwrap_or_else(|| (self.table.blocks[self.table.block_of(chunk)].first_chunk, 0));
            while next < chunk {
                at += self.table.chunks[next as usize].1 as usize;
                next += 1;
            }
            slices.push(&raw[at..at + self.table.chunks[chunk as usize].1 as usize]);
            walked = Some((next, at));
        }
        slices
    }

    /// Checks that a chunk's content has the fingerprint that the table says.
    ///
    /// # Errors
    /// `Damaged`, with both.
    pub(crate) fn confirm(&self, chunk: u32, found: &Fingerprint) -> Result<()> {
        let expected = self.table.chunks[chunk as usize].0;
        if *found == expected {
            return Ok(());
        }
        let object = format!("{}, chunk {chunk}", container::object_name(self.header.id));
        let offset = self.table.blocks[self.table.block_of(chunk)].offset;
        Err(Error::damaged(
            object,
            Some(offset),
            format!("fingerprint {found}, expected {expected}"),
        ))
    }

    /// Where a chunk lies in its block's raw bytes.
    pub(crate) fn chunk_range(&self, chunk: u32) -> Range<usize> {
        let block = &self.table.blocks[self.table.block_of(chunk)];
        let before = &self.table.chunks[block.first_chunk as usize..chunk as usize];
        let start = before.iter().map(|(_, len)| *len as usize).sum();
        start..start + self.table.chunks[chunk as usize].1 as usize
    }

    pub(crate) fn ram_bytes(&self) -> usize {
        self.table.chunks.len() * 40 + self.table.blocks.len() * 32
    }
}

/// A container's header.
fn read_header(shared: &Stored, id: ContainerId) -> Result<Header> {
    let mut header = [0; HEADER_BYTES];
    shared
        .objects
        .get_range(&container::object_name(id), 0, &mut header)?;
    Header::decode(id, &header)
}

/// Why only another version of the program may say that a container is unused: it made it, by all that can be read of
/// it.
pub(crate) fn other_version(shared: &Stored, id: ContainerId) -> Option<Error> {
    let object = container::object_name(id);
    let header = read_twice_at_most(&*shared.objects, &object, || read_header(shared, id));
    let error = header.err()?;
    (error.is_other_version() && read_footer(shared, id).is_err()).then_some(error)
}

/// A container's footer.
pub(crate) fn read_footer(shared: &Stored, id: ContainerId) -> Result<Footer> {
    let object = container::object_name(id);
    let (tail, len) = shared.objects.get_tail(&object, FOOTER_BYTES)?;
    decode_footer(id, &tail, len)
}

/// The footer of a container of `len` bytes, whose last ones are `tail`.
fn decode_footer(id: ContainerId, tail: &[u8], len: u64) -> Result<Footer> {
    match tail.last_chunk::<FOOTER_BYTES>() {
        Some(footer) if len >= (HEADER_BYTES + FOOTER_BYTES) as u64 => {
            Footer::decode(id, footer, len)
        }
        _ => Err(Error::damaged(
            container::object_name(id),
            Some(len),
            format!("{len} bytes are too few for a container"),
        )),
    }
}

/// Blocks must follow one another between header and table: nothing that a table says may lead elsewhere.
pub(crate) fn check_layout(table: &ContainerTable, table_offset: u64, object: &str) -> Result<()> {
    let mut at = HEADER_BYTES as u64;
    for block in &table.blocks {
        if block.offset != at {
            return Err(Error::damaged(
                object,
                Some(block.offset),
                format!("a block begins here, expected at {at}"),
            ));
        }
        at += BLOCK_HEADER_BYTES as u64 + u64::from(block.stored_len);
    }
    if at != table_offset {
        return Err(Error::damaged(
            object,
            Some(at),
            format!("the last block ends here, the table begins at {table_offset}"),
        ));
    }
    Ok(())
}
