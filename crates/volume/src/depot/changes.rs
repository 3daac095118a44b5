//! Reading a snapshot for a backup: all of it, or only stretches that differ from an earlier snapshot.

use std::ops::Range;

use super::Depot;
use crate::{Buffer, ChangeKind, ChunkRead, ChunkReader, Error, HeadId, Lbn, Result};

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

impl Depot {
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
        // A smaller base holds nothing behind its end: what both lack there is no byte of the base.
        let compared_end = compared
            .as_ref()
            .map_or(0, |base| base.geometry().bytes / chunk_bytes);
        let lbns = 0..device.geometry().bytes / chunk_bytes;
        let reader = self.front.reader();
        let mut reading = StretchReader {
            reader: &*reader,
            head,
            chunk_bytes,
            buffer: Buffer::zeroed(BYTES_AT_ONCE),
        };
        let mut failure = Ok(());
        reader.changes(base, head, lbns, &mut |lbns, kind| {
            let bytes = (lbns.end - lbns.start) * chunk_bytes;
            failure = match kind {
                ChangeKind::Same => {
                    let shared = lbns.end.min(compared_end).saturating_sub(lbns.start);
                    let shared = shared * chunk_bytes;
                    [Piece::Same(shared), Piece::Hole(bytes - shared)]
                        .into_iter()
                        .filter(|piece| !matches!(piece, Piece::Same(0) | Piece::Hole(0)))
                        .try_for_each(&mut *take)
                }
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
