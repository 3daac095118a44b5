//! New long chunks of a chunker that has two sizes: stored as they are, or cut into short ones where the file changes
//! in place.
//!
//! A long chunk that is not stored yet falls into one of these cases, tried in this order:
//!
//! 1. *The parent has this very chunk there*: it was lost. It stays long, so that snapshots that refer to it can be
//!    read again.
//! 2. *The parent has short chunks there*: the chunk is cut into short ones again. Unchanged short chunks are found,
//!    and lost ones come back.
//! 3. *The parent has another long chunk there*, or parts of one, of the same inode: a change in place. The two are
//!    compared ([`kept`]). Equal bytes are kept as a part of the old chunk, and the others are cut into short ones.
//!    Where more than half differs, or differences lie all over, case 4 is tried, and then all of it is cut short.
//! 4. *Some of its first short chunks are stored*: under another name, or in a snapshot that is not the parent. The
//!    chunk is cut into short ones.
//! 5. Any other chunk is new, and stays long.
//!
//! With [`Options::force_reread`](super::Options::force_reread), case 4 counts as 5: a long chunk of another snapshot
//! may have been lost.
//!
//! Invariant: only the sizes of chunks depend on this. RAM: a recipe chunk for each layer, a reader with small
//! caches, and a long chunk. I/O: a long chunk that changed is read from the repository; once several in a row of one
//! file were read to no avail, no more are.

mod kept;

use std::ops::Range;

use onefold_chunk::{Chunker, Fingerprint};
use onefold_store::{ChunkReader, ChunkWriter, Fingerprinter, Session};

use super::read::pieces;
use super::segment::Segment;
use super::unchanged::Before;
use crate::content::ContentCursor;
use crate::{Content, Entry, Result, Slice};

/// Bytes of a new long chunk that are cut into short ones, to see whether these are stored.
const LOOK_BYTES: usize = 128 << 10;
/// Number of those short chunks that are looked up.
const LOOKED_UP: usize = 8;
/// Comparisons in vain, one after another, after which the file counts as another one: no more old chunks are read.
const IN_VAIN_MAX: u32 = 2;

/// Decides for each new long chunk whether it stays long or is cut into short ones.
pub struct LongChunks<'a> {
    chunker: Box<dyn Chunker>,
    session: &'a Session,
    /// Reader of old chunks, made when it is first needed.
    reader: Option<ChunkReader>,
    /// Whether short chunks are looked up to find the content elsewhere; off where unchanged files are read again by
    /// force.
    finds_elsewhere: bool,
    /// Content that the parent has of the current file.
    former: Option<Former>,
    is_same_inode: bool,
    /// Long chunks of the current file that were compared in a row without keeping enough.
    in_vain: u32,
    /// Offset of the current file's next chunk, in bytes.
    at: u64,
}

impl<'a> LongChunks<'a> {
    /// Makes the decider. `chunker` must be of the same kind as the chunkers of the readers.
    pub fn new(chunker: Box<dyn Chunker>, session: &'a Session, is_forced: bool) -> Self {
        Self {
            chunker,
            session,
            reader: None,
            finds_elsewhere: !is_forced,
            former: None,
            is_same_inode: false,
            in_vain: 0,
            at: 0,
        }
    }

    /// Begins a file, or the same file anew; `before` is the parent's entry of it.
    pub fn begin(&mut self, now: &Entry, before: Option<&Before>) {
        self.former = before.map(|before| Former::new(&before.entry.content));
        self.is_same_inode = before.is_some_and(|before| {
            (before.entry.device, before.entry.inode) == (now.device, now.inode)
        });
        (self.at, self.in_vain) = (0, 0);
    }

    /// Passes a hole of the current file, of `len` bytes.
    pub fn pass_hole(&mut self, len: u64) {
        self.at += len;
    }

    /// Returns the chunks of a segment, the long ones in the form in which they are to be stored.
    pub fn settle(
        &mut self,
        segment: &Segment,
        writer: &mut ChunkWriter,
        fingerprinter: &Fingerprinter,
    ) -> Result<Vec<PlannedPiece>> {
        let mut place = self.at;
        self.at += segment.bytes();
        let longest = self.chunker.ahead();
        let is_long = |len: u32| len as usize > longest;
        let has_long = segment.chunks.iter().any(|(_, len)| is_long(*len));
        let whole =
            |&(fingerprint, len): &(Fingerprint, u32)| PlannedPiece::Chunk(fingerprint, len);
        let held = match &segment.held {
            Some(held) if has_long && self.chunker.short().is_some() => &held[segment.start..],
            _ => return Ok(segment.chunks.iter().map(whole).collect()),
        };
        let mut settled = Vec::with_capacity(segment.chunks.len());
        for (chunk, bytes) in segment.chunks.iter().zip(pieces(held, segment.lengths())) {
            if !is_long(chunk.1) || writer.knows_any(&[chunk.0])? {
                settled.push(whole(chunk));
            } else {
                let new = NewChunk {
                    fingerprint: chunk.0,
                    place: place..place + bytes.len() as u64,
                    bytes,
                };
                match self.fate(&new, writer, fingerprinter)? {
                    ChunkDecision::Long => settled.push(whole(chunk)),
                    ChunkDecision::Short => settled.extend(self.cut_short(bytes, fingerprinter)),
                    ChunkDecision::Kept(parts) => {
                        settled.extend(self.with_kept(bytes, parts, fingerprinter));
                    }
                }
            }
            place += bytes.len() as u64;
        }
        Ok(settled)
    }

    /// Decides what to do with a new long chunk.
    fn fate(
        &mut self,
        new: &NewChunk<'_>,
        writer: &mut ChunkWriter,
        fingerprinter: &Fingerprinter,
    ) -> Result<ChunkDecision> {
        let (formerly, parts) = self.formerly(new)?;
        match formerly {
            Formerly::Same => return Ok(ChunkDecision::Long),
            Formerly::Short => return Ok(ChunkDecision::Short),
            Formerly::Long | Formerly::Nothing => {}
        }
        let is_changed = formerly == Formerly::Long && self.is_same_inode;
        if is_changed
            && self.in_vain < IN_VAIN_MAX
            && let Some(reader) = &mut self.reader
        {
            if let Some(kept) = kept::kept(new, &parts, self.session, reader)? {
                self.in_vain = 0;
                return Ok(ChunkDecision::Kept(kept));
            }
            self.in_vain += 1;
        }
        let bytes = new.bytes;
        if self.finds_elsewhere {
            // The place of the first cut depends on the bytes before it, so the first piece is skipped.
            let look = &bytes[..bytes.len().min(LOOK_BYTES)];
            let lengths = self.short_lengths(look, false);
            let found = fingerprinter.fingerprints(pieces(look, lengths.into_iter()));
            let some: Vec<_> = found.into_iter().skip(1).take(LOOKED_UP).collect();
            if writer.knows_any(&some)? {
                return Ok(ChunkDecision::Short);
            }
        }
        Ok(if is_changed {
            ChunkDecision::Short
        } else {
            ChunkDecision::Long
        })
    }

    /// Returns the parts that are kept, and short chunks of all bytes between them.
    fn with_kept(
        &mut self,
        bytes: &[u8],
        parts: Vec<SamePart>,
        fingerprinter: &Fingerprinter,
    ) -> Vec<PlannedPiece> {
        let (mut settled, mut at) = (Vec::new(), 0);
        for SamePart { start, slice } in parts {
            settled.extend(self.cut_short(&bytes[at..start], fingerprinter));
            settled.push(PlannedPiece::Kept(slice));
            at = start + slice.len as usize;
        }
        settled.extend(self.cut_short(&bytes[at..], fingerprinter));
        settled
    }

    fn cut_short(&mut self, bytes: &[u8], fingerprinter: &Fingerprinter) -> Vec<PlannedPiece> {
        let lengths = self.short_lengths(bytes, true);
        let found = fingerprinter.fingerprints(pieces(bytes, lengths.iter().copied()));
        let chunks = found.into_iter().zip(lengths);
        chunks
            .map(|(name, len)| PlannedPiece::Chunk(name, len))
            .collect()
    }

    /// The session that stores everything.
    pub fn session(&self) -> &'a Session {
        self.session
    }

    fn short_lengths(&mut self, bytes: &[u8], ends: bool) -> Vec<u32> {
        let mut lengths = Vec::new();
        if let Some(short) = self.chunker.short() {
            short.cuts(bytes, ends, &mut |len| lengths.push(len as u32));
        }
        lengths
    }

    /// Returns which kind of chunk the parent has at the place of `new`, and the parts of chunks that lie there.
    fn formerly(&mut self, new: &NewChunk<'_>) -> Result<(Formerly, Vec<ParentPart>)> {
        let longest = self.chunker.ahead() as u64;
        let Some(former) = &mut self.former else {
            return Ok((Formerly::Nothing, Vec::new()));
        };
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(self.session.small_reader()?),
        };
        former.look(new, longest, reader)
    }
}

/// A piece of a file as it is to be stored.
pub enum PlannedPiece {
    /// A chunk to store: its fingerprint, and its length in bytes.
    Chunk(Fingerprint, u32),
    /// A part of a chunk that is stored already.
    Kept(Slice),
}

impl PlannedPiece {
    /// Bytes of the file that this piece covers.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Chunk(_, len) | Self::Kept(Slice { len, .. }) => *len as usize,
        }
    }
}

/// A long chunk that is not stored yet.
struct NewChunk<'a> {
    fingerprint: Fingerprint,
    /// Range of the chunk in the file, in bytes.
    place: Range<u64>,
    bytes: &'a [u8],
}

/// Decision about a new long chunk.
enum ChunkDecision {
    Long,
    Short,
    /// Parts of the new chunk, in order, that are parts of stored chunks.
    Kept(Vec<SamePart>),
}

/// Bytes of a new chunk, from `start` on, that are the same as those of `slice`.
struct SamePart {
    start: usize,
    slice: Slice,
}

/// A part of a stored chunk that the parent has in a file, and its offset in that file.
type ParentPart = (u64, Slice);

/// Kind of chunk that the parent has where a new chunk lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Formerly {
    Same,
    Long,
    Short,
    Nothing,
}

/// The parent's content of a file, read once from front to back.
struct Former {
    ahead: ContentCursor,
    /// Offset of the next item in the file, in bytes.
    at: u64,
}

impl Former {
    fn new(content: &Content) -> Self {
        Self {
            ahead: ContentCursor::new(content),
            at: 0,
        }
    }

    /// Returns which kind of chunk lay where `new` lies, and the parts of chunks that lay there. `new` must not lie
    /// before the one that was asked for last. Where chunks of both kinds lay, the kind that covers more of it counts.
    /// Chunks that cannot be read any more count as nothing.
    fn look(
        &mut self,
        new: &NewChunk<'_>,
        longest_short: u64,
        reader: &mut ChunkReader,
    ) -> Result<(Formerly, Vec<ParentPart>)> {
        let (place, mut parts) = (&new.place, Vec::new());
        let (mut long, mut short) = (0, 0);
        while let Some((depth, item)) = self.ahead.peek() {
            let end = self.at + item.span();
            if self.at >= place.end {
                break;
            }
            if end > place.start && depth > 0 {
                match self.ahead.open(reader) {
                    Err(error) if error.is_loss() => self.at = end,
                    other => other?,
                }
                continue;
            }
            if let Some(slice) = item.data()
                && end > place.start
            {
                if slice.is_whole() && slice.chunk.fingerprint == new.fingerprint {
                    return Ok((Formerly::Same, parts));
                }
                let common = end.min(place.end) - self.at.max(place.start);
                let is_long = u64::from(slice.chunk.len) > longest_short;
                *(if is_long { &mut long } else { &mut short }) += common;
                parts.push((self.at, slice));
            }
            if end > place.end {
                break;
            }
            self.ahead.pass();
            self.at = end;
        }
        let formerly = match (long, short) {
            (0, 0) => Formerly::Nothing,
            (long, short) if long > short => Formerly::Long,
            _ => Formerly::Short,
        };
        Ok((formerly, parts))
    }
}
