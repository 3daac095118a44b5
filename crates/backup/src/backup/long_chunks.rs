//! Long chunks that are new, of a chunker that has two sizes: as they come, or cut into short ones, since the file
//! changes in place.
//!
//! A long chunk that nobody knows is one of these, looked at in this order:
//!
//! 1. *The parent has this very chunk there*: it was lost. It stays long, so that what refers to it can be read again.
//! 2. *The parent has short chunks there*: so it goes on. What has not changed of them is found, and what was lost of
//!    them comes back.
//! 3. *The parent has another long chunk there*, or parts of one, of the same inode: a change in place. The two are
//!    compared ([`kept`]). What is the same is kept as a part of the old chunk, and what is not is cut into short ones.
//!    Where that is more than half, or all over, it is 4, and then all of it is cut into short ones.
//! 4. *Some of its first short chunks are stored*: under another name, or in a snapshot that is not the parent. It is
//!    cut into short ones.
//! 5. Anything else is new, and stays long.
//!
//! With [`Options::force_reread`](super::Options::force_reread), 4 counts as 5: what was lost may be such a long chunk
//! of another snapshot.
//!
//! Always holds: nothing but the sizes of chunks hangs on it. RAM: a recipe chunk a layer, a reader with small caches,
//! and a long chunk. I/O: a long chunk that changed is read from the repository; of a file of which several in a row
//! were to no avail, no more are.

mod kept;

use std::ops::Range;

use onefold_chunk::{Chunker, Fingerprint};
use onefold_store::{ChunkReader, ChunkWriter, Fingerprinter, Session};

use super::segment::Segment;
use super::source::pieces;
use super::unchanged::Before;
use crate::content::Ahead;
use crate::{Content, Entry, Result, Slice};

/// Of a long chunk that nobody knows, so many bytes are cut into short ones to see whether these are known,
const LOOK_BYTES: usize = 128 << 10;
/// and so many of those are looked up.
const LOOKED_UP: usize = 8;
/// After so many comparisons in vain, one after the other, the file is another one: none is read any more.
const IN_VAIN_MAX: u32 = 2;

/// Decides of each new long chunk whether it stays long or is cut into short ones.
pub struct LongChunks<'a> {
    chunker: Box<dyn Chunker>,
    session: &'a Session,
    /// Made when it is first needed.
    reader: Option<ChunkReader>,
    /// Nothing was asked to be read again that looks unchanged.
    finds_elsewhere: bool,
    /// What the parent has of the current file.
    former: Option<Former>,
    is_same_inode: bool,
    /// So many long chunks of the current file were compared in a row of which not enough could be kept.
    in_vain: u32,
    /// Where the current file's next chunk begins.
    at: u64,
}

impl<'a> LongChunks<'a> {
    /// `chunker` is one like those that cut.
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

    /// A file begins, of which the parent says this; or begins anew.
    pub fn begin(&mut self, now: &Entry, before: Option<&Before>) {
        self.former = before.map(|before| Former::new(&before.entry.content));
        self.is_same_inode = before.is_some_and(|before| {
            (before.entry.device, before.entry.inode) == (now.device, now.inode)
        });
        (self.at, self.in_vain) = (0, 0);
    }

    /// A hole of the current file.
    pub fn pass_hole(&mut self, len: u64) {
        self.at += len;
    }

    /// The chunks of a segment, the long ones as they are to be stored.
    pub fn settle(
        &mut self,
        segment: &Segment,
        writer: &mut ChunkWriter,
        fingerprinter: &Fingerprinter,
    ) -> Result<Vec<Piece>> {
        let mut place = self.at;
        self.at += segment.bytes();
        let longest = self.chunker.ahead();
        let is_long = |len: u32| len as usize > longest;
        let has_long = segment.chunks.iter().any(|(_, len)| is_long(*len));
        let whole = |&(fingerprint, len): &(Fingerprint, u32)| Piece::Chunk(fingerprint, len);
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
                    Fate::Long => settled.push(whole(chunk)),
                    Fate::Short => settled.extend(self.cut_short(bytes, fingerprinter)),
                    Fate::Kept(parts) => {
                        settled.extend(self.with_kept(bytes, parts, fingerprinter));
                    }
                }
            }
            place += bytes.len() as u64;
        }
        Ok(settled)
    }

    /// What becomes of a long chunk that nobody knows.
    fn fate(
        &mut self,
        new: &NewChunk<'_>,
        writer: &mut ChunkWriter,
        fingerprinter: &Fingerprinter,
    ) -> Result<Fate> {
        let (formerly, parts) = self.formerly(new)?;
        match formerly {
            Formerly::Same => return Ok(Fate::Long),
            Formerly::Short => return Ok(Fate::Short),
            Formerly::Long | Formerly::Nothing => {}
        }
        let is_changed = formerly == Formerly::Long && self.is_same_inode;
        if is_changed
            && self.in_vain < IN_VAIN_MAX
            && let Some(reader) = &mut self.reader
        {
            if let Some(kept) = kept::kept(new, &parts, self.session, reader)? {
                self.in_vain = 0;
                return Ok(Fate::Kept(kept));
            }
            self.in_vain += 1;
        }
        let bytes = new.bytes;
        if self.finds_elsewhere {
            // Where its first cut lies depends on what is before it.
            let look = &bytes[..bytes.len().min(LOOK_BYTES)];
            let lengths = self.short_lengths(look, false);
            let found = fingerprinter.fingerprints(pieces(look, lengths.into_iter()));
            let some: Vec<_> = found.into_iter().skip(1).take(LOOKED_UP).collect();
            if writer.knows_any(&some)? {
                return Ok(Fate::Short);
            }
        }
        Ok(match is_changed {
            true => Fate::Short,
            false => Fate::Long,
        })
    }

    /// Short chunks of all that is not kept, and between them what is.
    fn with_kept(
        &mut self,
        bytes: &[u8],
        parts: Vec<Part>,
        fingerprinter: &Fingerprinter,
    ) -> Vec<Piece> {
        let (mut settled, mut at) = (Vec::new(), 0);
        for Part { start, slice } in parts {
            settled.extend(self.cut_short(&bytes[at..start], fingerprinter));
            settled.push(Piece::Kept(slice));
            at = start + slice.len as usize;
        }
        settled.extend(self.cut_short(&bytes[at..], fingerprinter));
        settled
    }

    fn cut_short(&mut self, bytes: &[u8], fingerprinter: &Fingerprinter) -> Vec<Piece> {
        let lengths = self.short_lengths(bytes, true);
        let found = fingerprinter.fingerprints(pieces(bytes, lengths.iter().copied()));
        let chunks = found.into_iter().zip(lengths);
        chunks.map(|(name, len)| Piece::Chunk(name, len)).collect()
    }

    /// The session that all is stored in.
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

    /// What was where the chunk is, and the parts of chunks that were there.
    fn formerly(&mut self, new: &NewChunk<'_>) -> Result<(Formerly, Vec<Place>)> {
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

/// What is to be stored for some bytes of a file.
pub enum Piece {
    /// A chunk of so many bytes.
    Chunk(Fingerprint, u32),
    /// Nothing: it is a part of a chunk that is stored.
    Kept(Slice),
}

impl Piece {
    /// Bytes of the file.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Chunk(_, len) | Self::Kept(Slice { len, .. }) => *len as usize,
        }
    }
}

/// A long chunk that nobody knows.
struct NewChunk<'a> {
    fingerprint: Fingerprint,
    /// In the file.
    place: Range<u64>,
    bytes: &'a [u8],
}

/// What becomes of it.
enum Fate {
    Long,
    Short,
    /// These parts, in order, are parts of chunks that are stored.
    Kept(Vec<Part>),
}

/// Bytes from `start` on, of a new chunk, that are those of `slice`.
struct Part {
    start: usize,
    slice: Slice,
}

/// What the parent has of a file from this offset on.
type Place = (u64, Slice);

/// What was where a chunk is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Formerly {
    Same,
    Long,
    Short,
    Nothing,
}

/// A content as it was, gone through once.
struct Former {
    ahead: Ahead,
    /// Where the next item begins.
    at: u64,
}

impl Former {
    fn new(content: &Content) -> Self {
        Self {
            ahead: Ahead::new(content),
            at: 0,
        }
    }

    /// What was where `new` is, which does not lie before the one that was asked for last; where chunks of both kinds
    /// were, those that had more of it; and what of them was there. What cannot be read any more was nothing.
    fn look(
        &mut self,
        new: &NewChunk<'_>,
        longest_short: u64,
        reader: &mut ChunkReader,
    ) -> Result<(Formerly, Vec<Place>)> {
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
