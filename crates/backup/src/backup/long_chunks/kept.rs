//! Compares a long chunk that changed in place with the chunks that lay there, to keep what is the same.
//!
//! Bytes are compared in blocks of 4 KiB. Invariant: kept parts have the very bytes of a chunk that can be read, and
//! that this session may refer to.

use onefold_store::{ChunkReader, Session};

use super::{NewChunk, ParentPart, SamePart};
use crate::Result;

/// Block of comparison, in bytes: databases and disks change pages of this size.
const COMPARED_BYTES: usize = 4 << 10;
/// Least bytes of a part that is kept: less is not worth an item of a recipe, and the reading of a long chunk for it.
const KEPT_BYTES_MIN: usize = 64 << 10;
/// Largest number of parts of one chunk that are kept: each costs a restore as much as a chunk.
const PARTS_MAX: usize = 64;

/// Returns the parts of `new` that are the same in the parent's chunks there; `None` where they are less than half of
/// it, or too many.
pub(super) fn kept(
    new: &NewChunk<'_>,
    former: &[ParentPart],
    session: &Session,
    reader: &mut ChunkReader,
) -> Result<Option<Vec<SamePart>>> {
    let overlap = |(at, slice): &ParentPart| {
        let end = (at + u64::from(slice.len)).min(new.place.end);
        (*at).max(new.place.start)..end
    };
    let is_candidate = |place: &&ParentPart| {
        let common = overlap(place);
        common.end >= common.start + KEPT_BYTES_MIN as u64 && session.holds(&place.1.chunk)
    };
    let candidates: Vec<&ParentPart> = former.iter().filter(is_candidate).collect();
    let mut parts = Vec::new();
    for of_chunk in candidates.chunk_by(|a, b| a.1.chunk == b.1.chunk) {
        let old = match reader.read(&of_chunk[0].1.chunk) {
            Ok(chunk) => chunk,
            Err(error) if error.is_loss() => continue,
            Err(error) => return Err(error.into()),
        };
        for &place in of_chunk {
            let (common, (at, slice)) = (overlap(place), place);
            let start = (common.start - new.place.start) as usize;
            let skip = (common.start - at) as usize;
            let len = (common.end - common.start) as usize;
            let same = equal_runs(&new.bytes[start..][..len], &slice.of(&old)[skip..][..len]);
            parts.extend(same.map(|run| SamePart {
                start: start + run.start,
                slice: slice.part(skip + run.start..skip + run.end),
            }));
        }
    }
    let bytes: usize = parts.iter().map(|part| part.slice.len as usize).sum();
    let is_worth_it = bytes >= new.bytes.len() / 2 && parts.len() <= PARTS_MAX;
    Ok(is_worth_it.then_some(parts))
}

/// Returns the ranges where two byte strings of one length are the same, for long enough.
fn equal_runs(new: &[u8], old: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let blocks = new.chunks(COMPARED_BYTES).zip(old.chunks(COMPARED_BYTES));
    let equal: Vec<(bool, usize)> = blocks.map(|(new, old)| (new == old, new.len())).collect();
    let runs: Vec<_> = equal
        .chunk_by(|(a, _), (b, _)| a == b)
        .scan(0, |at, run| {
            let start = *at;
            *at += run.iter().map(|(_, len)| len).sum::<usize>();
            Some((run[0].0, start..*at))
        })
        .collect();
    runs.into_iter()
        .filter(|(is_equal, run)| *is_equal && run.len() >= KEPT_BYTES_MIN)
        .map(|(_, run)| run)
}
