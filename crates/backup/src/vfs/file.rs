//! Open files: where in a content an offset is, and reading ahead of who reads in order.
//!
//! A content is a tree of recipe chunks, of which one way down is read at a time: it gives a *stretch*, the pieces of
//! the content around an offset, in which reads that follow each other find theirs without reading recipes again.

use std::sync::Arc;

use onefold_store::ChunkReader;
use parking_lot::Mutex;

use super::chunks::{OpenChunks, REQUEST_BYTES_MAX};
use crate::tree::{Visit, visit_items, visit_items_from};
use crate::wire::WireReader;
use crate::{Content, Result, Slice};

/// Pieces of a stretch: some 64 MiB of a large file.
const PIECES_MAX: usize = 1024;
/// Reads that are no further apart than this, in bytes, are in order: the kernel sends some side by side.
const ORDER_BYTES: u64 = 1 << 20;
/// Bytes that are read ahead after the first read in order; twice as many after each that follows.
const AHEAD_BYTES_MIN: u64 = 512 << 10;
/// Largest number of bytes that are read ahead.
const AHEAD_BYTES_MAX: u64 = 16 << 20;

/// Nothing is read ahead of files up to this size: the kernel asks for all of it at once.
const SMALL_BYTES: u64 = 256 << 10;

/// A file that is open.
pub struct OpenFile {
    content: Content,
    size: u64,
    place: Mutex<ReadPosition>,
    /// Keeps the snapshot readable, if it is forgotten meanwhile.
    _in_use: Arc<()>,
}

/// Where the file is read.
#[derive(Default)]
struct ReadPosition {
    stretch: Arc<PieceStretch>,
    /// Where the read before ended.
    read_to: u64,
    /// How far chunks were asked for ahead.
    asked_to: u64,
    /// Bytes that are read ahead; 0 where reads are in no order.
    ahead_bytes: u64,
}

/// Neighbouring pieces of a content.
#[derive(Default)]
struct PieceStretch {
    pieces: Vec<ContentPiece>,
    start: u64,
    end: u64,
}

/// A chunk's part or a hole.
#[derive(Clone, Copy)]
struct ContentPiece {
    start: u64,
    end: u64,
    /// None: a hole.
    data: Option<Slice>,
}

impl OpenFile {
    /// A file of this content and size, of a snapshot that is in use as long as others have `in_use`.
    pub fn new(content: Content, size: u64, in_use: Arc<()>) -> Self {
        Self {
            content,
            size,
            place: Mutex::default(),
            _in_use: in_use,
        }
    }

    /// Adds the bytes from `offset` on, at most `len` of them, to `out`; fewer at the end of the file. `recipes` reads
    /// recipe chunks.
    ///
    /// # Errors
    /// Those of [`ChunkReader::read`], and [`Error::Malformed`](crate::Error::Malformed): a chunk or recipe chunk
    /// cannot be had.
    pub fn read(
        &self,
        offset: u64,
        len: usize,
        chunks: &OpenChunks,
        recipes: &Mutex<ChunkReader>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let end = offset.saturating_add(len as u64).min(self.size);
        let mut at = offset;
        while at < end {
            let stretch = self.stretch(at, end, chunks, recipes)?;
            let before = at;
            for piece in stretch.from(at) {
                let to = piece.end.min(end);
                if piece.start > at || at >= end {
                    break;
                }
                let part = (at - piece.start) as usize..(to - piece.start) as usize;
                match piece.data {
                    None => out.resize(out.len() + part.len(), 0),
                    Some(slice) => {
                        let bytes = chunks.get(&slice.chunk)?;
                        let skip = slice.skip as usize;
                        let bytes = bytes.get(skip + part.start..skip + part.end);
                        out.extend_from_slice(bytes.ok_or_else(|| too_short(&slice))?);
                    }
                }
                at = to;
            }
            if at == before {
                // The content ends before its entry says: as a restore does, zeros follow.
                out.resize(out.len() + (end - at) as usize, 0);
                at = end;
            }
        }
        Ok(())
    }

    /// The stretch that `at` is in; what follows a read up to `end` is asked for ahead if reads are in order.
    fn stretch(
        &self,
        at: u64,
        end: u64,
        chunks: &OpenChunks,
        recipes: &Mutex<ChunkReader>,
    ) -> Result<Arc<PieceStretch>> {
        let mut place = self.place.lock();
        if !place.stretch.contains(at) {
            place.stretch = Arc::new(PieceStretch::read(&self.content, at, &mut recipes.lock())?);
        }
        let stretch = Arc::clone(&place.stretch);
        let is_in_order = at <= place.read_to.saturating_add(ORDER_BYTES)
            && at.saturating_add(ORDER_BYTES) >= place.read_to;
        place.ahead_bytes = if is_in_order {
            (place.ahead_bytes * 2).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX)
        } else {
            0
        };
        if !is_in_order {
            place.asked_to = 0;
        }
        place.read_to = if is_in_order {
            place.read_to.max(end)
        } else {
            end
        };
        if place.ahead_bytes > 0 && self.size > SMALL_BYTES {
            let from = place.asked_to.max(end);
            let to = end.saturating_add(place.ahead_bytes);
            // In requests worth a reading, not in drops.
            if from <= end || to - from.min(to) >= place.ahead_bytes / 2 {
                place.asked_to = from.max(stretch.ask(from, to, chunks));
            }
        }
        Ok(stretch)
    }

    /// Where the next data begins from `offset` on; `None` where there is none.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn data_from(&self, offset: u64, recipes: &Mutex<ChunkReader>) -> Result<Option<u64>> {
        self.next(offset, recipes, true)
    }

    /// Where the next hole begins from `offset` on: the end of the file is one. `None` past the end.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn hole_from(&self, offset: u64, recipes: &Mutex<ChunkReader>) -> Result<Option<u64>> {
        if offset >= self.size {
            return Ok(None);
        }
        Ok(Some(
            self.next(offset, recipes, false)?.unwrap_or(self.size),
        ))
    }

    fn next(
        &self,
        offset: u64,
        recipes: &Mutex<ChunkReader>,
        wants_data: bool,
    ) -> Result<Option<u64>> {
        let mut found = None;
        let mut reader = recipes.lock();
        visit_items_from(&self.content, offset, &mut reader, &mut |met, _| {
            let (start, end, is_data) = match met {
                Visit::Recipe(_) => return Ok(true),
                Visit::Data(slice, start) => (start, start.saturating_add(slice.len.into()), true),
                Visit::Hole(start, len) => (start, start.saturating_add(len), false),
            };
            if is_data == wants_data && end > offset && start < self.size {
                found = Some(start.max(offset));
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }
}

/// Bytes of a content that are data: what is no hole.
///
/// # Errors
/// A recipe chunk cannot be had.
pub fn data_bytes(content: &Content, reader: &mut ChunkReader) -> Result<u64> {
    let mut bytes = 0u64;
    visit_items(content, reader, &mut |met, _| {
        if let Visit::Data(slice, _) = met {
            bytes = bytes.saturating_add(slice.len.into());
        }
        Ok(true)
    })?;
    Ok(bytes)
}

fn too_short(slice: &Slice) -> crate::Error {
    WireReader::new("recipe", b"").fail(format_args!(
        "bytes {} to {} of chunk {}, which is shorter",
        slice.skip,
        u64::from(slice.skip) + u64::from(slice.len),
        slice.chunk.fingerprint
    ))
}

impl PieceStretch {
    /// The pieces from `at` on.
    fn read(content: &Content, at: u64, reader: &mut ChunkReader) -> Result<Self> {
        let mut pieces: Vec<ContentPiece> = Vec::new();
        visit_items_from(content, at, reader, &mut |met, _| {
            let (start, len, data) = match met {
                Visit::Recipe(_) => return Ok(true),
                Visit::Data(slice, start) => (start, slice.len.into(), Some(slice)),
                Visit::Hole(start, len) => (start, len, None),
            };
            let end = start.saturating_add(len);
            pieces.push(ContentPiece { start, end, data });
            Ok(pieces.len() < PIECES_MAX)
        })?;
        Ok(Self {
            start: pieces.first().map_or(at, |piece| piece.start),
            end: pieces.last().map_or(at, |piece| piece.end),
            pieces,
        })
    }

    fn contains(&self, at: u64) -> bool {
        self.start <= at && at < self.end
    }

    /// Pieces from the one that `at` is in.
    fn from(&self, at: u64) -> &[ContentPiece] {
        &self.pieces[self.pieces.partition_point(|piece| piece.end <= at)..]
    }

    /// Asks for the chunks of the pieces from `from` to `to`, those of a container together. Gives how far it came.
    fn ask(&self, from: u64, to: u64, chunks: &OpenChunks) -> u64 {
        let wanted = self.from(from);
        let wanted = &wanted[..wanted.partition_point(|piece| piece.start < to)];
        let mut asked_to = from;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (i, piece) in wanted.iter().enumerate() {
            if let Some(slice) = piece.data {
                batch.push(slice.chunk);
                bytes += slice.chunk.len as usize;
            }
            let container = |piece: &ContentPiece| piece.data.map(|slice| slice.chunk.container);
            let goes_on = wanted.get(i + 1).is_some_and(|next| {
                container(next).is_none() || container(next) == batch.last().map(|c| c.container)
            });
            if !batch.is_empty() && (!goes_on || bytes >= REQUEST_BYTES_MAX) {
                if !chunks.ask(batch[0].container, &batch) {
                    return asked_to;
                }
                (batch, bytes) = (Vec::new(), 0);
            }
            if batch.is_empty() {
                asked_to = piece.end;
            }
        }
        asked_to
    }
}
