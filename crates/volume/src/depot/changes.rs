//! Reading a snapshot for a backup: all of it, or only stretches that differ from an earlier snapshot.

use std::ops::Range;
use std::sync::Arc;

use super::Depot;
use crate::{BlockDevice, Buffer, ChangeKind, ChunkRead, ChunkReader, Error, HeadId, Lbn, Result};

/// Bytes that are read together.
const BYTES_AT_ONCE: usize = 1 << 20;

/// The next bytes of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// This many bytes are those of the base at the same place.
    Same(u64),
    /// This many bytes are zeros that take no space.
    Hole(u64),
    /// This many bytes follow in parts.
    DataFollows(u64),
    /// Some of these bytes.
    Data(&'a [u8]),
}

/// Two snapshots that are compared. Neither can be deleted meanwhile.
pub struct Comparison {
    reader: Arc<dyn ChunkReader>,
    head: HeadId,
    base: HeadId,
    chunk_bytes: u64,
    base_bytes: u64,
    _in_use: [Arc<dyn BlockDevice>; 2],
}

impl Comparison {
    /// Calls `visit` for each stretch of `range` (bytes), in order and without gaps, with whether its bytes may differ
    /// from those of the base, until it gives `false`.
    ///
    /// # Errors
    /// The metadata cannot be read.
    pub fn visit(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, bool) -> bool,
    ) -> Result<()> {
        let chunk = self.chunk_bytes;
        let lbns = range.start / chunk..range.end.div_ceil(chunk);
        let base = (self.base, self.base_bytes / chunk);
        changes(
            &*self.reader,
            Some(base),
            self.head,
            lbns,
            &mut |lbns, kind| {
                let bytes =
                    (lbns.start * chunk).max(range.start)..(lbns.end * chunk).min(range.end);
                visit(bytes, kind != ChangeKind::Same)
            },
        )
    }
}

/// Tells how `head` differs from a base that has so many LBNs, as the reader does. Where both are unmapped behind the
/// end of the base, the head has a hole: there is no byte of the base that it could be the same as.
fn changes(
    reader: &dyn ChunkReader,
    base: Option<(HeadId, u64)>,
    head: HeadId,
    lbns: Range<u64>,
    visit: &mut dyn FnMut(Range<u64>, ChangeKind) -> bool,
) -> Result<()> {
    let base_end = base.map_or(0, |(_, lbns)| lbns);
    let base = base.map(|(base, _)| base);
    reader.changes(base, head, lbns, &mut |lbns, kind| {
        if kind != ChangeKind::Same || lbns.end <= base_end {
            return visit(lbns, kind);
        }
        let end = base_end.max(lbns.start);
        let goes_on = lbns.start == end || visit(lbns.start..end, ChangeKind::Same);
        goes_on && visit(end..lbns.end, ChangeKind::Hole)
    })
}

impl Depot {
    /// Compares two snapshots by their names; `None` where one of them is not there, or is a volume.
    pub fn compare(&self, head: &str, base: &str) -> Option<Comparison> {
        let heads = self.heads();
        let snapshot = |name: &str| {
            let mut heads = heads.iter();
            heads.find(|head| head.name == name && !head.is_writable)
        };
        let (head, base) = (snapshot(head)?, snapshot(base)?);
        Some(Comparison {
            reader: self.front.reader(),
            head: head.id,
            base: base.id,
            chunk_bytes: u64::from(self.config.chunk_bytes),
            base_bytes: base.bytes,
            _in_use: [self.device(head.id)?, self.device(base.id)?],
        })
    }

    /// Gives all bytes of a snapshot, in order; where `base` has the same, they are not read. Neither can be deleted
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`]: one of them is not there. A device failed, or something is damaged; errors of `take`.
    pub fn changes(
        &self,
        head: HeadId,
        base: Option<HeadId>,
        take: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let missing = |head: HeadId| Error::Invalid {
            what: format!("there is no snapshot {}", head.0),
        };
        let device = self.device(head).ok_or_else(|| missing(head))?;
        let compared = match base {
            Some(base) => Some(self.device(base).ok_or_else(|| missing(base))?),
            None => None,
        };
        let chunk_bytes = u64::from(self.config.chunk_bytes);
        let lengths = (base.zip(compared.as_ref()))
            .map(|(base, device)| (base, device.geometry().bytes / chunk_bytes));
        let lbns = 0..device.geometry().bytes / chunk_bytes;
        let reader = self.front.reader();
        let mut reading = StretchReader {
            reader: &*reader,
            head,
            chunk_bytes,
            buffer: Buffer::zeroed(BYTES_AT_ONCE),
        };
        let mut failure = Ok(());
        changes(&*reader, lengths, head, lbns, &mut |lbns, kind| {
            let bytes = (lbns.end - lbns.start) * chunk_bytes;
            failure = match kind {
                ChangeKind::Same => take(Piece::Same(bytes)),
                ChangeKind::Hole => take(Piece::Hole(bytes)),
                ChangeKind::Data => {
                    take(Piece::DataFollows(bytes)).and_then(|()| reading.read(lbns, take))
                }
            };
            failure.is_ok()
        })?;
        failure
    }
}

/// Reads stretches of one snapshot.
struct StretchReader<'a> {
    reader: &'a dyn ChunkReader,
    head: HeadId,
    chunk_bytes: u64,
    buffer: Buffer,
}

impl StretchReader<'_> {
    /// Gives the bytes of a stretch, some at a time.
    fn read(
        &mut self,
        lbns: Range<u64>,
        take: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let at_once = BYTES_AT_ONCE as u64 / self.chunk_bytes;
        for first in lbns.clone().step_by(at_once as usize) {
            let chunks = (lbns.end - first).min(at_once);
            let bytes = (chunks * self.chunk_bytes) as usize;
            let mut reads = [ChunkRead {
                lbn: Lbn(first),
                buffer: &mut self.buffer[..bytes],
            }];
            self.reader.read(self.head, &mut reads)?;
            take(Piece::Data(&self.buffer[..bytes]))?;
        }
        Ok(())
    }
}
