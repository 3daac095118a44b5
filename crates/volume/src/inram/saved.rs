//! The file of the backend `inram`: all its metadata as frames, one after the other (FORMAT.md, "Metadata in RAM").
//!
//! Invariant: it is replaced whole, so after a crash it holds the last save or the one before. What it says is
//! checked before it is believed: numbers against the blocks and keys that there can be, and all of it against the sums
//! at its end.

use std::sync::Arc;

use onefold_io::frame::{self, FrameKind, OVERHEAD_BYTES};
use onefold_io::varint::{ByteReader, put_varint, unzigzag, zigzag};
use onefold_io::{Dir, Disk, ErrorKind, rename_over};

use super::counts::{BlockCounts, COUNT_MAX};
use super::hash_table::HashTable;
use super::linear::Linear;
use super::{SavedContent, Store};
use crate::{Error, Pbn, Result};

/// The frames of the file.
pub const INRAM: FrameKind = FrameKind {
    magic: *b"1FVINRAM",
    version: 1,
};

const FILE: &str = "meta";
const FILE_NEW: &str = "meta.new";

/// A frame's payload ends when it is this long.
const PAYLOAD_BYTES: usize = 1 << 20;
/// No payload is longer.
const PAYLOAD_BYTES_MAX: u64 = 4 << 20;
/// No key is longer.
const KEY_BYTES_MAX: u64 = 64;
/// No volume has more chunks: 4 PiB of 4 KiB each.
const KEYS_MAX: u64 = 1 << 40;
/// A sparse store may have this many keys, whatever the number of blocks.
const KEYS_FEW: u64 = 4096;
/// No depot has more stores.
const STORES_MAX: u64 = 1024;

const HEADER: u8 = 1;
const LINEAR: u8 = 2;
const SPARSE: u8 = 3;
const COUNTS: u8 = 4;
const END: u8 = 5;

/// Where the metadata is saved.
pub(super) struct SavePlace {
    folder: Arc<dyn Dir>,
}

impl SavePlace {
    pub fn new(folder: Arc<dyn Dir>) -> Self {
        Self { folder }
    }

    /// Puts `content` in the place of what was saved before; durable when it returns.
    pub fn save(&self, content: &SavedContent) -> Result<()> {
        save(&*self.folder, content)
    }

    /// Returns the saved content; `None` where nothing was saved.
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Unsupported`] where it is of another number of blocks.
    pub fn load(&self, blocks: u64) -> Result<Option<SavedContent>> {
        load(&*self.folder, blocks)
    }
}

/// The content that was saved in `folder`; as [`SavePlace::load`].
pub(super) fn load(folder: &dyn Dir, blocks: u64) -> Result<Option<SavedContent>> {
    let limits = Limits {
        blocks,
        keys_max: KEYS_MAX,
    };
    match folder.open(FILE) {
        Ok(disk) => read(&*disk, FILE, limits).map(Some),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Puts `content` in the place of the file in `folder`; durable when it returns.
pub(super) fn save(folder: &dyn Dir, content: &SavedContent) -> Result<()> {
    rename_over::<Error>(folder, FILE_NEW, FILE, |disk| {
        FrameWriter {
            disk: &**disk,
            offset: 0,
            payload: Vec::new(),
        }
        .all(content)
    })?;
    Ok(folder.sync()?)
}

/// A depot's file is there from its creation on.
pub(super) fn require(folder: &dyn Dir) -> Result<()> {
    match folder.open(FILE) {
        Err(error) if error.kind == ErrorKind::NotFound => Err(Error::Damaged {
            place: FILE.into(),
            what: "the file is gone, expected the depot's metadata in it".into(),
        }),
        other => Ok(other.map(drop)?),
    }
}

/// Writes frames one behind the other, each as it is full.
struct FrameWriter<'a> {
    disk: &'a dyn Disk,
    offset: u64,
    payload: Vec<u8>,
}

impl FrameWriter<'_> {
    fn all(&mut self, content: &SavedContent) -> Result<()> {
        self.header(content)?;
        let (mut linear, mut sparse, mut counted) = (0, 0, 0);
        for (number, store) in content.stores.iter().enumerate() {
            match store {
                Store::Linear(store) => {
                    self.entries(
                        LINEAR,
                        Some(number),
                        store.iter(),
                        |out, before, (key, pbn)| {
                            put_ascending(out, before.map(|(key, _): (u64, Pbn)| key), key);
                            put_near(out, before.map(|(_, pbn)| pbn), pbn);
                        },
                    )?;
                    linear += store.entries();
                }
                Store::Sparse(store) => {
                    self.entries(SPARSE, Some(number), store.iter(), |out, _, (key, pbn)| {
                        out.extend_from_slice(key);
                        put_varint(out, pbn.0);
                    })?;
                    sparse += store.entries();
                }
            }
        }
        self.entries(
            COUNTS,
            None,
            content.counts.iter(),
            |out, before, (pbn, count)| {
                put_ascending(out, before.map(|(pbn, _): (Pbn, u32)| pbn.0), pbn.0);
                put_varint(out, u64::from(count));
                counted += 1;
            },
        )?;
        self.payload = vec![END];
        [linear, sparse, counted]
            .iter()
            .for_each(|sum| put_varint(&mut self.payload, *sum));
        self.end_frame()
    }

    fn header(&mut self, content: &SavedContent) -> Result<()> {
        self.payload = vec![HEADER];
        let out = &mut self.payload;
        put_varint(out, content.counts.blocks());
        put_varint(out, content.counts.cursor());
        put_varint(out, content.stores.len() as u64);
        for store in &content.stores {
            match store {
                Store::Linear(store) => {
                    out.push(LINEAR);
                    put_varint(out, store.keys());
                }
                Store::Sparse(store) => {
                    let (key_bytes, keys_max) = store.shape();
                    out.push(SPARSE);
                    put_varint(out, key_bytes as u64);
                    put_varint(out, keys_max);
                }
            }
        }
        self.end_frame()
    }

    /// Frames of one kind; each begins as if no entry came before.
    fn entries<T: Copy>(
        &mut self,
        kind: u8,
        store: Option<usize>,
        entries: impl Iterator<Item = T>,
        mut put: impl FnMut(&mut Vec<u8>, Option<T>, T),
    ) -> Result<()> {
        let mut before = None;
        for entry in entries {
            if self.payload.is_empty() {
                self.payload.push(kind);
                store
                    .iter()
                    .for_each(|number| put_varint(&mut self.payload, *number as u64));
            }
            put(&mut self.payload, before, entry);
            before = Some(entry);
            if self.payload.len() >= PAYLOAD_BYTES {
                self.end_frame()?;
                before = None;
            }
        }
        if self.payload.is_empty() {
            Ok(())
        } else {
            self.end_frame()
        }
    }

    fn end_frame(&mut self) -> Result<()> {
        self.offset += frame::write_frame(self.disk, INRAM, self.offset, &self.payload)?;
        self.payload.clear();
        Ok(())
    }
}

/// A number that is larger than the one before, as what lies between them.
fn put_ascending(out: &mut Vec<u8>, before: Option<u64>, value: u64) {
    put_varint(out, before.map_or(value, |before| value - before - 1));
}

/// A block number by its distance from the one that would follow.
fn put_near(out: &mut Vec<u8>, before: Option<Pbn>, pbn: Pbn) {
    let expected = before.map_or(0, |before| before.0 + 1);
    put_varint(out, zigzag(pbn.0.wrapping_sub(expected) as i64));
}

/// Limits that the content of a saved file must keep.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Blocks of the data device, which the file must be of.
    pub blocks: u64,
    /// No linear store has more keys.
    pub keys_max: u64,
}

/// Reads all of `disk`; `path` is for errors.
///
/// # Errors
/// [`Error::Damaged`]: a frame is not whole, numbers are beyond what there can be, or the sums differ.
/// [`Error::Unsupported`]: of another number of blocks, or of another version.
pub(super) fn read(disk: &dyn Disk, path: &str, limits: Limits) -> Result<SavedContent> {
    let (len, mut offset) = (disk.len()?, 0);
    let mut reader: Option<FrameReader> = None;
    while offset < len {
        let payload = frame::read_frame(disk, INRAM, offset, PAYLOAD_BYTES_MAX, path)?;
        let mut bytes = ByteReader::new(&payload, path, offset + frame::HEADER_BYTES as u64);
        let kind = bytes.u8()?;
        match &mut reader {
            None => reader = Some(FrameReader::begin(kind, &mut bytes, limits)?),
            Some(reader) => reader.frame(kind, &mut bytes)?,
        }
        bytes.end()?;
        offset += (OVERHEAD_BYTES + payload.len()) as u64;
    }
    match reader {
        Some(reader) if reader.is_ended => Ok(reader.content),
        _ => Err(Error::Damaged {
            place: path.into(),
            what: format!("offset {len}: the file ends here, expected its last frame"),
        }),
    }
}

/// Takes up the content frame by frame.
struct FrameReader {
    content: SavedContent,
    /// The highest block of the counts so far.
    counted: Option<u64>,
    blocks_counted: u64,
    is_ended: bool,
}

impl FrameReader {
    fn begin(kind: u8, bytes: &mut ByteReader<'_>, limits: Limits) -> Result<Self> {
        let blocks = limits.blocks;
        if kind != HEADER {
            return Err(bytes
                .damaged(format!("expected the header, found a frame of kind {kind}"))
                .into());
        }
        let found = bytes.varint()?;
        if found != blocks {
            return Err(Error::Unsupported {
                what: format!(
                    "the saved metadata is of {found} blocks, and the data device has {blocks}"
                ),
            });
        }
        let cursor = bytes.varint_max(blocks.saturating_sub(1))?;
        let mut content = SavedContent {
            stores: Vec::new(),
            counts: BlockCounts::new(blocks)?,
        };
        content.counts.restore_cursor(cursor);
        for _ in 0..bytes.varint_max(STORES_MAX)? {
            content.stores.push(match bytes.u8()? {
                LINEAR => Store::Linear(Linear::new(bytes.varint_max(limits.keys_max)?)?),
                SPARSE => {
                    let key_bytes = bytes.varint_max(KEY_BYTES_MAX)? as usize;
                    let keys_max = bytes.varint_max(blocks.saturating_mul(2).max(KEYS_FEW))?;
                    Store::Sparse(HashTable::new(key_bytes, keys_max)?)
                }
                kind => return Err(bytes.damaged(format!("a store of kind {kind}")).into()),
            });
        }
        Ok(Self {
            content,
            counted: None,
            blocks_counted: 0,
            is_ended: false,
        })
    }

    fn frame(&mut self, kind: u8, bytes: &mut ByteReader<'_>) -> Result<()> {
        if self.is_ended {
            return Err(bytes.damaged("a frame behind the last one".into()).into());
        }
        match kind {
            LINEAR | SPARSE => self.entries(kind, bytes),
            COUNTS => self.counts(bytes),
            END => self.end(bytes),
            kind => Err(bytes.damaged(format!("a frame of kind {kind}")).into()),
        }
    }

    fn entries(&mut self, kind: u8, bytes: &mut ByteReader<'_>) -> Result<()> {
        let number = bytes.varint()?;
        let pbn_max = self.content.counts.blocks().saturating_sub(1);
        let store = usize::try_from(number).ok();
        match (
            kind,
            store.and_then(|number| self.content.stores.get_mut(number)),
        ) {
            (LINEAR, Some(Store::Linear(store))) => linear(store, bytes, pbn_max),
            (SPARSE, Some(Store::Sparse(store))) => sparse(store, bytes, pbn_max),
            _ => Err(bytes
                .damaged(format!(
                    "entries of store {number}, which is none of this kind"
                ))
                .into()),
        }
    }

    fn counts(&mut self, bytes: &mut ByteReader<'_>) -> Result<()> {
        let mut before = None;
        while !bytes.is_at_end() {
            let pbn = ascending(bytes, before, self.content.counts.blocks())?;
            let count = bytes.varint_max(u64::from(COUNT_MAX))? as u32;
            if count == 0 || self.counted.is_some_and(|counted| pbn <= counted) {
                return Err(bytes
                    .damaged(format!("block {pbn} is counted twice, or as free"))
                    .into());
            }
            self.content.counts.restore(Pbn(pbn), count);
            self.blocks_counted += 1;
            self.counted = Some(pbn);
            before = Some(pbn);
        }
        Ok(())
    }

    fn end(&mut self, bytes: &mut ByteReader<'_>) -> Result<()> {
        let (mut linear, mut sparse) = (0, 0);
        for store in &self.content.stores {
            match store {
                Store::Linear(store) => linear += store.entries(),
                Store::Sparse(store) => sparse += store.entries(),
            }
        }
        for (what, found) in [
            ("LBNs", linear),
            ("hashes", sparse),
            ("blocks", self.blocks_counted),
        ] {
            let expected = bytes.varint()?;
            if expected != found {
                return Err(bytes
                    .damaged(format!("expected {expected} {what}, found {found}"))
                    .into());
            }
        }
        self.is_ended = true;
        Ok(())
    }
}

fn linear(store: &mut Linear, bytes: &mut ByteReader<'_>, pbn_max: u64) -> Result<()> {
    let (mut key, mut next) = (None, 0u64);
    while !bytes.is_at_end() {
        let this = ascending(bytes, key, store.keys())?;
        let pbn = next.wrapping_add(unzigzag(bytes.varint()?) as u64);
        check_pbn(bytes, pbn, pbn_max)?;
        if store.get(this).is_some() {
            return Err(bytes.damaged(format!("LBN {this} comes twice")).into());
        }
        store.insert(this, Pbn(pbn));
        (key, next) = (Some(this), pbn + 1);
    }
    Ok(())
}

fn sparse(store: &mut HashTable, bytes: &mut ByteReader<'_>, pbn_max: u64) -> Result<()> {
    while !bytes.is_at_end() {
        let key = bytes.take(store.shape().0)?;
        let pbn = bytes.varint()?;
        check_pbn(bytes, pbn, pbn_max)?;
        if store.get(key).is_some() {
            return Err(bytes.damaged("a hash comes twice".into()).into());
        }
        if store.entries() == store.shape().1 {
            return Err(bytes
                .damaged(format!("more than {} hashes", store.entries()))
                .into());
        }
        store.insert(key, Pbn(pbn))?;
    }
    Ok(())
}

/// A number above `before` and below `end`.
fn ascending(bytes: &mut ByteReader<'_>, before: Option<u64>, end: u64) -> Result<u64> {
    let gap = bytes.varint()?;
    let value = match before {
        None => Some(gap),
        Some(before) => before.checked_add(1).and_then(|next| next.checked_add(gap)),
    };
    match value.filter(|value| *value < end) {
        Some(value) => Ok(value),
        None => Err(bytes
            .damaged(format!("expected a number below {end}"))
            .into()),
    }
}

fn check_pbn(bytes: &ByteReader<'_>, pbn: u64, max: u64) -> Result<()> {
    if pbn <= max {
        Ok(())
    } else {
        Err(bytes
            .damaged(format!("block {pbn}, where {max} is the last one"))
            .into())
    }
}
