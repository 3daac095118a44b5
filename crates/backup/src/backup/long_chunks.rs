//! Long chunks that are new, of a chunker that has two sizes: as they come, or cut into short ones, since the file
//! changes in place.
//!
//! A long chunk that nobody knows is one of these, looked at in this order:
//!
//! 1. *The parent has this very chunk there*: it was lost. It stays long, so that what refers to it can be read again.
//! 2. *The parent has short chunks there*: so it goes on. What has not changed of them is found, and what was lost of
//!    them comes back.
//! 3. *Some of its first short chunks are stored*: under another name, or in a snapshot that is not the parent. It is
//!    cut into short ones.
//! 4. *The parent has another long chunk there*, of the same inode: a change in place. It is cut into short ones, and
//!    from then on finely.
//! 5. Anything else is new, and stays long.
//!
//! With [`Options::force_reread`](super::Options::force_reread), 3 counts as 5: what was lost may be such a long chunk
//! of another snapshot.
//!
//! Always holds: nothing but the sizes of chunks hangs on it. RAM: a recipe chunk a layer, and a reader with small
//! caches.

use std::ops::Range;

use onefold_chunk::{Chunker, Fingerprint};
use onefold_store::{ChunkReader, ChunkWriter, Fingerprinter, Session};

use super::segment::Segment;
use super::source::pieces;
use super::unchanged::Before;
use crate::content::Ahead;
use crate::{Content, Entry, Result};

/// Of a long chunk that nobody knows, so many bytes are cut into short ones to see whether these are known,
const LOOK_BYTES: usize = 128 << 10;
/// and so many of those are looked up.
const LOOKED_UP: usize = 8;

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
            at: 0,
        }
    }

    /// A file begins, of which the parent says this; or begins anew.
    pub fn begin(&mut self, now: &Entry, before: Option<&Before>) {
        self.former = before.map(|before| Former::new(&before.entry.content));
        self.is_same_inode = before.is_some_and(|before| {
            (before.entry.device, before.entry.inode) == (now.device, now.inode)
        });
        self.at = 0;
    }

    /// A hole of the current file.
    pub fn pass_hole(&mut self, len: u64) {
        self.at += len;
    }

    /// The segment with its long chunks as they are to be stored.
    pub fn settle(
        &mut self,
        mut segment: Segment,
        writer: &mut ChunkWriter,
        fingerprinter: &Fingerprinter,
    ) -> Result<Segment> {
        let start = self.at;
        self.at += segment.bytes();
        let longest = self.chunker.ahead();
        let is_long = |(_, len): &(Fingerprint, u32)| *len as usize > longest;
        let Some(held) = segment.held.as_ref() else {
            return Ok(segment);
        };
        if !segment.chunks.iter().any(is_long) || self.chunker.short().is_none() {
            return Ok(segment);
        }
        let (mut at, mut chunks) = (0, Vec::with_capacity(segment.chunks.len()));
        for chunk in segment.chunks {
            let (fingerprint, len) = chunk;
            let bytes = &held[segment.start + at..][..len as usize];
            let place = start + at as u64..start + (at + bytes.len()) as u64;
            at += bytes.len();
            let stays = !is_long(&chunk)
                || writer.knows_any(&[fingerprint])?
                || self.stays_long((fingerprint, place), bytes, writer, fingerprinter)?;
            if stays {
                chunks.push(chunk);
                continue;
            }
            let lengths = self.short_lengths(bytes, true);
            let found = fingerprinter.fingerprints(pieces(bytes, lengths.iter().copied()));
            chunks.extend(found.into_iter().zip(lengths));
        }
        segment.chunks = chunks;
        Ok(segment)
    }

    /// Whether a long chunk that nobody knows stays one.
    fn stays_long(
        &mut self,
        (fingerprint, place): (Fingerprint, Range<u64>),
        bytes: &[u8],
        writer: &mut ChunkWriter,
        fingerprinter: &Fingerprinter,
    ) -> Result<bool> {
        let formerly = self.formerly(&fingerprint, place)?;
        match formerly {
            Formerly::Same => return Ok(true),
            Formerly::Short => return Ok(false),
            Formerly::Long | Formerly::Nothing => {}
        }
        if self.finds_elsewhere {
            // Where its first cut lies depends on what is before it.
            let look = &bytes[..bytes.len().min(LOOK_BYTES)];
            let lengths = self.short_lengths(look, false);
            let found = fingerprinter.fingerprints(pieces(look, lengths.into_iter()));
            let some: Vec<_> = found.into_iter().skip(1).take(LOOKED_UP).collect();
            if writer.knows_any(&some)? {
                return Ok(false);
            }
        }
        Ok(!(formerly == Formerly::Long && self.is_same_inode))
    }

    fn short_lengths(&mut self, bytes: &[u8], ends: bool) -> Vec<u32> {
        let mut lengths = Vec::new();
        if let Some(short) = self.chunker.short() {
            short.cuts(bytes, ends, &mut |len| lengths.push(len as u32));
        }
        lengths
    }

    fn formerly(&mut self, fingerprint: &Fingerprint, place: Range<u64>) -> Result<Formerly> {
        let longest = self.chunker.ahead() as u64;
        let Some(former) = &mut self.former else {
            return Ok(Formerly::Nothing);
        };
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(self.session.small_reader()?),
        };
        former.look(fingerprint, place, longest, reader)
    }
}

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

    /// What was at `place`, which does not lie before the one that was asked for last; where chunks of both kinds were,
    /// those that had more of it. What cannot be read any more was nothing.
    fn look(
        &mut self,
        fingerprint: &Fingerprint,
        place: Range<u64>,
        longest_short: u64,
        reader: &mut ChunkReader,
    ) -> Result<Formerly> {
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
            if let Some(chunk) = item.chunk()
                && end > place.start
            {
                if chunk.fingerprint == *fingerprint {
                    return Ok(Formerly::Same);
                }
                let common = end.min(place.end) - self.at.max(place.start);
                let is_long = item.span() > longest_short;
                *(if is_long { &mut long } else { &mut short }) += common;
            }
            if end > place.end {
                break;
            }
            self.ahead.pass();
            self.at = end;
        }
        Ok(match (long, short) {
            (0, 0) => Formerly::Nothing,
            (long, short) if long > short => Formerly::Long,
            _ => Formerly::Short,
        })
    }
}
